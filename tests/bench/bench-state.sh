#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The price of small state: a small GPT on this project's pages and a small STDiT on the clip of the
# demo learn for 2,000 steps with --state fp32, bf16 and 8bit from the same seed, and fp32 and 8bit
# from further seeds.  A row has the mean loss of the last 100 steps and of the last 250.  What a
# dtype costs must be compared with the effect of a seed.  Then the error of one update against fp64,
# and what saves of a state cost a run.
#
# usage: bench-state.sh [STEPS]; SEEDS has the seeds; the first is also used for bf16.
set -eu

steps=${1:-2000}
root=${srcdir:-.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat "$root"/doc/*.md >"$work/text"
common="--steps $steps --lr 1e-3 --dtype bf16 --threads 1 --device cpu"
lm="./lm-train $common --model tiny --hidden 48 --heads 4 --layers 2 --mlp 192 --length 32 --batch 8
    --data $work/text"
stdit="./stdit-train $common --hidden 32 --heads 2 --depth 1 --frames 4 --size 16x16 --batch 4
    --sample-steps 0 --video $root/examples/data/bunny.rgb"

# row NAME STATE SEED PROGRAM OPTION...
row() {
    name=$1 state=$2 seed=$3
    shift 3
    rm -f "$work/log"
    "$@" --state "$state" --seed "$seed" --log "$work/log" >"$work/out" 2>&1 ||
        { tail -n 2 "$work/out"; exit 1; }
    sed -n 's/^{"step": [0-9]*, "loss": \([^,]*\),.*/\1/p' "$work/log" |
        awk -v name="$name" -v state="$state" -v seed="$seed" '
            { loss[NR] = $1 }
            function last(n,   i, sum) {
                for (i = NR - n + 1; i <= NR; i++)
                    sum += loss[i]
                return sum / n
            }
            END { printf "%-8s %-6s %4s %10.5f %10.5f\n", name, state, seed, last(100), last(250) }'
}

printf '%-8s %-6s %4s %10s %10s\n' model state seed "last 100" "last 250"
for model in lm stdit; do
    [ $model = lm ] && command=$lm || command=$stdit
    first=yes
    for seed in ${SEEDS:-1 2 3}; do
        for state in fp32 bf16 8bit; do
            # shellcheck disable=SC2086
            [ $state = bf16 ] && [ ! $first ] || row $model $state "$seed" $command
        done
        first=
    done
done
./tests/bench/bench_state
./tests/bench/bench_saves
