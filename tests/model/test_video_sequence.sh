#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The video trainers with ranks that split the tokens of their samples (--sequence): the losses of
# one rank, with frame masks, text that is dropped, adapters, several groups, micro-steps, all
# stages, tiers and sizes that do not divide; resumed by another split; and what they refuse.
. "${srcdir:-.}/tests/model/programs.sh"
both="--device cpu --threads 1 --warmup 2 --dtype fp32"
stdit="${STDIT_TRAIN:-./stdit-train} $both --hidden 32 --heads 4 --depth 1 --caption-channels 8
    --text-tokens 4 --sample-steps 0 --mask-stage 1"
cogvideo="${COGVIDEO_TRAIN:-./cogvideo-train} $both --random"
wan="${WAN_TRAIN:-./wan-train} $both --random"

# all N NAME COMMAND...: the log of rank 0 is NAME.
all() {
    rm -f "$work/$2"
    ranks "$@" --log "$work/$2" || fail "$*: $(tail -n 2 "$work/$2.0")"
}

losses() {
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$1"
}

# near A B N: the losses and norms of two logs of N steps differ by no more than 4e-6 of them.
near() {
    losses "$work/$1" >"$work/a"
    losses "$work/$2" >"$work/b"
    paste "$work/a" "$work/b" | awk -v n="$3" '
        function far(x, y) { return x - y > 4e-6 * y || y - x > 4e-6 * y }
        { if ($1 != $4 || far($2, $5) || far($3, $6)) bad = 1 }
        END { exit bad || NR != n }' || fail "$2: $(paste "$work/a" "$work/b")"
}

same() {
    losses "$work/$1" >"$work/a"
    losses "$work/$2" >"$work/b"
    cmp -s "$work/a" "$work/b" || fail "$2 has not the bits of $1: $(paste "$work/a" "$work/b")"
}

# compare COMMAND...: one rank, and two, and two groups of two, and four, of as many samples.
compare() {
    rm -f "$work/one"
    runs "memory" "$@" --steps 3 --batch 4 --log "$work/one"
    all 2 two "$@" --steps 3 --batch 4 --sequence 2 --zero 1
    near one two 3
    all 4 groups "$@" --steps 3 --batch 2 --sequence 2 --zero 3 --micro-batch 1
    near one groups 3
    all 4 four "$@" --steps 3 --batch 4 --sequence 4 --zero 2
    near one four 3
}

# ---- frames and places ---------------------------------------------------------------------------------

compare $stdit --latent 4x4x8
compare $stdit --latent 3x6x6 # frames do not divide, and of nine places one is left
all 2 again $stdit --latent 3x6x6 --steps 3 --batch 4 --sequence 2 --zero 3
near one again 3
grep -q "sequence  *2  ranks split the tokens" "$work/again.0" || fail "the plan table: $(cat "$work/again.0")"
grep -q "memory" "$work/again.1" && fail "rank 1 speaks: $(head -n 1 "$work/again.1")"

# the smallest budget, and tiers below it, with the bits of no budget
part="$stdit --latent 4x4x8 --batch 2 --steps 3 --sequence 2 --zero 3"
all 2 free $part
ranks 2 refused $part --vram 16K && fail "16K is enough"
least=$(sed -n 's/.*needs at least \([0-9]*\) bytes.*/\1/p' "$work/refused.0")
all 2 tight $part --vram "$least"
same free tight
ranks 2 refused $part --vram 16K --host 16M && fail "16K is enough with a host tier"
below=$(sed -n 's/.*needs at least \([0-9]*\) bytes.*/\1/p' "$work/refused.0")
all 2 host $part --vram "$below" --host 16M
same free host
mkdir "$work/disk"
all 2 nvme $part --vram "$below" --host 1M --nvme "$work/disk:16M"
same free nvme

# another split continues
whole="$stdit --latent 4x4x8"
runs "memory" $whole --batch 4 --steps 4 --log "$work/whole"
all 4 first $whole --batch 2 --steps 2 --sequence 2 --zero 3 --save-state "$work/state"
all 4 rest $whole --batch 4 --steps 4 --sequence 4 --zero 1 --resume "$work/state"
grep -q "changed: sequence was 2, is 4" "$work/rest.0" || fail "no word of another split: $(cat "$work/rest.0")"
cat "$work/rest" >>"$work/first"
near whole first 4

