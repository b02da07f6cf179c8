#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The zoo: every program learns, and under half of the memory that it takes without a budget it
# prints the same losses, to the last bit.  Losses, gradients and parameters of three steps are the
# same, byte for byte, without a budget, under half of it and under the smallest possible one, with
# freed memory poisoned; and they agree with fp64 (compare_dump.c).  The programs are the arguments,
# or all.
set -eu

zoo=${ZOO:-./examples/zoo}
compare=${COMPARE:-./tests/zoo/compare_dump}
references=${srcdir:-.}/tests/zoo/references
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: "${OMP_WAIT_POLICY:=passive}" # two threads that spin starve each other on a busy machine
export OMP_WAIT_POLICY
unset CKPT_VRAM CKPT_MICRO_BATCH CKPT_VERIFY

fail() {
    echo "FAIL: $*"
    exit 1
}

# The largest peak among the plans that a program prints, in KiB.
peak() {
    awk '$1 == "peak" {
        n = $2 * ($3 == "GiB" ? 1048576 : $3 == "MiB" ? 1024 : $3 == "KiB" ? 1 : 1 / 1024)
        if (n > most) most = n
    } END { print most }' "$1"
}

# dump NAME FILE OPTION...: three steps, written to a file.
dump() {
    name=$1 file=$2
    shift 2
    CKPT_VERIFY=1 "$zoo/$name" --dump "$work/$file" "$@" >/dev/null 2>"$work/error"
}

# Dumps under the smallest budget, which the refusals of smaller ones name, one of each program of
# the context at the most; prints it.
dump_least() {
    budget=1K
    for _ in 1 2 3 4; do
        dump "$1" least.dump --vram "$budget" && echo "$budget" && return
        budget=$(sed -n 's/.*needs at least \([0-9]*\) bytes.*/\1/p' "$work/error")
        [ -n "$budget" ] || break
    done
    fail "$1 under its smallest budget: $(cat "$work/error")"
}

[ $# -gt 0 ] || set -- ddpm gan lstm moe resnet ssm t5 unet2d unet3d vit
for name; do
    "$zoo/$name" >"$work/free" 2>"$work/error" || fail "$name: $(cat "$work/error" "$work/free")"
    free=$(peak "$work/free")
    half=$(awk "BEGIN { printf \"%d\", $free * 512 }")
    "$zoo/$name" --vram "$half" >"$work/half" 2>"$work/error" ||
        fail "$name --vram $half: $(cat "$work/error")"
    for run in free half; do
        grep -E "^(step|learned)" "$work/$run" >"$work/$run.lines" || fail "$name: no losses"
    done
    cmp -s "$work/free.lines" "$work/half.lines" || {
        diff "$work/free.lines" "$work/half.lines" || true
        fail "$name: half of the memory changed the numbers"
    }
    awk "BEGIN { exit !($(peak "$work/half") <= $half / 1024 + 1) }" ||
        fail "$name: the plan is over its budget"
    dump "$name" free.dump || fail "$name --dump: $(cat "$work/error")"
    dump "$name" half.dump --vram "$half" || fail "$name --dump --vram $half: $(cat "$work/error")"
    least=$(dump_least "$name") || fail "$least"
    for run in half least; do
        cmp "$work/free.dump" "$work/$run.dump" || fail "$name: a budget changed the numbers ($run)"
    done
    "$compare" "$references/$name.txt" "$work/free.dump" >"$work/compared" ||
        fail "$name against fp64: $(cat "$work/compared")"
    echo "$name: $free KiB, the same in half and in $((least / 1024)) KiB;" \
        "$(tail -n 1 "$work/compared"); $(tail -n 1 "$work/free.lines")"
done
echo ok
