#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Five steps of AdamW of ten models against PyTorch (make_steps.py): updates as near as its own fp32 is
# to its fp64, or to 1e-4.
. "${srcdir:-.}/tests/model/programs.sh"
train=${PT2_TRAIN:-./pt2-train} shards=./tests/pt2/shards compare=./tests/pt2/compare_steps
models=$root/tests/import/models
[ -x "$train" ] && [ -x "$shards" ] && [ -x "$compare" ] && command -v gzip >/dev/null || exit 77

gzip -dc "$root/tests/pt2/steps.safetensors.gz" >"$work/steps.safetensors"
for name in bert gpt2 llama vit whisper norms volume unet cogvideo wan; do
    gzip -dc "$models/$name.pt2.gz" >"$work/model.pt2"
    gzip -dc "$models/$name.safetensors.gz" >"$work/reference"
    rm -rf "$work/data" && mkdir "$work/data"
    "$shards" "$work/reference" "$work/data" 5 2 || fail "no samples of $name"
    case $name in
    unet | cogvideo | wan) loss="--loss mse:target" ;;
    *) loss= ;;
    esac
    runs "weights:" "$train" --model "$work/model.pt2" --data "$work/data" $loss --keep-order --clip-norm 0 --steps 5 \
        --lr 1e-3 --threads 1 --save "$work/weights"
    "$compare" "$work/steps.safetensors" $name "$work/weights" || fail "other updates: $name"
done
finish
