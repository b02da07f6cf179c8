#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# 40 rounds of two to four processes that begin together with one output: each ends with the right
# files, or is refused by name before its first step.  The lock of a killed run refuses nobody, the
# ranks of a run share one, and no lock is left behind.
. "${srcdir:-.}/tests/model/programs.sh"
train=${STDIT_TRAIN:-./stdit-train} vae=${VAE_TRAIN:-./vae-train} code=${VAE_ENCODE:-./vae-encode}
lm=${LM_TRAIN:-./lm-train} encode=${VIDEO_ENCODE:-./video-encode}
cogvideo=${COGVIDEO_ENCODE:-./cogvideo-encode} infer=${VOLUME_INFER:-./volume-infer}
for program in "$train" "$vae" "$code" "$lm" "$encode" "$cogvideo" "$infer"; do
    [ -x "$program" ] || exit 77
done
clip=$root/examples/data/bunny.rgb
export OMP_NUM_THREADS=1
taken="another run is writing it"

# together N COMMAND...: runs it N times at once, "@" being the number of the process.  Each must
# succeed, or be refused; one at least succeeds.  $winners are the numbers of those that did.
together() {
    processes=$1 pids= winners=
    shift
    for i in $(seq "$processes"); do
        sh -c "$(echo "$*" | sed "s/@/$i/g")" >"$work/out.$i" 2>"$work/err.$i" &
        pids="$pids $!"
    done
    i=0
    for pid in $pids; do
        i=$((i + 1))
        wait "$pid"
        rc=$?
        if [ $rc = 0 ]; then
            winners="$winners $i"
        elif [ $rc -gt 2 ] || ! grep -q "$taken" "$work/err.$i"; then
            fail "process $i of $processes: exit $rc: $*: $(tail -n 2 "$work/err.$i")"
        fi
    done
    [ "$winners" ] || fail "none of $processes succeeded: $*"
}

# matches COMMAND...: the command, "@" being the number of a process, succeeds for one of $winners.
matches() {
    for i in $winners; do
        sh -c "$(echo "$*" | sed "s/@/$i/g")" >"$work/out" 2>&1 && return
    done
    fail "the output of $processes is of none of $winners: $(tail -n 2 "$work/out")"
}

# ---- a cache ---------------------------------------------------------------------------------------

small="--size 16x16 --lengths 1 --image-share 0 --batch 1 --threads 1"
"$vae" $small --video "$clip" --steps 1 --save "$work/vae" >"$work/out" 2>&1 ||
    fail "vae-train: $(cat "$work/out")"
mkdir "$work/clips"
for i in 1 2 3 4 5 6 7 8; do
    {
        echo "RGBCLIP 16 16 2 8"
        head -c $((16 * 16 * 2 * 3)) /dev/zero | tr '\0' "\\$((100 + i))"
    } >"$work/clips/$i.rgb"
done
cache="$encode --vae $work/vae --vae-model tiny --data $work/clips --size 16x16 --frames 1 --shard 1 --threads 1"
runs "the manifest is written" $cache --output "$work/right"
for round in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    rm -rf "$work/cache"
    together $((2 + round % 3)) "sleep 0.0\$(((@ * $round) % 7)); exec $cache --output $work/cache"
    diff -r "$work/right" "$work/cache" >"$work/out" || fail "a cache of $processes: $(cat "$work/out")"
done
runs "all checksums match" $encode --check --output "$work/cache"

# Two ranks of one run share it, and refuse others until both have ended.
rm -rf "$work/cache"
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 $cache --ranks "file:$work/meet" --output "$work/cache" >"$work/rank.$rank" 2>&1 &
done
tries=0
until [ -e "$work/cache/.lock" ] || [ $tries -gt 500 ]; do
    tries=$((tries + 1))
    sleep 0.01
done
$cache --output "$work/cache" >"$work/out" 2>"$work/err" || grep -q "$taken" "$work/err" ||
    fail "beside two ranks: $(cat "$work/err")"
wait
diff -r "$work/right" "$work/cache" >"$work/out" || fail "a cache of two ranks: $(cat "$work/out" "$work"/rank.*)"

