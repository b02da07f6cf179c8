#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of the pages about videos and prompts, on a CPU with tiny models of random weights.
. "${srcdir:-.}/tests/recipes/pages.sh"
small="--device cpu --threads 1"
model="--model tiny --hidden 24 --heads 2 --depth 1 --caption-channels 24 --text-tokens 40"
home=$work/home
./ckpt info | grep -q "FFmpeg *yes" || exit 77
program ckpt
program vae-train $small --model tiny --size 16x16 --lengths 5 --steps 2
program vae-encode $small --model tiny
program vae-decode $small --model tiny
program video-encode $small --vae-model tiny --text-tokens 40
program text-encode $small
program stdit-train $small $model --steps 3 --sample-steps 0 --time-limit 5m --dtype fp32
program stdit-sample $small $model --vae-model tiny --size 16x16 --frames 34 --steps 1 --text-tokens 40 --dtype fp32

# What is there before.
tiny=$work/tiny
mkdir -p "$tiny/t5-v1_1-xxl" "$tiny/videos" "$tiny/CogVideoX-5b/text_encoder" "$tiny/CogVideoX-5b/tokenizer"
cp "$root"/tests/text/t5/* "$root"/tests/text/tokenizer/* "$tiny/t5-v1_1-xxl"
cp "$root"/tests/text/t5/* "$tiny/CogVideoX-5b/text_encoder"
cp "$root"/tests/text/tokenizer/* "$tiny/CogVideoX-5b/tokenizer"
runs memory ./vae-train $small --size 16x16 --lengths 5 --image-share 0 --video "$root/examples/data/bunny.rgb" --steps 1 \
    --output "$work/v" --save "$tiny/vae.safetensors"
runs memory ./stdit-train $small $model --latent 2x2x2 --in-channels 4 --steps 1 --sample-steps 0 --save "$tiny/stdit.safetensors"
# A video of 20 frames that is large enough for a bucket, by the way of latents.
{
    echo "RGBCLIP 256 144 20 8"
    head -c 110592 /dev/urandom >"$work/noise"
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do cat "$work/noise"; done
} >"$work/clip.rgb"
runs . ./vae-encode $small --load "$tiny/vae.safetensors" "$work/clip.rgb" "$work/latents.safetensors"
runs . ./vae-decode $small --load "$tiny/vae.safetensors" "$work/latents.safetensors" "$tiny/video.mp4"
for name in videos/a videos/b boat clip; do cp "$tiny/video.mp4" "$tiny/$name.mp4"; done
echo "a rabbit" | tee "$tiny/videos/a.txt" >"$tiny/videos/b.txt"
for name in boat morning night; do cp "$root/doc/clip-sample.png" "$tiny/$name.png"; done
printf 'a rabbit\na boat\n' >"$tiny/prompts.txt"
printf 'path,num_frames,height,width,text\nvideos/a.mp4,20,144,256,a rabbit\nvideos/b.mp4,20,144,256,a boat\n' >"$tiny/clips.csv"
cp "$tiny/clips.csv" "$tiny/videos.csv"
echo clip.mp4 >"$tiny/videos.txt"
echo '{"144p": {"1": [1.0, 1], "17": [1.0, 1]}}' >"$tiny/table.json"
page() {
    fresh_home
    cp -r "$tiny"/* "$home"
    mkdir "$home/OpenSora-VAE-v1.2" "$home/DeepFloyd"
    cp "$tiny/vae.safetensors" "$home/OpenSora-VAE-v1.2/model.safetensors"
    ln -s ../t5-v1_1-xxl "$home/DeepFloyd/t5-v1_1-xxl"
    run_page "$@"
}
./text-encode $small --model "$tiny/t5-v1_1-xxl" --prompts "$tiny/prompts.txt" --family opensora --output "$work/y" >"$work/out" 2>&1 || {
    grep -q "built without" "$work/out" && exit 77
    fail "$(cat "$work/out")"
}
page doc/stdit.md 1
page doc/text.md 4
page doc/vae.md 4
page doc/videos.md 1
finish
