#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of doc/recipe-wan.md, on a CPU with a tiny model of random weights.
. "${srcdir:-.}/tests/recipes/pages.sh"
small="--device cpu --threads 1 --vram 2G --host 1G"
program video-encode $small --size 96x64 --frames 9
program text-encode $small
program wan-train $small --batch 1 --steps 3 --warmup 1 --sample-steps 1
program wan-sample $small --steps 2 --frames 9 --size 96x64 --output rbbt.rgb

# What the download brings.
tiny=$work/tiny
mkdir "$tiny" "$tiny/transformer" "$tiny/vae" "$tiny/text_encoder" "$tiny/tokenizer"
[ -x tests/wan/test_wan_vae ] || exit 77
tests/wan/test_wan_vae model 2.2 "$tiny/vae" >/dev/null || fail "no autoencoder"
sed 's/"in_channels": 4/"in_channels": 48/; s/"out_channels": 4/"out_channels": 48/; s/"text_dim": 8/"text_dim": 24/' \
    "$root/tests/wan/t2v/config.json" >"$tiny/transformer/config.json"
echo '{"_class_name": "WanPipeline", "expand_timesteps": true}' >"$tiny/model_index.json"
cp "$root"/tests/text/umt5/* "$tiny/text_encoder"
cp "$root/tests/tokenizer/umt5.json" "$tiny/tokenizer/tokenizer.json"
runs "memory:" ./wan-train --model "$tiny" --random --data random --frames 9 --size 96x64 --device cpu --threads 1 --steps 1 \
    --save "$tiny/transformer/diffusion_pytorch_model.safetensors"
downloads wan
run_page doc/recipe-wan.md 5
[ -s "$work/home/rbbt-wan.safetensors" ] || fail "no adapter"
[ -s "$work/home/rbbt.rgb" ] || fail "no sample"
grep -aq '"diffusion_model.blocks.0.self_attn.q.lora_up.weight"' "$work/home/rbbt-wan.safetensors" || fail "no names of ComfyUI"
finish
