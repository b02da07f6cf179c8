#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The kernels for compute capability 8.0 and 8.9, on a Hopper card that looks like such a card
# (older_card.c): all tests of single kernels, and weights that have the same bits under every
# budget.  Skipped without a card of compute capability 9.0.
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1)
if [ "$capability" != 9.0 ] || [ "${CUDA_VISIBLE_DEVICES-all}" = "" ]; then
    echo "skipped: no card of compute capability 9.0"
    exit 77
fi
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failed=0

# older COMMAND...: on a card of capability $card
older() {
    CKPT_TEST_CAPABILITY=$card LD_PRELOAD=$PWD/tests/gpu/older_card.so timeout 120 "$@" \
        >"$dir/output" 2>&1
}

fail() {
    echo "FAIL: $*"
    sed 's/^/    /' "$dir/output"
    failed=1
}

# Tests of kernels for Hopper alone are skipped, as on the older card.
check_kernels() {
    for test in attention attention_dx heads cross_entropy adamw fp8 frozen gemm_gated gemm_gelu \
        int8 products variants; do
        [ -x tests/gpu/test_gpu_$test ] || continue
        older ./tests/gpu/test_gpu_$test
        status=$?
        [ $status = 0 ] || [ $status = 77 ] || fail "compute capability $card: $test"
    done
}

train() {
    rm -f "$dir/weights"
    older ./lm-train --device cuda --model gpt2-124M --data random --dtype bf16 \
        --grad-dtype bf16 --length 512 --batch 4 --steps 4 --save "$dir/weights" "$@" ||
        fail "compute capability $card: lm-train $*"
}

check_budgets() {
    train
    mv "$dir/weights" "$dir/free"
    train --vram 4G --host 8G
    cmp -s "$dir/weights" "$dir/free" || fail "compute capability $card: a budget changes the bits"
}

for card in 80 89; do
    check_kernels
    check_budgets
done
exit $failed
