#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The weights after 20 steps: a digest per trainer, dtype and number of ranks, the same under every
# budget, tier and stage of sharing, and the same as in an earlier version of the library where the
# machine computes the same bits (tests/exec/digests).
#
# usage: test_digests.sh [--all | --print]     --all: every row; --print: a new table of digests
set -u
. "${srcdir:-.}/tests/model/programs.sh"

mode=${1:-}
table=$root/tests/exec/digests
slow="--device cpu --threads 1 --machine $root/tests/torture/slow.json"
stdit="${STDIT_TRAIN:-./stdit-train} $slow --steps 20 --warmup 2 --hidden 192 --heads 2 --depth 1
    --caption-channels 16 --text-tokens 4 --latent 2x4x4 --sample-steps 0 --mask-stage 1"
vae="${VAE_TRAIN:-./vae-train} $slow --steps 20 --random 5x8x8 --spatial-widths 16,32
    --temporal-widths 32,32,32"
# Activations large enough to leave the device.
large="${VAE_TRAIN:-./vae-train} $slow --steps 3 --random 5x64x64 --spatial-widths 16,16
    --temporal-widths 16,16,16"

# The same arithmetic everywhere: one OpenBLAS kernel, which needs AVX2, and our own kernels for
# AVX-512 or AVX2, which differ.
OPENBLAS_CORETYPE=Haswell
export OPENBLAS_CORETYPE

# machine: whose bits these are.
machine() {
    simd=$(grep -m 1 '^flags' /proc/cpuinfo 2>/dev/null | tr ' ' '\n' |
        grep -E '^(avx2|avx512(f|bw|cd|dq|vl))$' | sort | tr '\n' ' ')
    clones=$(./ckpt info 2>/dev/null | sed -n 's/.*SIMD clones *//p')
    echo "$(uname -m) clones $clones $simd" | sed 's/ *$//'
}

digest() {
    [ -s "$1" ] && sha256sum "$1" | cut -c1-16
}

# expect NAME FILE: the weights in FILE are those of NAME, and new ones if it is the first of them.
expect() {
    got=$(digest "$2")
    rm -f "$2"
    [ -n "$got" ] || fail "$1: no weights: $(tail -n 2 "$work/out" "$work/err" 2>/dev/null)"
    if [ ! -e "$work/digest.$1" ]; then
        echo "$got" >"$work/digest.$1"
        echo "$1 $got" >>"$work/digests"
    fi
    [ "$got" = "$(cat "$work/digest.$1")" ] || fail "$1: the digest changed: $3"
}

# one NAME OPTION...: one rank, without a budget.
one() {
    name=$1
    shift
    "$@" --save "$work/w" >"$work/out" 2>"$work/err"
    expect "$name" "$work/w" "no budget"
}

# tight NAME TIERS COMMAND...: the smallest budget that goes with these tiers.
tight() {
    name=$1 tiers=$2
    shift 2
    "$@" $tiers --vram 64K >"$work/out" 2>"$work/err"
    smallest=$(needed)
    [ -n "$smallest" ] || fail "$name $tiers: no smallest budget: $(tail -n 1 "$work/err")"
    "$@" $tiers --vram "$smallest" --save "$work/w" >"$work/out" 2>"$work/err"
    expect "$name" "$work/w" "--vram $smallest $tiers"
}

# two NAME OPTIONS COMMAND...: two ranks.
two() {
    name=$1 options=$2
    shift 2
    options="$options --ranks file:$work/meet --save $work/w"
    RANK=1 WORLD_SIZE=2 timeout 200 "$@" $options >"$work/1" 2>&1 &
    RANK=0 WORLD_SIZE=2 timeout 200 "$@" $options >"$work/out" 2>"$work/err"
    wait $! || fail "$name: rank 1: $(tail -n 1 "$work/1")"
    expect "$name" "$work/w" "$options"
}

# budgets NAME COMMAND...: without a budget and under the smallest with each set of tiers.
budgets() {
    one "$@"
    name=$1
    shift
    tight "$name" "--host 256M" "$@"
    tight "$name" "--host 4M --nvme $work:256M" "$@"
    [ "$mode" ] || return 0
    tight "$name" "" "$@"
    tight "$name" "--nvme $work:256M" "$@"
}

budgets stdit-bf16 $stdit --dtype bf16 --batch 2
one stdit-fp32 $stdit --dtype fp32 --batch 2
budgets stdit-bf16-micro $stdit --dtype bf16 --batch 2 --micro-batch 1
one vae-fp32 $vae --dtype fp32
for zero in 0 3; do
    two stdit-bf16-2-ranks "--zero $zero" $stdit --dtype bf16 --batch 1
done
if [ "$mode" ]; then
    budgets stdit-fp32 $stdit --dtype fp32 --batch 2
    budgets stdit-bf16-narrow $stdit --dtype bf16 --grad-dtype bf16 --batch 2
    budgets stdit-fp32-micro $stdit --dtype fp32 --batch 2 --micro-batch 1
    budgets vae-fp32 $vae --dtype fp32
    budgets vae-large-fp32 $large --dtype fp32
    budgets vae-large-bf16 $large --dtype bf16
    for zero in 0 1 2 3; do
        two stdit-bf16-2-ranks "--zero $zero" $stdit --dtype bf16 --batch 1
        two stdit-fp32-2-ranks "--zero $zero" $stdit --dtype fp32 --batch 1
    done
    two stdit-bf16-2-ranks "--zero 2 --vram 20M --host 256M" $stdit --dtype bf16 --batch 1
    two vae-fp32-2-ranks "--zero 0" $vae --dtype fp32
    two vae-fp32-2-ranks "--zero 3" $vae --dtype fp32
fi

if [ "$mode" = --print ]; then
    echo "# $(machine)"
    cat "$work/digests"
elif grep -qx "# $(machine)" "$table"; then
    while read -r name digest; do
        grep -qx "$name $digest" "$table" || fail "$name: $digest is not what an earlier version gave"
    done <"$work/digests"
else
    echo "the digests of an earlier version are of another machine: $(machine)"
fi
[ $failures -eq 0 ]
