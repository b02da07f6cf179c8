#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Mixtures of experts against Hugging Face's in float64 (make_moe_reference.py): loss, scores and all
# gradients, with the balance of experts; five steps; texts of the likeliest tokens; weights in MXFP4;
# names of saved files; the same numbers under budgets, offloaded, resumed and on two ranks; and
# sentences for what is not supported.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${LM_TRAIN:-./lm-train} sample=${LM_SAMPLE:-./lm-sample} compare=${COMPARE:-./tests/model/compare}
lm=$root/tests/model/lm
device="--device ${CKPT_DEVICE:-cpu} --threads 1 --dtype fp32"

# ---- transformers' numbers -------------------------------------------------------------------------

# against NAME MODEL TOLERANCE FLOOR [OPTION]...
against() {
    name=$1 here=$lm/$2 tolerance=$3 floor=$4
    shift 4
    # shellcheck disable=SC2086
    CKPT_VERIFY=1 "$train" $device --model "$here" --load "$here" --data "$here/tokens.bin" \
        --in-order --batch 2 --length 12 --steps 1 --warmup 0 --lr 0 --dump "$work/$name.safetensors" "$@" \
        >"$work/$name.log" 2>&1 || fail "$name: $(tail -n 1 "$work/$name.log")"
    grep "missing\|unexpected" "$work/$name.log" && fail "$name: names"
    "$compare" "$here/expected.safetensors" "$work/$name.safetensors" "$tolerance" "$floor" >"$work/out" 2>&1 ||
        fail "$name differs: $(cat "$work/out")"
}

for model in qwen3_moe gpt_oss; do
    against $model-fp32 $model 1e-5 0 --plan-out "$work/plan"
    against $model-least $model 1e-5 0 --vram "$(possible "$work/$model-fp32.log")"
    here=$lm/$model
    # shellcheck disable=SC2086
    "$train" $device --model "$here" --load "$here" --data "$here/tokens.bin" --in-order --batch 2 --length 12 \
        --steps 5 --warmup 0 --lr 1e-3 --clip-norm 0 --save "$work/$model-steps" >"$work/out" 2>&1 ||
        fail "$model, five steps: $(tail -n 1 "$work/out")"
    "$compare" "$here/steps.safetensors" "$work/$model-steps" 1e-5 0 >"$work/out" 2>&1 ||
        fail "$model, five steps: $(cat "$work/out")"
    # shellcheck disable=SC2086
    "$sample" $device --load "$here" --prompt EXPERTS --sample-tokens 50 --temperature 0 >"$work/text" 2>"$work/err" ||
        fail "$model, text: $(tail -n 1 "$work/err")"
    { cat "$here/greedy.txt" && echo; } | cmp - "$work/text" || fail "$model: another text"
done
against gpt_oss-micro gpt_oss 3e-5 0 --micro-batch 1

# The balance is that of a micro-batch, so the batch stays whole, and the plan says so.
# shellcheck disable=SC2086
runs "balance of experts" "$train" $device --model "$lm/qwen3_moe" --data random --batch 4 --length 12 --plan-only

# ---- files -----------------------------------------------------------------------------------------

mkdir "$work/mxfp4" &&
    sed '1a "quantization_config": {"modules_to_not_convert": ["lm_head"], "quant_method": "mxfp4"},' \
        "$lm/gpt_oss/config.json" >"$work/mxfp4/config.json" &&
    cp "$lm/gpt_oss/mxfp4.safetensors" "$work/mxfp4/model.safetensors"

# shellcheck disable=SC2086
"$train" $device --model "$work/mxfp4" --load "$work/mxfp4" --data random --steps 0 --save-hf "$work/gpt_oss" \
    >"$work/out" 2>&1 || fail "MXFP4: $(tail -n 1 "$work/out")"
"$compare" "$lm/gpt_oss/model.safetensors" "$work/gpt_oss/model.safetensors" 0 0 >"$work/out" 2>&1 ||
    fail "MXFP4: $(cat "$work/out")"
# shellcheck disable=SC2086
"$train" $device --model "$lm/qwen3_moe" --load "$lm/qwen3_moe" --data random --steps 0 --save-hf "$work/qwen3_moe" \
    >"$work/out" 2>&1 || fail "--save-hf: $(tail -n 1 "$work/out")"
"$compare" "$lm/qwen3_moe/model.safetensors" "$work/qwen3_moe/model.safetensors" 0 0 >"$work/out" 2>&1 ||
    fail "--save-hf: $(cat "$work/out")"
# several files with an index, under the names of experts
# shellcheck disable=SC2086
"$train" $device --model "$work/qwen3_moe" --load "$work/qwen3_moe" --data random --steps 0 --save-hf "$work/split" \
    --shard-size 9K >"$work/out" 2>&1 || fail "--shard-size: $(tail -n 1 "$work/out")"
grep -q '"model.layers.0.mlp.experts.4.up_proj.weight": "model-' "$work/split/model.safetensors.index.json" ||
    fail "the index lacks experts"
