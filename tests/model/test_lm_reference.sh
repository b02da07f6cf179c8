#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The language models against Hugging Face's in float64 (make_lm_reference.py): lm-train runs one
# step from weights in their files, among them several with an index, on tokens in the files of
# llm.c and LLMQ, and dumps loss, scores and all gradients.
#
# fp32: 1e-5 for the loss, the scores, all gradients as one vector and each gradient alone; 3e-5 in
# micro-steps.  bf16: 3e-2, against 1 % of the whole norm where a gradient is smaller.
set -eu

. "${srcdir:-.}/tests/model/programs.sh"

train=${LM_TRAIN:-./lm-train}
compare=${COMPARE:-./tests/model/compare}

# run NAME MODEL TYPE TOLERANCE FLOOR [OPTION]...
run() {
    name=$1 here=$root/tests/model/lm/$2 dtype=$3 tolerance=$4 floor=$5
    shift 5
    echo "$name"
    CKPT_VERIFY=1 "$train" --device "${CKPT_DEVICE:-cpu}" --dtype "$dtype" --model "$here" \
        --load "$here" --data "$here/tokens.bin" --in-order --batch 2 --length 12 --steps 1 \
        --warmup 0 --lr 0 --dump "$work/$name.safetensors" "$@" >"$work/$name.log" 2>&1 || {
        cat "$work/$name.log"
        exit 1
    }
    grep "missing\|unexpected" "$work/$name.log" && exit 1
    "$compare" "$here/expected.safetensors" "$work/$name.safetensors" "$tolerance" "$floor"
}

for model in gpt2 llama qwen2; do
    run $model-fp32 $model fp32 1e-5 0 --plan-out "$work/plan"
    run $model-least $model fp32 1e-5 0 --vram "$(possible "$work/$model-fp32.log")"
    run $model-bf16 $model bf16 3e-2 1e-2
done
# Masks, whole words and pairs of BERT are drawn from counters, so they are those of the reference.
# The gradient of the biases of keys is rounding alone, hence a floor.
masks="--next-sentence --whole-words --mask-share 0.4"
if "$train" --plan-only --model "$root/tests/model/lm/bert" --length 12 --data random >"$work/log" 2>&1; then
    # shellcheck disable=SC2086
    run bert-fp32 bert fp32 1e-5 1e-3 $masks --plan-out "$work/plan"
    # shellcheck disable=SC2086
    run bert-least bert fp32 1e-5 1e-3 $masks --vram "$(possible "$work/bert-fp32.log")"
    # shellcheck disable=SC2086
    run bert-micro bert fp32 3e-5 1e-3 $masks --micro-batch 1
    # shellcheck disable=SC2086
    run bert-bf16 bert bf16 3e-2 1e-2 $masks
else
    grep "without PCRE2\|needs ICU" "$work/log"
fi
# The mean over a micro-step is over the targets that count in it, so qwen2 is not among these.
run gpt2-micro gpt2 fp32 3e-5 0 --micro-batch 1
run llama-micro llama fp32 3e-5 0 --micro-batch 1
