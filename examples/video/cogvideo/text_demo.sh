#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Text to video, small enough for a laptop.  A T5 with random, frozen weights encodes four prompts,
# and a small CogVideoX learns four clips with them.  Then it samples a clip for each prompt from
# the same noise.  The last line of the output is the path of a picture: the clips of the data, and
# below each the clip sampled from its prompt.
#
# usage: text_demo.sh DIRECTORY     in the source tree, which has the clip and the tokenizer
#
# PROGRAMS is the directory of the programs.  DEMO_STEPS, DEMO_SIZE, DEMO_FRAMES, DEMO_HEADS and
# DEMO_LAYERS make it smaller; DEMO_FLAGS are options of the programs.
set -eu

programs=${PROGRAMS:-.}
out=${1:?"a directory to write to"}
steps=${DEMO_STEPS:-2500}
size=${DEMO_SIZE:-32x20}
frames=${DEMO_FRAMES:-4}
heads=${DEMO_HEADS:-3} # of 32
layers=${DEMO_LAYERS:-3}
tokens=16

rm -rf "$out/data" "$out/drawn" "$out/model"
mkdir -p "$out/data" "$out/drawn" "$out/model/text_encoder" "$out/model/tokenizer" "$out/model/transformer"
cp tests/text/t5/* "$out/model/text_encoder"
cp tests/text/tokenizer/* "$out/model/tokenizer"
cat >"$out/model/transformer/config.json" <<END
{"_class_name": "CogVideoXTransformer3DModel", "activation_fn": "gelu-approximate",
 "attention_bias": true, "attention_head_dim": 32, "dropout": 0.0, "flip_sin_to_cos": true,
 "freq_shift": 0, "in_channels": 3, "out_channels": 3, "max_text_seq_length": $tokens,
 "norm_elementwise_affine": true, "norm_eps": 1e-05, "num_attention_heads": $heads,
 "num_layers": $layers, "patch_size": 4, "patch_size_t": null, "sample_frames": 17,
 "sample_height": ${size#*x}, "sample_width": ${size%x*}, "spatial_interpolation_scale": 1.0,
 "temporal_compression_ratio": 4, "temporal_interpolation_scale": 1.0, "text_embed_dim": 24,
 "time_embed_dim": 128, "timestep_activation_fn": "silu", "use_learned_positional_embeddings": false,
 "use_rotary_positional_embeddings": true}
END

"$programs/examples/video/cogvideo/text_clips" make "$out/data" "$size" "$frames"
"$programs/text-encode" --model "$out/model" --family cogvideox --length $tokens --dtype fp32 \
    --prompts "$out/data/prompts.txt" --output "$out/prompts.safetensors"
# Pixels take the place of latents: such a small clip needs no autoencoder.
# shellcheck disable=SC2086
"$programs/cogvideo-train" --model "$out/model" --random --snr-shift 1 --data "$out/data" \
    --latents "$out/data" --text "$out/prompts.safetensors" --batch 4 --steps "$steps" --warmup 20 \
    --lr 2e-3 --schedule cosine --final-lr 0.02 --weight-decay 0 --ema-decay 0.995 \
    --log "$out/log.jsonl" --save-ema "$out/weights.safetensors" ${DEMO_FLAGS-}

# The sizes of videos: 8 x 8 pixels per latent cell, 4 frames per latent frame except the first.
while read -r name && read -r prompt <&3; do
    # shellcheck disable=SC2086
    "$programs/cogvideo-sample" --model "$out/model" --snr-shift 1 --load "$out/weights.safetensors" \
        --prompt "$prompt" --frames $((4 * frames - 3)) --height $((8 * ${size#*x})) \
        --width $((8 * ${size%x*})) --solver ddim --steps 25 --guidance 1 --out "$out/drawn/$name" \
        ${DEMO_FLAGS-} >"$out/drawn.log"
done <"$out/data/videos.txt" 3<"$out/data/prompts.txt"

set -- # the clips, then what was drawn of each
while read -r name; do
    set -- "$@" "$out/data/$name.safetensors"
done <"$out/data/videos.txt"
while read -r name; do
    set -- "$@" "$out/drawn/$name/latents-1.safetensors"
done <"$out/data/videos.txt"
"$programs/examples/video/cogvideo/text_clips" show "$out/prompts.png" "$@"
echo "columns: $(paste -s -d'|' "$out/data/prompts.txt" | sed 's/|/ | /g')"
echo "$out/prompts.png"
