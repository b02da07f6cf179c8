#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cogvideo-sample, and cogvideo-train between its steps, from prompts to videos: the bytes of
# text-encode, cogvideo-sample and cogvideo-decode in sequence, under every budget; a budget too
# small for a later stage is refused before the first; wrong input gets one sentence each.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

sample=${COGVIDEO_SAMPLE:-./cogvideo-sample} train=${COGVIDEO_TRAIN:-./cogvideo-train}
encode=${TEXT_ENCODE:-./text-encode}
decode=${COGVIDEO_DECODE:-./cogvideo-decode}
device="--device cpu --threads 1"

# model KIND: a directory as diffusers has it, of random weights but for the text encoder, in $dir.
model() {
    dir=$work/$1
    mkdir "$dir" "$dir/transformer" "$dir/vae" "$dir/text_encoder" "$dir/tokenizer"
    sed 's/"text_embed_dim": 12/"text_embed_dim": 24/; s/"max_text_seq_length": 5/"max_text_seq_length": 40/' \
        "$root/tests/cogvideo/$1/config.json" >"$dir/transformer/config.json"
    cp "$work/vae/"* "$dir/vae" && cp "$root"/tests/text/t5/* "$dir/text_encoder" &&
        cp "$root"/tests/text/tokenizer/* "$dir/tokenizer" || fail "no model"
}

mkdir "$work/vae"
tests/cogvideo/test_vae model "$work/vae" || fail "no autoencoder"
model 5b
sample="$sample $device --snr-shift 1 --steps 2 --random"
small="$sample --model $dir --frames 9 --height 32 --width 48"
printf 'a rabbit in a meadow.\nthe sea at night\n' >"$work/two"

$small --prompts "$work/two" --output "$work/probe.rgb" >"$work/out" 2>"$work/err" || {
    grep -q "built without" "$work/err" && {
        grep -q sentencepiece "$work/err" || fail "no reason: $(cat "$work/err")"
        [ -e "$work/probe.rgb" ] && fail "a refused run left a file"
        exit 77
    }
    fail "no video: $(cat "$work/err")"
}

# ---- the bytes of three programs ------------------------------------------------------------------

# three NAME TYPE: one after the other.
three() {
    runs "2 prompts" "$encode" $device --model "$dir" --family cogvideox --length 40 --dtype "$2" \
        --prompts "$work/two" --output "$work/$1.y"
    runs "latents:" $small --dtype "$2" --text "$work/$1.y" --out "$work/$1.latents"
    for i in 1 2; do
        runs "9 frames of 48 x 32" "$decode" $device --model "$dir" --dtype "$2" \
            --latents "$work/$1.latents/latents-$i.safetensors" --output "$work/$1-$i.rgb"
    done
}

# same NAME FILE: the videos of FILE.rgb are those of the three programs.
same() {
    for i in 1 2; do
        cmp -s "$work/$1-$i.rgb" "$work/$2-0000$i-of-00002.rgb" || fail "$2: clip $i is another one"
    done
}

three fp32 fp32
runs "video: 9 frames of 48 x 32" $small --prompts "$work/two" --out "$work/latents" --output "$work/all.rgb"
same fp32 all
cmp -s "$work/latents/latents-2.safetensors" "$work/fp32.latents/latents-2.safetensors" ||
    fail "--out beside --output has other latents"
cmp -s "$work/fp32-1.rgb" "$work/fp32-2.rgb" && fail "two prompts draw the same clip"
three bf16 bf16
runs "video:" $small --dtype bf16 --prompts "$work/two" --output "$work/half.rgb"
same bf16 half
runs "video:" $small --text "$work/fp32.y" --output "$work/text.rgb" # no text stage
same fp32 text

# numbers FILE: the fp32 values of safetensors, one a line
numbers() {
    od -An -v -tf4 -w4 -j $(($(od -An -tu8 -N8 "$1") + 8)) "$1"
}

# A negative prompt is encoded beside the prompts.  Bits of a product may depend on its place among them.
printf 'blurred\n' | cat "$work/two" - >"$work/three"
printf 'blurred\n' | cat - "$work/two" >"$work/first"
for name in three first; do
    runs "3 prompts" "$encode" $device --model "$dir" --family cogvideox --length 40 --dtype fp32 \
        --prompts "$work/$name" --output "$work/$name.y"
done
runs "latents:" $small --text "$work/three.y" --negative "$work/first.y" --out "$work/negative"
runs "latents:" $small --prompts "$work/two" --negative-prompt blurred --out "$work/blurred"
for i in 1 2; do
    numbers "$work/negative/latents-$i.safetensors" >"$work/a"
    numbers "$work/blurred/latents-$i.safetensors" >"$work/b"
    paste "$work/a" "$work/b" | awk '{ d = $1 - $2; if (!(d < 1e-4 && d > -1e-4)) bad = 1 } END { exit bad || NR < 100 }' ||
        fail "--negative-prompt is another one than --negative: clip $i"
done
cmp -s "$work/blurred/latents-1.safetensors" "$work/fp32.latents/latents-1.safetensors" &&
    fail "--negative-prompt changes nothing"
refuses 2 "give --negative FILE beside" $small --text "$work/fp32.y" --negative-prompt blurred --out "$work/x"

# A video that cannot be written: the latents of both clips are kept, and are decoded later.
(ulimit -f 32 && refuses 1 "full-00001-of-00002.rgb" $small --text "$work/fp32.y" --output "$work/full.rgb"; exit $failures) || failures=1
for i in 1 2; do
    runs "9 frames of 48 x 32" "$decode" $device --model "$dir" --dtype fp32 \
        --latents "$work/full-0000$i-of-00002.rgb.latents.safetensors" --output "$work/full-0000$i-of-00002.rgb"
done
same fp32 full

# One clip has the name that was asked for; latents are where no video is asked for.
runs "video:" $small --prompt "a rabbit in a meadow." --output "$work/one.rgb" --fps 16
[ "$(head -n 1 "$work/one.rgb")" = "RGBCLIP 48 32 9 16" ] || fail "$(head -n 1 "$work/one.rgb")"
echo >"$work/empty" # a prompt without words
runs "latents: $work/only/latents-1" $small --prompts "$work/empty" --out "$work/only"
runs "video:" $small --prompt "a rabbit" --output "$work/pictures"
[ "$(ls "$work/pictures" | wc -l)" = 9 ] || fail "not a picture a frame"
runs "cut: line 1" $small --steps 1 --out "$work/long" \
    --prompt "$(printf 'the sea at night %.0s' 1 2 3 4 5 6 7 8 9 10)"

# ---- between the steps of a training ---------------------------------------------------------------

training="$train $device --model $dir --snr-shift 1 --random --data random --frames 9 --height 32
    --width 48 --steps 1 --lr 0 --sample-steps 2"
runs "step 1: sampled" $training --sample-prompts "$work/two" --out "$work/trained"
cmp -s "$work/trained/step-00000001.safetensors" "$work/fp32.latents/latents-1.safetensors" &&
    cmp -s "$work/trained/step-00000001-1.safetensors" "$work/fp32.latents/latents-2.safetensors" ||
    fail "cogvideo-train draws other clips"
runs "step 1: sampled" $training --sample-prompt "a rabbit in a meadow." --out "$work/trained1"
# Of one prompt alone the text encoder's products have other sizes, and on some processors other bits.
runs "latents: $work/alone/latents-1" $small --prompt "a rabbit in a meadow." --out "$work/alone"
cmp -s "$work/trained1/step-00000001.safetensors" "$work/alone/latents-1.safetensors" ||
    fail "one prompt alone"
runs "run.state" $training --lora-rank 2 --save-state "$work/run.state"
refuses 1 "its run drew no videos.*give another --save-state" $training --lora-rank 2 --sample-prompts "$work/two" \
    --resume "$work/run.state" --resume-changed
runs "plan" $training --sample-prompts "$work/two" --plan-only
refuses 1 "no-such" $training --sample-prompt a --text-encoder "$work/no-such"
refuses 1 "spiece.model" $training --model "$root/tests/cogvideo/5b" --sample-prompt a

# ---- budgets --------------------------------------------------------------------------------------

# smallest OPTION...: the budget that every stage fits in, by the refusals, into $budget.
smallest() {
    budget=16K
    for try in 1 2 3 4; do
        $small --prompts "$work/two" --output "$work/tight.rgb" --vram "$budget" "$@" \
            >"$work/out" 2>"$work/err" && return
        grep -q "needs at least" "$work/err" || fail "$budget $*: $(cat "$work/err")"
        grep -q "plan" "$work/out" && fail "$budget $*: refused when a stage had begun"
        ls "$work" | grep -q tight && fail "a refused run left a file"
        budget=$(needed)
    done
    fail "no budget fits: $(cat "$work/err")"
}

smallest
same fp32 tight
[ "$try" -gt 2 ] || fail "one stage needs the most of all: this test sees no later one refused"
rm "$work"/tight*
smallest --host 8M
same fp32 tight

# All plans and nothing else.
runs "plan" $small --prompts "$work/two" --output "$work/plan.rgb" --plan-only
[ "$(grep -c "predicted step" "$work/out")" = 3 ] || fail "not three plans: $(cat "$work/out")"
ls "$work" | grep -q "plan" && fail "--plan-only writes something"

# ---- a picture and the frame that stands twice ------------------------------------------------------

image=$root/tests/cogvideo/5b-i2v/image.safetensors
model 5b-i2v
runs "video: 9 frames of 96 x 64" $sample --model "$dir" --frames 9 --height 64 --width 96 \
    --image "$image" --prompt "a rabbit" --output "$work/i2v.rgb"

# A picture is the latents that cogvideo-encode makes of it.
runs "video:" $sample --model "$dir" --frames 9 --height 64 --width 96 --image "$image" --prompt a --output "$work/frames"
mv "$work/frames/frame-00000.png" "$work/image.png"
runs "1 frames, 96 x 64" ${COGVIDEO_ENCODE:-./cogvideo-encode} $device --model "$dir" --dtype fp32 --seed 0 \
    --frames 1 --height 64 --width 96 --video "$work/image.png" --output "$work/encoded"
LC_ALL=C sed 's/encoded_video/encoded_image/; s/ckpt\.checksum/note.checksum/g' "$work/encoded/image.safetensors" >"$work/latents.safetensors"
i2v="$sample --model $dir --frames 9 --height 64 --width 96 --text $work/fp32.y"
runs "latents" $i2v --image "$work/latents.safetensors" --out "$work/by-latents"
runs "latents" $i2v --image "$work/image.png" --out "$work/by-picture"
cmp -s "$work/by-latents/latents-1.safetensors" "$work/by-picture/latents-1.safetensors" ||
    fail "--image of a picture is another one than its latents"
refuses 1 "needs at least" $i2v --image "$work/image.png" --vram 32K --out "$work/x"
grep -q "model:" "$work/out" && fail "refused when a stage had begun"
refuses 2 "no-such.png" $i2v --image "$work/no-such.png" --out "$work/x"
printf 'no picture' >"$work/bad.png"
refuses 2 "bad.png" $i2v --image "$work/bad.png" --out "$work/x"
refuses 2 "is not encoded in training" $training --model "$dir" --height 64 --width 96 --sample-prompt a \
    --sample-image "$work/image.png"
model 15
runs "video: 9 frames of 32 x 64" $sample --model "$dir" --frames 9 --height 64 --width 32 \
    --prompt "a rabbit" --output "$work/new.rgb"

# ---- wrong input ----------------------------------------------------------------------------------

mkdir "$work/narrow"
sed 's/"d_model": 24/"d_model": 32/' "$root/tests/text/t5/config.json" >"$work/narrow/config.json"
refuses 2 "give one of --text, --prompt and --prompts" $small --prompt a --prompts "$work/two"
refuses 2 "none is given" $small --text "$work/fp32.y" --tokenizer "$dir"
refuses 2 "for --output" $small --prompt a --vae "$dir"
refuses 1 "this model reads 24" $small --prompt a --text-encoder "$work/narrow" \
    --tokenizer "$work/5b/tokenizer" --out "$work/x"
refuses 1 "no-such" $small --prompt a --text-encoder "$work/no-such" --tokenizer "$work/5b/tokenizer" --out "$work/x"
refuses 1 "no-such" $small --prompt a --vae "$work/no-such" --output "$work/x.rgb"
refuses 1 "no-such" $small --prompts "$work/no-such" --out "$work/x"
: >"$work/none"
refuses 1 "is empty; one prompt per line" $small --prompts "$work/none" --out "$work/x"
sed 's/"block_out_channels": \[[0-9]*, /"block_out_channels": [/' "$work/vae/config.json" >"$work/narrow/config.json"
refuses 1 "has 16 for 8 x 8" $small --prompt a --vae "$work/narrow" --output "$work/x.rgb"

finish
