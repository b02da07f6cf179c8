#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Trainers with ranks that are stages of a pipeline (--stages): the losses and weights of one rank,
# of GPT-2 and Llama, STDiT and CogVideoX; resumed with other stages; plans; a rank that is lost;
# and what is refused.
. "${srcdir:-.}/tests/model/programs.sh"
lm="${LM_TRAIN:-./lm-train} --device cpu --threads 1 --warmup 2 --hidden 32 --heads 4 --layers 4
    --mlp 32 --length 64 --data ${srcdir:-.}/doc/tour.md --clip-norm 0"
steps="--steps 4 --batch 8 --micro-batch 2"

# weights: bit for bit if no weight is in two stages
runs "memory:" $lm --model tiny-llama $steps --log "$work/one" --save "$work/one.safetensors" \
    --save-state "$work/one.state"
ranks_run 3 three $lm --model tiny-llama $steps --stages 3 --log "$work/three" \
    --save "$work/three.safetensors"
same_steps one three 2e-6
cmp "$work/one.safetensors" "$work/three.safetensors" || fail "the weights of three stages"
grep -q "  stages  *3  this is the plan of stage 1" "$work/three.0" || fail "$(cat "$work/three.0")"
grep -q "  stage 3 .* of work; .*to head" "$work/three.0" || fail "$(cat "$work/three.0")"
runs "memory:" $lm --model tiny $steps --log "$work/tied"
ranks_run 2 two $lm --model tiny $steps --stages 2 --log "$work/two"
same_steps tied two 2e-6

# other stages continue, to the same bits
ranks_run 2 first $lm --model tiny-llama --steps 2 --batch 8 --micro-batch 2 --stages 2 \
    --log "$work/parts" --save-state "$work/state"
ranks_run 4 rest $lm --model tiny-llama $steps --stages 4 --log "$work/parts" --resume "$work/state" \
    --save "$work/rest.safetensors"
same_steps one parts 2e-6
cmp "$work/one.safetensors" "$work/rest.safetensors" || fail "the weights of a resumed run"
grep "changed: sequence" "$work/rest.0" && fail "stages count as ranks that split sequences"

# two pipelines train as two ranks, bit for bit, and one state continues as the other
rows="--batch 4 --micro-batch 2 --val ${srcdir:-.}/README.md --val-every 2"
half="--steps 4 $rows"
measured() {
    sed -n 's/^{"validation_step": \([0-9]*\), "validation_loss": \([0-9.]*\),.*/\1 \2/p' "$work/$1" >"$work/$1.val"
}
ranks_run 2 plain $lm --model tiny-llama $half --log "$work/plain" --save "$work/plain.safetensors"
ranks_run 4 groups $lm --model tiny-llama $half --stages 2 --zero 2 --log "$work/groups" \
    --save "$work/groups.safetensors"
same_steps plain groups 2e-6
cmp "$work/plain.safetensors" "$work/groups.safetensors" || fail "the weights of two pipelines"
grep -q "  pipelines  *2  with samples of their own; --zero 2" "$work/groups.0" || fail "$(cat "$work/groups.0")"
grep -q "    stage 1 .*; embedding to layers" "$work/groups.0" || fail "stage 1: $(cat "$work/groups.0")"
grep -q "    stage 2 .*; layers.* to head" "$work/groups.0" || fail "stage 2: $(cat "$work/groups.0")"
measured plain
measured groups
grep -q "^4 " "$work/plain.val" && cmp "$work/plain.val" "$work/groups.val" ||
    fail "validation of two pipelines: $(cat "$work/plain.val" "$work/groups.val")"
ranks_run 4 some $lm --model tiny-llama --steps 2 $rows --stages 2 --log "$work/shapes" \
    --save-state "$work/shape"
ranks_run 2 others $lm --model tiny-llama $half --log "$work/shapes" --resume "$work/shape" \
    --save "$work/others.safetensors"
cmp "$work/plain.safetensors" "$work/others.safetensors" || fail "weights after another shape"

# conditions that all layers read go through all stages; values are read between two steps
both="--device cpu --threads 1 --warmup 2 --dtype fp32 --clip-norm 0 $steps"
stdit="${STDIT_TRAIN:-./stdit-train} $both --hidden 32 --heads 4 --depth 3 --caption-channels 8
    --text-tokens 4 --sample-steps 0 --mask-stage 1 --latent 4x4x8"
