#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prompts of stdit-sample: the same clips as from the features of text-encode, with Open-Sora's
# additions to prompts; wrong input gets one sentence each.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${STDIT_TRAIN:-./stdit-train} sample=${STDIT_SAMPLE:-./stdit-sample}
vae=${VAE_TRAIN:-./vae-train} encode=${TEXT_ENCODE:-./text-encode}
here=$root/tests/text
encoder="--text-encoder $here/t5 --tokenizer $here/tokenizer"
model="--hidden 32 --heads 2 --depth 1 --size 16x16 --device cpu --threads 1"

# features NAME: the features of the file of prompts with that name.
features() {
    "$encode" --model "$here/t5" --tokenizer "$here/tokenizer" --device cpu --family opensora \
        --dtype fp32 --length 40 --prompts "$work/$1" --output "$work/$1.y" >"$work/out" \
        2>"$work/err"
}

printf 'a rabbit.\n' >"$work/one"
features one || {
    grep -q "built without" "$work/err" && exit 77
    fail "text-encode: $(cat "$work/err")"
}
"$vae" --size 16x16 --lengths 5 --image-share 0 --video "$root/examples/data/bunny.rgb" --steps 1 \
    --save "$work/vae" >"$work/out" 2>&1 || fail "vae-train: $(cat "$work/out")"
runs "weights" "$train" $model --video-dir "$root/examples/data/bunny.rgb" --vae "$work/vae" \
    --frames 5 --clips 1 --text "$work/one.y" --text-tokens 40 --steps 6 --lr 0.02 --warmup 0 \
    --sample-steps 0 --out "$work/o" --save "$work/w"
sample="$sample $model --load $work/w --vae $work/vae --frames 5 --steps 2 --guidance 3
    --text-tokens 40 --caption-channels 24"

# draw NAME OPTION...
draw() {
    name=$1
    shift
    $sample --out "$work/d-$name" "$@" >"$work/out" 2>"$work/err" || fail "$name: $(cat "$work/err")"
}

# same A B: the clips of both have the same frames.
same() {
    cat "$work/d-$1"/sample*/frame-*.png >"$work/a" &&
        cat "$work/d-$2"/sample*/frame-*.png >"$work/b" &&
        cmp -s "$work/a" "$work/b"
}

# ---- a prompt is its features ---------------------------------------------------------------------

draw prompt $encoder --prompt "a rabbit."
draw features --text "$work/one.y"
same prompt features || fail "--prompt draws another clip than its features"
draw other $encoder --prompt "the old fisherman looks at the sea."
same prompt other && fail "another prompt draws the same clip"

# Two clips, with scores; one prompt has its own.
printf 'A rabbit.\na dog, aesthetic score: 4.5\n' >"$work/two"
printf 'a rabbit. aesthetic score: 6.5. motion score: 5.0. camera motion: pan left.\n' >"$work/told"
printf 'a dog, aesthetic score: 4.5 motion score: 5.0. camera motion: pan left.\n' >>"$work/told"
features told || fail "text-encode: $(cat "$work/err")"
draw two $encoder --prompts "$work/two" --aes 6.5 --flow 5 --camera-motion "pan left"
draw told --text "$work/told.y"
same two told || fail "scores are not appended as they should be"
draw tight $encoder --prompts "$work/two" --aes 6.5 --flow 5 --camera-motion "pan left" --vram 8M
same two tight || fail "a budget draws other clips"
runs "predicted step" $sample $encoder --prompts "$work/two" --plan-only

# ---- segments, and options after a prompt -------------------------------------------------------------

long="$encoder --frames 34 --loop 2 --steps 1"
draw plain $long --prompt "a rabbit."
draw parts $long --prompt "|0| a rabbit. |1| a rabbit. |5|a dog"
same plain parts || fail "segments of one text are not the clip of that text"
draw other $long --prompt "|0|a rabbit.|1|a dog"
cat "$work"/d-plain/sample/frame-000[0-2]*.png >"$work/a" # the first segment, and what is given on
cat "$work"/d-other/sample/frame-000[0-2]*.png | cmp -s - "$work/a" || fail "the first text is another"
same plain other && fail "the second text changes nothing"
{
    echo "RGBCLIP 16 16 6 8"
    head -c $((6 * 768)) /dev/urandom
} >"$work/clip.rgb"
given="--reference $work/clip.rgb --mask-strategy 0,0,-1,1,1,0.5"
draw options $encoder --prompts "$work/two" $given
sed "s|\$|{\"reference_path\": \"$work/clip.rgb\", \"mask_strategy\": \"0,0,-1,1,1,0.5\"} |" "$work/two" >"$work/json"
draw json $encoder --prompts "$work/json"
same options json || fail "behind a prompt: another clip than by options"
draw mixed $encoder --prompts "$work/json" --reference "$work/none" --mask-strategy 0,0,1
same options mixed || fail "options win over what stands behind a prompt"
sed "1s/{.*//" "$work/json" >"$work/one-json"
draw first $encoder --prompts "$work/one-json"
same options first && fail "what stands behind one prompt is for both"
cmp -s "$work/d-options/sample-1/frame-00004.png" "$work/d-first/sample-1/frame-00004.png" ||
    fail "the clip that has it is another"

# ---- wrong input ----------------------------------------------------------------------------------

refuses 1 "prompt 1, from { on: line 1: " $sample $encoder --prompt 'a{"reference_path"'
refuses 1 "prompt 1, from { on: \"path\" is \"b\": this setting is not known" $sample $encoder --prompt 'a{"path": "b"}'
refuses 1 "prompt 1: mask_strategy 9,x" $sample $encoder --prompt 'a{"mask_strategy": "9,x"}'
refuses 1 "prompt 1: segment 1 comes after" $sample $encoder --prompt '|0|a|2|b|1|c'
refuses 1 "among ranks" $sample $encoder --prompt a --plan-only --ranks 2

refuses 2 "give one of --text, --prompt and --prompts" $sample $encoder --prompt a --prompts "$work/two"
refuses 2 "needs --text-encoder DIR" $sample --prompt a
refuses 2 "none is given" $sample --aes 6
: >"$work/none"
refuses 1 "is empty; one prompt per line" $sample $encoder --prompts "$work/none"
refuses 1 "no-such" $sample --prompt a --text-encoder "$work/no-such" --tokenizer "$here/tokenizer"
refuses 1 "shape\|caption" $sample $encoder --prompt a --caption-channels 32
runs "1 prompt is longer than 40 tokens and cut: line 1" $sample $encoder --out "$work/long" \
    --prompt "$(printf 'the sea at night %.0s' 1 2 3 4 5 6 7 8 9 10)"

finish
