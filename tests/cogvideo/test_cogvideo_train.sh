#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cogvideo-train as a user or a script runs it: the step of diffusers in float64, for all weights
# and for adapters; the budget changes no number; adapters are saved, loaded and merged, also above
# weights in codes; a run resumes; two ranks; encoded videos and prompts; wrong input.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${COGVIDEO_TRAIN:-./cogvideo-train}
compare=${COMPARE:-./tests/model/compare}
models=$root/tests/cogvideo
device="--device ${CKPT_DEVICE:-cpu} --threads 1 --dtype fp32"

losses() {
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$1"
}

# same NAME: the losses and weights of that run are those of the one without a budget.
same() {
    losses "$work/free.log" >"$work/a"
    losses "$work/$1.log" >"$work/b"
    [ -s "$work/a" ] || fail "$1: no losses"
    cmp -s "$work/a" "$work/b" || fail "$1: other losses: $(cat "$work/a" "$work/b")"
    cmp -s "$work/free" "$work/$1" || fail "$1: other weights"
}

# ---- against diffusers ----------------------------------------------------------------------------

for kind in 2b 5b 5b-i2v 15 15-i2v; do
    here=$models/$kind shift=1 seen=
    [ $kind = 2b ] && shift=3
    case $kind in *i2v) seen="--image-drop 0" ;; esac
    "$train" $device --model "$here" --snr-shift $shift --features "$here/step.safetensors" --batch 2 \
        --keep-order $seen --steps 1 --lr 0 --dump "$work/dump" >"$work/out" 2>&1 || fail "$kind: $(cat "$work/out")"
    "$compare" "$here/expected.safetensors" "$work/dump" 1e-5 1e-3 >"$work/out" 2>&1 ||
        fail "$kind: $(cat "$work/out")"
done

# Adapters that diffusers would load, in the metadata too.
here=$models/5b
"$train" $device --model "$here" --snr-shift 1 --features "$here/step.safetensors" --batch 2 --keep-order --steps 1 \
    --lr 0 --lora-rank 3 --lora-alpha 6 --load "$here/adapters.safetensors" --dump "$work/dump" >"$work/out" 2>&1 ||
    fail "adapters: $(cat "$work/out")"
grep -q "scale" "$work/out" && fail "adapters: $(cat "$work/out")"
"$compare" "$here/adapters_expected.safetensors" "$work/dump" 1e-5 1e-3 >"$work/out" 2>&1 ||
    fail "adapters: $(cat "$work/out")"

# ---- the budget changes no number ------------------------------------------------------------------

small="$device --model $models/5b --snr-shift 1 --batch 4 --steps 4 --warmup 0 --lr 1e-3
    --data random --frames 5 --height 48 --width 80"
lora="--lora-rank 3 --lora-alpha 6"
all() {
    "$train" $small "$@" >"$work/out" 2>"$work/err"
}

