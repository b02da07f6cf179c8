#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The price of memory on a whole model: stdit-train --model tiny on the clip that ships, at shares of
# what keeping everything needs and at the smallest budget there is.  The runs take turns, several
# rounds of a few steps; the first step of each is not timed.
#
# usage: bench-stdit.sh [STEPS [ROUNDS]]
set -eu

train=${STDIT_TRAIN:-./stdit-train}
video=${srcdir:-.}/examples/data/bunny.rgb
steps=${1:-4} rounds=${2:-6}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    printf 'bench: %s\n' "$1" >&2
    [ ! -f "$work/out" ] || cat "$work/out" >&2
    exit 1
}

# stdit OPTION...
stdit() {
    "$train" --model tiny --video "$video" --size 40x24 --frames 8 --batch 2 --sample-steps 0 \
        --out "$work/pictures" "$@" >"$work/out" 2>&1
}

# The bytes of the smallest budget and of the fastest plan, as the refusal of a hopeless one says.
smallest_bytes() {
    sed -n 's/.*needs at least \([0-9]*\) bytes.*/\1/p' "$work/out"
}
fastest_bytes() {
    sed -n 's/.*--vram \([0-9]*\)\([KMG]\) takes .*no more is faster.*/\1 \2/p' "$work/out" |
        awk '{ print $1 * ($2 == "K" ? 1024 : $2 == "M" ? 1048576 : 1073741824) }'
}

# Bytes of a share of what keeping everything needs.
budget_of() {
    echo $((peak * $1 / 100))
}

# run NAME BUDGET: appends the times of all steps but the first to NAME.ms; NAME.loss has all losses,
# with enough digits for every bit of an fp32.
run() {
    rm -f "$work/log"
    stdit --steps "$steps" --vram "$2" --log "$work/log" || fail "--vram $2 failed"
    sed -n 's/.*"step": .*"ms": \([^,]*\),.*/\1/p' "$work/log" | tail -n +2 >>"$work/$1.ms"
    sed -n 's/.*"step": .*"loss": \([^,]*\),.*/\1/p' "$work/log" >>"$work/$1.loss"
    sed -n 's/.*"planned_peak": \([0-9]*\), "arena_bytes": \([0-9]*\),.*/\1 \2/p' "$work/log" |
        tail -n 1 >"$work/$1.bytes"
    awk '$1 == "recompute" { percent = $4 } END { print percent + 0 }' "$work/out" \
        >"$work/$1.predicted"
}

median() {
    sort -n "$1" | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

# row NAME BUDGET TITLE
row() {
    if [ ! -f "$work/$1.ms" ]; then
        printf '%-8s no plan: it is below the smallest budget\n' "$3"
        return
    fi
    same=same
    cmp -s "$work/$1.loss" "$work/100.loss" || same=DIFFER
    awk -v title="$3" -v budget="$2" -v bytes="$(cat "$work/$1.bytes")" -v same="$same" \
        -v predicted="$(cat "$work/$1.predicted")" -v ms="$(median "$work/$1.ms")" \
        -v base="$(median "$work/100.ms")" 'BEGIN {
            split(bytes, b, " ")
            mib = 1024 * 1024
            limit = budget + 0 ? sprintf("%.2f", budget / mib) : "none"
            printf "%-8s %11s %13.2f %11.2f %9.1f %% %11.1f %7.1f %% %7s\n", title, limit,
                b[1] / mib, b[2] / mib, predicted, ms, 100 * (ms / base - 1), same }'
    [ "$same" = same ]
}

if stdit --vram 1K; then
    fail "--vram 1K was not refused"
fi
smallest=$(smallest_bytes) peak=$(fastest_bytes)
if [ -z "$smallest" ] || [ -z "$peak" ]; then
    fail "the refusal of --vram 1K names no budgets"
fi

printf '\nRecompute on STDiT tiny, 8 frames of 40 x 24, batch 2, fp32; median of %d steps, the runs in ' \
    $((rounds * (steps - 1)))
printf 'turn.\npredicted and measured: time over that of the first row.\n\n'
round=0
while [ $round -lt "$rounds" ]; do
    run 100 0
    for share in 70 50 35; do
        [ "$(budget_of $share)" -lt "$smallest" ] || run $share "$(budget_of $share)"
    done
    run smallest "$smallest"
    round=$((round + 1))
done

printf '%-8s %11s %13s %11s %11s %11s %9s %7s\n' share 'budget MiB' 'planned peak' arena predicted \
    'ms a step' measured losses
failed=0
row 100 0 '100 %' || failed=1
for share in 70 50 35; do
    row $share "$(budget_of $share)" "$share %" || failed=1
done
row smallest "$smallest" smallest || failed=1
exit $failed
