#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# States of trainers: by a thread, by several ranks, converted to other files.  A run that is killed
# while a state is written, a disk that is full and a file limit leave the last state whole.
. "${srcdir:-.}/tests/model/programs.sh"
unset RANK WORLD_SIZE
ckpt=${CKPT:-./ckpt}
small="--device cpu --threads 1 --data random --layers 1 --heads 2 --length 8 --ema-decay 0.9"
lm="${LM_TRAIN:-./lm-train} $small --hidden 32 --mlp 32"
async="--save-async --host 32M"

# ranks N NAME COMMAND...: a process for each of N ranks; what they say goes to NAME.0 and so on.
ranks() {
    n=$1 name=$work/$2
    shift 2
    rank=1
    while [ $rank -lt "$n" ]; do
        RANK=$rank WORLD_SIZE=$n timeout 100 "$@" --ranks "file:$work/meet" >"$name.$rank" 2>&1 &
        rank=$((rank + 1))
    done
    RANK=0 WORLD_SIZE=$n timeout 100 "$@" --ranks "file:$work/meet" >"$name.0" 2>&1
    status=$?
    wait
    return $status
}

same() {
    cmp -s "$1" "$2" || fail "$3: $1 and $2 differ"
}

files() {
    find "$1" -type f | wc -l
}

# ---- a thread ------------------------------------------------------------------------------------

runs "state:" $lm --batch 4 --steps 6 --save-state "$work/plain"
runs "copy of the state .*of --host" $lm --batch 4 --steps 6 --save-state "$work/async" $async \
    --save-every 2 --keep 2
same "$work/plain" "$work/async" "the state of a thread"
same "$work/async" "$work/async-00000006" "a kept state"
[ -s "$work/async-00000004" ] || fail "no state of step 4"
runs "resumed: .*after 4" $lm --batch 4 --steps 6 --resume "$work/async-00000004" \
    --save-state "$work/again"
same "$work/plain" "$work/again" "a resumed run"
refuses 1 "save-async copies the state to host memory.* give --host at least" \
    $lm --batch 4 --steps 1 --save-state "$work/no" --save-async
refuses 1 "of --host are left: give --host at least [0-9]*, or leave out" \
    $lm --batch 4 --steps 1 --save-state "$work/no" --save-async --host 64K
refuses 2 "save-async needs --save-state FILE" $lm --batch 4 --steps 1 $async
# 8-bit state, adapters, state in host memory, a budget.
for more in "--dtype bf16 --state 8bit" "--lora-rank 2" "--dtype bf16 --state bf16"; do
    runs "state:" $lm --batch 4 --steps 3 --save-state "$work/plain2" $more
    runs "state:" $lm --batch 4 --steps 3 --save-state "$work/async2" $async $more
    same "$work/plain2" "$work/async2" "$more"
done

# ---- faults --------------------------------------------------------------------------------------

# The file limit is met in the thread: the run fails with its sentence, and the old state stays.
cp "$work/plain" "$work/old"
(ulimit -f 100; exec $lm --batch 4 --steps 8 --save-every 2 --save-state "$work/old" $async) \
    >"$work/out" 2>"$work/err" && fail "a state beyond the limit of files"
grep -q "old: cannot be written: File too large" "$work/err" || fail "$(tail -n 1 "$work/err")"
same "$work/plain" "$work/old" "a failed save"
[ "$(find "$work" -name "old.tmp*" | wc -l)" = 0 ] || fail "a temporary file stays"
# Killed at any moment, a newest state is whole.
for ms in 05 1 2 3 4; do
    $lm --batch 4 --steps 100000 --save-every 1 --save-state "$work/killed" $async \
        >/dev/null 2>&1 &
    pid=$!
    sleep 0.$ms
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ ! -e "$work/killed" ] || runs "tensors" $ckpt convert "$work/killed" --out "$work/whole"
done
runs "resumed:" $lm --batch 4 --steps 1 --resume auto --save-state "$work/killed"
[ "$(find "$work" -name "killed.tmp*" | wc -l)" = 0 ] || fail "a temporary file stays"

# A signal ends the run after a step, with that step's state on the disk.
$lm --batch 4 --steps 100000 --save-every 1 --save-state "$work/ended" --log "$work/ended.log" $async \
    >"$work/out" 2>&1 &
pid=$!
wait_steps "$work/ended.log" 3
kill -TERM $pid
wait $pid || fail "a signal: exit $?: $(tail -n 2 "$work/out")"
steps=$(grep -c '^{"step"' "$work/ended.log")
runs "resumed: .*after $steps steps" $lm --batch 4 --steps "$steps" --resume "$work/ended"

# ---- ranks ---------------------------------------------------------------------------------------

mkdir "$work/r"
ranks 2 save $lm --batch 2 --steps 6 --save-state "$work/r/state" --save-every 2 --keep 2 $async ||
    fail "two ranks: $(cat "$work/save.0")"
[ "$(files "$work/r")" = 7 ] || fail "files of two kept states: $(ls "$work/r")"
runs "resumed:" $lm --batch 4 --steps 6 --resume "$work/r/state" --save-state "$work/one"
runs "tensors in 1 file" $ckpt convert "$work/r/state" --out "$work/joined"
same "$work/one" "$work/joined" "one rank of two"
ranks 3 three $lm --batch 2 --steps 7 --resume "$work/r/state" --resume-changed --zero 1 \
    --save-state "$work/r/state" || fail "three ranks: $(cat "$work/three.0")"
