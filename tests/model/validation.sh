# SPDX-License-Identifier: Apache-2.0
# What --val promises, for test_validation.sh and test_cogvideo_val.sh: the loss by noise level follows
# from the weights alone, and measuring it changes no bit of the training.  They set `train`, the
# command and its options, `features`, and `levels`, by which the keys of the ten levels end.

# draw NAME OPTION...: a run whose files are called so; it must succeed.
draw() {
    name=$1
    shift
    $train --log "$work/$name.log" --save "$work/$name.w" --save-ema "$work/$name.e" "$@" \
        >"$work/$name.out" 2>"$work/$name.err" || fail "$name: $(tail -n 2 "$work/$name.err")"
}

same() {
    cmp -s "$work/$1.w" "$work/$2.w" && cmp -s "$work/$1.e" "$work/$2.e" || fail "$3"
}

# measured LOG STEP: what was measured behind it.
measured() {
    sed -n "s/^{\"validation_step\": $2, \(.*\), \"time\".*/\1/p" "$1"
}

# agree A B STEP WHAT: both runs have measured the same.
agree() {
    measured "$work/$1.log" "$3" >"$work/a"
    measured "$work/$2.log" "$3" >"$work/b"
    [ -s "$work/a" ] && cmp -s "$work/a" "$work/b" || fail "$4: $(cat "$work/a" "$work/b")"
}

val="--val $features --val-every 2"
draw plain --steps 5
draw val --steps 5 $val --tensorboard "$work/tb"
same plain val "measuring changed the training"
[ "$(grep -c validation_step "$work/val.log")" = 3 ] || fail "not behind steps 2, 4 and 5"
[ "$(measured "$work/val.log" 4 | tr ',' '\n' | grep -c 'validation_loss_[0-9]*"')" = 10 ] ||
    fail "not ten levels: $(measured "$work/val.log" 4)"
for key in $levels; do
    grep -q "\"validation_loss_$key\": [0-9]" "$work/val.log" || fail "no level $key"
done
measured "$work/val.log" 4 | tr ',' '\n' | awk '{ if ($1 ~ /loss_/) sum += $2; else mean = $2 }
    END { d = sum / 10 - mean; exit !(mean > 0 && d * d < 1e-12) }' || fail "not their mean"
measured "$work/val.log" 2 >"$work/a"
measured "$work/val.log" 4 | cmp -s "$work/a" - && fail "other weights have the same loss"
[ "$(sed -n '/^validation: by timestep, after 5 steps/,/^[^ v]/p' "$work/val.out" |
    grep -c '^ *[0-9.]*  [0-9]')" = 10 ] || fail "no table: $(cat "$work/val.out")"
./tests/model/read_events "$work/tb" "$work/val.log" >"$work/said" || fail "$(cat "$work/said")"
[ "$(sed -n 's/.*"arena_bytes": \([0-9]*\).*/\1/p' "$work/val.log" | sort -u | wc -l)" = 1 ] ||
    fail "measuring changed the memory"

# The same weights, wherever they come from and stand.
draw end --steps 4 --val "$features"
agree val end 4 "a run that ends there"
draw loaded --load "$work/end.w" --lr 0 --steps 1 --val "$features"
measured "$work/loaded.log" 1 >"$work/a"
measured "$work/end.log" 4 | cmp -s "$work/a" - || fail "loaded weights have another loss"
draw first --steps 2 $val --save-state "$work/state"
draw rest --steps 5 $val --resume "$work/state"
same plain rest "resume: measuring changed the training"
agree val rest 4 "resume"
refuses 1 "needs at least" $train $val --vram 64K --host 64M
draw tiers --steps 5 $val --vram "$(needed)" --host 64M
same plain tiers "tiers: measuring changed the training"
agree val tiers 4 "tiers"

# Of the average: as its file loaded as weights.
draw ema --steps 4 $val --val-ema
draw bare --steps 4
same bare ema "the average stayed in the place of the weights"
draw mean --load "$work/bare.e" --lr 0 --steps 1 --val "$features"
measured "$work/mean.log" 1 >"$work/a"
measured "$work/ema.log" 4 | cmp -s "$work/a" - || fail "not the loss of the average"

# Every rank measures the same, and what one rank has for its weights.
for rank in 1 0; do
    RANK=$rank WORLD_SIZE=2 timeout 100 $train --steps 4 $val --zero 1 --log "$work/two.log" \
        --save "$work/two.w" --ranks "file:$work/meet" >/dev/null 2>"$work/err.$rank" &
done
wait
measured "$work/two.log" 4 >"$work/a"
[ -s "$work/a" ] || fail "ranks: $(tail -n 2 "$work/err.0")"
measured "$work/two.log.1" 4 | cmp -s "$work/a" - || fail "ranks measure other losses"
draw one --load "$work/two.w" --lr 0 --steps 1 --val "$features"
measured "$work/one.log" 1 | cmp -s "$work/a" - || fail "one rank measures another loss"

refuses 2 "needs --val" $train --val-every 2
refuses 2 "there is no average" $train --val "$features" --val-ema --ema-decay 0
refuses 1 "none" $train --steps 2 --val "$work/none"
printf 'no file' >"$work/odd"
refuses 1 "odd" $train --steps 2 --val "$work/odd"
finish
