#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# floor.py on a small step: its units add up to the plan's compute, recompute included, their floor
# is no more, and a product's time of --alone is its floor.
set -u
. "${srcdir:-.}/tests/model/programs.sh"
command -v python3 >"$work/python" || exit 77
floor="python3 $root/tests/bench/floor.py $work/graph $work/plan --machine $root/machines/h200-141.json"

# plan OPTION...
plan() {
    runs "predicted step" "${STDIT_TRAIN:-./stdit-train}" --model XL/2 --depth 1 --dtype bf16 --latent 15x46x80 \
        --machine "$root/machines/h200-141.json" --graph-out "$work/graph" --plan-out "$work/plan" \
        --plan-only "$@"
}

# cell N [floor]: the number of the row in column N, or the one in brackets.
cell() {
    awk -F '|' -v at="$1" -v which="${2:+3}" '{
        split($(at + 2), v, /[ ()]+/)
        print v[which == "" ? 2 : which] }' "$work/row"
}

check() {
    $floor >"$work/row" || fail "floor.py"
    compute=$(awk '$1 == "seconds" { s = $2 } $1 == "exposed_seconds" { e = $2 }
        END { print 1e3 * (s - e) }' "$work/plan")
    sum=0 least=0
    for unit in 2 3 4 5 6 7; do
        sum=$(echo "$sum $(cell $unit)" | awk '{ print $1 + $2 }')
        [ $unit = 7 ] || least=$(echo "$least $(cell $unit floor)" | awk '{ print $1 + $2 }')
    done
    echo "$sum $compute" | awk '{ exit !($1 > $2 - .4 && $1 < $2 + .4) }' ||
        fail "units take $sum ms, the plan $compute"
    echo "$least $sum" | awk '{ exit !($1 > 0 && $1 <= $2) }' || fail "floor $least of $sum ms"
}

plan --vram none
check
whole=$compute
runs 256 python3 "$root/tests/bench/floor.py" "$work/graph" --print-products
sed 's/.*/"&": 0.001/; $!s/$/,/; 1s/^/{/; $s/$/}/' "$work/out" >"$work/alone"
$floor --alone "$work/alone" >"$work/row"
cell 2 floor | awk '{ exit !($1 >= 10) }' || fail "products alone do not count: $(cat "$work/row")"

plan --vram 2600M
check
[ "$whole" != "$compute" ] || echo "no recompute under 2600M"
exit $((failures > 0))
