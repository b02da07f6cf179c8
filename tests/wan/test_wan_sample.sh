#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wan-sample: from prompts to the latents of diffusers' pipelines (make_pipeline_reference.py): a pair
# of models, both solvers, a given first frame, I2V, also with features of its picture; video-encode and
# training with those; the same bits under every budget; wrong input.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

sample=${WAN_SAMPLE:-./wan-sample} encode=${TEXT_ENCODE:-./text-encode}
expected=$root/tests/wan/pipeline
device="--device ${CKPT_DEVICE:-cpu} --threads 1 --dtype fp32"
negative="blurred, grey"

# model NAME KIND: a directory of diffusers.
model() {
    mkdir "$work/$1" "$work/$1/text_encoder" "$work/$1/tokenizer"
    cp -R "$expected/$2/"* "$work/$1" && cp "$root"/tests/text/umt5/* "$work/$1/text_encoder" &&
        cp "$root/tests/tokenizer/umt5.json" "$work/$1/tokenizer/tokenizer.json" || fail "no model"
}

model t2v t2v
model i2v i2v
model sight sight
model ti2v t2v
rm -r "$work/ti2v/transformer_2"
echo '{"_class_name": "WanPipeline", "boundary_ratio": null, "expand_timesteps": true}' \
    >"$work/ti2v/model_index.json"
printf 'A rabbit &amp;amp; a dog  walk across a meadow.\nthe sea at night\n' >"$work/two"
head -n 1 "$work/two" >"$work/one"
clip="--frames 9 --height 32 --width 48 --steps 4 --noise $expected/noise.safetensors"
pair="$sample $device --model $work/t2v $clip --guidance 4 --guidance-low 3"

"$encode" --device cpu --model "$work/t2v" --family wan --prompts "$work/two" --length 16 \
    --output "$work/y" >"$work/out" 2>"$work/err" || {
    grep -q "built without" "$work/err" && exit 77
    fail "text-encode: $(cat "$work/err")"
}

# values FILE CLIP: those of a clip, after a header whose length is its first number.
values() {
    n=$(od -An -tu8 -N8 "$1")
    od -An -v -tf4 -w4 -j $((8 + n + 4608 * $2)) -N 4608 "$1"
}

# as_diffusers NAME CLIP FILE: the relative distance of a clip.
as_diffusers() {
    values "$expected/$1.safetensors" "$2" >"$work/a"
    values "$3" 0 >"$work/b"
    paste "$work/a" "$work/b" | awk -v most="${4:-1e-4}" '
        { error += ($1 - $2) ^ 2; norm += $1 ^ 2 }
        END { r = sqrt(error / norm); print NR, r; exit !(NR == 1152 && r <= most) }' \
        >"$work/out" || fail "$1, clip $2: relative error $(cat "$work/out")"
    [ -z "${VERBOSE-}" ] || echo "$1, clip $2: $(cat "$work/out")"
}

# ---- diffusers ------------------------------------------------------------------------------------

runs "model: Wan T2V; 2 clips" $pair --prompts "$work/two" --negative-prompt "$negative" --out "$work/pair"
as_diffusers t2v 0 "$work/pair/latents-1.safetensors"
as_diffusers t2v 1 "$work/pair/latents-2.safetensors"
runs "latents" $sample $device --model "$work/t2v" $clip --prompts "$work/one" --solver euler \
    --guidance 5 --negative-prompt "$negative" --out "$work/euler"
as_diffusers t2v_euler 0 "$work/euler/latents-1.safetensors"
runs "model: Wan I2V" $sample $device --model "$work/i2v" $clip --snr-shift 3 --prompts "$work/one" \
    --negative-prompt "$negative" --image "$expected/i2v_image.safetensors" --out "$work/image"
as_diffusers i2v 0 "$work/image/latents-1.safetensors"
seen() {
    "$sample" $device --model "$work/sight" $clip --snr-shift 3 --prompts "$work/one" --negative-prompt "$negative" "$@"
}
runs "model: Wan 2.1 I2V" seen --image "$expected/sight_image.safetensors" --out "$work/seen"
as_diffusers sight 0 "$work/seen/latents-1.safetensors"
ti2v="$sample $device --model $work/ti2v $clip"
runs "model: Wan TI2V" $ti2v --prompts "$work/one" --negative-prompt "$negative" \
    --image "$expected/ti2v_image.safetensors" --out "$work/first"
as_diffusers ti2v 0 "$work/first/latents-1.safetensors"
cmp -s "$work/first/latents-1.safetensors" "$work/euler/latents-1.safetensors" && fail "no picture"
runs "latents" $ti2v --prompts "$work/one" --out "$work/text" # TI2V without a picture
cmp -s "$work/first/latents-1.safetensors" "$work/text/latents-1.safetensors" && fail "no picture"
runs "latents" $pair --dtype bf16 --prompts "$work/two" --negative-prompt "$negative" --out "$work/half"
as_diffusers t2v 1 "$work/half/latents-2.safetensors" 1e-1

# ---- pictures and videos --------------------------------------------------------------------------

# The stages: UMT5, autoencoder, transformers, autoencoder.
mkdir "$work/vae"
tests/wan/test_wan_vae model 2.1 "$work/vae" || fail "no autoencoder"
for kind in i2v ti2v; do
    mkdir "$work/$kind/vae" && cp "$work/vae/config.json" "$work/vae/diffusion"* "$work/$kind/vae"
    runs "latents" $sample $device --model "$work/$kind" $clip --snr-shift 3 --prompts "$work/one" \
        --negative-prompt "$negative" --image "$expected/picture.png" --out "$work/$kind-picture"
    [ "$(grep -c "predicted step" "$work/out")" = 3 ] || fail "$kind: not three stages"
    as_diffusers $kind 0 "$work/$kind-picture/latents-1.safetensors"
done
# Five stages with the encoder of the picture, whose bytes may differ by one from the processor's.
mkdir "$work/sight/vae" && cp "$work/vae/config.json" "$work/vae/diffusion"* "$work/sight/vae"
picture="--image $expected/picture.png"
refuses 2 "no image_encoder/ in" seen $picture --out "$work/x"
runs "latents" seen $picture --image-encoder "$root/tests/wan/clip" --out "$work/sight-picture"
[ "$(grep -c "predicted step" "$work/out")" = 4 ] || fail "sight: not four stages"
as_diffusers sight 0 "$work/sight-picture/latents-1.safetensors" 1e-3
cp -R "$root/tests/wan/clip/image_encoder" "$root/tests/wan/clip/image_processor" "$work/sight"
runs "latents" seen $picture --out "$work/sight-own"
cmp -s "$work/sight-own/latents-1.safetensors" "$work/sight-picture/latents-1.safetensors" || fail "image_encoder: another clip"
refuses 2 "image-encoder is for a picture" seen --image "$expected/sight_image.safetensors" --image-encoder "$work/sight" --out "$work/x"
refuses 2 "image-encoder is for models that read features" $ti2v --prompts "$work/one" $picture \
    --image-encoder "$work/sight" --out "$work/x"
refuses 1 "image_embeds" seen --image "$expected/i2v_image.safetensors" --out "$work/x"
# The same features in a cache; without them it is refused.
mkdir "$work/clips" && cp "$expected/picture.png" "$work/clips/one.png" && cp "$work/one" "$work/clips/one.txt"
encoding="${VIDEO_ENCODE:-./video-encode} --device cpu --threads 1 --dtype fp32 --model $work/sight --data $work/clips
    --size 48x32 --frames 9"
runs "1 shards of features of first frames" $encoding --first-frame --output "$work/cache"
runs "1 clips are made from" $encoding --first-frame --check --output "$work/cache"
grep -q "1 features of first frames are made from" "$work/out" || fail "features are not compared: $(cat "$work/out")"
$encoding --output "$work/cache" >"$work/out" 2>"$work/err" && fail "a cache with features is continued without them"
grep -q "other than in this run: .*sight" "$work/err" || fail "sight: $(cat "$work/err")"
# Frames are read ahead by any number of workers. A row of pixels that clips leave out is in features.
mkdir "$work/shots"
for i in 1 2 3; do
    { echo "RGBCLIP 48 48 1 8" && tail -c +$((100 * i)) "$root/examples/data/bunny.rgb" | head -c 6912; } >"$work/shots/$i.rgb"
    echo "shot $i" >"$work/shots/$i.txt"
done
shots() {
    ${VIDEO_ENCODE:-./video-encode} --device cpu --threads 1 --dtype fp32 --model "$work/sight" --data "$work/shots" --size 48x32 \
        --frames 9 --fit crop --first-frame --shard 2 "$@"
}
runs "2 shards of features of first frames" shots --output "$work/ahead" --workers 3
runs "2 shards of features of first frames" shots --output "$work/behind" --workers 1
for i in 0 1; do
    cmp -s "$work/ahead/sight-0000$i.safetensors" "$work/behind/sight-0000$i.safetensors" || fail "--workers: other features"
done
runs "3 features of first frames are made from" shots --output "$work/ahead" --check
printf %144s >"$work/grey"
dd if="$work/grey" of="$work/shots/3.rgb" bs=1 seek=18 conv=notrunc 2>"$work/err"
refuses 1 "clip 2 (3.rgb) was made from another first frame" shots --output "$work/ahead" --check
training="${WAN_TRAIN:-./wan-train} $device --model $work/sight --steps 1 --warmup 0 --lr 0 --snr-shift 3"
runs "1 of 1 clips" $training --cache "$work/cache"
mv "$work/sight/image_encoder" "$work/sight/away"
runs "manifest is written" $encoding --first-frame --output "$work/less"
mv "$work/sight/away" "$work/sight/image_encoder"
refuses 1 "has no features of its first frame" $training --cache "$work/less"
refuses 2 "image-encoder is for --first-frame" $encoding --image-encoder "$work/sight" --output "$work/x"
sed 's/"hidden_size": 12/"hidden_size": 10/' "$root/tests/wan/clip/image_encoder/config.json" >"$work/sight/image_encoder/config.json"
refuses 1 "this model reads 257 x 12" seen $picture --out "$work/x"
runs "video: 9 frames of 48 x 32" $pair --vae "$work/vae" --prompts "$work/two" --negative-prompt "$negative" \
    --output "$work/clip.rgb"
[ "$(head -n 1 "$work/clip-00001-of-00002.rgb")" = "RGBCLIP 48 32 9 16" ] || fail "another clip"
tail -c 4608 "$work/clip-00001-of-00002.rgb" | od -An -v -tu1 -w1 >"$work/a"
od -An -v -tu1 -w1 "$expected/frame.rgb" | paste "$work/a" - | awk '
    { d = $1 - $2; if (d * d > most) most = d * d } END { print NR, most; exit !(NR == 4608 && most <= 4) }' \
    >"$work/out" || fail "another last frame: $(cat "$work/out")"

# ---- nothing but its input makes a clip -----------------------------------------------------------

# same NAME: both clips are those of the pair.
same() {
    for i in 1 2; do
        cmp -s "$work/pair/latents-$i.safetensors" "$work/$1/latents-$i.safetensors" ||
            fail "$1: clip $i is another one"
    done
}
pair="$pair --prompts $work/two"
budget=16K
for try in 1 2 3; do
    $pair --negative-prompt "$negative" --out "$work/tight" --vram "$budget" >"$work/out" 2>"$work/err" && break
    grep -q "needs at least" "$work/err" || fail "$budget: $(cat "$work/err")"
    budget=$(needed)
done
same tight
[ "$try" -gt 1 ] || fail "16K is enough"

# Features in place of prompts: the negative prompt is the first row of a file.
printf '%s\n' "$negative" | cat - "$work/two" >"$work/three"
printf '%s\n' "$negative" | cat "$work/two" - >"$work/last"
for name in three last; do
    runs "3 prompts" "$encode" $device --model "$work/t2v" --family wan --prompts "$work/$name" \
        --output "$work/$name.y"
done
features="$sample $device --model $work/t2v $clip --guidance 4 --guidance-low 3"
runs "latents" $features --text "$work/last.y" --negative "$work/three.y" --out "$work/features"
same features
refuses 2 "--negative FILE is missing" $features --text "$work/last.y" --out "$work/x"
refuses 2 "guidance 1 is none" $features --guidance 1 --guidance-low 1 --text "$work/last.y" --negative "$work/three.y" --out "$work/x"
runs "latents" $features --guidance 1 --guidance-low 1 --text "$work/last.y" --out "$work/alone"
other() {
    cmp -s "$work/pair/latents-1.safetensors" "$work/$1/latents-1.safetensors" && fail "$1: the same clip"
}
other alone
runs "latents" $pair --out "$work/empty" # the empty negative prompt
other empty
runs "latents" $pair --negative-prompt "$negative" --guidance-low 4 --out "$work/low"
other low
runs "latents" $pair --negative-prompt "$negative" --solver unipc-original --out "$work/grid"
other grid
runs "latents" $pair --negative-prompt "$negative" --snr-shift 12 --out "$work/shift"
other shift
# All steps above the boundary, or below it: one of the two models alone.
sed 's/0.875/1e-6/' "$expected/t2v/model_index.json" >"$work/t2v/model_index.json"
runs "latents" $pair --negative-prompt "$negative" --out "$work/high"
other high
cp "$expected/t2v/model_index.json" "$work/t2v"

# Adapters of each of the two.
for expert in high low; do
    runs "" ${WAN_TRAIN:-./wan-train} $device --model "$work/t2v" --expert $expert --data random --frames 9 \
        --height 32 --width 48 --steps 1 --warmup 0 --lr 0.1 --lora-rank 2 --save "$work/$expert.lora"
done
runs "latents" $pair --negative-prompt "$negative" --load "$work/high.lora" --out "$work/first-lora"
other first-lora
runs "latents" $pair --negative-prompt "$negative" --load-low "$work/low.lora" --out "$work/second-lora"
other second-lora
runs "latents" $pair --negative-prompt "$negative" --load "$work/high.lora" \
    --load-low "$work/low.lora" --out "$work/both-lora"
cmp -s "$work/both-lora/latents-1.safetensors" "$work/first-lora/latents-1.safetensors" && fail "--load-low"
cmp -s "$work/both-lora/latents-1.safetensors" "$work/second-lora/latents-1.safetensors" && fail "--load"
# What the second model lacks is said before the first one runs.
refuses 2 "none.lora" $pair --load-low "$work/none.lora" --out "$work/x"
mv "$work/t2v/transformer_2/diffusion_pytorch_model.safetensors" "$work/second"
refuses 2 "transformer_2" $pair --out "$work/x"
runs "predicted step" $pair --plan-only
mv "$work/second" "$work/t2v/transformer_2/diffusion_pytorch_model.safetensors"

# Between the steps of a training: the clip of wan-sample.
training="${WAN_TRAIN:-./wan-train} $device --data random --frames 9 --height 32 --width 48 --steps 1
    --warmup 0 --lr 0 --lora-rank 2 --sample-steps 2 --sample-prompt rabbit"
image="$expected/ti2v_image.safetensors"
runs "step 1: sampled" $training --model "$work/ti2v" --sample-image "$image" --output "$work/trained" \
    --save "$work/none.lora"
runs "latents" $sample $device --model "$work/ti2v" --frames 9 --height 32 --width 48 --steps 2 \
    --prompt rabbit --image "$image" --out "$work/sampled"
cmp -s "$work/trained/step-00000001.safetensors" "$work/sampled/latents-1.safetensors" ||
    fail "wan-train draws another clip"
refuses 2 "of a pair of models need both" $training --model "$work/t2v" --expert high --output "$work/x"

# ---- wrong input ----------------------------------------------------------------------------------

refuses 2 "give unipc, unipc-original or euler" $pair --solver dpm --out "$work/x"
refuses 2 "give constant" $pair --guidance-schedule cosine --out "$work/x"
refuses 2 "is for I2V" $pair --image "$expected/i2v_image.safetensors" --out "$work/x"
refuses 2 "--image FILE is missing" $sample $device --model "$work/i2v" $clip --prompts "$work/one" --out "$work/x"
refuses 1 "encoded_image" $ti2v --prompts "$work/one" --image "$expected/i2v_image.safetensors" --out "$work/x"
refuses 2 "none.png" $ti2v --prompts "$work/one" --image "$work/none.png" --out "$work/x"
refuses 2 "guidance-low is for a pair of models" $ti2v --prompts "$work/one" --guidance-low 2 --out "$work/x"
refuses 2 "is for a pair of models" $ti2v --prompts "$work/one" --load-low "$work/y" --out "$work/x"
refuses 2 "must be multiples of 8" $pair --height 36 --out "$work/x"
refuses 2 "one more than a multiple of 4" $pair --frames 10 --out "$work/x"
mv "$work/t2v/transformer_2" "$work/t2v/away"
refuses 2 "neither transformer_2 nor low_noise_model" $pair --out "$work/x"
[ -e "$work/x" ] && fail "a refused run left files"

finish
