# SPDX-License-Identifier: Apache-2.0
# Read by tests of ranks on GPUs: $gpus is how many there are.  Skipped with fewer than $fewest, or
# two.
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
    gpus=$(echo "$CUDA_VISIBLE_DEVICES" | tr ',' '\n' | grep -c .)
fi
if [ "$gpus" -lt "${fewest:-2}" ]; then
    echo "skipped: $gpus GPUs"
    exit 77
fi
