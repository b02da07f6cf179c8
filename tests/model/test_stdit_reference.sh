#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The whole model against a float64 reference: stdit-train runs one step on stored features, from
# stored weights, and dumps loss, prediction and all gradients.  Frame masks, packed text with a
# hole, an odd latent height and the per-frame choice of modulations are all in it.
#
# fp32: 1e-5 for the loss, the prediction, all gradients as one vector and each gradient alone.
# bf16: 2e-2 for the same; a gradient with less than 1 % of the whole norm (those of q_norm, k_norm
# and the cross attention's q_linear: what is left when softmax terms cancel) is measured against 1 %.
set -eu

. "${srcdir:-.}/tests/model/programs.sh"

here=$root/tests/model
train=${STDIT_TRAIN:-./stdit-train}
compare=${COMPARE:-./tests/model/compare}

# run NAME TYPE TOLERANCE FLOOR [OPTION]...
run() {
    name=$1 dtype=$2 tolerance=$3 floor=$4
    shift 4
    echo "$name"
    CKPT_VERIFY=1 "$train" --device "${CKPT_DEVICE:-cpu}" --dtype "$dtype" --features "$here/stdit_features.safetensors" \
        --load "$here/stdit_weights.safetensors" --dump "$work/$name.safetensors" \
        --hidden 24 --heads 2 --depth 2 --in-channels 4 --caption-channels 20 --text-tokens 10 \
        --batch 2 --steps 1 --warmup 0 --lr 0 "$@" >"$work/$name.log" 2>&1 || {
        cat "$work/$name.log"
        exit 1
    }
    "$compare" "$here/stdit_expected.safetensors" "$work/$name.safetensors" "$tolerance" "$floor"
}

run fp32 fp32 1e-5 0 --plan-out "$work/plan"
run fp32-micro fp32 1e-5 0 --micro-batch 1
# Once more in the least memory that the plan of the first run names: much is computed again.
least=$(possible "$work/fp32.log")
run fp32-least fp32 1e-5 0 --vram "$least"
run bf16 bf16 2e-2 1e-2
