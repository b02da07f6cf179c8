#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A plan as a memory snapshot: Python's own unpickler reads it; a replay uses no byte twice and has
# the peak of the plan, in every tier.
. "${srcdir:-.}/tests/model/programs.sh"
train=${STDIT_TRAIN:-./stdit-train} ckpt=${CKPT_COMMAND:-./ckpt} offloaded=./tests/report/offloaded_page
job=./tests/torture/job read=$root/tests/report/read_snapshot.py
command -v python3 >/dev/null || exit 77
[ -x "$ckpt" ] && [ -x "$train" ] && [ -x "$offloaded" ] && [ -x "$job" ] || exit 77
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE

# snapshot FILE PLAN: what the reader says of it is in $work/said, with the peak of that plan.
snapshot() {
    python3 "$read" "$1" >"$work/said" 2>&1 || fail "$1: $(tail -n 2 "$work/said")"
    most=$(awk '$1 == "persistent" || $1 == "load" { n += $2 } END { print n }' "$2")
    grep -q "^device 0 most $most of" "$work/said" || fail "not $most: $(head -n 1 "$work/said")"
}

small="--hidden 24 --heads 2 --depth 2 --caption-channels 8 --text-tokens 4 --latent 2x8x8 --threads 1"
"$train" $small --plan-only --graph-out "$work/graph" >/dev/null 2>&1 || fail "no graph"
"$ckpt" plan --graph "$work/graph" --vram 1K >/dev/null 2>"$work/err"
for budget in none "$(needed)"; do
    runs "peak" "$ckpt" plan --graph "$work/graph" --vram $budget --out "$work/plan" \
        --timeline "$work/a.pickle"
    snapshot "$work/a.pickle" "$work/plan"
done
grep -q "^device 0 has workspace" "$work/said" || fail "no workspace: $(cat "$work/said")"

# Both lower tiers.
slow="--device cpu --threads 1 --micro-batch 4096 --machine $root/tests/torture/slow.json"
"$job" 1 8192 - - - $slow --graph-out "$work/graph" --plan-only >/dev/null 2>&1
for tier in "1 --host 32M" "2 --nvme $work:32M"; do
    runs "offload" "$ckpt" plan --graph "$work/graph" --machine "$root/tests/torture/slow.json" \
        --vram 7M ${tier#* } --out "$work/plan" --timeline "$work/b.pickle"
    snapshot "$work/b.pickle" "$work/plan"
    grep -q "^device ${tier%% *} most [1-9]" "$work/said" || fail "$tier: $(cat "$work/said")"
done

# Names as they come, residences over the end of the step.
"$offloaded" "$work/c.pickle" || fail "offloaded"
python3 "$read" "$work/c.pickle" >"$work/said" 2>&1 || fail "offloaded: $(cat "$work/said")"
grep -q '^device 1 has linear </script> "in" a\\b$' "$work/said" || fail "$(cat "$work/said")"
grep -q '^device 2 has w (exp_avg)$' "$work/said" || fail "$(cat "$work/said")"
finish
