#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of doc/recipe-cogvideox.md, on a CPU with a tiny model of random weights.
. "${srcdir:-.}/tests/recipes/pages.sh"
small="--device cpu --threads 1 --vram 2G --host 1G"
program video-encode $small --size 32x16 --frames 9
program cogvideo-train $small --batch 1 --steps 3 --warmup 1 --snr-shift 1 --sample-steps 1
program cogvideo-sample $small --steps 2 --snr-shift 1 --frames 9 --height 16 --width 32 --output rbbt.rgb

# What the download brings.
tiny=$work/tiny
mkdir "$tiny" "$tiny/transformer" "$tiny/vae" "$tiny/text_encoder" "$tiny/tokenizer"
[ -x tests/cogvideo/test_vae ] || exit 77
tests/cogvideo/test_vae model "$tiny/vae" >/dev/null || fail "no autoencoder"
sed 's/"text_embed_dim": 12/"text_embed_dim": 24/; s/"max_text_seq_length": 5/"max_text_seq_length": 226/' \
    "$root/tests/cogvideo/5b/config.json" >"$tiny/transformer/config.json"
cp "$root"/tests/text/t5/* "$tiny/text_encoder"
cp "$root"/tests/text/tokenizer/* "$tiny/tokenizer"
runs "memory:" ./cogvideo-train --model "$tiny" --random --data random --frames 9 --size 32x16 --device cpu \
    --threads 1 --steps 1 --save "$tiny/transformer/diffusion_pytorch_model.safetensors"
downloads cogvideox
run_page doc/recipe-cogvideox.md 5
[ -s "$work/home/adapter/pytorch_lora_weights.safetensors" ] || fail "no adapter"
[ -s "$work/home/rbbt.rgb" ] || fail "no sample"
finish
