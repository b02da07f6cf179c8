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

# ---- budgets, micro-steps, ranks, resumed runs, adapters and codes ---------------------------------

# go NAME [OPTION]...: four steps; weights in $work/NAME, losses in NAME.losses.
go() {
    name=$1
    shift
    rm -f "$work/$name.log"
    # shellcheck disable=SC2086
    "$train" $device $shape --data "$root/doc/tour.md" --steps 4 --log "$work/$name.log" --save "$work/$name" "$@" \
        >"$work/out" 2>"$work/err" || fail "$name $shape: $(tail -n 1 "$work/err")"
    losses "$work/$name.log" >"$work/$name.losses"
}

# same NAME OTHER: the same bits.
same() {
    [ -s "$work/$1.losses" ] && cmp -s "$work/$1.losses" "$work/$2.losses" && cmp -s "$work/$1" "$work/$2" ||
        fail "$2 differs from $1: $shape"
}

for preset in tiny-gemma2 tiny-gemma3 tiny-phi tiny-olmo tiny-smollm3; do
    shape="--model $preset --hidden 64 --mlp 128 --layers 2 --heads 4 --length 80 --batch 2"
    go free
    # shellcheck disable=SC2086
    refuses 1 "needs at least" "$train" $device $shape --data "$root/doc/tour.md" --vram 16K
    go tight --vram "$(needed)"
    same free tight
    go micro --micro-batch 1
    close "$work/free.losses" "$work/micro.losses" 4 || fail "$preset: micro: $(cat "$work/micro.losses")"
    for format in model nf4 int8; do
        go codes --lora-rank 2 --frozen $format
    done
done
shape="--model tiny-gemma2 --hidden 64 --mlp 128 --layers 2 --heads 4 --length 80 --batch 2"
go free
# shellcheck disable=SC2086
refuses 1 "needs at least" "$train" $device $shape --data "$root/doc/tour.md" --vram 16K --host 16M
go host --vram "$(needed)" --host 16M
same free host
go first --steps 2 --save-state "$work/state"
go rest --resume "$work/state"
cat "$work/first.losses" "$work/rest.losses" >"$work/both.losses"
cp "$work/rest" "$work/both"
same free both
for rank in 1 0; do
    # shellcheck disable=SC2086
    RANK=$rank WORLD_SIZE=2 timeout 100 "$train" $device $shape --batch 1 --data "$root/doc/tour.md" --steps 4 --zero 3 \
        --ranks "file:$work/meet" --log "$work/ranks.log" >"$work/out.$rank" 2>&1 &
done
wait
losses "$work/ranks.log" >"$work/ranks.losses"
close "$work/free.losses" "$work/ranks.losses" 4 || fail "two ranks: $(cat "$work/ranks.losses" "$work/out.0")"
# A window at least as long as the text is none, and one of a token sees itself alone.
shape="--length 12 --batch 2"
for window in 12 64 null 1; do
    sed "s/\"sliding_window\": 5/\"sliding_window\": $window/" "$lm/mistral/config.json" >"$work/config.json"
    go "window-$window" --model "$work/config.json" --load "$lm/mistral" --data "$lm/mistral/tokens.bin"
done
same window-12 window-64
same window-12 window-null
cmp -s "$work/window-12.losses" "$work/window-1.losses" && fail "a window of one token changes nothing"

# ---- published sizes -------------------------------------------------------------------------------

# counts PRESET PARAMETERS, as the files of the model have.
counts() {
    "$train" --model "$1" --plan-only --length 16 --batch 1 --dtype bf16 >"$work/out" 2>&1 ||
        fail "$1: $(tail -n 1 "$work/out")"
    grep -q ", $2 parameters, " "$work/out" || fail "$1: $(grep parameters, "$work/out")"
}

counts qwen3-0.6B 596,049,920
counts gemma3-270M 268,098,176
counts gemma2-2B 2,614,341,888
counts phi3-mini 3,821,079,552
counts olmo2-1B 1,484,916,736
counts smollm2-135M 134,515,008
counts smollm3-3B 3,075,098,624
counts mistral-7B-v0.1 7,241,732,096

# ---- wrong input -----------------------------------------------------------------------------------

# wrong NAME SED TEXT: the config.json of that model, changed, is refused with TEXT.
wrong() {
    sed "$2" "$lm/$1/config.json" >"$work/config.json"
    cmp -s "$work/config.json" "$lm/$1/config.json" && fail "$1: $2 changes nothing"
    refuses 2 "$3" "$train" --model "$work/config.json" --length 12
}

wrong gemma3 's/gemma3_text/gemma3/' '"model_type" is "gemma3"; known are'
wrong gemma3 's/"use_bidirectional_attention": false/"use_bidirectional_attention": true/' use_bidirectional_attention
wrong gemma3 's/gelu_pytorch_tanh/mish/' '"hidden_activation" is "mish"'
wrong gemma3 's/"sliding_window": 5/"sliding_window": null/' '"sliding_window" is none'
wrong gemma3 's/"full_attention"$/"linear_attention"/' '"layer_types'
wrong gemma2 's/: 8,/: 7,/' 'heads of width 7: rotary embedding .* needs an even width'
wrong qwen3 's/"silu"/"xielu"/' '"hidden_act" is "xielu"'
wrong qwen3 '/num_key_value_heads/d' '"num_key_value_heads" is missing'
wrong qwen3 's/"use_cache": true/"partial_rotary_factor": 0.5/' '"partial_rotary_factor" 0.5 is not supported in Qwen 3'
wrong phi3 's/5.0$/5.0, 6.0/' '"long_factor" has 3 factors, and a head has 2 pairs'
wrong phi3 's/longrope/proportional/' 'rope_type" is "proportional"'
wrong phi3 's/"partial_rotary_factor": 0.5/"partial_rotary_factor": 1.5/' '"partial_rotary_factor" is above 1'
wrong smollm3 's/"no_rope_layers": \[/"no_rope_layers": [], "layer_kinds": [/' 'layer_kinds'
wrong mistral 's/"use_cache": true/"layer_types": ["sliding_attention", "full_attention", "full_attention"]/' \
    '"layer_types" has a layer without a window'
wrong mistral 's/"use_cache": true/"quantization_config": {"quant_method": "awq"}/' '"quantization_config.quant_method" is "awq"'
wrong olmo2 's/"use_cache": true/"sliding_window": 5/' '"sliding_window" is 5'
refuses 2 "heads of width 7" "$train" --model tiny-qwen3 --hidden 28 --heads 4
refuses 1 "no layer of Phi-3 with a matrix is called so" "$train" --model tiny-phi --lora-rank 2 \
    --lora-targets q_proj --data random

finish
