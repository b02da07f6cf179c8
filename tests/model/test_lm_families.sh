#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The families of examples/lm against transformers in float64 (make_family_reference.py): loss, scores
# and every gradient of a step, the losses of five steps of AdamW, and the 50 likeliest tokens behind a
# prompt, all within 1e-5; config.json goes out and back; budgets, micro-steps, adapters and codes; and
# wrong input gets a sentence before the first step.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${LM_TRAIN:-./lm-train} sample=${LM_SAMPLE:-./lm-sample} compare=${COMPARE:-./tests/model/compare}
lm=$root/tests/model/lm
device="--device ${CKPT_DEVICE:-cpu} --threads 1 --dtype fp32"
families="llama-bias mistral qwen3 gemma2 gemma3 phi3 olmo2 smollm3"

losses() {
    sed -n 's/^{"step": [0-9]*, "loss": \([^,]*\),.*/\1/p' "$1"
}

# close FILE FILE N: N losses that differ by a part in 10^5 at most.
close() {
    paste "$1" "$2" | awk -v n="$3" '{ bad += ($1 - $2) ^ 2 > (1e-5 * $1) ^ 2 } END { exit bad || NR != n }'
}

# one_step NAME DUMP TOLERANCE FLOOR [OPTION]...
one_step() {
    here=$lm/$1 dump=$work/$2 tolerance=$3 floor=$4
    shift 4
    # shellcheck disable=SC2086
    "$train" $device --model "$here" --load "$here" --data "$here/tokens.bin" --in-order --batch 2 --length 12 \
        --steps 1 --warmup 0 --lr 0 --dump "$dump" "$@" >"$work/out" 2>&1 || fail "$here: $(tail -n 1 "$work/out")"
    grep "missing\|unexpected" "$work/out" && fail "$here: names"
    "$compare" "$here/expected.safetensors" "$dump" "$tolerance" "$floor" >"$work/log" 2>&1 ||
        fail "$here $*: $(tail -n 3 "$work/log")"
}

# In a layer without positions the bias of keys changes nothing, so its gradient is rounding alone.
for name in $families; do
    here=$lm/$name
    rm -f "$work/steps" "$work/again"
    CKPT_VERIFY=1 one_step "$name" dump 1e-5 "$([ $name = smollm3 ] && echo 1e-3 || echo 0)"
    # shellcheck disable=SC2086
    "$train" $device --model "$here" --load "$here" --data "$here/tokens.bin" --in-order --batch 2 --length 12 \
        --steps 5 --warmup 0 --lr 1e-2 --clip-norm 0 --log "$work/steps" --save-hf "$work/$name" >"$work/out" 2>&1 ||
        fail "$name: $(tail -n 1 "$work/out")"
    losses "$work/steps" >"$work/losses"
    close "$here/steps.txt" "$work/losses" 5 || fail "$name: five steps: $(paste "$here/steps.txt" "$work/losses")"
    prompt='+&!*)'
    [ $name = phi3 ] && prompt="$prompt$prompt"
    # shellcheck disable=SC2086
    "$sample" $device --load "$here" --tokenizer bytes --prompt "$prompt" --temperature 0 --sample-tokens 50 --samples 1 \
        --length 64 >"$work/text" 2>"$work/err" || fail "$name: $(cat "$work/err")"
    cmp -s "$here/greedy.txt" "$work/text" || fail "$name: $(cat "$here/greedy.txt" "$work/text")"
    # What --save-hf wrote is the same model: it goes on from there.
    # shellcheck disable=SC2086
    for from in "$here" "$work/$name"; do
        "$train" $device --model "$from" --load "$work/$name" --data "$here/tokens.bin" --in-order --batch 2 \
            --length 12 --steps 1 --warmup 0 --lr 0 --log "$work/again" >"$work/out" 2>&1 ||
            fail "$name again: $(tail -n 1 "$work/out")"
        losses "$work/again" >>"$work/$name.again"
        rm -f "$work/again"
    done
    [ "$(uniq "$work/$name.again" | wc -l)" = 1 ] || fail "$name: its config.json is another: $(cat "$work/$name.again")"
done

finish
