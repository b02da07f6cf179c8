#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs of days: several saves, by steps and by the clock; a time limit; the same command line again
# after its end, a kill or a damaged save; ranks, tiers, buckets; wrong input.
. "${srcdir:-.}/tests/model/programs.sh"
unset RANK WORLD_SIZE
both="--device cpu --threads 1 --batch 1"
stdit="${STDIT_TRAIN:-./stdit-train} $both --latent 2x4x4 --hidden 16 --heads 2 --depth 1
    --caption-channels 8 --text-tokens 4 --sample-steps 0"
lm="${LM_TRAIN:-./lm-train} $both --hidden 16 --heads 2 --layers 1 --mlp 32 --length 16
    --data $root/doc/tour.md --model tiny-qwen"
vae="${VAE_TRAIN:-./vae-train} $both --random 5x8x8 --spatial-widths 8,8 --temporal-widths 8,8,8"
cogvideo="${COGVIDEO_TRAIN:-./cogvideo-train} $both --model $root/tests/cogvideo/2b --snr-shift 3
    --features $root/tests/cogvideo/2b/step.safetensors"

# saves NAME: the steps of the saves beside $work/NAME.
saves() {
    ls "$work" | sed -n "s/^$1-0*\([0-9]*\)\$/\1/p" | sort -n | tr '\n' ' '
}

# has NAME STEPS: these and no others, and nothing that was not finished.
has() {
    [ "$(saves "$1")" = "$2" ] || fail "$1 has $(saves "$1")instead of $2"
    ls "$work" | grep -q "^$1.*tmp" && fail "$1: a file that was not finished: $(ls "$work")"
}

# cut FILE: removes its last bytes, which are also those of its hard links.
cut_end() {
    truncate -s -10 "$1"
}

# resumed: after how many steps the program that ran last was resumed.
resumed() {
    sed -n 's/^resumed: .*, after \([0-9]*\) steps.*/\1/p' "$work/out"
}

# ---- every trainer: saves side by side, the same command line again ----------------------------------

for name in stdit lm vae cogvideo; do
    eval "command=\$$name"
    runs "state: " $command --steps 7 --save-state "$work/$name.whole"
    all="$command --save-state $work/$name --save-every 2 --keep 2 --keep-every 3 --resume auto"
    runs "starting at step 0" $all --steps 5
    has "$name" "4 5 "
    cmp -s "$work/$name" "$work/$name-00000005" || fail "$name: the last save is another"
    runs "after 5 steps" $all --steps 7
    has "$name" "4 6 7 "
    cmp -s "$work/$name" "$work/$name.whole" || fail "$name: another state than that of one run"
    runs "^stopped after 1 of 100000000 steps" timeout 100 $command --steps 100000000 --time-limit 0.001s \
        --save-state "$work/$name.limit"
    grep -q "^time limit: 0.001s" "$work/out" || fail "$name: a limit is not said"
    runs "after 1 steps" $command --steps 0 --resume "$work/$name.limit"
done

# one alone; and what stays of each 4 steps, under other steps between the saves
all="$stdit --save-state $work/one --save-every 1 --resume auto"
runs "starting at step 0" $all --steps 3 --keep 1
has one "3 "
runs "after 3 steps" $all --steps 9 --keep-every 4
has one "4 8 9 "
runs "after 9 steps" $all --steps 10 # no others: those that are there stay
has one "4 8 9 "
runs "after 10 steps" $all --steps 11 --keep 1
has one "11 "
rm "$work"/one-*
# killed between the last save and its link, and in the middle of the next one
: >"$work/one.tmp-4194000-0"
runs "after 11 steps" $all --steps 12 --keep 2
has one "11 12 "

# ---- by the clock -----------------------------------------------------------------------------------

runs "^state: .*/clock, after 3 steps" $stdit --steps 3 --save-state "$work/clock" \
    --save-every 0.000001s --keep 9
has clock "1 2 3 "
runs "^stopped after [0-9]* of 100000000 steps" timeout 100 $stdit --steps 100000000 \
    --time-limit 1.5s --save-state "$work/limit" --log "$work/limit.log"
