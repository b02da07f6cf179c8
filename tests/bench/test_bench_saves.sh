#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench-saves.sh measures a small model on the CPU, with a thread that saves and without.
. "${srcdir:-.}/tests/model/programs.sh"
tiny="--model tiny --device cpu --dtype fp32 --threads 1 --hidden 32 --heads 4 --layers 1 --mlp 64
    --length 16 --batch 1"
for sync in "" yes; do
    runs "the file of .* GB/s of dd" env STEPS=8 HOST=64M DIR="$work" SYNC=$sync \
        sh "${srcdir:-.}/tests/bench/bench-saves.sh" $tiny
    grep -q "^a step without a save  *[0-9.]* ms, [1-9]" "$work/out" || fail "no step: $(cat "$work/out")"
    grep -q "^the step of the save  *-*[0-9.]* ms more" "$work/out" || fail "no stall: $(cat "$work/out")"
done
refuses 1 "STEPS is at least 4" env STEPS=2 HOST=64M DIR="$work" sh "${srcdir:-.}/tests/bench/bench-saves.sh" $tiny
ls "$work"/saves.* >/dev/null 2>&1 && fail "files are left"
finish