for model in qwen3_moe gpt_oss split; do
    from=$work/$model
    # shellcheck disable=SC2086
    "$sample" $device --load "$from" --prompt EXPERTS --sample-tokens 50 --temperature 0 >"$work/text" 2>"$work/err" ||
        fail "$model, text of saved weights: $(tail -n 1 "$work/err")"
    { cat "$lm/$(basename "$from" | sed s/split/qwen3_moe/)/greedy.txt" && echo; } | cmp - "$work/text" ||
        fail "$model: another text of saved weights"
done

# ---- the same numbers ------------------------------------------------------------------------------

# trains NAME [OPTION]...: four steps of the small presets on the test's tokens.
trains() {
    name=$1
    shift
    # shellcheck disable=SC2086
    "$train" $device $small --steps 4 --log "$work/$name.log" "$@" >"$work/$name.out" 2>"$work/err" ||
        fail "$name: $(tail -n 1 "$work/err")"
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$work/$name.log" \
        >"$work/$name.losses"
}

same() {
    [ -s "$work/$1.losses" ] && cmp -s "$work/$1.losses" "$work/$2.losses" || fail "$2 is not as $1"
}

for model in qwen3-moe gpt-oss; do
    small="--model tiny-$model --hidden 32 --mlp 32 --heads 4 --layers 2 --data $lm/llama/tokens.bin --in-order"
    small="$small --vocabulary 96 --batch 2 --length 12 --warmup 0 --lr 1e-3"
    trains $model --plan-out "$work/plan"
    trains $model-least --vram "$(possible "$work/$model.out")" --host 1G
    same $model $model-least
    trains $model-half --steps 2 --save-state "$work/state"
    trains $model-rest --resume "$work/state"
    tail -n 2 "$work/$model.losses" | cmp -s - "$work/$model-rest.losses" || fail "$model: a resumed run differs"
    rm -f "$work/meet"
    for rank in 0 1; do
        # shellcheck disable=SC2086
        RANK=$rank WORLD_SIZE=2 timeout 100 "$train" $device $small --batch 1 --zero 3 --steps 4 --ranks "file:$work/meet" \
            --save-hf "$work/two-$model" >"$work/rank.$rank" 2>&1 &
        eval "pid$rank=\$!"
    done
    # shellcheck disable=SC2154
    wait "$pid0" && wait "$pid1" || fail "$model: two ranks: $(tail -n 1 "$work/rank.0")"
    # shellcheck disable=SC2086
    "$train" $device $small --steps 4 --save-hf "$work/one-$model" >"$work/out" 2>&1 || fail "$model: one rank"
    "$compare" "$work/one-$model/model.safetensors" "$work/two-$model/model.safetensors" 1e-4 0 >"$work/out" 2>&1 ||
        fail "$model: two ranks differ: $(cat "$work/out")"
done

# ---- what is refused -------------------------------------------------------------------------------

# wrong TEXT KEY VALUE: a config.json of qwen3_moe with that value.
wrong() {
    sed "s/\"$2\": .*/\"$2\": $3,/" "$lm/qwen3_moe/config.json" >"$work/wrong.json"
    refuses 2 "$1" "$train" --device cpu --model "$work/wrong.json" --data random --plan-only
}
wrong "cannot have 6 of 5 experts" num_experts_per_tok 6
wrong "use_sliding_window" use_sliding_window true
wrong "num_local_experts" num_local_experts 0
# shellcheck disable=SC2086
refuses 2 "no codes for experts" "$train" $device --model "$lm/qwen3_moe" --load "$lm/qwen3_moe" --data random --lora-rank 2 \
    --frozen nf4
# shellcheck disable=SC2086
refuses 1 "is called so" "$train" $device --model "$lm/qwen3_moe" --load "$lm/qwen3_moe" --data random --lora-rank 2 \
    --lora-targets gate_up_proj
# shellcheck disable=SC2086
refuses 1 "has experts, which are not trained as a whole" "$train" $device --model "$lm/qwen3_moe" --load "$lm/qwen3_moe" \
    --data random --lora-rank 2 --lora-also experts
# shellcheck disable=SC2086
refuses 2 "pack: attention of .* has sinks" "$train" $device --model "$lm/gpt_oss" --data random --pack
# shellcheck disable=SC2086
runs " 896 of them trained" "$train" $device --model "$work/mxfp4" --load "$work/mxfp4" --data "$lm/gpt_oss/tokens.bin" --length 12 \
    --batch 2 --lora-rank 2 --steps 1 --save-state "$work/state"
# The state leaves out the experts; they are the same ones in a file without MXFP4, which turns them.
# shellcheck disable=SC2086
runs "resumed" "$train" $device --model "$work/mxfp4" --load "$lm/gpt_oss" --data "$lm/gpt_oss/tokens.bin" --length 12 \
    --batch 2 --lora-rank 2 --steps 2 --resume "$work/state"

finish