grep -q "^state: .*/limit, after" "$work/out" || fail "no save before half of the limit"
ran=$(grep -c '^{"step"' "$work/limit.log")
runs "after $ran steps" $stdit --steps 0 --resume "$work/limit"
runs "^stopped after 1 of 5 steps" $stdit --steps 5 --time-limit 0.001s # and nowhere to save

# ---- damaged, killed --------------------------------------------------------------------------------

all="$stdit --save-state $work/cut --save-every 1 --keep 3 --resume auto"
runs "starting at step 0" $all --steps 5
has cut "3 4 5 "
cut_end "$work/cut"
runs "after 4 steps" $all --steps 6
[ "$(grep -c "looking for the save before it" "$work/err")" = 1 ] || fail "a cut save: $(cat "$work/err")"
has cut "4 5 6 "
runs "state: " $stdit --steps 6 --save-state "$work/cut.whole"
cmp -s "$work/cut" "$work/cut.whole" || fail "after a cut save: another state"
# one bit, in the middle of the last two; a save of a later step that is damaged goes
cp "$work/cut-00000005" "$work/later" && cut_end "$work/later" && mv "$work/later" "$work/cut-00000099"
for file in cut cut-00000005; do
    printf '\377' | dd of="$work/$file" bs=1 seek=$(($(wc -c <"$work/$file") - 1)) conv=notrunc 2>/dev/null
done
runs "after 4 steps" $all --steps 5
has cut "4 5 "
for file in "$work"/cut*; do
    : >"$file"
done
runs "starting at step 0" $all --steps 2
has cut "1 2 "

all="$stdit --save-state $work/killed --save-every 1 --keep 2 --resume auto --steps 100000000"
before=0
for pause in 0 0.013 0.029; do
    rm -f "$work/killed.log"
    $all --log "$work/killed.log" >"$work/out" 2>"$work/err" &
    pid=$!
    wait_steps "$work/killed.log" 4
    sleep $pause
    kill -KILL $pid
    wait $pid 2>/dev/null
    grep -q "looking for" "$work/err" && fail "after a kill: $(cat "$work/err")"
    [ $before = 0 ] || [ "$(resumed)" -ge "$before" ] || fail "resumed after $(resumed), not $before"
    before=$(($(tail -n 1 "$work/killed.log" | sed -n 's/^{"step": \([0-9]*\),.*/\1/p') - 2))
done
runs "resumed: " $stdit --save-state "$work/killed" --keep 2 --resume auto --steps 1
[ "$(saves killed | wc -w)" -le 3 ] || fail "after kills: $(saves killed)"

# ---- tiers, ranks, buckets --------------------------------------------------------------------------

refuses 1 "needs at least" $stdit --steps 1 --vram 1K
tiers="--vram $(needed) --nvme $work/nvme:8M"
mkdir "$work/nvme"
all="$stdit --save-state $work/tiers --save-every 2 --keep 2 --resume auto"
runs "starting at step 0" $all --steps 3 $tiers
runs "after 3 steps" $all --steps 7 $tiers
cmp -s "$work/tiers" "$work/stdit.whole" || fail "--nvme: another state"

# two OPTION...: on two ranks; what they say goes to $work/out and $work/out1.
two() {
    RANK=1 WORLD_SIZE=2 timeout 100 $stdit --ranks "file:$work/meet" "$@" >"$work/out1" 2>&1 &
    RANK=0 WORLD_SIZE=2 timeout 100 $stdit --ranks "file:$work/meet" "$@" >"$work/out" 2>"$work/err" ||
        fail "rank 0: $*: $(cat "$work/err")"
    wait $! || fail "rank 1: $*: $(cat "$work/out1")"
}
two --steps 6 --save-state "$work/two.whole"
all="--save-state $work/two --save-every 1 --keep 3 --resume auto"
two $all --steps 4
has two "2 3 4 "
cut_end "$work/two"
two $all --steps 6
[ "$(resumed)" = 3 ] || fail "two ranks: $(cat "$work/out" "$work/err")"
grep -q "looking for" "$work/out1" && fail "rank 1 speaks: $(cat "$work/out1")"
for name in two two.whole; do
    "${CKPT:-./ckpt}" convert "$work/$name" --out "$work/$name.joined" >/dev/null || fail "two ranks: no $name"
