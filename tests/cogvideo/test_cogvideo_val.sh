#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --val of cogvideo-train (tests/model/validation.sh).
set -u

. "${srcdir:-.}/tests/model/programs.sh"

models=$root/tests/cogvideo
features=$models/5b/step.safetensors
train="${COGVIDEO_TRAIN:-./cogvideo-train} --device cpu --threads 1 --dtype fp32 --model $models/5b --snr-shift 1
    --data random --frames 9 --height 48 --width 80 --ema-decay 0.9 --warmup 0 --lr 1e-2"
levels="90 181 272 363 454 545 636 727 818 909"

. "$root/tests/model/validation.sh"
