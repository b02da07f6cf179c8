#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# doc/scaling.md has the tables of doc/scaling.csv, and its picture; some of its rows are planned again;
# predictions are as near to published rates as the page says.
. "${srcdir:-.}/tests/model/programs.sh"
command -v python3 >/dev/null || exit 77
case $root in /*) ;; *) root=$PWD/$root ;; esac
study=$root/tests/bench/scaling.py
python3 "$study" --table "$root/doc/scaling.csv" | grep '^|' >"$work/tables" || fail "no tables"
awk '/^## / { planned = /One clip on two GPUs/ } /^\|/ && !planned' "$root/doc/scaling.md" >"$work/page"
cmp -s "$work/tables" "$work/page" || fail "doc/scaling.md has not the tables of: scaling.py --table doc/scaling.csv"
python3 "$study" --svg "$root/doc/scaling.csv" >"$work/picture" || fail "no picture"
cmp -s "$work/picture" "$root/doc/scaling.svg" || fail "doc/scaling.svg is not that of: scaling.py --svg doc/scaling.csv"
python3 "$study" --check "$root/doc/scaling.csv" "Qwen:400:64" "Llama 3.1 8B, compiled:400:128" "MPT 125M:200:64" \
    >"$work/out" 2>&1 || fail "$(cat "$work/out")"
# "rows | within 1 % | ...": ten rows within 5 %.
awk -F'|' '/^\| rows/ { head = NR } head && NR == head + 2 { near = $5 } END { exit near < 10 }' "$work/tables" ||
    fail "fewer than ten rows within 5 %"
finish
