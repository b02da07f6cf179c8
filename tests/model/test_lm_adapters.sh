#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# LoRA in lm-train and lm-sample.  Adapters of PEFT give its loss, scores and gradients in float64
# (make_adapter_reference.py: ranks and alphas of single layers, rsLoRA, turned weights, rotary
# rows); budgets, codes, micro-steps and resumed runs give the same numbers; what is saved
# continues, and merges; and wrong input gets a sentence before the first step.
set -u

. "${srcdir:-.}/tests/model/adapters.sh"
adapter=adapter expected=adapted.safetensors

# ---- PEFT's numbers --------------------------------------------------------------------------------

for model in gpt2 llama; do
    against $model-fp32 $model fp32 1e-5 0 --plan-out "$work/plan"
    against $model-least $model fp32 1e-5 0 --vram "$(possible "$work/$model-fp32.log")"
    against $model-micro $model fp32 3e-5 0 --micro-batch 1
    against $model-bf16 $model bf16 8e-2 5e-2
done
grep -q "adapters: .*14 layers, rank 3, alpha 6.9282, others for some" "$work/llama-fp32.log" ||
    fail "$(grep adapters: "$work/llama-fp32.log")"

# ---- the same numbers ------------------------------------------------------------------------------

base=$work/base
# shellcheck disable=SC2086
"$train" $device --model tiny-llama --layers 2 --hidden 64 --mlp 128 --data random --batch 2 --length 12 --steps 1 \
    --save-hf "$base" >"$work/out" 2>"$work/err" || fail "no base: $(cat "$work/err")"
data="--data $lm/llama/tokens.bin --in-order --batch 2 --length 12"
new="$device --model $base --load $base $data --lora-rank 3"

trains() {
    name=$1
    shift
    # shellcheck disable=SC2086
    "$train" $new --steps 4 --log "$work/$name.log" --save "$work/$name/adapter_model.safetensors" "$@" \
        >"$work/out" 2>"$work/err" || fail "$name: $(tail -n 1 "$work/err")"
    grep -q "^model: .* parameters, .* of them trained as adapters" "$work/out" || fail "$name: $(head -n 1 "$work/out")"
}

# same NAME OTHER: those runs have the same losses and adapters.
same() {
    for i in "$@"; do
        sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$work/$i.log" >"$work/$i.losses"
    done
    [ -s "$work/$1.losses" ] && cmp -s "$work/$1.losses" "$work/$2.losses" ||
        fail "$2: other losses: $(cat "$work/$1.losses" "$work/$2.losses")"
    cmp -s "$work/$1/adapter_model.safetensors" "$work/$2/adapter_model.safetensors" || fail "$2: other adapters"
}

for i in free tight host first both codes int8 nf4 again peft; do
    mkdir "$work/$i"
done
trains free --lr 1e-2
# shellcheck disable=SC2086
refuses 1 "needs at least" "$train" $new --vram 4K
least=$(needed)
trains tight --lr 1e-2 --vram "$least"
same free tight
trains host --lr 1e-2 --vram "$least" --host 4M
same free host
trains first --lr 1e-2 --steps 2 --save-state "$work/state"
trains both --lr 1e-2 --resume "$work/state"
cat "$work/first.log" "$work/both.log" >"$work/all" && mv "$work/all" "$work/both.log"
same free both

# ---- the base of a state -----------------------------------------------------------------------------

