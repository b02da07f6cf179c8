#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sampling with given frames against a float64 reference of Open-Sora 1.2's loop: two clips,
# guidance, frames that stay, frames noised at two times. 1e-5 of the latents in fp32.
set -eu

. "${srcdir:-.}/tests/model/programs.sh"

here=$root/tests/model
"${VAE_TRAIN:-./vae-train}" --size 16x16 --lengths 5 --image-share 0 --steps 1 --save "$work/vae" \
    --video "$root/examples/data/bunny.rgb" >"$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
}
"${STDIT_SAMPLE:-./stdit-sample}" --dtype fp32 --device "${CKPT_DEVICE:-cpu}" --vae "$work/vae" --out "$work/o" \
    --load "$here/stdit_weights.safetensors" --hidden 24 --heads 2 --depth 2 --caption-channels 20 \
    --text-tokens 10 --text "$here/stdit_sample.safetensors" --steps 6 --guidance 3 \
    --noise "$here/stdit_sample.safetensors" --latents "$work/latents" \
    --reference "$here/stdit_sample_given.safetensors" \
    --mask-strategy "0,0,-5,0,2;0,0,1,3,1,0.55;0,0,8,-1,1,0.9" >"$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
}
"${COMPARE:-./tests/model/compare}" "$here/stdit_sample_expected.safetensors" "$work/latents" 1e-5 0
