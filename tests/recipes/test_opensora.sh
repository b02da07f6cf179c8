#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of doc/recipe-opensora.md, on a CPU with tiny models of random weights.
. "${srcdir:-.}/tests/recipes/pages.sh"
small="--device cpu --threads 1 --vram 1G --host 1G"
model="--model tiny --hidden 24 --heads 2 --depth 1 --caption-channels 24 --text-tokens 40"
program video-encode $small --vae-model tiny --size 16x16 --frames 5 --text-tokens 40
program stdit-train $small $model --steps 3 --warmup 1 --ema-decay 0.5
program stdit-sample $small $model --vae-model tiny --size 16x16 --frames 5 --steps 2 --text-tokens 40
program ckpt

# What the downloads bring.
hub=$work/hub
mkdir -p "$hub/OpenSora-STDiT-v3" "$hub/OpenSora-VAE-v1.2" "$hub/t5/text_encoder" "$hub/t5/tokenizer"
cp "$root"/tests/text/t5/* "$hub/t5/text_encoder"
cp "$root"/tests/text/tokenizer/* "$hub/t5/tokenizer"
runs "memory" ./vae-train --device cpu --threads 1 --size 16x16 --lengths 5 --image-share 0 \
    --video "$root/examples/data/bunny.rgb" --steps 1 --output "$work/v" --save "$hub/OpenSora-VAE-v1.2/model.safetensors"
runs "memory" ./stdit-train --device cpu --threads 1 $model --latent 2x2x2 --in-channels 4 --steps 1 --sample-steps 0 \
    --save "$hub/OpenSora-STDiT-v3/model.safetensors"
stand_in hf <<SH
for to; do :; done
[ "\$1" = download ] && cp -r "$hub/\$to" "\$to"
SH
mkdir "$work/home/videos"
for name in a b; do
    cp "$root/examples/data/bunny.rgb" "$work/home/videos/$name.rgb"
    echo "a rabbit in a meadow, $name" >"$work/home/videos/$name.txt"
done
if ! ./text-encode --family opensora --model "$hub/t5" --device cpu --threads 1 --prompts "$work/home/videos/a.txt" \
    --output "$work/y" >"$work/out" 2>&1; then
    grep -q "built without" "$work/out" && exit 77
    fail "$(cat "$work/out")"
fi
run_page doc/recipe-opensora.md 5
[ -s "$work/home/tuned.safetensors" ] || fail "no weights"
[ -n "$(find "$work/home/samples" -name '*.png')" ] || fail "no sample"
finish
