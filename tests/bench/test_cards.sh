#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# doc/cards.md has the tables of doc/cards.csv; some of its rows are planned again; predictions are as
# near to the measured steps as the page says.
. "${srcdir:-.}/tests/model/programs.sh"
command -v python3 >/dev/null || exit 77
case $root in /*) ;; *) root=$PWD/$root ;; esac
cards=$root/tests/bench/cards.py
python3 "$cards" --table "$root/doc/cards.csv" | grep '^|' >"$work/tables" || fail "no tables"
grep '^|' "$root/doc/cards.md" >"$work/page"
cmp -s "$work/tables" "$work/page" || fail "doc/cards.md has not the tables of: cards.py --table doc/cards.csv"
python3 "$cards" --check "$root/doc/cards.csv" "CogVideoX 5B, 49:h100-80:auto:0" "CogVideoX 5B, 49:h100-80:24G:0" \
    "GPT-2:rtx4090:auto:0" "STDiT XL/2, 51 x 360:h200-141:26G:0" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
# The errors of rows: "model ... | error | date".
awk -F'|' '/%/ {
    far = $2 ~ /CogVideoX/ ? 8 : $2 ~ /STDiT/ ? 3 : 28
    error = $7 + 0 < 0 ? -$7 : $7 + 0
    n++
    if (error > far)
        print "too far:" $0
} END { if (n < 19) print n " measured rows" }' "$work/tables" >"$work/out"
[ ! -s "$work/out" ] || fail "$(cat "$work/out")"
finish
