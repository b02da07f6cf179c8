#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ckpt plan --world --stages auto: pipelines beside other ways to share, from the graphs of all
# stages.  They lose where links are fast and win where they are slow; their numbers are those of
# the trainer.  What is refused.
. "${srcdir:-.}/tests/model/programs.sh"
lm="${LM_TRAIN:-./lm-train} --device cpu --threads 1 --model tiny-llama --hidden 32 --heads 4 --layers 2 --mlp 128
    --length 16 --batch 4 --micro-batch 1 --data random"

# machine NAME BYTES HOSTRANKS: a computer whose network has so many bytes a second
machine() {
    sed -e "s/\"link_net\": .*/\"link_net\": $2,/" -e "s/\"ranks_per_host\": .*/\"ranks_per_host\": $3,/" \
        -e "s/\"link_host_latency\": .*/\"link_host_latency\": 2e-6,/" "${srcdir:-.}/machines/cpu.json" >"$work/$1.json"
}
machine fast 4e+11 8
machine slow 2e+6 1

# seconds NAME: of the row of the table before, as it prints them
seconds() {
    sed -n "s/^$1  *[0-9]*  *[0-9]*  $2  *[0-9.]* [KMG]*i*B  *\([0-9.]* [mun]*s\) .*/\1/p" "$work/out"
}
runs "^--stages" $lm --plan-only --ranks 4 --stages auto --machine "$work/fast.json" --graph-out "$work/split4"
world="./ckpt plan --graph $work/split4 --world 4 --stages auto --vram none"
runs "^best: no split, zero .*: of what fits, the least time for each sample" $world --machine "$work/fast.json"
[ "$(grep -c "^no split  *4  *1  zero" "$work/out")" = 4 ] || fail "not 4 ways to share: $(cat "$work/out")"
[ "$(grep -c "^stages 4  *4  *1  zero" "$work/out")" = 1 ] || fail "one pipeline shares: $(cat "$work/out")"
[ "$(grep -c "^stages 2  *4  *1  zero" "$work/out")" = 4 ] || fail "pipelines share nothing: $(cat "$work/out")"
grep -q "^  stages 2, zero .: [0-9.]* % more time for each sample" "$work/out" || fail "$(cat "$work/out")"
runs "^best: stages 4, zero 0: of what fits" $world --machine "$work/slow.json"

# The numbers of the trainer, of ranks that do not exist and of ranks that run, which are on one
# host.  The study divides what pipelines share without the padding of each share: 0.5 % here.
same_step() {
    awk -v a="$2" '
        function value(n, unit) { return n * (unit == "ms" ? 1e-3 : unit == "us" ? 1e-6 : 1) }
        /^  predicted step/ { b = value($3, $4); split(a, row, " "); a = value(row[1], row[2]) }
        END { exit !(b && a < 1.005 * b && b < 1.005 * a) }' "$work/$1" || fail "$1: not $2: $(cat "$work/$1")"
}
pairs=$(seconds "stages 2" "zero 0")
one=$(seconds "stages 4" "zero 0")
runs "" $lm --plan-only --ranks 4 --stages 2 --zero 0 --machine "$work/slow.json"
same_step out "$pairs"
runs "" $lm --plan-only --ranks 4 --stages 4 --machine "$work/slow.json"
same_step out "$one"
runs "of what fits" $world --hosts 1 --machine "$work/slow.json"
pairs=$(seconds "stages 2" "zero 2")
here=$(seconds "stages 4" "zero 0")
ranks_run 4 run $lm --steps 1 --stages 2 --zero 2 --machine "$work/slow.json"
same_step run.0 "$pairs"
ranks_run 4 run $lm --steps 1 --stages 4 --machine "$work/slow.json"
same_step run.0 "$here"

# neighbours on one host have its links: one transfer in three crosses
runs "of what fits" $world --hosts 2 --machine "$work/slow.json"
half=$(seconds "stages 4" "zero 0")
[ "$half" != "$one" ] && [ "$half" != "$here" ] || fail "on 1, 2 and 4 hosts: $here, $half, $one"

# what does not fit, and wrong input
runs "no way fits" ./ckpt plan --graph "$work/split4" --world 4 --stages auto --vram 100K --machine "$work/fast.json"
stages="--machine h100-80 --stages auto"
refuses 2 "graphs are of one number" ./ckpt plan --graph "$work/split4" --world 4 --machine h100-80 --stages 2
refuses 2 "are for --world N" ./ckpt plan --graph "$work/split4" $stages
refuses 1 "with --stages auto --plan-only --graph-out" ./ckpt plan --graph "$work/none" --world 4 $stages
refuses 1 "split4.stages.4.1: the graph is of one pipeline.*--ranks 8 --stages 4" \
    ./ckpt plan --graph "$work/split4" --world 8 $stages
refuses 1 "it is of stage 1 of 2 alone" ./ckpt plan --graph "$work/split4.stages.2.1" --world 4 --machine h100-80
cp "$work/split4.stages.2.1" "$work/split4.stages.2.2"
refuses 1 "split4.stages.2.2: it is of stage 1 of 2, not of stage 2 of 2" ./ckpt plan --graph "$work/split4" --world 4 $stages
sed "s/stage 1 of 2 pipelines 2 unrolled 4/stage 2 of 2 pipelines 2 unrolled 2/" "$work/split4.stages.2.1" \
    >"$work/split4.stages.2.2"
refuses 1 "2 micro-steps, of 2 pipelines, where stage 1 has 4" ./ckpt plan --graph "$work/split4" --world 4 $stages
rm "$work/split4.stages.2.2"
refuses 1 "split4.stages.2.2 cannot be opened" ./ckpt plan --graph "$work/split4" --world 4 $stages
refuses 1 "each stage has a plan of its own" $lm --plan-only --ranks 4 --stages 2 --plan-out "$work/plan"
finish
