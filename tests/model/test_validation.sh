#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --val of stdit-train (validation.sh).
set -u

. "${srcdir:-.}/tests/model/programs.sh"

features=$root/tests/model/stdit_features.safetensors
train="${STDIT_TRAIN:-./stdit-train} --hidden 24 --heads 2 --depth 1 --device cpu --threads 1
    --features $features --warmup 0 --lr 1e-2"
levels="91 182 273 364 455 545 636 727 818 909"

. "$root/tests/model/validation.sh"