# clips of several sizes: pictures, 18 frames
echo '{"144p": {"1": [1.0, 4], "17": [1.0, 2]}}' >"$work/table.json"
awk 'BEGIN {
    print "path,text,num_frames,height,width"
    for (i = 0; i < 16; i++)
        printf "c%d.rgb,x,%d,%d,%d\n", i, i % 2 ? 18 : 1, 144, i % 4 < 2 ? 256 : 192
}' >"$work/clips.csv"
sizes="$stdit --buckets $work/table.json --latent $work/clips.csv --steps 4"
rm -f "$work/one"
runs "memory" $sizes --log "$work/one"
all 2 two $sizes --sequence 2 --zero 3
near one two 4

# ---- text and video as one sequence ---------------------------------------------------------------------

# config NAME HEADS: a tiny model of that kind.
config() {
    mkdir "$work/$1"
    sed "s/\"num_attention_heads\": 2/\"num_attention_heads\": $2/" "${srcdir:-.}/tests/$3/config.json" \
        >"$work/$1/config.json"
}
config 2b 4 cogvideo/2b
config 5b 4 cogvideo/5b
compare $cogvideo --model "$work/5b" --frames 9 --height 64 --width 96
compare $cogvideo --model "$work/2b" --frames 9 --height 48 --width 48 # 27 tokens
compare $cogvideo --model "$work/5b" --frames 9 --height 48 --width 48 --lora-rank 2 --text-drop .5

# two heads on four ranks
small="$cogvideo --model ${srcdir:-.}/tests/cogvideo/5b --frames 9 --height 64 --width 96 --batch 1 --steps 3"
rm -f "$work/one"
runs "memory" $small --log "$work/one"
all 4 four $small --sequence 4
near one four 3

# the loss on other clips, and features of a file
clips=${srcdir:-.}/tests/cogvideo/5b
read="${COGVIDEO_TRAIN:-./cogvideo-train} $both --model $clips --features $clips/step.safetensors --batch 2 --steps 3
    --val $clips/step.safetensors --val-every 3 --snr-shift 1"
rm -f "$work/one"
runs "memory" $read --log "$work/one"
all 2 two $read --sequence 2
near one two 3
for log in one two; do
    sed -n 's/.*"validation_loss": \([^,]*\),.*/1 \1 1/p' "$work/$log" | tail -n 1 >"$work/$log.val"
done
paste "$work/one.val" "$work/two.val" | awk '{ d = $2 / $5 - 1; exit !(d < 2e-6 && d > -2e-6) }' ||
    fail "validation: $(cat "$work/one.val" "$work/two.val")"

# ---- cross attention to the text -------------------------------------------------------------------------

config t2v 4 wan/t2v
compare $wan --model "$work/t2v" --frames 9 --height 32 --width 32
compare $wan --model "$work/t2v" --frames 9 --height 48 --width 48 --lora-rank 2 --loss-weights bell # 27 tokens
all 2 half $wan --model "$work/t2v" --frames 9 --height 48 --width 48 --sequence 2 --batch 1 --steps 2 --dtype bf16

# ---- plans of jobs that do not exist ----------------------------------------------------------------------

runs "sequence" $stdit --latent 4x4x8 --plan-only --ranks 4 --sequence 2 --batch 2 --graph-out "$work/graph"
grep -q "all_to_all 2 " "$work/graph" || fail "no exchange in the graph"
./ckpt plan --graph "$work/graph" --machine h200-141 --world 8 >"$work/world" || fail "ckpt plan --world 8: $(cat "$work/world")"
grep -q "each 2 ranks split the tokens" "$work/world" || fail "$(cat "$work/world")"

# ---- refused ------------------------------------------------------------------------------------------------

# refused NAME WORDS COMMAND...: by 4 ranks, each with the words
refused() {
    refusal=$1
    words=$2
    shift 2
    ranks 4 "$refusal" "$@" && fail "$* is not refused"
    for r in 0 1 2 3; do
        grep -q -e "$words" "$work/$refusal.$r" || fail "$*: rank $r: $(tail -n 1 "$work/$refusal.$r")"
    done
}
refused few "of 4 tokens does not divide into 4 equal parts of two or more" $stdit --latent 2x4x4 --steps 1 --sequence 4
refused groups "4 ranks do not divide into groups of 3" $stdit --latent 2x4x4 --steps 1 --sequence 3
refused frames "each frame has its own modulation" $wan --model "${srcdir:-.}/tests/wan/ti2v" --frames 9 \
    --height 32 --width 32 --steps 1 --sequence 4 --first-frame .5
refused dropout "random numbers are drawn for whole samples" $wan --model "$work/t2v" --frames 9 --height 32 \
    --width 32 --steps 1 --sequence 4 --lora-rank 2 --lora-dropout .1
echo dealt | cat >"$work/table"
refused balance "deals clips to single ranks" $stdit --latent 4x4x8 --steps 1 --sequence 4 --buckets "$work/table" \
    --balance tokens
finish