# same_under_budgets OPTION...: the least memory, and with both tiers below it.
same_under_budgets() {
    rm -f "$work"/*.log "$work/free"
    all "$@" --log "$work/free.log" --save "$work/free" || fail "$*: $(cat "$work/err")"
    refuses 1 "needs at least" "$train" $small "$@" --vram 16K
    all "$@" --vram "$(needed)" --log "$work/tight.log" --save "$work/tight" || fail "$*: $(cat "$work/err")"
    same tight
    refuses 1 "needs at least" "$train" $small "$@" --vram 16K --host 32M
    all "$@" --vram "$(needed)" --host 32M --log "$work/host.log" --save "$work/host" ||
        fail "$*: $(cat "$work/err")"
    same host
}

same_under_budgets --dtype fp32
same_under_budgets --dtype bf16 --grad-dtype bf16 --ema-decay 0.9 --optimizer lion
same_under_budgets --dtype bf16 $lora
refuses 1 "needs at least" "$train" $small --dtype bf16 $lora --vram 16K --host 400K --nvme "$work:64M"
all --dtype bf16 $lora --vram "$(needed)" --host 400K --nvme "$work:64M" --log "$work/nvme.log" \
    --save "$work/nvme" || fail "--nvme: $(cat "$work/err")"
same nvme

same_under_budgets --dtype bf16 $lora --frozen nf4 --state 8bit

# One sample, one latent frame, in every kind that has no table for another size.
for kind in 2b 5b; do
    runs "memory:" "$train" $device --model "$models/$kind" --random --data random --frames 1 --height 32 \
        --width 48 --steps 2 --vram 4M
done
runs "memory:" "$train" $device --model "$models/15-i2v" --random --data random --frames 1 --height 32 \
    --width 32 --steps 2 --lora-rank 2 --lora-targets to_k,ff.net.2
runs "2 samples" "$train" $device --model "$models/5b-i2v" --snr-shift 1 --text-drop 0.5 --steps 2 \
    --features "$models/5b-i2v/step.safetensors"

# ---- adapters -------------------------------------------------------------------------------------

all $lora --save "$work/adapters" --log "$work/first.log" || fail "adapters: $(cat "$work/err")"
for layer in to_q to_k to_v to_out.0; do
    for name in lora_A lora_B; do
        grep -aq "\"transformer.transformer_blocks.1.attn1.$layer.$name.weight\"" "$work/adapters" ||
            fail "no $layer.$name in the file of adapters"
    done
done
grep -aqF '\"transformer.lora_alpha\": 6,' "$work/adapters" || fail "no alpha in the file of adapters"
grep -aqF '\"transformer.r\": 3,' "$work/adapters" || fail "no rank in the file of adapters"
grep -aq 'norm1\|to_q.weight' "$work/adapters" && fail "the file of adapters has more"
look="--batch 4 --steps 1 --lr 0"
rm -f "$work"/*.log
all $lora $look --load "$work/adapters" --log "$work/a.log" --lora-merge "$work/merged" ||
    fail "adapters back: $(cat "$work/err")"
all $look --load "$work/merged" --log "$work/b.log" || fail "merged: $(cat "$work/err")"
all $look --log "$work/c.log" || fail "without: $(cat "$work/err")"
losses "$work/a.log" | cut -d' ' -f2 >"$work/a"
losses "$work/b.log" | cut -d' ' -f2 >"$work/b"
losses "$work/c.log" | cut -d' ' -f2 >"$work/c"
paste "$work/a" "$work/b" "$work/c" | awk '
    { near = $1 - $2; far = $1 - $3; if (near < 0) near = -near; if (far < 0) far = -far
      if (!(near < 2e-6 * $1 && far > 1e-4 * $1)) exit 1 }' ||
    fail "merged weights: $(paste "$work/a" "$work/b" "$work/c")"
runs "weights with adapters" "$train" $small $lora --load "$work/adapters" --steps 0 --lora-merge "$work/again"
cmp -s "$work/merged" "$work/again" || fail "merging without a step gives other weights"
runs "layers, rank 3, alpha 6" "$train" $small --load "$work/adapters" --steps 1

# Below adapters in codes: merged weights are what the codes stand for, and what adapters add.
rm -f "$work"/*.log
all $lora $look --load "$work/adapters" --frozen nf4 --log "$work/a.log" --lora-merge "$work/merged" ||
    fail "--frozen: $(cat "$work/err")"
grep -q "in codes .* 4 frozen weights in nf4" "$work/out" || fail "--frozen: $(cat "$work/out")"
all $look --load "$work/merged" --log "$work/b.log" || fail "--frozen, merged: $(cat "$work/err")"
losses "$work/a.log" | cut -d' ' -f2 >"$work/a"
losses "$work/b.log" | cut -d' ' -f2 >"$work/b"
paste "$work/a" "$work/b" "$work/c" | awk '
    { near = $1 - $2; far = $1 - $3; if (near < 0) near = -near; if (far < 0) far = -far
      if (!(near < 2e-6 * $1 && far > 1e-4 * $1)) exit 1 }' ||
    fail "--frozen, merged weights: $(paste "$work/a" "$work/b" "$work/c")"

# ---- going on, and two ranks ------------------------------------------------------------------------

rm -f "$work"/*.log
all $lora --log "$work/free.log" --save "$work/free" || fail "$(cat "$work/err")"
all $lora --steps 2 --log "$work/first.log" --save-state "$work/state" || fail "$(cat "$work/err")"
all $lora --log "$work/rest.log" --resume "$work/state" --save "$work/both" || fail "$(cat "$work/err")"
cat "$work/first.log" "$work/rest.log" >"$work/both.log"
same both
mkdir "$work/no-model"
refuses 2 "no-model: has no config.json" "$train" $small --model "$work/no-model"
refuses 1 "lora-rank" "$train" $small --lora-rank 4 --resume "$work/state"
# The state leaves out the weights below, which are those of --model.
grep -q "value/transformer_blocks.0.attn1.to_q.lora_A.weight\|value/transformer.*lora_A" "$work/state" || fail "no adapters in the state"
grep -q '"value/transformer_blocks.0.attn1.to_q.weight"' "$work/state" && fail "frozen weights in the state"
refuses 1 "was trained on other weights: '.*' is not the one that its run read from --model " "$train" $small $lora \
    --resume "$work/state" --load "$work/merged"
refuses 1 "leaves out the values of .* frozen weights, as of '.*', which came from --model " "$train" $small $lora --random \
    --resume "$work/state"
refuses 2 "a state contains the adapters" "$train" $small $lora --resume "$work/state" --load "$work/adapters"
refuses 1 "frozen" "$train" $small $lora --frozen int8 --resume "$work/state"
runs "frozen" "$train" $small $lora --frozen int8 --resume "$work/state" --resume-changed
rm -f "$work"/*.log
all $lora --frozen int8 --log "$work/free.log" --save "$work/free" || fail "$(cat "$work/err")"
all $lora --frozen int8 --steps 2 --log "$work/first.log" --save-state "$work/state" || fail "$(cat "$work/err")"
all $lora --frozen int8 --log "$work/rest.log" --resume "$work/state" --save "$work/both" || fail "$(cat "$work/err")"
cat "$work/first.log" "$work/rest.log" >"$work/both.log"
same both
refuses 1 "frozen" "$train" $small $lora --frozen nf4 --resume "$work/state"

rm -f "$work"/*.log*
all $lora --log "$work/one.log" --save "$work/one" || fail "$(cat "$work/err")"
for rank in 1 0; do
    RANK=$rank WORLD_SIZE=2 timeout 100 "$train" $small $lora --batch 2 --log "$work/two.log" --save "$work/two" \
        --ranks "file:$work/meet" >"$work/rank.$rank" 2>&1 &
    [ $rank = 1 ] && other=$!
done
wait $! || fail "rank 0: $(tail -n 2 "$work/rank.0")"
wait $other || fail "rank 1: $(tail -n 2 "$work/rank.1")"
losses "$work/one.log" >"$work/a"
losses "$work/two.log" >"$work/b"
paste "$work/a" "$work/b" | awk '{ d = $2 - $5; if (d < 0) d = -d; if (d > 4e-6 * $2) bad = 1 }
    END { exit bad || NR != 4 }' || fail "two ranks: $(paste "$work/a" "$work/b")"
[ -s "$work/two" ] || fail "no adapters from two ranks"

# ---- what was encoded before ------------------------------------------------------------------------

# tensor FILE NAME SHAPE ELEMENTS: all of them 0.7, which is "333?" as bytes.
tensor() {
    {
        printf '\310\0\0\0\0\0\0\0'
        printf '%-200s' "{\"$2\":{\"dtype\":\"F32\",\"shape\":[$3],\"data_offsets\":[0,$((4 * $4))]}}"
        yes '333?' | tr -d '\n' | head -c $((4 * $4))
    } >"$1"
}

data=$work/data
latents=$data/cache/video_latent/cogvideox/5x16x32
mkdir -p "$latents" "$data/cache/prompt_embeddings"
prompt() {
    printf '%s/cache/prompt_embeddings/%s.safetensors' "$data" "$(printf '%s' "$1" | sha256sum | cut -d' ' -f1)"
}
printf 'clips/a.mp4\n\nclips/b.c.mp4\nclips/gone.mp4\n' >"$data/videos.txt"
printf 'a bear\n a "cat", black \n\nnothing\n' >"$data/prompts.txt"
for name in a b.c; do
    tensor "$latents/$name.safetensors" encoded_video 16,2,2,4 256
done
tensor "$(prompt "a bear")" prompt_embedding 5,12 60
tensor "$(prompt 'a "cat", black')" prompt_embedding 5,12 60
cached="$device --model $models/5b --snr-shift 1 --steps 2 --warmup 0"
size="--frames 5 --height 16 --width 32"
if "$train" $cached --data "$data" $size >"$work/out" 2>"$work/err"; then
    grep -q "skipped, because they are not encoded there: clips/gone.mp4" "$work/err" || fail "$(cat "$work/err")"
    grep -q "1 of 3 samples are skipped" "$work/out" || fail "$(cat "$work/out")"
    printf 'n,text,"file"\n1,"a bear",clips/a.mp4\r\n2,"a ""cat"", black",b.c.webm\n' >"$data/list.csv"
    runs "2 videos, latents \[16, 2, 2, 4\]" "$train" $cached --data "$data" $size --csv "$data/list.csv" \
        --video-column file --caption-column text
    runs "2 videos" "$train" $cached --latents "$latents" --text "$data/cache/prompt_embeddings" \
        --videos "$data/videos.txt" --prompts "$data/prompts.txt"
    tensor "$data/prompts.safetensors" prompt_embedding 3,5,12 180
    runs "2 videos" "$train" $cached --data "$data" $size --text "$data/prompts.safetensors"
    tensor "$data/prompts.safetensors" prompt_embedding 2,5,12 120
    refuses 1 "2 prompts for 3 videos" "$train" $cached --data "$data" $size --text "$data/prompts.safetensors"
    refuses 1 'no column "caption"' "$train" $cached --data "$data" $size --csv "$data/list.csv" --video-column file
    refuses 1 'no column "video"' "$train" $cached --data "$data" $size --csv "$data/list.csv"
    printf 'video,caption\na.mp4\n' >"$data/short.csv"
    refuses 1 "row 1 has 1 columns" "$train" $cached --data "$data" $size --csv "$data/short.csv"
    printf 'video,caption\na.mp4,"a\n' >"$data/open.csv"
    refuses 1 "not closed" "$train" $cached --data "$data" $size --csv "$data/open.csv"
    printf 'video,caption\nx.mp4,a bear\n' >"$data/none.csv"
    refuses 1 "none of 1 videos is encoded" "$train" $cached --data "$data" $size --csv "$data/none.csv"
    refuses 1 "there is no 49x480x720 of any model" "$train" $cached --data "$data"
    printf 'one\n' >"$data/short.txt"
    refuses 1 "has 3 lines, .* 1" "$train" $cached --data "$data" $size --prompts "$data/short.txt"
    # The first latent frame twice, where patches have two: three frames become four.
    tensor "$latents/a.safetensors" encoded_video 16,3,2,4 384
    tensor "$latents/b.c.safetensors" encoded_video 16,3,2,4 384
    runs "the first frame repeated" "$train" $device --model "$models/15" --snr-shift 1 --steps 2 \
        --data "$data" $size
    tensor "$latents/b.c.safetensors" encoded_video 16,2,2,4 256
    refuses 1 "one run has one size" "$train" $cached --data "$data" $size
    tensor "$latents/a.safetensors" encoded_video 32,3,2,4 768
    refuses 1 "these are moments" "$train" $cached --data "$data" $size
    tensor "$latents/a.safetensors" latent 16,3,2,4 384
    refuses 1 'no tensor "encoded_video"' "$train" $cached --data "$data" $size
    tensor "$latents/a.safetensors" encoded_video 16,2,2,4 256
    tensor "$(prompt "a bear")" prompt_embedding 5,13 65
    refuses 1 "and \[5, 12\] is needed" "$train" $cached --data "$data" $size
else
    grep -q "built without" "$work/err" || fail "cache: $(cat "$work/err")"
fi

# ---- wrong input ------------------------------------------------------------------------------------

refuses 2 "model DIR is missing" "$train"
refuses 2 "nothing-here" "$train" --model "$work/nothing-here"
for input in cache tokenizer; do # an input is no output
    refuses 1 "is the same file as --$input" "$train" --model "$models/5b" --snr-shift 1 --cache "$work/in.cache" \
        --tokenizer "$work/in.tokenizer" --sample-prompt x --save "$work/in.$input"
done
mkdir -p "$work/m/transformer"
cp "$models/2b/config.json" "$work/m/transformer"
refuses 1 "no scheduler_config.json" "$train" --model "$work/m" --data random
refuses 1 "no model.safetensors\|diffusion_pytorch_model" "$train" --model "$work/m" --snr-shift 3 $size
cp "$models/2b/diffusion_pytorch_model.safetensors" "$work/whole"
head -c 60000 "$work/whole" >"$work/m/transformer/diffusion_pytorch_model.safetensors"
refuses 1 "cut\|short\|bytes" "$train" --model "$work/m" --snr-shift 3 $size
cp "$work/whole" "$work/m/transformer/diffusion_pytorch_model.safetensors"
runs "to which the fp16 weights" "$train" $device --model "$work/m" --snr-shift 3 $size --steps 1 --dtype bf16
mkdir "$work/m/scheduler"
scheduler="$work/m/scheduler/scheduler_config.json"
printf '{"_class_name": "CogVideoXDPMScheduler"}' >"$scheduler"
refuses 1 '"prediction_type" is missing, which means epsilon' "$train" --model "$work/m" --data random $size
printf '{"_class_name": "CogVideoXDPMScheduler", "prediction_type": "v_prediction"}' >"$scheduler"
runs "memory:" "$train" $device --model "$work/m" $size --steps 1
runs "memory:" "$train" $device --model "$work/m/transformer" $size --steps 1
cp -R "$models/5b" "$work/m5"
rm "$work/m5/diffusion_pytorch_model-00002-of-00002.safetensors"
refuses 1 "00002-of-00002" "$train" --model "$work/m5" --snr-shift 1 $size
refuses 1 "has shape" "$train" --model "$models/5b" --load "$models/15-i2v/diffusion_pytorch_model.safetensors" \
    --snr-shift 1 $size
sed 's/CogVideoXTransformer3DModel/STDiT3/' "$models/2b/config.json" >"$work/config.json"
refuses 2 '"_class_name" is STDiT3' "$train" --model "$work/config.json"
refuses 2 "have rank 3 .*and --lora-rank is 5" "$train" $small --lora-rank 5 --load "$work/adapters"
refuses 1 "adapters do not match this run" "$train" $small --lora-rank 3 --lora-targets to_q --load "$work/adapters"
refuses 1 "missing" "$train" $small --lora-rank 3 --load "$models/2b/step.safetensors"
refuses 1 "lora-targets to_x" "$train" $small --lora-rank 3 --lora-targets to_x
refuses 2 "is for --lora-rank" "$train" --model "$models/2b" --lora-alpha 3
refuses 2 "is for --lora-rank" "$train" --model "$models/2b" --lora-targets to_q
refuses 2 "is for --lora-rank N: without adapters all weights are trained" "$train" --model "$models/2b" --frozen nf4
refuses 2 "give bf16, int8 or nf4" "$train" --model "$models/2b" --lora-rank 3 --frozen fp4
refuses 2 "there are no adapters yet" "$train" --model "$models/2b" --lora-rank 3 --steps 0 --lora-merge "$work/x"
refuses 2 "multiple of 4" "$train" --model "$models/2b" --frames 6
refuses 2 "multiples of 8" "$train" --model "$models/2b" --height 20
refuses 1 "multiples of 2, the side" "$train" --model "$models/2b" --random --height 24 --width 32
refuses 1 "position table of this model" "$train" --model "$models/5b-i2v" --random --height 32 --width 32
refuses 1 "has positions for 20 x 20" "$train" --model "$models/15" --random --frames 5 --height 240 --width 32
refuses 2 "leave out" "$train" --model "$models/2b" --features x --data y
refuses 2 "leave out" "$train" --model "$models/2b" --data random --csv y
refuses 1 'no tensor "z"' "$train" --model "$models/2b" --random --features "$models/2b/expected.safetensors"
refuses 1 'no tensor "image"' "$train" --model "$models/15-i2v" --random --features "$models/5b/step.safetensors"

finish
