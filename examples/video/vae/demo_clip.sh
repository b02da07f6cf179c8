#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From clip to clip: an autoencoder, a diffusion model on what it encodes, and a clip drawn from
# both.  usage: demo_clip.sh DIRECTORY, in the source tree, with the programs in $PROGRAMS.
set -e
bin=${PROGRAMS:-.} out=$1
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY-passive}"
mkdir -p "$out"
"$bin/vae-train" --steps 500 --image-share 0 --output "$out/vae" --save "$out/vae.safetensors"
"$bin/stdit-train" --video-dir examples/data/bunny.mp4 --vae "$out/vae.safetensors" --stride 3 \
    --frames 5 --clips 1 --steps 600 --sample-steps 0 --save-ema "$out/stdit.safetensors"
"$bin/stdit-sample" --load "$out/stdit.safetensors" --vae "$out/vae.safetensors" --frames 5 \
    --fps 8 --output "$out"
