#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Kinds of adapters in lm-train and lm-sample.  DoRA with layers that are trained as a whole has PEFT's
# loss, scores and gradients in float64, and it, rsLoRA and plain LoRA its three steps
# (make_adapter_reference.py); dropout drops the same in all budgets, by ranks and in resumed runs;
# several adapters add up; and adapters of another base are refused.
set -u

. "${srcdir:-.}/tests/model/adapters.sh"
adapter=dora expected=dora/expected.safetensors

# ---- PEFT's numbers --------------------------------------------------------------------------------

# three_steps MODEL KIND: what PEFT's AdamW makes of the adapters.
three_steps() {
    here=$lm/$1 to=$work/$1-$2
    mkdir "$to"
    # shellcheck disable=SC2086
    "$train" $device --model "$here" --load "$here" --adapter "$here/$2" --data "$here/tokens.bin" --in-order --batch 2 \
        --length 12 --steps 3 --lr 1e-2 --beta2 0.95 --clip-norm 0 --save "$to/adapter_model.safetensors" \
        >"$work/out" 2>"$work/err" || fail "$1 $2: $(cat "$work/err")"
    "$compare" "$here/$2/steps.safetensors" "$to/adapter_model.safetensors" 1e-4 0 >"$work/out" ||
        fail "$1 $2: other values after three steps: $(cat "$work/out")"
}

for model in gpt2 llama; do
    against $model-fp32 $model fp32 1e-5 0 --plan-out "$work/plan"
    against $model-least $model fp32 1e-5 0 --vram "$(possible "$work/$model-fp32.log")"
    against $model-micro $model fp32 3e-5 0 --micro-batch 1
    against $model-bf16 $model bf16 8e-2 5e-2
    three_steps $model adapter
    three_steps $model dora
done
grep -q '"use_dora": true' "$work/llama-dora/adapter_config.json" || fail "DoRA is not in the settings"
grep -q '"modules_to_save": \["model.norm", "lm_head"\]' "$work/llama-dora/adapter_config.json" ||
    fail "modules_to_save: $(cat "$work/llama-dora/adapter_config.json")"

# ---- the same numbers ------------------------------------------------------------------------------

base=$work/base
# shellcheck disable=SC2086
"$train" $device --model tiny-llama --layers 2 --hidden 64 --mlp 128 --data random --batch 2 --length 12 --steps 1 \
    --save-hf "$base" >"$work/out" 2>"$work/err" || fail "no base: $(cat "$work/err")"
data="--data $lm/llama/tokens.bin --in-order --batch 2 --length 12"
load="--load $base"

# trains NAME OPTION...: four steps of the kind, or up to the fourth.
trains() {
    name=$1
    shift
    mkdir -p "$work/$name"
    # shellcheck disable=SC2086
    "$train" $device --model $base $load $data --lr 1e-2 --steps 4 $kind --log "$work/$name.log" \
        --save "$work/$name/adapter_model.safetensors" "$@" >"$work/out" 2>"$work/err" ||
        fail "$kind, $name: $(tail -n 1 "$work/err")"
}

losses() {
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$work/$1.log"
}

# same NAME: the losses and adapters of the run without a budget.
same() {
    losses free >"$work/a"
    losses "$1" >"$work/b"
    [ -s "$work/a" ] && cmp -s "$work/a" "$work/b" || fail "$kind, $1: other losses: $(cat "$work/a" "$work/b")"
    cmp -s "$work/free/adapter_model.safetensors" "$work/$1/adapter_model.safetensors" || fail "$kind, $1: other adapters"
}

# near NAME: the losses within what another order of sums makes.
near() {
    losses free >"$work/a"
    losses "$1" | paste -d ' ' "$work/a" - | awk '{ d = $2 - $5; n += 1; bad += d * d > 1e-10 } END { exit !n || bad }' ||
        fail "$kind, $1: far losses: $(losses "$1" | paste -d ' ' "$work/a" -)"
}

