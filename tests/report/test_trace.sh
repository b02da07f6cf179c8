#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The trace of a step: a viewer can read it, it agrees with --profile and with the plan, it has the
# copies of every tier, planned and measured, and the run has the bits of a run without it.
. "${srcdir:-.}/tests/model/programs.sh"
train=${STDIT_TRAIN:-./stdit-train} ckpt=${CKPT_COMMAND:-./ckpt} check=./tests/report/check_trace
job=./tests/torture/job vae=${VAE_TRAIN:-./vae-train}
[ -x "$train" ] && [ -x "$vae" ] && [ -x "$ckpt" ] && [ -x "$check" ] && [ -x "$job" ] || exit 77
small="--hidden 24 --heads 2 --depth 2 --caption-channels 8 --text-tokens 4 --latent 2x4x4 --threads 1"

# traced FILE: what the checker says of it is in $work/said.
traced() {
    "$check" "$@" >"$work/said" || fail "$1: $(cat "$work/said")"
}

says() {
    grep -q -x -- "$1" "$work/said" || fail "no \"$1\" in: $(cat "$work/said")"
}

# ---- one step: every op ran once -----------------------------------------------------------------

runs "first runs " "$train" $small --steps 1 --profile
runs "profile: op" "$train" $small --steps 1 --profile --trace-out "$work/one.json" \
    --graph-out "$work/graph" --plan-out "$work/plan"
cp "$work/out" "$work/table"
traced "$work/one.json"
# The table has milliseconds to three places, in the order of names.
awk '/profile: op/ { inside = 1; next } $1 == "all" { inside = 0 }
     inside { print $1, $2, $3 }' "$work/table" | sort >"$work/profile"
sed -n 's/^ms //p' "$work/said" | sort >"$work/sums"
[ "$(wc -l <"$work/profile")" -gt 10 ] || fail "the profile has few kinds of ops"
paste -d ' ' "$work/profile" "$work/sums" | awk '
    $1 != $4 || $2 != $5 { print "other kinds or runs: " $0; exit 1 }
    { d = $3 - $6; if (d < -0.001 || d > 0.001) { print "other times: " $0; exit 1 } }' ||
    fail "trace and --profile differ"
# As many bytes as the plan has at its fullest step, and no others in what was measured.
most=$(awk '$1 == "persistent" || $1 == "load" { n += $2 } END { print n }' "$work/plan")
says "planned device bytes most $most"
says "measured device bytes most $most"

# The plan alone, from its files: the same planned events.
"$ckpt" plan --graph "$work/graph" --plan-in "$work/plan" --timeline "$work/plan.json" >/dev/null ||
    fail "--timeline plan.json"
traced "$work/plan.json"
! grep -q measured "$work/said" || fail "a plan was measured"
grep '"pid":1' "$work/one.json" | sed 's/,$//' >"$work/planned"
grep '"pid":1' "$work/plan.json" | sed 's/,$//' | cmp - "$work/planned" || fail "another plan"

# ---- tiers, micro-steps, recompute ---------------------------------------------------------------

slow="--device cpu --threads 1 --micro-batch 4096 --machine $root/tests/torture/slow.json"
runs plan: "$job" 3 8192 - - "$work/plain" $slow
mkdir "$work/nvme"

# names PID: of the copies, in order.
names() {
    grep "\"pid\":$1" "$work/tier.json" | sed -n 's/.*"name":\("[^"]*"\),"cat":"copy".*/\1/p' | sort
}

# tier BUDGET OPTION...: a run with the bits of one without a budget, and its trace.
tier() {
    runs "offloads" "$job" 3 8192 - - "$work/weights" $slow --trace-out "$work/tier.json" --vram "$@"
    cmp "$work/plain" "$work/weights" || fail "$*: other bits"
    traced "$work/tier.json"
}

# planned_and_measured QUEUE NAME
planned_and_measured() {
    for process in planned measured; do
        grep -q "^$process $1 [1-9]" "$work/said" || fail "no $process $1 in $(cat "$work/said")"
    done
    names 1 | grep -q " $2\"" && names 2 | grep -q " $2\"" || fail "no copy $2"
}

tier 7M --host 32M
planned_and_measured "copies out" "to host memory"
planned_and_measured "copies in" "from host memory"
# These are in one piece, in each of the two micro-steps: as many as planned.
[ "$(names 1)" = "$(names 2)" ] || fail "other copies than planned: $(names 1) $(names 2)"
grep -q '"micro":1,' "$work/tier.json" || fail "one micro-step"
tier 7M --nvme "$work/nvme:32M"
planned_and_measured "NVMe writes" "to NVMe"
planned_and_measured "NVMe reads" "from NVMe"
"$job" 1 8192 - - - $slow --vram 1K >/dev/null 2>"$work/err"
runs plan: "$job" 3 8192 - - "$work/weights" $slow --vram "$(needed)" --trace-out "$work/tier.json"
cmp "$work/plain" "$work/weights" || fail "other bits"
traced "$work/tier.json"
for pid in 1 2; do
    grep "\"pid\":$pid" "$work/tier.json" | grep -q '"cat":"recompute"' || fail "nothing runs again"
done

# ---- several programs ----------------------------------------------------------------------------

# Those that ran each have what was planned and measured, in the order of their compile.
# several LENGTHS STEPS PROGRAMS
several() {
    rm -f "$work/log"
    runs "PSNR" "$vae" --groups 2 --spatial-widths 4,4 --temporal-widths 4,4,4 --size 16x8 --threads 1 \
        --video "$root/examples/data/bunny.rgb" --image-share 0 --lengths "$1" --steps "$2" \
        --log "$work/log" --save "$work/weights" --trace-out "$work/programs.json"
    traced "$work/programs.json"
    for process in planned measured; do
        [ "$(grep -c "^program [0-9]*, $process compute [1-9]" "$work/said")" = "$3" ] ||
            fail "not $3 programs $process: $(cat "$work/said")"
    done
}
several 1,3-5 12 4
[ "$(sed -n 's/^{"step".*"frames": \([0-9]*\),.*/\1/p' "$work/log" | sort -u | wc -l)" = 4 ] ||
    fail "not all programs ran: $(cat "$work/log")"
grep "compute" "$work/said" | cut -d' ' -f2 >"$work/order"
sort -n -c "$work/order" || fail "another order: $(cat "$work/order")"
several 1-10 40 8

# ---- two ranks -----------------------------------------------------------------------------------

RANK=1 WORLD_SIZE=2 "$train" $small --steps 2 --ranks "file:$work/meet" \
    --trace-out "$work/ranks.json" >/dev/null 2>&1 &
runs "step" env RANK=0 WORLD_SIZE=2 "$train" $small --steps 2 --ranks "file:$work/meet" \
    --trace-out "$work/ranks.json"
wait $! || fail "rank 1"
traced "$work/ranks.json"
grep -q "^measured collectives [1-9]" "$work/said" || fail "no collectives: $(cat "$work/said")"

# ---- refused -------------------------------------------------------------------------------------

refuses 2 "nothing would be written: --plan-only" "$train" $small --plan-only --trace-out "$work/x"
refuses 2 "no step is timed" env CKPT_TRACE_OUT="$work/x" ./examples/mlp --plan-only
refuses 1 "is a directory" "$train" $small --trace-out "$work"
[ ! -e "$work/x" ] || fail "a trace of no step"

# A trace that cannot be right does not pass.
sed 's/"ts":[1-9][0-9]*\./"ts":0./' "$work/one.json" >"$work/broken.json"
"$check" "$work/broken.json" >/dev/null && fail "slices that overlap passed"
finish