done
cmp -s "$work/two.joined" "$work/two.whole.joined" || fail "two ranks: another state"
two --steps 100000000 --time-limit 0.001s --save-state "$work/two.limit" --log "$work/two.log"
[ "$(cat "$work/two.log" | grep -c '^{"step"')" = "$(grep -c '^{"step"' "$work/two.log.1")" ] ||
    fail "the ranks ended behind other steps"
grep -q "^stopped after [1-4] of" "$work/out" || fail "two ranks: $(cat "$work/out")"
two --steps 9 --save-state "$work/two.clock" --save-every 0.000001s
grep -q "^state: .*two.clock, after [1-8] steps" "$work/out" || fail "two ranks: $(cat "$work/out")"

cat >"$work/table.json" <<END
{"144p": {"1": [1.0, 2], "17": [1.0, 1]}}
END
awk 'BEGIN {
    print "path,text,num_frames,height,width"
    for (i = 0; i < 24; i++)
        printf "c%d.rgb,one,%d,144,%d\n", i, i % 2 ? 18 : 1, i % 3 ? 256 : 144
}' >"$work/clips.csv"
buckets="${STDIT_TRAIN:-./stdit-train} --device cpu --threads 1 --hidden 16 --heads 2 --depth 1
    --buckets $work/table.json --latent $work/clips.csv"
runs "state: " $buckets --steps 7 --save-state "$work/buckets.whole"
all="$buckets --save-state $work/buckets --save-every 2 --keep 2 --resume auto"
runs "starting at step 0" $all --steps 5
cut_end "$work/buckets"
runs "after 4 steps" $all --steps 7
cmp -s "$work/buckets" "$work/buckets.whole" || fail "--buckets: another state"

# ---- wrong input ------------------------------------------------------------------------------------

for option in "--save-every 30m" "--save-every 2" "--keep 2" "--keep-every 2" "--resume auto" \
    "--save-async --host 8M"; do
    refuses 2 "needs --save-state FILE" $stdit $option
done
for bad in 0 x 30 -3 1.5 3m30h 3h3h 1..5m 1x m 99999999d; do
    refuses 2 "--time-limit $bad: give a time" $stdit --time-limit "$bad"
done
for bad in x 3m30h m 0m; do
    refuses 2 "--save-every $bad: give a time" $stdit --save-state "$work/x" --save-every "$bad"
done
for bad in 0 1000000001 99999999999999999999; do
    refuses 2 "--save-every $bad: give 1 to" $stdit --save-state "$work/x" --save-every $bad
done
refuses 2 "keep" $stdit --save-state "$work/x" --keep 0
refuses 2 "nothing would be written: --steps 0" $stdit --save-state "$work/x" --resume auto --steps 0
refuses 1 "not a regular file" $stdit --save-state /dev/null --keep 2
# the saves of another run, or of a later step, are not lost to this one
refuses 1 "killed-0*[0-9]* is of a later step" $stdit --save-state "$work/killed" --keep 2 --steps 1
refuses 1 "one-00000012 is of a later step" $stdit --save-state "$work/one" --keep 1 --steps 12 \
    --resume "$work/one-00000011"
cp "$work/one" "$work/one-00000099"
refuses 1 "one-00000099 is of a later step" $stdit --save-state "$work/one" --keep 1 --steps 13 \
    --resume auto
[ -s "$work/one-00000099" ] || fail "a save of another run was removed"
rm "$work/one-00000099"
# other options are refused as with any state, not ignored
refuses 1 "seed" $stdit --save-state "$work/one" --resume auto --seed 7 --steps 20
# the first weights come from --load, later ones from the save
runs "weights" $stdit --steps 1 --save "$work/weights"
runs "starting at step 0" $stdit --load "$work/weights" --save-state "$work/loaded" --resume auto --steps 1
runs "after 1 steps" $stdit --load "$work/weights" --save-state "$work/loaded" --resume auto --steps 2
if [ "$(id -u)" != 0 ]; then
    chmod 0 "$work/loaded"
    refuses 1 "Permission denied" $stdit --save-state "$work/loaded" --resume auto --steps 2
fi
finish