# A state has what is trained; the frozen weights are those of --load, of any dtype and in any file.
[ "$(wc -c <"$work/state")" -lt $(($(wc -c <"$base/model.safetensors") / 2)) ] || fail "the state has frozen weights"
rest="$device --model $base $data --lora-rank 3 --lr 1e-2 --steps 4 --save $work/both/adapter_model.safetensors"
# shellcheck disable=SC2086
{
    refuses 1 "state: leaves out the frozen weights of its run, which came from --load $base: give" "$train" $rest --resume "$work/state"
    "$train" $device --model "$base" --load "$base" $data --lr 1e-2 --steps 1 --save-hf "$work/moved" >"$work/out" 2>"$work/err" ||
        fail "no other base: $(cat "$work/err")"
    refuses 1 "was trained on other weights: '.*' is not the one that its run read from --load $base" "$train" $rest \
        --resume "$work/state" --load "$work/moved"
    runs "resumed" "$train" $rest --resume "$work/state" --load "$base/model.safetensors"
    cmp -s "$work/free/adapter_model.safetensors" "$work/both/adapter_model.safetensors" || fail "the same base as one file"
    runs "which came from --load $base; so does $work/converted" ./ckpt convert "$work/state" --out "$work/converted" --only value/
    # Weights that no file has stay in the state.
    runs "state: " "$train" $rest --steps 2 --save-state "$work/random"
    [ "$(wc -c <"$work/random")" -gt "$(wc -c <"$base/model.safetensors")" ] || fail "random weights are left out"
    runs "resumed" "$train" $rest --resume "$work/random"
    refuses 2 "this state contains the weights" "$train" $rest --resume "$work/random" --load "$base"
    runs "resumed" "$train" $rest --resume auto --save-state "$work/random" --load "$base" --steps 3
    [ "$(wc -c <"$work/random")" -gt "$(wc -c <"$base/model.safetensors")" ] || fail "other weights than --load are left out"
    # A signal saves such a state, ranks share it, and another number of ranks goes on, with codes and in a thread.
    for more in "--zero 1 --save-async --host 16M" "--zero 2 --frozen nf4 --save-async --host 16M" "--zero 3 --frozen int8 --vram 90%"; do
        rm -f "$work/two.state"* "$work/meet" "$work/one.log" "$work/rest.log"
        kind="$new --lr 1e-2 --steps 4 $more --save-state $work/unread"
        runs memory "$train" $kind --log "$work/one.log" --save "$work/one"
        kind="$device --model $base --load $base --data $lm/llama/tokens.bin --in-order --length 12 --lora-rank 3 --lr 1e-2 $more"
        for rank in 0 1; do
            RANK=$rank WORLD_SIZE=2 timeout 100 "$train" $kind --batch 1 --steps 2 --ranks "file:$work/meet" \
                --save-state "$work/two.state" >"$work/out.$rank" 2>&1 &
        done
        wait
        [ "$(cat "$work"/two.state* | wc -c)" -lt $(($(wc -c <"$base/model.safetensors") / 2)) ] || fail "$more: a large state"
        runs "resumed: .*after 2 steps" "$train" $kind --batch 2 --steps 4 --resume "$work/two.state" \
            --save-state "$work/unread" --log "$work/rest.log"
        grep -h '^{"step"' "$work/one.log" "$work/rest.log" | sed 's/^{"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/' |
            sort | awk '$1 == step { d = $2 - loss; n++; bad += d * d > 1e-10 } { step = $1; loss = $2 } END { exit bad || n != 2 }' ||
            fail "$more: other losses"
    done
}
for codes in int8 nf4; do
    rm -f "$work/codes.log"
    trains codes --lr 1e-2 --frozen $codes
    # shellcheck disable=SC2086
    refuses 1 "needs at least" "$train" $new --vram 4K --frozen $codes
    trains $codes --lr 1e-2 --frozen $codes --vram "$(needed)"
    same codes $codes
    cmp -s "$work/free.losses" "$work/codes.losses" && fail "$codes: nothing is in codes"
done

# ---- files -----------------------------------------------------------------------------------------

saved=$work/free/adapter_model.safetensors
grep -q '"r": 3, "lora_alpha": 3' "$work/free/adapter_config.json" || fail "no settings of PEFT"
grep -q "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight" "$saved" || fail "not PEFT's names"
# loss_of OPTION...: the loss of the weights.
loss_of() {
    # shellcheck disable=SC2086
    "$train" $device $data --val $lm/llama/tokens.bin --steps 0 "$@" \
        2>"$work/err" | sed -n 's/^validation loss //p'
}
one=$(loss_of --model "$base" --load "$base" --adapter "$work/free" --save-hf "$work/whole" \
    --lora-merge "$work/merged.safetensors")
two=$(loss_of --model "$work/whole" --load "$work/whole")
three=$(loss_of --model "$base" --load "$work/merged.safetensors")
old=$(loss_of --model "$base" --load "$base")
[ -n "$one" ] && [ "$one" = "$two" ] && [ "$one" = "$three" ] && [ "$one" != "$old" ] ||
    fail "loss $one with adapters, $two and $three merged, $old without"
grep -q lora_ "$work/whole/model.safetensors" && fail "adapters in a merged model"
# A continued adapter has its rank, alpha and layers.
# shellcheck disable=SC2086
runs "14 layers, rank 3, alpha 3" "$train" $device --model $base --load $base --adapter "$saved" $data \
    --steps 1 --save "$work/again/adapter_model.safetensors"
