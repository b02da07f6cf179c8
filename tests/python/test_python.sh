#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plain Python reads what libckpt writes: the graph of a model exported from PyTorch, which is
# planned under two budgets, and the plans.
set -eu
. "${srcdir:-.}/tests/first_failure.sh"
examples=$srcdir/examples/python
command -v python3 >/dev/null || exit 77
command -v gzip >/dev/null || exit 77
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE

# says WORDS SCRIPT FILE...: the script runs and prints a line that begins so.
says() {
    words=$1
    script=$2
    shift 2
    python3 "$examples/$script" "$@" >"$work/said" 2>&1 || fail "$script: $(tail -1 "$work/said")"
    grep -q "^$words" "$work/said" || fail "$script: no '$words' in: $(cat "$work/said")"
}

graph=$work/gpt2.graph
gzip -dc "$srcdir/tests/import/models/gpt2.pt2.gz" >"$work/gpt2.pt2"
./ckpt import "$work/gpt2.pt2" --graph-out "$graph" >/dev/null || fail "the archive has no graph"

# Both see the same peak, with two digits after the point.
./ckpt plan --graph "$graph" --machine cpu >"$work/free" || fail "the graph is not planned"
peak=$(sed -n 's/^ *peak of live bytes *\([0-9.]*\) KiB.*/\1/p' "$work/free" |
    awk '{ printf "%.2f MiB", $1 / 1024 }')
says "peak *$peak" read_graph.py "$graph"

least=$(sed -n 's/^ *smallest feasible budget *\([0-9.]*\) \([KM]\)iB.*/\1\2/p' "$work/free")
[ -n "$least" ] || fail "no smallest budget: $(cat "$work/free")"
bytes=$(awk -v s="$least" 'BEGIN { print int((s + 0.01) * (s ~ /K/ ? 1024 : 1048576)) }')
for budget in "$bytes" $((bytes + bytes / 8)); do
    ./ckpt plan --graph "$graph" --machine cpu --vram "$budget" --out "$work/plan" >"$work/table" ||
        fail "no plan within $budget bytes"
    says device read_plan.py "$work/plan"
    awk -v most="$budget" '/^device/ { exit !($2 * 1048576 <= most + 5243) }' "$work/said" ||
        fail "the plan passes $budget bytes: $(cat "$work/said")"
done
./ckpt plan --graph "$graph" --machine cpu --vram 100K >"$work/table" 2>&1 &&
    fail "100 KiB were not refused"
grep -q "needs at least" "$work/table" || fail "no sentence: $(cat "$work/table")"

# A graph whose ops take no time is planned, too.
sed 's/^\(op [a-z]* [0-9]* [0-9]* [^ ]* [^ ]* [0-9a-f]*\) [^ ]*/\1 0/' "$graph" >"$work/timeless"
./ckpt plan --graph "$work/timeless" >/dev/null || fail "a graph without seconds is not planned"

says "cpu:" read_machine.py "$srcdir/machines/cpu.json"
says "F32 *\[64, 64\]\|F32 " read_safetensors.py "$srcdir/tests/model/lm/gpt2/model.safetensors"
./lm-train --model tiny --data random --steps 2 --log "$work/log" >"$work/out" 2>&1 ||
    fail "lm-train: $(tail -1 "$work/out")"
says "step 2  loss" read_log.py "$work/log"