# ---- files -----------------------------------------------------------------------------------------

model="--hidden 24 --heads 2 --depth 1 --caption-channels 8 --text-tokens 4 --latent 2x4x4 --sample-steps 0 --threads 1"
for round in 1 2 3 4 5 6 7 8; do
    rm -f "$work/state"
    together $((2 + round % 3)) "exec $train $model --steps 20 --save-every 1 --seed @ --save-state $work/state"
    matches "$train $model --steps 20 --seed @ --resume $work/state"
done
words="--hidden 16 --heads 2 --layers 1 --mlp 16 --length 8 --batch 1 --threads 1 --data random"
for round in 1 2 3 4 5 6; do
    together $((2 + round % 3)) "exec $lm $words --steps 20 --seed @ --save-hf $work/hf"
    matches "$lm $words --steps 20 --seed @ --save-hf $work/own && diff -r $work/own $work/hf"
done
for round in 1 2 3 4 5 6; do
    rm -f "$work/w"
    together $((2 + round % 3)) "exec $code --model tiny --load $work/vae --threads 1 $work/clips/@.rgb $work/w"
    matches "$code --model tiny --load $work/vae --threads 1 $work/clips/@.rgb $work/own.w && cmp $work/own.w $work/w"
done

# ---- a directory of --nvme, which runs share -------------------------------------------------------

tiny="$lm --model tiny-qwen --data random --length 32 --batch 2 --threads 1 --lr 1e-3"
refuses 1 "needs at least" $tiny --steps 1 --vram 16K --host 4M --nvme "$work:64M"
mkdir "$work/nvme"
tight="$tiny --vram $(needed) --host 4M --nvme $work/nvme:64M"
for i in 1 2 3; do
    $tiny --steps 12 --seed $i --save "$work/free.$i" >"$work/out" 2>&1 || fail "without a budget: $(tail -n 2 "$work/out")"
done
together 3 "exec $tight --steps 12 --seed @ --save $work/shared.@"
[ "$winners" = " 1 2 3" ] || fail "of three runs on one --nvme, only$winners succeeded"
for i in 1 2 3; do
    cmp -s "$work/free.$i" "$work/shared.$i" || fail "run $i of three on one --nvme has other weights"
done
[ -z "$(ls -A "$work/nvme")" ] || fail "--nvme: files are left: $(ls -A "$work/nvme")"

# ---- the owner -------------------------------------------------------------------------------------

"$train" $model --steps 100000 --log "$work/log" --save-state "$work/killed" >"$work/out" 2>&1 &
owner=$!
wait_steps "$work/log" 3
refuses 1 "--save-state $work/killed: $taken, process $owner on " "$train" $model --steps 1 --save-state "$work/killed"
refuses 1 "--save $work/killed: $taken" "$lm" $words --steps 1 --save "$work/killed"
kill -9 $owner
wait $owner 2>/dev/null
runs "state: " "$train" $model --steps 1 --save-state "$work/killed"
echo "of somebody" >"$work/mine.lock"
refuses 1 "mine.lock is no lock of another run" "$lm" $words --steps 1 --save "$work/mine"
[ "$(cat "$work/mine.lock")" = "of somebody" ] || fail "a file of the user was taken for a lock"
rm "$work/mine.lock"

# Programs that write a directory refuse it before they read anything else.
rm "$work/log" # its steps are of an earlier run
"$lm" $words --steps 1000000 --log "$work/log" --save-hf "$work/all" >"$work/out" 2>&1 &
owner=$!
wait_steps "$work/log" 3
refuses 1 "--output $work/all: $taken" "$cogvideo" --model none --video "$clip" --output "$work/all"
refuses 1 "--output $work/all: $taken" "$infer" --load none --data none --output "$work/all"
refuses 1 "--output $work/all: $taken" $cache --output "$work/all"
kill $owner
wait $owner || fail "lm-train, stopped: $(tail -n 2 "$work/out")"
left=$(find "$work" -name '*.lock' | grep -v log.lock)
[ -z "$left" ] || fail "locks are left behind: $left"
finish
