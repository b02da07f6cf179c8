#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench-sequence.sh on two CPU ranks at its smallest size: every run ends, and ranks that split the
# tokens begin with the loss of one.
set -u

if [ ! -x ./stdit-train ] || [ ! -x ./cogvideo-train ] || ! command -v bash >/dev/null; then
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

BUILD=. STEPS=4 OUT=$work bash "${srcdir:-.}/tests/bench/bench-sequence.sh" small || exit 1
sed -n 's/.*loss \([0-9.]*\).*/\1/p' "$work/sequence.txt" >"$work/losses"
awk '{ loss[NR] = $1 } END { exit NR != 4 || !(loss[1] > 0) || loss[1] != loss[2] || loss[3] != loss[4] }' \
    "$work/losses"
