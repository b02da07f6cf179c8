#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The zoo: every program learns under half of the memory that it takes without a budget.  Losses,
# gradients and parameters of three steps, and the test of a model after them, are the same, byte for
# byte, without a budget, under half of it and under the smallest possible one, with freed memory
# poisoned; and they agree with fp64 (compare_dump.c).  One training to the end, not one a budget:
# it takes most of the time, and the steps after the third run the plan of the first three.  The
# programs are the arguments, or all.
set -eu
. "${srcdir:-.}/tests/first_failure.sh"

zoo=${ZOO:-./examples/zoo}
compare=${COMPARE:-./tests/zoo/compare_dump}
references=${srcdir:-.}/tests/zoo/references
mkdir "$work/logs"
: "${OMP_WAIT_POLICY:=passive}" # two threads that spin starve each other on a busy machine
export OMP_WAIT_POLICY
unset CKPT_VRAM CKPT_MICRO_BATCH CKPT_VERIFY

# The largest peak among the plans that a program prints, in KiB.
peak() {
    awk '$1 == "peak" {
        n = $2 * ($3 == "GiB" ? 1048576 : $3 == "MiB" ? 1024 : $3 == "KiB" ? 1 : 1 / 1024)
        if (n > most) most = n
    } END { print most }' "$1"
}

# dump NAME RUN OPTION...: three steps and a test, in files named after the run.
dump() {
    name=$1 run=$2
    shift 2
    CKPT_VERIFY=1 "$zoo/$name" --dump "$work/$run.dump" "$@" >"$work/$run" 2>"$work/error"
}

# Dumps under the smallest budget, which the refusals of smaller ones name, one of each program of
# the context at the most; prints it.
dump_least() {
    budget=1K
    for _ in 1 2 3 4; do
        dump "$1" least --vram "$budget" && echo "$budget" && return
        budget=$(sed -n 's/.*needs at least \([0-9]*\) bytes.*/\1/p' "$work/error")
        [ -n "$budget" ] || break
    done
    fail "$1 under its smallest budget: $(cat "$work/error")"
}

# lines RUN: the losses and the test that a run printed.
lines() {
    grep -E "^(step|learned)" "$work/$1" >"$work/$1.lines" || fail "$name: no losses ($1)"
}

[ $# -gt 0 ] || set -- ddpm gan lstm moe resnet ssm t5 unet2d unet3d vit
for name; do
    dump "$name" free || fail "$name --dump: $(cat "$work/error")"
    free=$(peak "$work/free")
    half=$(awk "BEGIN { printf \"%d\", $free * 512 }")
    dump "$name" half --vram "$half" || fail "$name --dump --vram $half: $(cat "$work/error")"
    least=$(dump_least "$name") || fail "$least"
    lines free
    for run in half least; do
        lines $run
        for file in dump lines; do
            cmp "$work/free.$file" "$work/$run.$file" ||
                fail "$name: a budget changed the numbers ($run)"
        done
    done
    "$compare" "$references/$name.txt" "$work/free.dump" >"$work/compared" ||
        fail "$name against fp64: $(cat "$work/compared")"
    "$zoo/$name" --vram "$half" >"$work/whole" 2>"$work/error" ||
        fail "$name --vram $half: $(cat "$work/error" "$work/whole")"
    awk "BEGIN { exit !($(peak "$work/whole") <= $half / 1024 + 1) }" ||
        fail "$name: the plan is over its budget"
    lines whole
    cp "$work/whole" "$work/logs/$name"
    echo "$name: $free KiB, the same in half and in $((least / 1024)) KiB;" \
        "$(tail -n 1 "$work/compared"); $(tail -n 1 "$work/whole.lines")"
done
# The gallery of doc/zoo.md shows them.
sh "${srcdir:-.}/tests/zoo/gallery.sh" "$zoo" "$work/logs" "$@" >"$work/zoo.svg" ||
    fail "no gallery"
for name; do
    for picture in "$work/zoo.svg" "${srcdir:-.}/doc/zoo.svg"; do
        grep -q ">$name</text>" "$picture" || fail "$picture has no $name"
    done
done
echo ok
