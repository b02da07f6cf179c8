#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stdit-train --balance: ranks whose batches of a step are of several buckets; every clip once per
# epoch, stages, budgets, states in the middle of an epoch, other numbers of ranks; buckets with one
# clip or none, ranks without clips.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${STDIT_TRAIN:-./stdit-train}
model="--hidden 32 --heads 2 --depth 1 --mask-stage 1"

# The last bucket has one clip, and "256 34" none.
cat >"$work/table.json" <<END
{"144p": {"1": [1.0, 4], "17": [1.0, 2], "34": [1.0, 1]}, "256": {"1": [0.5, 2], "17": [1.0, 1], "34": [1.0, 1]}}
END
awk 'BEGIN {
    print "path,text,num_frames,height,width"
    split("144 256 256 144 192 192", side)
    split("1 18 40 18", frames)
    for (i = 0; i < 47; i++)
        printf "c%d.rgb,x,%d,%d,%d\n", i, frames[i % 4 + 1], side[int(i / 4) % 3 * 2 + 1], side[int(i / 4) % 3 * 2 + 2]
    print "last.rgb,x,18,256,256"
}' >"$work/clips.csv"
data="$model --buckets $work/table.json --latent $work/clips.csv"

# on N OPTION...: by N ranks, which print to rank.0 and so on and log to log and log.1.
on() {
    n=$1
    shift
    rm -f "$work"/log* "$work"/rank.* "$work/meet"
    rank=0
    while [ $rank -lt "$n" ]; do
        RANK=$rank WORLD_SIZE=$n timeout 100 "$train" $data --threads 1 --ranks "file:$work/meet" --log "$work/log" \
            "$@" >"$work/rank.$rank" 2>&1 &
        rank=$((rank + 1))
    done
    wait
}

# trains N OPTION...: they must reach the end.
trains() {
    on "$@"
    grep -q memory: "$work/rank.0" || fail "$*: $(tail -n 2 "$work/rank.0" "$work/rank.1")"
}

# says FILE TEXT
says() {
    grep -q -- "$2" "$work/$1" || fail "no \"$2\": $(tail -n 3 "$work/$1")"
}

buckets() { sed -n 's/.*"step": \([0-9]*\),.*"bucket": "\([^"]*\)".*/\1 \2/p' "$1"; }
losses() { sed -n 's/.*"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$1"; }

# ---- one epoch ----------------------------------------------------------------------------------------

# 2 steps of 144p 1, 2 of 256, ... : as many steps as two ranks have batches for.
trains 2 --balance time --steps 13 --save "$work/time"
says rank.0 "steps in the first epoch, in which the slowest rank is [0-9.]* % above the mean"
[ "$(losses "$work/log")" = "$(losses "$work/log.1")" ] || fail "ranks have other losses"
[ "$(buckets "$work/log")" != "$(buckets "$work/log.1")" ] || fail "all ranks have one bucket: $(buckets "$work/log")"
for zero in 0 1 3; do
    trains 2 --balance time --steps 13 --zero $zero --save "$work/other"
    cmp -s "$work/time" "$work/other" || fail "--zero $zero: other weights"
done

# Tokens are the same under every budget, and so the weights.
trains 2 --balance tokens --steps 6 --zero 2 --save "$work/tokens"
trains 2 --balance tokens --steps 6 --zero 2 --vram 5M --host 8M --save "$work/other"
cmp -s "$work/tokens" "$work/other" || fail "--vram: other weights"

# ---- states -------------------------------------------------------------------------------------------

# In the middle of an epoch; predicted times come from the state, though this plan has others.
trains 2 --balance time --steps 5 --zero 2 --save-state "$work/state"
trains 2 --balance time --steps 13 --zero 2 --vram 5M --resume "$work/state" --save "$work/other"
cmp -s "$work/time" "$work/other" || fail "resumed: other weights"
grep -q "ranks that --balance" "$work/rank.0" && fail "as many ranks are a change: $(cat "$work/rank.0")"
trains 3 --balance time --steps 9 --resume "$work/state"
says rank.0 "after 5 steps"
says rank.0 "changed: ranks that --balance deals to was 2, is 3"
runs "after 5 steps" "$train" $data --balance time --steps 7 --resume "$work/state"
refuses 1 "it was made with balance time" "$train" $data --balance tokens --steps 7 --resume "$work/state"

# ---- refusals -----------------------------------------------------------------------------------------

on 2 --balance time --micro-batch 1 --steps 2
says rank.1 "micro-steps and program 1 has 1: give all the same number"
grep -q -- "--balance: bucket" "$work/rank.0" || fail "no bucket: $(tail -n 2 "$work/rank.0")"
printf 'num_frames,height,width\n18,256,256\n' >"$work/one.csv"
data="$model --buckets $work/table.json --latent $work/one.csv"
runs memory "$train" $data --balance time --steps 2
on 2 --balance time --steps 2
says rank.0 "never enough complete batches for 2 ranks"
refuses 2 "give time, tokens or none" "$train" $data --balance size
refuses 2 "is for --buckets" "$train" $model --balance time
finish
