#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The largest STDiT3 that trains on a machine: for each width the deepest model that plans, without a
# lower tier, with host memory, and with NVMe below that.  AdamW with masters, moments and EMA, weights
# and gradients in bf16, 13,800 tokens.  Nothing is run; no GPU is needed.
# Takes minutes: what goes to NVMe is slow to plan, and more so to refuse.
#
# usage: largest.sh [WIDTH...]      a multiple of 128: heads have 128 numbers
# VRAM, HOST, NVME: bytes of the tiers; MACHINE: a machine file
set -eu

train=${STDIT_TRAIN:-./stdit-train}
machine=${MACHINE:-${srcdir:-.}/machines/h200-141.json}
vram=${VRAM:-139G} host=${HOST:-100G} nvme=${NVME:-2T}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# plans WIDTH DEPTH OPTION...: whether it does; its output is in $work/out.
plans() {
    width=$1 depth=$2
    shift 2
    "$train" --model XL/2 --hidden "$width" --heads $((width / 128)) --depth "$depth" --dtype bf16 \
        --grad-dtype bf16 --latent 15x46x80 --sample-steps 0 --plan-only --machine "$machine" \
        --vram "$vram" "$@" >"$work/out" 2>&1 && return 0
    grep -q 'no plan fits' "$work/out" && return 1
    cat "$work/out" >&2
    exit 1
}

# deepest WHAT WIDTH OPTION...: from $low on, a depth that plans.
deepest() {
    what=$1 width=$2 high=0 step=8
    shift 2
    while [ "$high" -eq 0 ] || [ $((high - low)) -gt 1 ]; do
        middle=$((high ? (low + high) / 2 : low + step))
        step=$((2 * step))
        if plans "$width" "$middle" "$@"; then
            low=$middle
            parameters=$(sed -n 's/^model: .* \([0-9,]*\) trainable.*/\1/p' "$work/out")
            seconds=$(sed -n 's/^ *predicted step *//p' "$work/out")
        else
            high=$middle
        fi
    done
    printf '%5d  %-28s %5d  %16s  %s\n' "$width" "$what" "$low" "${parameters:--}" "${seconds:--}"
}

printf 'width  %-28s depth  %16s  %s\n' 'tiers' 'parameters' 'predicted step'
for width in ${@:-4096}; do
    low=0 parameters='' seconds=''
    deepest "$vram" "$width"
    deepest "$vram, host $host" "$width" --host "$host"
    deepest "$vram, host $host, NVMe $nvme" "$width" --host "$host" --nvme "/tmp:$nvme"
done