# A run that began from adapters continues from its state and base.
# shellcheck disable=SC2086
{
    begun="$device --model $base $data --batch 2"
    runs memory "$train" $begun --load $base --adapter "$work/free" --steps 2 --save-state "$work/begun"
    runs "resumed: .*after 2 steps" "$train" $begun --resume "$work/begun" --load $base --steps 3
    refuses 2 "--resume and --adapter exclude each other" "$train" $begun --resume "$work/begun" --adapter "$work/free"
    # PEFT's settings are those of the one adapter of a directory; other weights beside them have none.
    mkdir "$work/other"
    refuses 2 "free/adapter_model.safetensors is another adapter, .* that of --save-ema" "$train" $new --steps 1 \
        --ema-decay 0.9 --save "$work/other/adapter_model.safetensors" --save-ema "$work/free/average"
    refuses 2 "is another adapter, .* that of --save " "$train" $new --steps 1 --save "$work/free/second"
    for i in 1 2; do
        runs "moving average" "$train" $new --steps 1 --ema-decay 0.9 --save "$work/other/adapter_model.safetensors" \
            --save-ema "$work/other/average"
    done
    runs "weights: .*whole.safetensors" "$train" $begun --load $base --steps 1 --save "$work/free/whole.safetensors"
}
# Text with adapters is that of the merged weights.
for i in "--load $base --adapter $work/free" "--load $work/whole"; do
    # shellcheck disable=SC2086
    "$sample" $device $i --tokenizer bytes --prompt ab --temperature 0 --sample-tokens 16 --length 24 2>"$work/err" \
        >"$work/text" || fail "$i: $(cat "$work/err")"
    [ -e "$work/before" ] && ! cmp -s "$work/text" "$work/before" && fail "other text: $i"
    cp "$work/text" "$work/before"
done

# ---- wrong input -----------------------------------------------------------------------------------

wrong() {
    text=$1
    shift
    # shellcheck disable=SC2086
    refuses 2 "$text" "$train" $device --model $base --load $base $data --steps 1 "$@"
}

wrong "no such file" --adapter "$work/none"
wrong "no LoRA adapters" --adapter "$base/model.safetensors"
wrong "is a state of training" --adapter "$work/state"
wrong "rank 3 .*and --lora-rank is 4" --adapter "$work/free" --lora-rank 4
wrong "lora-alpha is 7: leave" --adapter "$work/free" --lora-alpha 7
wrong "for --lora-rank N or a file" --lora-targets q_proj
wrong "adds* nothing" --lora-rank 2 --lora-alpha 0
wrong "give model, int8 or nf4" --lora-rank 2 --frozen fp4
wrong "without adapters all weights are trained" --frozen nf4
wrong "no adapters yet" --lora-rank 2 --lora-merge "$work/x" --steps 0
wrong "plan-only ends before" --lora-rank 2 --lora-merge "$work/x" --plan-only
refuses 2 "give --load" "$train" --model "$base" --adapter "$work/free"
# shellcheck disable=SC2086
{
    one="$train $device --model $base --load $base $data --steps 1"
    refuses 1 "is called so" $one --lora-rank 2 --lora-targets q_prj
    refuses 1 "another model" $one --adapter "$lm/gpt2/adapter"
    refuses 1 "none is of --lora-targets q_prj" $one --adapter "$work/free" --lora-targets "q_prj,*"
    refuses 1 "has the shape" $one --adapter "$lm/llama/adapter"
    refuses 1 "qat" $one --lora-rank 2 --qat int8
    refuses 1 "is the same file as --adapter" $one --adapter "$work/free" --lora-merge "$work/free/adapter_model.safetensors"
    # An adapter of an embedding that is the head, too, would be in one of the two.
    one="$train $device --model $lm/gpt2 --load $lm/gpt2 --data $lm/gpt2/tokens.bin --batch 2 --length 12 --steps 1"
    refuses 1 "embedding: 'wte.weight' has an adapter" $one --lora-rank 2 --lora-targets wte
    runs "learn nothing.*wpe" $one --lora-rank 2 --lora-targets c_fc,wpe
    runs memory $one --lora-rank 2 && grep "learn nothing" "$work/err" && fail "adapters that learn"
}
sed 's/"use_dora": false/"use_dora": true/' "$lm/llama/adapter/adapter_config.json" >"$work/peft/adapter_config.json"
cp "$lm/llama/adapter/adapter_model.safetensors" "$work/peft"
wrong "use_dora" --adapter "$work/peft"
head -c 5000 "$lm/llama/adapter/adapter_model.safetensors" >"$work/peft/adapter_model.safetensors"
wrong "adapter_model.safetensors" --adapter "$work/peft"
finish
