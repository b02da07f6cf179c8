#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The whole autoencoder against a float64 reference: vae-train runs one step on stored clips, from
# stored weights, and dumps loss, what came back and all gradients.  All three stages are in it; the
# last one also frame by frame, clip by clip, and in the least memory.
#
# fp32: 2e-5 for the loss, what came back, all gradients as one vector and each gradient alone; one
# with less than 1e-3 of the whole norm is measured against that.  bf16: 5e-2, and 0.1 of the norm: what
# is left of it behind many group norms is mostly rounding.
set -eu

. "${srcdir:-.}/tests/model/programs.sh"

here=$root/tests/model
train=${VAE_TRAIN:-./vae-train}
compare=${COMPARE:-./tests/model/compare}

# run NAME STAGE TENSORS TYPE TOLERANCE FLOOR [OPTION]...
run() {
    name=$1 stage=$2 tensors=$3 dtype=$4 tolerance=$5 floor=$6
    shift 6
    echo "$name"
    CKPT_VERIFY=1 "$train" --device "${CKPT_DEVICE:-cpu}" --stage "$stage" --dtype "$dtype" \
        --tensors "$here/vae_$tensors.safetensors" --load "$here/vae_weights.safetensors" \
        --latent 2 --groups 2 --spatial-widths 4,6,6 --spatial-layers 1 \
        --temporal-widths 4,4,6,8 --temporal-layers 1 --kl-weight 0.5 \
        --batch 2 --steps 1 --warmup 0 --lr 0 --dump "$work/$name.safetensors" "$@" \
        >"$work/$name.log" 2>&1 || {
        cat "$work/$name.log"
        exit 1
    }
    "$compare" "$here/vae_stage$stage.safetensors" "$work/$name.safetensors" "$tolerance" "$floor"
}

run stage1 1 image fp32 2e-5 1e-3
run stage2 2 clip fp32 2e-5 1e-3
run stage3 3 clip fp32 2e-5 1e-3 --plan-out "$work/plan"
run stage3-clips 3 clip fp32 2e-5 1e-3 --micro-batch 1
run stage3-frames 3 clip fp32 2e-5 1e-3 --frames-2d 3
# Once more in the least memory that the plan of the first run names: much is computed again.
least=$(possible "$work/stage3.log")
run stage3-least 3 clip fp32 2e-5 1e-3 --vram "$least"
run stage3-auto 3 clip fp32 2e-5 1e-3 --vram "$least" --micro-batch auto
run bf16 3 clip bf16 5e-2 0.1
