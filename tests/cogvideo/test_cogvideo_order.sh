#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The order of samples in cogvideo-train: each sample once per epoch, in a new order each epoch,
# drawn from the seed; the same for any number of ranks; a run resumes in the middle of an epoch.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

models=$root/tests/cogvideo
# Noise and timesteps come from the file, and nothing is learned: a loss identifies its sample.
train="${COGVIDEO_TRAIN:-./cogvideo-train} --device cpu --threads 1 --model $models/5b --snr-shift 1
    --features $models/5b/step.safetensors --lr 0 --warmup 0"

# draw NAME OPTION...: the losses of a run, in $work/NAME.
draw() {
    name=$1
    shift
    $train --log "$work/$name.log" "$@" >"$work/out" 2>"$work/err" || fail "$name: $(tail -n 2 "$work/err")"
    sed -n 's/^{"step": [0-9]*, "loss": \([^,]*\),.*/\1/p' "$work/$name.log" >"$work/$name"
}
same() {
    cmp -s "$work/$1" "$work/$2" || fail "$3: $(paste "$work/$1" "$work/$2")"
}

draw listed --steps 16 --keep-order
awk 'NR <= 2 { row[NR] = $1 } $1 != row[2 - NR % 2] { exit 1 } END { exit NR != 16 || row[1] == row[2] }' \
    "$work/listed" || fail "not in the order of the list: $(cat "$work/listed")"
draw free --steps 16
sort "$work/free" | uniq -c | awk '$1 != 8 { exit 1 } END { exit NR != 2 }' || fail "$(cat "$work/free")"
awk 'NR % 2 { first = $1; kinds[$1] = 1; next } $1 == first { exit 1 }
    END { for (k in kinds) n++; exit n != 2 }' "$work/free" ||
    fail "a sample twice in an epoch, or always in one order: $(cat "$work/free")"
draw again --steps 16
same free again "the order changes"
draw seed --steps 16 --seed 3
cmp -s "$work/free" "$work/seed" && fail "the seed draws no other order"

# On in the middle of an epoch.
draw first --steps 7 --save-state "$work/state"
draw rest --steps 16 --resume "$work/state"
cat "$work/first" "$work/rest" >"$work/both"
same free both "going on"
refuses 1 "keep-order" $train --steps 16 --resume "$work/state" --keep-order

# Three samples a step: epochs end within one.  And two ranks.
draw three --steps 6 --batch 3
draw pair --steps 8 --batch 2
[ "$(sort -u "$work/pair" | wc -l)" = 1 ] || fail "both samples a step are others: $(cat "$work/pair")"
[ "$(sort -u "$work/three" | wc -l)" = 2 ] || fail "three of two samples: $(cat "$work/three")"
for rank in 1 0; do
    RANK=$rank WORLD_SIZE=2 timeout 100 $train --steps 8 --batch 1 --log "$work/ranks.log" \
        --ranks "file:$work/meet" >/dev/null 2>"$work/err.$rank" &
done
wait
sed -n 's/^{"step": [0-9]*, "loss": \([^,]*\),.*/\1/p' "$work/ranks.log" >"$work/ranks"
paste "$work/pair" "$work/ranks" | awk '{ d = $1 - $2; if (d * d > 1e-10 * $1 * $1) bad = 1 }
    END { exit bad || NR != 8 }' || fail "two ranks: $(tail -n 2 "$work/err.0") $(cat "$work/ranks")"

finish