runs "memory:" $stdit --log "$work/whole"
ranks_run 3 video $stdit --stages 3 --log "$work/video"
same_steps whole video 2e-6
mkdir "$work/5b"
sed 's/"num_attention_heads": 2/"num_attention_heads": 4/' "${srcdir:-.}/tests/cogvideo/5b/config.json" \
    >"$work/5b/config.json"
cogvideo="${COGVIDEO_TRAIN:-./cogvideo-train} $both --random --model $work/5b --frames 9 --height 48
    --width 48 --lora-rank 2 --text-drop .5"
runs "memory:" $cogvideo --log "$work/adapters"
ranks_run 2 adapted $cogvideo --stages 2 --log "$work/adapted"
same_steps adapters adapted 2e-6

# two budgets: each rank gets the layers that fit it, and what fits neither is named
two_budgets() {
    ranks_of=$1
    shift
    RANK=1 WORLD_SIZE=2 timeout 100 "$@" --vram 3M --ranks "file:$work/meet" >"$work/$ranks_of.1" 2>&1 &
    RANK=0 WORLD_SIZE=2 timeout 100 "$@" --vram 7M --ranks "file:$work/meet" >"$work/$ranks_of.0" 2>&1
    ended=$?
    wait $! && [ $ended = 0 ]
    ended=$?
    rm -f "$work/meet"
    return $ended
}
unequal="${LM_TRAIN:-./lm-train} --device cpu --threads 1 --warmup 2 --model tiny-llama --hidden 64 --heads 4
    --layers 6 --mlp 256 --length 64 --data ${srcdir:-.}/doc/tour.md --clip-norm 0 $steps"
runs "memory:" $unequal --save "$work/large.safetensors"
two_budgets fits $unequal --stages 2 --save "$work/fits.safetensors" || fail "$(cat "$work/fits.0")"
cmp "$work/large.safetensors" "$work/fits.safetensors" || fail "the weights of unequal stages"
grep -q "stage 1 .*embedding to layers.3" "$work/fits.0" || fail "the cut: $(cat "$work/fits.0")"
two_budgets lacks $unequal --stages 2 --layers 12 && fail "a model that fits no two ranks"
for r in 0 1; do
    grep -q "no cut fits the memory of all ranks; of the balanced one stage [12], on rank [01]: .* needs at least [0-9]* bytes" \
        "$work/lacks.$r" || fail "rank $r: $(tail -n 2 "$work/lacks.$r")"
done

# a stage may be on the CPU beside one on a GPU (tests/gpu/stages_gpu.sh); where there is no GPU both
# say so, and ranks that share parameters are refused
unlike() {
    name=$1
    shift
    RANK=1 WORLD_SIZE=2 timeout 100 $lm --model tiny $steps "$@" --ranks "file:$work/meet" >"$work/$name.1" 2>&1 &
    RANK=0 WORLD_SIZE=2 timeout 100 $lm --model tiny $steps "$@" --device cuda --ranks "file:$work/meet" \
        >"$work/$name.0" 2>&1
    ended=$?
    wait $! && [ $ended = 0 ]
    ended=$?
    rm -f "$work/meet"
    return $ended
}
unlike card --stages 2 || for r in 0 1; do
    grep -q -e "--device cuda: " "$work/card.$r" || fail "no GPU, rank $r: $(tail -n 2 "$work/card.$r")"
done
unlike shares && fail "unlike devices share parameters"
grep -q -e "or all on CPUs, unless they are stages\|--device cuda: " "$work/shares.1" || fail "$(cat "$work/shares.1")"

# plans of jobs that do not exist: all stages, and how long they stand still
runs "stage 4 " $lm --model tiny-llama $steps --plan-only --ranks 4 --stages 4
runs "passes from stage to stage" $lm --model tiny-llama --steps 1 --batch 8 --plan-only \
    --ranks 4 --stages 4

# the number that fits and is the fastest for each sample; what the ranks do not accept is no choice
auto="$lm --model tiny-llama $steps --stages auto --zero 0"
for n in 1 2; do
    size=$($lm --model tiny-llama $steps --plan-only --ranks 2 --stages $n --zero 0 --vram 1K 2>&1 |
        sed -n 's/.*needs at least \([0-9]*\) bytes.*/\1/p')
    eval "least$n=$size"