[ "$(find "$work/r" -name "state.part-*-of-00003*" | wc -l)" = 3 ] || fail "$(ls "$work/r")"
# Of one rank again: a file, and its parts go.
runs "resumed:" $lm --batch 6 --steps 8 --resume "$work/r/state" --save-state "$work/r/state"
[ "$(find "$work/r" -name "state.part-*-of-00003*" | wc -l)" = 0 ] || fail "$(ls "$work/r")"
# A part that is missing, and of another save.
part=$(find "$work/r" -name "state.part-*-00001-of-00002*" | sort | head -n 1)
other=$(find "$work/r" -name "state.part-*-00001-of-00002*" | sort | tail -n 1)
mv "$part" "$work/part"
refused=0
for kept in 4 6; do
    $lm --batch 4 --steps 9 --resume "$work/r/state-0000000$kept" >/dev/null 2>"$work/err" ||
        { refused=$((refused + 1)) && grep -q "cannot open.*named in" "$work/err"; } ||
        fail "a missing part: $(cat "$work/err")"
done
[ $refused = 1 ] || fail "a missing part: $refused states were refused"
cp "$other" "$part"
for kept in 4 6; do
    $lm --batch 4 --steps 9 --resume "$work/r/state-0000000$kept" >/dev/null 2>"$work/err" ||
        grep -q "is not the part that state-0000000$kept was saved with" "$work/err" ||
        fail "a part of another save: $(cat "$work/err")"
done
mv "$work/part" "$part"
refuses 1 "is of another run" $lm --hidden 16 --batch 4 --steps 9 --resume "$work/r/state-00000004"
# One rank cannot write: all say why, and the state before stays whole.
cp -R "$work/r" "$work/s"
ranks 2 full $lm --batch 2 --steps 9 --resume "$work/s/state-00000006" --save-every 1 \
    --save-state "$work/none/state" $async && fail "a folder that is not there"
runs "tensors" $ckpt convert "$work/s/state-00000006" --out "$work/whole"

# Two jobs in one folder keep their own parts.
mkdir "$work/both"
ranks 2 left $lm --batch 2 --steps 40 --save-state "$work/both/state" --save-every 1 $async &
left=$!
(
    for rank in 1 0; do
        RANK=$rank WORLD_SIZE=2 timeout 100 $lm --batch 2 --steps 40 --save-state "$work/both/state2" \
            --save-every 1 --ranks "file:$work/meet2" >"$work/right.$rank" 2>&1 &
    done
    wait
)
wait $left || fail "beside another job: $(cat "$work/left.0")"
for name in state state2; do
    runs "tensors" $ckpt convert "$work/both/$name" --out "$work/$name.joined"
done
same "$work/state.joined" "$work/state2.joined" "two jobs in one folder"
[ "$(files "$work/both")" = 6 ] || fail "two jobs in one folder: $(ls "$work/both")"

# ---- other forms ---------------------------------------------------------------------------------

for form in hf dcp; do
    runs "tensors in" $ckpt convert "$work/r/state-00000006" --out "$work/$form" --form $form \
        --shard-size 20K
    runs "tensors in 1 file" $ckpt convert "$work/$form" --out "$work/back"
    same "$work/joined" "$work/back" "$form and back"
    runs "resumed:" $lm --batch 4 --steps 6 --resume "$work/$form" --save-state "$work/from"
    same "$work/joined" "$work/from" "a run resumed from $form"
done
runs "tensors in" $ckpt convert "$work/r/state-00000006" --out "$work/weights" --only value/ --form hf
runs "memory:" $lm --batch 4 --steps 1 --load "$work/weights"
refuses 1 "is not empty" $ckpt convert "$work/joined" --out "$work/dcp" --form dcp
refuses 1 "has no tensor whose name begins with 'x/'" $ckpt convert "$work/joined" --out "$work/x" --only x/
refuses 2 "there are file, hf and dcp" $ckpt convert "$work/joined" --out "$work/x" --form pt
refuses 2 "shard-size is for" $ckpt convert "$work/joined" --out "$work/x" --shard-size 20K
# Of a damaged state no file is left that would open as a whole one.
cp "$work/joined" "$work/damaged"
printf x | dd of="$work/damaged" bs=1 seek=$(($(wc -c <"$work/damaged") - 2)) conv=notrunc 2>/dev/null
for form in hf dcp; do
    refuses 1 "the file is damaged" $ckpt convert "$work/damaged" --out "$work/new-$form" --form $form \
        --shard-size 4K
    [ "$(files "$work/new-$form")" = 0 ] || fail "a failed conversion: $(ls "$work/new-$form")"
done
# A file in place of an index takes its parts away.
runs "tensors in 1 file" $ckpt convert "$work/both/state" --out "$work/both/state"
same "$work/state.joined" "$work/both/state" "a conversion in place"
[ "$(files "$work/both")" = 4 ] || fail "a conversion in place: $(ls "$work/both")"
rm "$work"/dcp/shard-00002*
refuses 1 "lacks" $lm --batch 4 --steps 7 --resume "$work/dcp"
finish
