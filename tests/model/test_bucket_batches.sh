#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stdit-train --buckets with batches left open by the table: they are chosen by plans, under
# budgets, with tiers, by several ranks; states keep them; wrong input gets one sentence each.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${STDIT_TRAIN:-./stdit-train}
model="--hidden 32 --heads 2 --depth 1 --mask-stage 1"

# "bucket frames batch micro milliseconds" of the table that was printed, of those that were chosen.
chosen() {
    sed -n 's/^\([^ ]*\) \([0-9]*\) [0-9.]* .*  *\([0-9]*\) auto  *\([0-9]*\) .* \([0-9.]*\) ms$/\1 \2 \3 \4 \5/p' \
        "${1:-$work/out}"
}

# "144p 1 12 ...": the batch of each size and number of frames.
batches() {
    chosen "$@" | cut -d' ' -f1-3 | sort -u
}

# longer MILLISECONDS: steps that take more, though fewer clips would do.
longer() {
    chosen | awk -v most="$1" '$3 > 1 && $5 > most'
}

cat >"$work/table.json" <<END
{"144p": {"1": [1.0, "auto"], "17": [1.0, 2], "34": [[1.0, 0.5]]}, "256": {"1": [0.5, "auto"], "17": [0.5]}}
END
awk 'BEGIN {
    print "path,text,num_frames,height,width"
    split("144 256 256 144 256 256", side)
    split("1 18 40 18", frames)
    for (i = 0; i < 192; i++)
        printf "c%d.rgb,\"one, two\",%d,%d,%d\n", i, frames[i % 4 + 1], side[int(i / 4) % 3 * 2 + 1],
            side[int(i / 4) % 3 * 2 + 2]
}' >"$work/clips.csv"
data="$model --buckets $work/table.json --latent $work/clips.csv"

# ---- chosen batches -----------------------------------------------------------------------------------

# By default no step takes longer than the slowest bucket with a given batch.
runs "chosen by plans" "$train" $data --plan-only
base=$(sed -n 's/.*at most \([0-9.]*\) ms/\1/p' "$work/out")
[ "$(batches | wc -l)" = 4 ] || fail "chosen: $(batches)"
[ -z "$(longer "$base")" ] || fail "longer than $base ms: $(longer "$base")"
given=$(grep '^144p 17 ' "$work/out" | sed 's/.* \([0-9.]*\) ms$/\1/' | sort -n | tail -n 1)
[ "$given" = "$base" ] || fail "base $base ms, the slowest that is given $given"
batches >"$work/free"

# Larger would be too long, or more than there are: with twice the time no batch is smaller, and some are larger.
twice=$(awk -v ms="$base" 'BEGIN { print ms / 500 }')
runs "at most" "$train" $data --plan-only --batch-seconds "$twice"
batches | sed 's/ /-/' >"$work/now"
sed 's/ /-/' "$work/free" | join -o 1.2,2.2 "$work/now" - >"$work/pairs"
awk '$1 < $2 { bad++ } $1 > $2 { more++ } END { exit bad || !more }' "$work/pairs" ||
    fail "with twice the time: $(cat "$work/pairs")"
runs "1 auto" "$train" $data --plan-only --batch-seconds 1e-9
[ -z "$(chosen | awk '$3 != 1')" ] || fail "no time: $(chosen)"

# Open for all; the base is then one clip of the largest bucket.
runs "chosen by plans" "$train" $data --plan-only --batch auto
[ "$(batches | wc -l)" = 5 ] || fail "--batch auto: $(batches)"
runs "auto" "$train" $data --plan-only --dtype bf16
runs "auto" "$train" $data --plan-only --micro-batch auto
runs "auto" "$train" $data --plan-only --micro-batch 2
[ -z "$(chosen | awk '$3 % 2 || $4 != 2')" ] || fail "--micro-batch 2: $(chosen)"

# A bucket with one clip; and one whose clips are kept seldom.
(head -n 1 "$work/clips.csv"; echo 'c.rgb,,1,256,256'; grep ',18,256,144' "$work/clips.csv") >"$work/few.csv"
runs "auto" "$train" $model --buckets "$work/table.json" --latent "$work/few.csv" --plan-only --batch-seconds 1
batches | grep -q '^256 1 1$' || fail "one clip: $(batches)"

# ---- under a budget -----------------------------------------------------------------------------------