done
ranks_run 2 chosen $auto --vram $(((least1 + least2) / 2)) --log "$work/chosen" --save-state "$work/chosen.state"
grep -q "^  stages 1: does not fit, needs at least" "$work/chosen.0" || fail "one fits: $(cat "$work/chosen.0")"
grep -q "^--stages 2: of what fits.*without, a step does not fit" "$work/chosen.0" ||
    fail "not two: $(cat "$work/chosen.0")"
grep -q "^--stages" "$work/chosen.1" && fail "rank 1 chooses, too: $(cat "$work/chosen.1")"
same_steps one chosen 2e-6
ranks_run 2 kept $auto --steps 5 --resume "$work/chosen.state"
grep -q "^--stages 2: as in the resumed run" "$work/kept.0" || fail "not kept: $(cat "$work/kept.0")"
# where rank 0 is gone, a rank that is given a number waits for one deadline, and not for a plan
RANK=1 WORLD_SIZE=2 timeout 30 $lm --model tiny-llama $steps --stages 2 --zero 0 --comm-deadline 1 \
    --ranks "file:$work/nobody" >"$work/alone" 2>&1
[ $? = 1 ] && grep -q "did not find rank 0 at .* within 1 s" "$work/alone" || fail "alone: $(cat "$work/alone")"
runs "^--stages [124]: of what fits" $auto --plan-only --ranks 4
grep -q "^  stages 2: .* a step of 16 samples" "$work/out" || fail "two of four: $(cat "$work/out")"
grep -q "^  stages 4: .* a step of 8 samples" "$work/out" || fail "four of four: $(cat "$work/out")"
runs "memory:" $auto --steps 1
runs "^--tensor 1, --stages 1\|^--tensor 1 --stages 1: of what fits" $auto --tensor auto --plan-only --ranks 2

# a rank is lost: the other one names it
rm -f "$work/log"
for r in 0 1; do
    RANK=$r WORLD_SIZE=2 $lm --model tiny --steps 1000000 --batch 8 --micro-batch 2 --stages 2 \
        --comm-deadline 20 --ranks "file:$work/meet" --log "$work/log" >"$work/lost.$r" 2>&1 &
    eval "job$r=$!"
done
wait_steps "$work/log" 2
kill -KILL "$job1"
wait "$job0" && fail "a lost rank is no error"
wait "$job1"
rm -f "$work/meet"
grep -q "rank 1 is gone" "$work/lost.0" || fail "a lost rank: $(tail -n 2 "$work/lost.0")"

# refused NAME WORDS ARGUMENTS...: by 2 ranks, each with the words
refused() {
    refusal=$1
    words=$2
    shift 2
    ranks 2 "$refusal" $lm --steps 1 "$@" && fail "$* is not refused"
    for r in 0 1; do
        grep -q -e "$words" "$work/$refusal.$r" || fail "$*: rank $r: $(tail -n 1 "$work/$refusal.$r")"
    done
}
refused number "2 ranks do not divide into groups of 3" --model tiny --stages 3
refused zero "a stage is one rank, which shares nothing" --model tiny --stages 2 --zero 2
refused over "leave out --shard-over host" --model tiny --stages 2 --shard-over host
refused both "stages do not split sequences" --model tiny --stages 2 --sequence 2
refused choice "leave out --sequence or --stages" --model tiny --stages 2 --sequence auto
refused layers "a stage has whole layers" --model tiny --stages 2 --tensor 2
refused auto "give --micro-batch a number" --model tiny --stages 2 --micro-batch auto
refused file "a plan of its own" --model tiny --stages 2 --plan-out "$work/plan"
RANK=1 WORLD_SIZE=2 timeout 100 $lm --model tiny --batch 8 --micro-batch 1 --stages 2 \
    --ranks "file:$work/meet" >"$work/differ.1" 2>&1 &
RANK=0 WORLD_SIZE=2 timeout 100 $lm --model tiny --batch 8 --micro-batch 2 --stages 2 \
    --ranks "file:$work/meet" >"$work/differ.0" 2>&1 && fail "stages with other micro-steps train"
wait $!
rm -f "$work/meet"
grep -q "rank 1 started with another --micro-batch than rank 0" "$work/differ.0" ||
    fail "other micro-steps: $(tail -n 1 "$work/differ.0")"
refuses 1 "1 rank does not divide into groups of 2" $lm --model tiny --steps 1 --stages 2
refuses 1 "places for [0-9]* stages with trained parameters" $lm --model tiny-llama --steps 1 \
    --plan-only --ranks 64 --stages 64
finish
