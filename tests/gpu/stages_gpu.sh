#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stages of a pipeline on GPUs, one each: the losses and weights of one GPU, whether steps are
# recorded or not, under a budget and in bf16; a state that another number of stages resumes; a rank
# that is lost is named.  Before that one stage on a GPU and one on the CPU.  Skipped without a GPU,
# or after that with fewer than two.
fewest=1
. "${srcdir:-.}/tests/gpu/gpus.sh"
. "${srcdir:-.}/tests/model/programs.sh"
any="${LM_TRAIN:-./lm-train} --warmup 2 --hidden 256 --heads 4
    --layers 6 --mlp 512 --length 256 --data ${srcdir:-.}/doc/tour.md"
lm="$any --device cuda --clip-norm 0"
llama="$lm --model tiny-llama --batch 8"
steps="--steps 4 --micro-batch 2"

# ---- a card and the host -------------------------------------------------------------------------

# unlike NAME FIRST SECOND ARGUMENT...: a rank with the options FIRST and one with SECOND
unlike() {
    kind=$1 first=$2 second=$3
    shift 3
    RANK=1 WORLD_SIZE=2 timeout 200 "$@" $second --ranks "file:$work/meet" >"$work/$kind.1" 2>&1 &
    RANK=0 WORLD_SIZE=2 timeout 200 "$@" $first --ranks "file:$work/meet" >"$work/$kind.0" 2>&1
    ended=$?
    wait $! && [ $ended = 0 ]
    ended=$?
    rm -f "$work/meet"
    return $ended
}
both="$any --model tiny-llama --batch 8 $steps --dtype fp32" # gradients are clipped: the norm is of both
cpu="--device cpu --vram 2G"
runs "memory:" $both --device cuda --log "$work/card"
for how in "" --profile "--host 1G"; do
    unlike over "--device cuda --vram 4G $how" "$cpu" $both --stages 2 --log "$work/over" ||
        fail "card and host, $how: $(cat "$work/over.0" "$work/over.1")"
    same_steps card over 1e-3
    rm -f "$work/over"
done
unlike turned "$cpu" "--device cuda --vram 4G" $both --stages 2 --log "$work/turned" \
    --save-state "$work/turned.state" || fail "host and card: $(cat "$work/turned.0" "$work/turned.1")"
same_steps card turned 1e-3
grep -q "stage 1 on cpu" "$work/turned.0" || fail "no devices: $(cat "$work/turned.0")"
runs "memory:" $both --device cuda --steps 5 --resume "$work/turned.state"
unlike tied "--device cuda --vram 4G" "$cpu" $any --model tiny --batch 8 $steps --stages 2 ||
    fail "an embedding that is the head: $(cat "$work/tied.0" "$work/tied.1")"
unlike no_stages "--device cuda" "$cpu" $both && fail "unlike devices share parameters"
grep -q "all ranks compute on GPUs or all on CPUs" "$work/no_stages.1" || fail "$(cat "$work/no_stages.1")"
for lost in 0 1; do # the other one names it
    for r in 0 1; do
        [ $r = 0 ] && own="--device cuda" || own=$cpu
        RANK=$r WORLD_SIZE=2 $both --steps 1000000 --stages 2 --comm-deadline 20 $own \
            --ranks "file:$work/meet" --log "$work/log" >"$work/lost.$r" 2>&1 &
        eval "job$r=$!"
    done
    wait_steps "$work/log" 2
    eval "kill -KILL \$job$lost; wait \$job$((1 - lost))" && fail "a lost rank is no error"
    rm -f "$work/meet" "$work/log"
    grep -q "rank $lost is gone" "$work/lost.$((1 - lost))" ||
        fail "a lost rank: $(tail -n 2 "$work/lost.$((1 - lost))")"
done
[ "$gpus" -ge 2 ] || finish

# ---- cards ---------------------------------------------------------------------------------------


# compare NAME SHARE ARGUMENT...: one GPU and two stages
compare() {
    kind=$1 close=$2
    shift 2
    runs "memory:" "$@" --log "$work/$kind.one" --save "$work/$kind.one.safetensors"
    ranks_run 2 "$kind" "$@" --stages 2 --log "$work/$kind.two" \
        --save "$work/$kind.two.safetensors"
    same_steps "$kind.one" "$kind.two" "$close"
}
compare fp32 1e-5 $llama $steps --dtype fp32 --vram 4G
cmp "$work/fp32.one.safetensors" "$work/fp32.two.safetensors" || fail "the weights of two stages"
compare bf16 1e-2 $llama $steps --dtype bf16 --vram 4G
# the embedding is also the head: it goes to the last stage, and its gradient back
compare tied 1e-4 $lm --model tiny --batch 8 $steps --dtype fp32
compare whole 1e-5 $llama --steps 4 --micro-batch 8 --dtype fp32

# command by command, and beside a host tier, for which all ranks time copies first
for how in "--profile" "--vram 4G --host 1G"; do
    ranks_run 2 how $llama $steps --dtype fp32 --stages 2 $how --save "$work/how.safetensors"
    cmp "$work/fp32.two.safetensors" "$work/how.safetensors" || fail "$how: other weights"
done

# one GPU continues what two stages began, and they what it began
ranks_run 2 first $llama --dtype fp32 --steps 2 --micro-batch 2 --stages 2 --save-state "$work/a"
runs "memory:" $llama $steps --dtype fp32 --resume "$work/a" --save "$work/a.safetensors"
cmp "$work/fp32.one.safetensors" "$work/a.safetensors" || fail "one GPU continues another run"
runs "memory:" $llama --dtype fp32 --steps 2 --micro-batch 2 --save-state "$work/b"
ranks_run 2 rest $llama $steps --dtype fp32 --stages 2 --resume "$work/b" --save "$work/b.safetensors"
cmp "$work/fp32.one.safetensors" "$work/b.safetensors" || fail "two stages continue another run"
if [ "$gpus" -ge 4 ]; then
    ranks_run 4 four $llama $steps --dtype fp32 --stages 4 --save "$work/four.safetensors"
    cmp "$work/fp32.one.safetensors" "$work/four.safetensors" || fail "the weights of four stages"
fi

# a rank is lost: the other one names it
for r in 0 1; do
    RANK=$r WORLD_SIZE=2 $llama --steps 1000000 --micro-batch 2 --stages 2 --comm-deadline 20 \
        --ranks "file:$work/meet" --log "$work/log" >"$work/lost.$r" 2>&1 &
    eval "job$r=$!"
done
wait_steps "$work/log" 2
kill -KILL "$job1"
wait "$job0" && fail "a lost rank is no error"
wait "$job1"
rm -f "$work/meet"
grep -q "rank 1 is gone" "$work/lost.0" || fail "a lost rank: $(tail -n 2 "$work/lost.0")"
finish