refuses 1 "bucket 256 17.*needs at least" "$train" $data --plan-only --vram 4M
[ "$(grep -c "^stdit-train: bucket" "$work/err")" -gt 1 ] || fail "not all that never fit: $(cat "$work/err")"
[ "$(grep -c "bucket 144p 34 .*needs at least" "$work/err")" = 1 ] || fail "144p 34: $(cat "$work/err")"
mkdir "$work/nvme"
for tier in "" "--host 64M --nvme $work/nvme:64M"; do
    runs "auto" "$train" $data --plan-only --vram 6M $tier
    base=$(sed -n 's/.*at most \([0-9.]*\) ms/\1/p' "$work/out")
    [ -z "$(longer "$base")" ] || fail "--vram 6M $tier: longer than $base ms: $(longer "$base")"
    awk '/buckets in one arena/ { exit !($7 <= 6 && $8 ~ /MiB/) }' "$work/out" || fail "$(tail -n 1 "$work/out")"
done

# ---- training, states ---------------------------------------------------------------------------------

runs "chosen by plans" "$train" $data --steps 8 --save "$work/w" --log "$work/log"
batches | cmp -s - "$work/free" || fail "not as --plan-only: $(batches)"
runs "state" "$train" $data --steps 3 --save-state "$work/state"
runs "batches: from" "$train" $data --steps 8 --resume "$work/state" --save "$work/w2"
cmp -s "$work/w" "$work/w2" || fail "resumed: other weights"
# Under another budget, and other seconds: the batches are the state's, or it is refused.
runs "batches: from" "$train" $data --steps 8 --resume "$work/state" --save "$work/w2" --batch-seconds 100 \
    --vram 12M --host 64M
cmp -s "$work/w" "$work/w2" || fail "resumed with a budget: other weights"
batches | cmp -s - "$work/free" || fail "resumed with a budget: other batches"
refuses 1 "needs at least" "$train" $data --steps 8 --resume "$work/state" --vram 2M
# Given by the table, as they were: the same run.  Others are refused, and so is a state of given ones.
sed "s/\"1\": \[1.0, \"auto\"\]/\"1\": [1.0, 1]/" "$work/table.json" >"$work/other.json"
other="$model --buckets $work/other.json --latent $work/clips.csv"
refuses 1 "batches of other buckets" "$train" $other --steps 8 --resume "$work/state"
runs "chosen by plans" "$train" $other --steps 4 --save-state "$work/state2"
cat >"$work/fixed.json" <<END
{"144p": {"1": [1.0, 2], "17": [1.0, 2], "34": [[1.0, 0.5], 1]}, "256": {"1": [0.5, 2], "17": [0.5, 1]}}
END
fixed="$model --buckets $work/fixed.json --latent $work/clips.csv"
runs "state" "$train" $fixed --steps 2 --save-state "$work/state3"
refuses 1 "leaves them open now" "$train" $fixed --batch auto --steps 4 --resume "$work/state3"

# All ranks choose the same batches, and a state resumes with them on one rank.
two() {
    rm -f "$work/meet"
    for rank in 0 1; do
        RANK=$rank WORLD_SIZE=2 timeout 100 "$train" $data --ranks "file:$work/meet" "$@" >"$work/rank.$rank" 2>&1 &
    done
    wait
    grep -q memory: "$work/rank.0" || fail "two ranks, $*: $(tail -n 3 "$work/rank.0" "$work/rank.1")"
}
two --steps 4 --save-state "$work/state4"
[ "$(batches "$work/rank.0" | wc -l)" = 4 ] || fail "two ranks: $(batches "$work/rank.0")"
two --steps 6 --resume "$work/state4" --vram 16M
grep -q "batches: from" "$work/rank.0" || fail "two ranks, resumed: $(cat "$work/rank.0")"
runs "batches: from" "$train" $data --steps 6 --resume "$work/state4"

# ---- bad input ----------------------------------------------------------------------------------------

for batch in '"x"' 0 -1 2.5 '[2]' 70000; do
    echo "{\"144p\": {\"1\": [1.0, $batch]}}" >"$work/bad.json"
    refuses 1 'a batch from 1 to 65536, or "auto"' "$train" $model --buckets "$work/bad.json" --latent "$work/clips.csv"
done
refuses 2 "is for --buckets" "$train" $model --batch auto
refuses 2 "is for --buckets" "$train" $model --batch-seconds 1
refuses 2 "batch-seconds" "$train" $data --batch-seconds 0
refuses 2 "the table of --buckets has" "$train" $data --batch 2
finish