for kind in "--lora-rank 3 --lora-dropout 0.3" "--lora-rank 3 --lora-dora" \
    "--lora-rank 4 --lora-alpha 8 --lora-rs --lora-dora --lora-dropout 0.2 --lora-also norm,lm_head" \
    "--lora-rank 3 --lora-dora --lora-dropout 0.3 --frozen nf4"; do
    rm -rf "$work"/*.log "$work/free" "$work/state"
    trains free
    # shellcheck disable=SC2086
    refuses 1 "needs at least" "$train" $device --model $base $load $data $kind --vram 4K
    least=$(needed)
    trains tight --vram "$least"
    same tight
    trains host --vram "$least" --host 4M
    same host
    trains first --steps 2 --save-state "$work/state"
    cp "$work/state" "$work/newest"
    trains auto --resume auto --save-state "$work/newest"
    trains both --resume "$work/state"
    # what the state has needs no option
    rest=$kind kind=$(echo "$kind" | grep -o -e "--frozen nf4")
    trains named --resume "$work/state"
    kind=$rest
    cat "$work/first.log" "$work/both.log" >"$work/all" && mv "$work/all" "$work/both.log"
    same both
    cmp -s "$work/both/adapter_model.safetensors" "$work/named/adapter_model.safetensors" || fail "$kind: resumed by its state alone"
    cmp -s "$work/both/adapter_model.safetensors" "$work/auto/adapter_model.safetensors" || fail "$kind: --resume auto"
    trains micro --micro-batch 1
    near micro
    rm -f "$work/meet"
    for rank in 0 1; do
        mkdir -p "$work/ranks"
        # shellcheck disable=SC2086
        RANK=$rank WORLD_SIZE=2 timeout 100 "$train" $device --model $base $load --data "$lm/llama/tokens.bin" --in-order \
            --length 12 --lr 1e-2 --steps 4 $kind --batch 1 --ranks "file:$work/meet" --log "$work/ranks.log" \
            --save "$work/ranks/adapter_model.safetensors" >"$work/out.$rank" 2>&1 &
    done
    wait
    near ranks
done
grep -q '"lora_alpha": 16,' "$work/free/adapter_config.json" && fail "rsLoRA's alpha without rsLoRA"
kind="--lora-rank 4 --lora-alpha 8 --lora-rs"
trains rooted
grep -q '"r": 4, "lora_alpha": 16,' "$work/rooted/adapter_config.json" || fail "rsLoRA's alpha"

# What a file has beside adapters is trained in resumed runs, too.
kind=
here=$lm/llama
# shellcheck disable=SC2086
{
    begun="$device --model $here --data $here/tokens.bin --batch 2 --length 12"
    runs memory "$train" $begun --load $here --adapter $here/dora --steps 1 --save-state "$work/begun"
    runs "resumed: .*after 1 steps" "$train" $begun --load $here --resume "$work/begun" --steps 2 \
        --save "$work/rooted/adapter_model.safetensors"
}
grep -q '"modules_to_save": \["model.norm", "lm_head"\]' "$work/rooted/adapter_config.json" ||
    fail "resumed: $(cat "$work/rooted/adapter_config.json")"

# loss_of OPTION...: the loss of the weights.
loss_of() {
    # shellcheck disable=SC2086
    "$train" $device $data --val $lm/llama/tokens.bin --steps 0 "$@" \
        2>"$work/err" | sed -n 's/^validation loss //p'
}
kind="--lora-rank 3 --lora-dora --lora-dropout 0.5 --lora-also norm"
trains free
one=$(loss_of --model "$base" --load "$base" --adapter "$work/free" --save-hf "$work/whole" --lora-merge "$work/merged.safetensors")
two=$(loss_of --model "$work/whole" --load "$work/whole")
three=$(loss_of --model "$base" --load "$work/merged.safetensors")
[ -n "$one" ] && [ "$one" = "$two" ] && [ "$one" = "$three" ] || fail "DoRA: loss $one, $two and $three merged"
grep -q "lora_" "$work/whole/model.safetensors" && fail "adapters in a merged model"

# ---- several ---------------------------------------------------------------------------------------

kind="--lora-rank 2"
trains one
kind="--lora-rank 3 --lora-targets q_proj,up_proj"
trains two --seed 4
list="one=$work/one,two=$work/two:0.5"
# Merged one after the other they are the same weights.
loss_of --model "$base" --load "$base" --adapter "one=$work/one" --lora-merge "$work/first.safetensors" >/dev/null
[ -s "$work/first.safetensors" ] || fail "one of a list: $(cat "$work/err")"
both=$(loss_of --model "$base" --load "$base" --adapter "two=$work/two,one=$work/one:0.5" --train-adapter two)
next=$(loss_of --model "$base" --load "$base" --adapter "two=$work/two,one=$work/one:-0.5" --train-adapter two)
[ -n "$both" ] && [ "$both" != "$next" ] || fail "factors: $both and $next: $(cat "$work/err")"
full=$(loss_of --model "$base" --load "$base" --adapter "two=$work/two,one=$work/one" --train-adapter two)
on=$(loss_of --model "$base" --load "$work/first.safetensors" --adapter "$work/two" --lora-other-base)
[ -n "$full" ] && [ "$full" = "$on" ] || fail "two adapters have the loss $full, and on the merged first $on"
# text OPTION...: greedy text.
text() {
    # shellcheck disable=SC2086
    "$sample" $device --tokenizer bytes --prompt ab --temperature 0 --sample-tokens 12 --length 24 "$@" 2>"$work/err"
}
[ "$(text --load "$base" --adapter "$list" --use one)" = "$(text --load "$base" --adapter "$work/one")" ] || fail "--use one"
[ "$(text --load "$base" --adapter "one=$work/one,two=$work/two")" = "$(text --load "$work/first.safetensors" --model "$base" \
    --adapter "$work/two" --lora-other-base)" ] || fail "a sum: $(cat "$work/err")"
grep -q "adapters: $work/two/.*, rank" "$work/err" || fail "adapters are not named: $(cat "$work/err")"
# One is trained on top of the other, which stays.
kind=
rm -f "$work"/*.log
trains free --adapter "one=$work/one,two=$work/two" --train-adapter two --save-hf "$work/sum"
trains first --adapter "one=$work/one,two=$work/two" --train-adapter two --steps 2 --save-state "$work/state"
trains both --adapter "one=$work/one,two=$work/two" --train-adapter two --resume "$work/state"
cat "$work/first.log" "$work/both.log" >"$work/all" && mv "$work/all" "$work/both.log"
same both
grep -q '"r": 3,' "$work/free/adapter_config.json" || fail "the adapter that is trained is saved"
trains codes --adapter "one=$work/one,two=$work/two" --train-adapter two --frozen nf4
sum=$(loss_of --model "$base" --load "$base" --adapter "two=$work/free,one=$work/one" --train-adapter two)
merged=$(loss_of --model "$work/sum" --load "$work/sum")
[ -n "$sum" ] && [ "$sum" = "$merged" ] || fail "trained on top: $sum, merged $merged"

# ---- another base ----------------------------------------------------------------------------------

loss_of --model "$base" --load "$base" --adapter "$work/one" --save-hf "$work/moved" >/dev/null
# shellcheck disable=SC2086
refuses 1 "trained on other weights" "$train" $device --model $base --load "$work/moved" --adapter "$work/one" $data --steps 1
# shellcheck disable=SC2086
runs memory "$train" $device --model $base --load "$work/moved" --adapter "$work/one" $data --steps 1 --lora-other-base
# shellcheck disable=SC2086
"$train" $device --model $base --load $base $data --steps 0 --shard-size 100K --dtype bf16 --save-hf "$work/again" \
    >"$work/out" 2>&1 || fail "other files: $(cat "$work/out")"
# shellcheck disable=SC2086
runs memory "$train" $device --model $base --load "$work/again" --adapter "$work/one" $data --steps 1

# ---- wrong input -----------------------------------------------------------------------------------

wrong() {
    status=$1 text=$2
    shift 2
    # shellcheck disable=SC2086
    refuses "$status" "$text" "$train" $device --model $base --load $base $data --steps 1 "$@"
}
wrong 2 "lora-dropout is for --lora-rank" --lora-dropout 0.5
wrong 2 "lora-rs is for --lora-rank" --lora-rs
wrong 2 "lora-dora is for --lora-rank" --lora-dora
wrong 2 "lora-also is for --lora-rank" --lora-also norm
wrong 2 "lora-dropout" --lora-rank 2 --lora-dropout 1
wrong 2 "the scale of its adapters: leave --lora-rs out" --adapter "$work/one" --lora-rs
wrong 2 "not of DoRA: leave --lora-dora out" --adapter "$work/one" --lora-dora
wrong 1 "lora-also nrm: no layer" --lora-rank 2 --lora-also nrm
wrong 1 "trained as a whole" --lora-rank 2 --lora-also q_proj
wrong 1 "lm_head.weight' has an adapter with dropout" --lora-rank 2 --lora-targets lm_head --lora-dropout 0.1
wrong 2 "train-adapter NAME is missing: .* has one, two" --adapter "$list"
wrong 2 "train-adapter three: no adapter is called so; --adapter has one, two" --adapter "$list" --train-adapter three
wrong 2 "'two' is trained, and has no weight" --adapter "$list" --train-adapter two
wrong 2 "is for adapters with names" --adapter "$work/one" --train-adapter one
wrong 2 "adapter is given twice: several are one value, NAME=FILE,NAME=FILE" --adapter "$work/one" --adapter "two=$work/two"
wrong 2 "two are called 'one'" --adapter "one=$work/one,one=$work/two" --train-adapter one
wrong 2 "give NAME=FILE" --adapter "one=$work/one,$work/two" --train-adapter one
wrong 2 "a weight of 0 adds nothing" --adapter "one=$work/one,two=$work/two:0" --train-adapter one
wrong 2 "adapter two: .*no such file" --adapter "one=$work/one,two=$work/none" --train-adapter one
wrong 1 "allows no other one" --adapter "one=$work/one,two=$work/named" --train-adapter one
wrong 2 "adapter two: .*modules_to_save" --adapter "one=$work/one,two=$lm/llama/dora" --train-adapter one
wrong 1 "save .*adapter_config.json: is the same file as --log" --lora-rank 2 --save "$work/two/adapter_model.safetensors" \
    --log "$work/two/adapter_config.json"
refuses 2 "use three: no adapter is called so; --adapter has one, two" "$sample" --load "$base" --adapter "$list" --use three
refuses 2 "adapter is given twice" "$sample" --load "$base" --adapter "$work/one" "--adapter=$work/two"
refuses 2 "is for adapters with names" "$sample" --load "$base" --adapter "$work/one" --use one
# A head that is the embedding cannot be trained as one of the two.
# shellcheck disable=SC2086
refuses 1 "is the head of GPT-2, too" "$train" $device --model $lm/gpt2 --load $lm/gpt2 --data $lm/gpt2/tokens.bin --batch 2 \
    --length 12 --steps 1 --lora-rank 2 --lora-also wte
# Heads that a file has not are never trained below adapters.
# shellcheck disable=SC2086
{
    bert="$train $device --model tiny-bert --layers 1 --hidden 16 --heads 2 --mlp 32 --length 32 --batch 2 --steps 1 --data $root/doc/lm.md"
    $bert --save-hf "$work/bert" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
    bert="$bert --load $work/bert/model.safetensors --lora-rank 2 --partial"
    refuses 1 "lacks bert.pooler.*, which adapters leave random" $bert --next-sentence
    runs memory $bert --next-sentence --lora-also pooler.dense,seq_relationship
    runs memory $bert
}
# One rank has nothing to share.
# shellcheck disable=SC2086
runs "zero: one rank has nothing to share" "$train" $device --model $base --load $base $data --steps 1 --zero 3
finish
