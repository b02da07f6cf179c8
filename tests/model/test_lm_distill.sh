#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Distillation in lm-train: loss, scores and gradients of PyTorch in float64 (distill of
# make_preference_reference.py), with a teacher's file that lm-train writes; the same numbers under
# budgets, in micro-steps, in chunks, on two ranks and resumed; and wrong input gets a sentence.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${LM_TRAIN:-./lm-train} compare=${COMPARE:-./tests/model/compare}
lm=$root/tests/model/lm expected=$root/tests/model/preference/distill.safetensors
device="--device ${CKPT_DEVICE:-cpu} --threads 1"
data="--data $lm/qwen2/tokens.bin --length 12"
teacher="$device --model $lm/gpt2 --load $lm/gpt2 $data"
resumed="$device --model $lm/qwen2 $data --distill $work/teacher --distill-weight 0.7 --distill-temperature 2"
student="$resumed --load $lm/qwen2"

# shellcheck disable=SC2086
runs "scores: 8 tokens at each of 24 places" "$train" $teacher --batch 2 --steps 0 --save-logits "$work/teacher" --logits-top 8
# shellcheck disable=SC2086
runs "scores:" "$train" $teacher --batch 1 --steps 0 --save-logits "$work/again" --logits-top 8 --loss-chunk 3

# against NAME TOLERANCE OPTION...
against() {
    name=$1 tolerance=$2
    shift 2
    # shellcheck disable=SC2086
    CKPT_VERIFY=1 "$train" $student --batch 2 --in-order --steps 1 --lr 0 --dump "$work/$name" --plan-out "$work/plan" "$@" \
        >"$work/$name.log" 2>&1 || fail "$name: $(tail -n 1 "$work/$name.log")"
    "$compare" "$expected" "$work/$name" "$tolerance" 0 || fail "$name differs"
}

against whole 1e-5
against least 1e-5 --vram "$(possible "$work/whole.log")"
against other 1e-5 --distill "$work/again"
against micro 3e-5 --micro-batch 1
against chunks 3e-5 --loss-chunk 4
against bf16 8e-2 --dtype bf16

losses() {
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$@"
}

# steps NAME OPTION...: in the order of the seed.
steps() {
    name=$1
    shift
    rm -f "$work/$name.log"
    # shellcheck disable=SC2086
    "$train" ${options:-$student} --lr 0.01 --warmup 0 --log "$work/$name.log" "$@" >"$work/out" 2>"$work/err" ||
        fail "$name: $(tail -n 1 "$work/err")"
}

steps all --batch 1 --steps 4
steps first --batch 1 --steps 2 --save-state "$work/state"
options=$resumed
steps second --batch 1 --steps 4 --resume "$work/state"
options=
[ "$(losses "$work/all.log")" = "$(losses "$work/first.log" "$work/second.log")" ] || fail "resumed: other losses"
grep -q '"ce_loss": [0-9.]*, "distill_loss": [0-9]' "$work/all.log" || fail "no distill_loss in the log"
steps pair --batch 2 --steps 4
rm -f "$work/ranks.log"
# shellcheck disable=SC2086
{
    two="$student --lr 0.01 --warmup 0 --batch 1 --steps 4 --ranks file:$work/meet"
    RANK=1 WORLD_SIZE=2 timeout 100 "$train" $two >"$work/out.1" 2>&1 &
    RANK=0 WORLD_SIZE=2 timeout 100 "$train" $two --log "$work/ranks.log" >"$work/out" 2>&1 || fail "$(tail -n 1 "$work/out")"
    wait $! || fail "rank 1: $(tail -n 1 "$work/out.1")"
}
losses "$work/pair.log" >"$work/a"
losses "$work/ranks.log" | paste -d ' ' "$work/a" - | awk '{
    for (i = 1; i <= 3; i++)
        bad += ($i - $(i + 3)) ^ 2 > (2e-5 * $i) ^ 2
} END { exit bad || NR != 4 }' || fail "two ranks: $(losses "$work/ranks.log")"

# A model that learns from itself has nothing to learn.
# shellcheck disable=SC2086
{
    self="$device --model $lm/qwen2 --load $lm/qwen2 $data --batch 2"
    runs scores "$train" $self --steps 0 --save-logits "$work/self" --logits-top 48
    runs memory "$train" $self --steps 1 --distill "$work/self" --distill-weight 1 --log "$work/self.log"
    losses "$work/self.log" | awk '{ exit $2 ^ 2 > 1e-12 || $3 > 1e-5 }' || fail "a loss against itself: $(losses "$work/self.log")"

    refuses 1 '"ids" is ' "$train" $self --steps 1 --length 6 --distill "$work/teacher"
    refuses 1 "other data or tokens" "$train" $device --model $lm/llama --load $lm/llama --data $lm/llama/tokens.bin \
        --length 12 --batch 2 --steps 1 --distill "$work/teacher"
    refuses 1 "none" "$train" $self --steps 1 --distill "$work/none"
    refuses 1 "no tensor" "$train" $self --steps 1 --distill $lm/qwen2/model.safetensors
    refuses 2 "for --distill FILE" "$train" $self --steps 1 --distill-weight 0.5
    refuses 2 "for --save-logits FILE" "$train" $self --steps 1 --logits-top 3
    refuses 2 "take two runs" "$train" $self --steps 1 --distill "$work/self" --save-logits "$work/x"
    refuses 2 "the vocabulary has 48" "$train" $self --steps 0 --save-logits "$work/x" --logits-top 49
    refuses 2 "predicts no next tokens" "$train" --model tiny-bert --save-logits "$work/x"
    refuses 2 "predicts no next tokens" "$train" $self --loss orpo --distill "$work/self"
    head -c 2000 "$work/teacher" >"$work/short"
    refuses 1 "short" "$train" $self --steps 1 --distill "$work/short"
}
finish
