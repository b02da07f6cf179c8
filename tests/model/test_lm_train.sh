#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lm-train and lm-sample as a user or a script runs them: the budget changes no number, weights are
# read back from Hugging Face's files, a run resumes, and wrong input gets one sentence and a
# non-zero exit.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${LM_TRAIN:-./lm-train} sample=${LM_SAMPLE:-./lm-sample}
models=$root/tests/model/lm
book=$root/doc/design.md
small="--hidden 16 --heads 2 --layers 2 --mlp 32 --length 16 --batch 4 --steps 4 --threads 1 --device cpu"

# on_text OPTION...: a short run on text.
on_text() {
    "$train" $small --data "$book" "$@" >"$work/out" 2>"$work/err"
}

# losses LOG: what the steps computed, without times and memory.
losses() {
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$1"
}

# same NAME: that run has the losses and weights of the run without a budget.
same() {
    losses "$work/free.log" >"$work/a"
    losses "$work/$1.log" >"$work/b"
    cmp -s "$work/a" "$work/b" || fail "$1: other losses: $(cat "$work/b")"
    cmp -s "$work/free" "$work/$1" || fail "$1: other weights"
}

# ---- the budget changes no number -----------------------------------------------------------------

for model in tiny tiny-llama tiny-qwen; do
    rm -f "$work"/*.log
    on_text --model $model --log "$work/free.log" --save "$work/free" || fail "$model: $(cat "$work/err")"
    [ "$(losses "$work/free.log" | wc -l)" = 4 ] || fail "$model: the log has not one line a step"
    refuses 1 "needs at least" "$train" $small --data "$book" --model $model --vram 16K
    smallest=$(needed)
    refuses 1 "needs at least" "$train" $small --data "$book" --model $model --vram $((smallest - 1))
    on_text --model $model --vram "$smallest" --log "$work/tight.log" --save "$work/tight" ||
        fail "$model: smallest budget: $(cat "$work/err")"
    same tight
    on_text --model $model --vram "$smallest" --host 16M --log "$work/host.log" --save "$work/host" ||
        fail "$model: --host: $(cat "$work/err")"
    same host
done
refuses 1 "needs at least" "$train" $small --data "$book" --model tiny-qwen --vram 16K --host 4M --nvme "$work:64M"
on_text --model tiny-qwen --vram "$(needed)" --host 4M --nvme "$work:64M" --log "$work/nvme.log" \
    --save "$work/nvme" || fail "--nvme: $(cat "$work/err")"
same nvme
grep -q '"tokens_per_second": [0-9]' "$work/nvme.log" || fail "no tokens a second in the log"

# The first refusal names what all programs of a run need, not what the first one needs.
several="--steps 1 --sample-every 1 --samples 64"
refuses 1 "needs at least" "$train" $small --data "$book" $several --vram 16K
all=$(needed)
[ "$all" -gt "$smallest" ] || fail "$all bytes for samples, too"
refuses 1 "needs at least $all bytes" "$train" $small --data "$book" $several --vram $((all - 1))
on_text $several --vram "$all" --save "$work/all" || fail "training and samples: $(cat "$work/err")"

# ---- chunks of the loss ----------------------------------------------------------------------------

rm -f "$work"/*.log
on_text --log "$work/free.log" --save "$work/free" || fail "no chunk: $(cat "$work/err")"
for chunk in 64 128; do
    rm -f "$work/all.log"
    on_text --loss-chunk $chunk --log "$work/all.log" --save "$work/all" || fail "--loss-chunk $chunk: $(cat "$work/err")"
    same all # 64 tokens are the whole step
    grep -q '"loss_chunk": 64,' "$work/all.log" || fail "a chunk above the step's tokens"
done
refuses 1 "^  try that: a step takes" "$train" $small --data "$book" --vram 16K
whole=$(needed)
on_text --loss-chunk 8 --log "$work/eight.log" --save "$work/eight" --save-state "$work/eight.state" ||
    fail "--loss-chunk 8: $(cat "$work/err")"
refuses 1 "needs at least" "$train" $small --data "$book" --vram 16K --loss-chunk auto
least=$(needed)
[ "$least" -lt "$whole" ] || fail "--loss-chunk auto needs $least, all tokens at once $whole"
on_text --loss-chunk auto --vram "$least" --log "$work/auto.log" --save "$work/auto" ||
    fail "--loss-chunk auto: $(cat "$work/err")"
grep -q "last bits .*depend on the budget" "$work/out" || fail "auto: no word about the bits: $(cat "$work/out")"
chunk=$(sed -n 's/^loss: at most \([0-9]*\) tokens at a time.*/\1/p' "$work/out")
[ "${chunk:-64}" -lt 64 ] || fail "auto in the least memory took $chunk: $(cat "$work/out")"
rm -f "$work"/free.log
on_text --loss-chunk "$chunk" --log "$work/free.log" --save "$work/free" || fail "--loss-chunk $chunk: $(cat "$work/err")"
same auto
grep -q '"loss_chunk": '"$chunk"',' "$work/auto.log" || fail "the log has no chunk"
runs "changed: loss-chunk was 8, is 16" "$train" $small --data "$book" --steps 5 --loss-chunk 16 --resume "$work/eight.state"
on_text --steps 5 --loss-chunk 8 --resume "$work/eight.state" || fail "resumed: $(cat "$work/err")"
grep "^changed: loss" "$work/out" && fail "the same chunk is no change"
runs "^loss: at most" "$train" $small --data "$book" --loss-chunk auto --plan-only
runs " = linear(%" "$train" $small --data "$book" --plan-only --verify --dump-tape fuse
refuses 1 "there are record, counts, .*fuse" "$train" $small --data "$book" --plan-only --dump-tape list
for wrong in 0 -1 1.5 many; do
    refuses 2 "loss-chunk" "$train" $small --loss-chunk $wrong
done
refuses 2 "127 tokens .* 64 or fewer equal chunks" "$train" --length 127 --batch 1 --loss-chunk 64
refuses 2 "the plan is for one size" "$train" $small --loss-chunk auto --plan-in "$work/plan"

# ---- weights --------------------------------------------------------------------------------------

# To Hugging Face's files, in several, and back: the same weights, under the names of the reference.
for model in gpt2 llama qwen2; do
    here=$models/$model
    "$train" --model "$here" --load "$here" --steps 0 --data "$here/tokens.bin" --length 12 \
        --save-hf "$work/hf-$model" --shard-size 9K >"$work/out" 2>"$work/err" ||
        fail "--save-hf $model: $(cat "$work/err")"
    [ -s "$work/hf-$model/model.safetensors.index.json" ] || fail "$model: no index of several files"
    "$train" --model "$work/hf-$model" --load "$work/hf-$model" --steps 0 --data "$here/tokens.bin" \
        --length 12 --save-hf "$work/again-$model" >"$work/out" 2>"$work/err" ||
        fail "again $model: $(cat "$work/err")"
    [ -s "$work/again-$model/model.safetensors" ] || fail "$model: no single file"
    cmp -s "$work/hf-$model/config.json" "$work/again-$model/config.json" || fail "$model: config.json"
    "$train" --model "$here" --load "$here" --steps 0 --data "$here/tokens.bin" --length 12 \
        --save-hf "$work/one-$model" >"$work/out" 2>"$work/err"
    cmp -s "$work/one-$model/model.safetensors" "$work/again-$model/model.safetensors" ||
        fail "$model: other weights after files in parts"
done
# A model with its tokenizer and generation_config.json: copied, so the result is read alike.
tokens="--data $book --length 16 --batch 2 --steps 1 --threads 1 --device cpu"
with_tokenizer() {
    begun=$work/begun tuned=$work/tuned
    # shellcheck disable=SC2086
    "$train" --model tiny-llama --vocabulary 600 $tokens --tokenizer "$root/tests/tokenizer/llama3.json" \
        --save-hf "$begun" >"$work/out" 2>"$work/err" || fail "--save-hf with a tokenizer: $(cat "$work/err")"
    printf '{"eos_token_id": [5, 6], "do_sample": true, "temperature": 0.5, "top_k": 3}' >"$begun/generation_config.json"
    sed 's/"eos_token_id": null/"eos_token_id": [7, 8]/' "$begun/config.json" >"$work/config.json"
    mv "$work/config.json" "$begun/config.json"
    # shellcheck disable=SC2086
    "$train" --model "$begun" --load "$begun" $tokens --lr 0 --save-hf "$tuned" >"$work/out" 2>"$work/err" ||
        fail "--save-hf of a model with a tokenizer: $(cat "$work/err")"
    for file in tokenizer.json generation_config.json config.json; do
        tr -d ' \n' <"$begun/$file" >"$work/a"
        tr -d ' \n' <"$tuned/$file" >"$work/b"
        cmp -s "$work/a" "$work/b" || fail "--save-hf: another $file"
    done
    grep -q '"bos_token_id": null' "$tuned/config.json" || fail "--save-hf: no null in config.json"
    "$sample" --load "$begun" --prompt "the cat" --temperature 0 --sample-tokens 8 >"$work/a" 2>"$work/err"
    runs "" "$sample" --load "$tuned" --prompt "the cat" --temperature 0 --sample-tokens 8
    cmp -s "$work/a" "$work/out" || fail "--save-hf with --lr 0: another text: $(cat "$work/out")"
    "$sample" --load "$begun" --prompt "<|begin_of_text|>the cat" --temperature 0 --sample-tokens 8 2>"$work/err" |
        sed 's/^<|begin_of_text|>//' >"$work/b"
    cmp -s "$work/a" "$work/b" || fail "no token at the beginning of a prompt: $(cat "$work/b")"
    runs "generation_config.json: --temperature 0.5 --top-k 3 --top-p 0.9" "$sample" --load "$tuned" --top-p 0.9
    mv "$tuned/tokenizer.json" "$work/moved.json"
    refuses 2 "has no tokenizer.json, and its 600 tokens are more than bytes" "$sample" --load "$tuned"
    # shellcheck disable=SC2086
    refuses 1 "are more than bytes: give --tokenizer FILE" "$train" --model "$tuned" $tokens
    runs "" "$sample" --load "$tuned" --tokenizer bytes --sample-tokens 2 --prompt a
    # A token beyond the vocabulary, far behind what the only step reads: found at loading.
    { head -c 4000 "$book"; echo "<|eot_id|>"; head -c 400 "$book"; } >"$work/late.txt"
    refuses 1 "is 482, and the model has 482" "$train" $small --vocabulary 482 --data "$work/late.txt" --in-order --steps 1 \
        --tokenizer "$root/tests/tokenizer/llama3.json"
    printf '{"num_beams": 4}' >"$tuned/generation_config.json"
    refuses 2 '"num_beams" is 4, which is not supported' "$sample" --load "$tuned"
}
# Without PCRE2 there is no tokenizer but bytes.
"$train" --tokenizer "$root/tests/tokenizer/gpt2.json" --plan-only >"$work/out" 2>"$work/err"
grep -q "without PCRE2" "$work/err" || with_tokenizer
# Any token of a list ends a text; here all of them do.
# shellcheck disable=SC2086
"$train" --vocabulary 16 --hidden 16 --heads 2 --layers 1 $tokens --data random --save-hf "$work/ends" >"$work/out" 2>&1
runs "" "$sample" --load "$work/ends" --sample-tokens 9
[ "$(wc -c <"$work/out")" -gt 3 ] || fail "no text without end tokens"
printf '{"eos_token_id": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]}' >"$work/ends/generation_config.json"
runs "" "$sample" --load "$work/ends" --sample-tokens 9
[ "$(wc -c <"$work/out")" -le 3 ] || fail "end tokens do not end a text: $(cat "$work/out")"
# A save that fails leaves the model that is there; other parts replace it, and so does a single file.
again=$work/hf-gpt2
measure() {
    "$train" --model "$again" --load "$again" --steps 0 --val "$models/gpt2/tokens.bin" --length 12 2>&1 |
        grep validation
}
train_on() {
    "$train" --model "$again" --load "$again" --data "$models/gpt2/tokens.bin" --length 12 --batch 4 --lr 1 \
        --steps 4 --device cpu --threads 1 --save-hf "$again" "$@" >"$work/out" 2>"$work/err"
}
before=$(measure)
# Room for the first file and not for the largest: 21 blocks of 512 bytes, of which bash has 1,024.
blocks=21
(ulimit -f 1 && head -c 1024 /dev/zero >"$work/block") 2>/dev/null && blocks=10
(ulimit -f $blocks && train_on --shard-size 9K)
grep -q "cannot be written" "$work/err" || fail "a full disk: $(cat "$work/err")"
[ "$(measure)" = "$before" ] || fail "a save that failed changed the model"
[ -z "$(find "$again" -name '*.new*')" ] || fail "a save that failed left files"
for size in 20K 5G; do
    train_on --shard-size $size --save "$work/alone" || fail "--save-hf again: $(cat "$work/err")"
    [ "$(measure)" = "$("$train" --model "$again" --load "$work/alone" --steps 0 --length 12 \
        --val "$models/gpt2/tokens.bin" 2>&1 | grep validation)" ] || fail "--save-hf over another: not its weights"
done
[ "$(measure)" = "$before" ] && fail "--save-hf again: $before"
for partial in "" --partial; do
    refuses 1 "has no parameter of this model: '.*' and others" "$train" --model "$models/gpt2" \
        --load "$models/llama" --data "$book" --vocabulary 256 --length 12 $partial
done
refuses 1 "shape" "$train" --model "$models/gpt2" --load "$models/gpt2" --data "$book" \
    --vocabulary 256 --length 12

# ---- other data, and resumed runs ------------------------------------------------------------------

on_text --val "$root/doc/tour.md" --val-every 2 --steps 8 --log "$work/whole.log" --save "$work/whole" \
    --save-state "$work/whole.state" || fail "--val: $(cat "$work/err")"
[ "$(grep -c '^step [0-9]*: validation loss [0-9.]*$' "$work/out")" = 4 ] || fail "--val-every: $(cat "$work/out")"
grep -q '^{"validation_step": 8, "validation_loss": [0-9.]*, "time": [0-9.]*}$' "$work/whole.log" || fail "no validation in the log"
on_text --steps 5 --save-state "$work/state" || fail "--save-state: $(cat "$work/err")"
on_text --steps 8 --resume "$work/state" --val "$root/doc/tour.md" --log "$work/rest.log" --save "$work/rest" \
    --save-state "$work/rest.state" || fail "--resume: $(cat "$work/err")"
grep -q "^train: .* 8/8 \[" "$work/err" || fail "progress of a resumed run: $(cat "$work/err")"
losses "$work/whole.log" | sed -n 6,8p >"$work/a"
losses "$work/rest.log" >"$work/b"
cmp -s "$work/a" "$work/b" || fail "resumed: $(cat "$work/a" "$work/b")"
cmp -s "$work/whole" "$work/rest" || fail "the weights of a resumed run differ"
refuses 1 "length" "$train" $small --data "$book" --length 8 --resume "$work/state"
refuses 1 "keeps other values: .*--load them" "$train" $small --data "$book" --optimizer sgd --resume "$work/state"
# What was not given is the same as its default.
on_text --steps 8 --resume "$work/state" --optimizer adamw --schedule constant ||
    fail "defaults: $(cat "$work/err")"
grep "^changed" "$work/out" && fail "a default is no change"

# A schedule that ends where it began is none.
for final in 1 0.5; do
    on_text --steps 3 --warmup 0 --schedule linear --final-lr $final --save "$work/final-$final" || fail "--final-lr $final"
done
on_text --steps 3 --warmup 0 --save "$work/constant" || fail "no schedule: $(cat "$work/err")"
cmp -s "$work/constant" "$work/final-1" || fail "--final-lr 1 is another rate"
cmp -s "$work/constant" "$work/final-0.5" && fail "--final-lr 0.5 is no other rate"

# Every optimizer, with small state: the same bits in the least memory and resumed.
for kind in "8bit adamw" "8bit sgd" "8bit lion" "bf16 adamw" "bf16 sgd" "bf16 lion" "bf16 adafactor" "bf16 muon"; do
    rm -f "$work/free.log" "$work/first.log" "$work/rest.log"
    narrow="--dtype bf16 --state ${kind% *} --optimizer ${kind#* } --ema-decay 0.9"
    on_text $narrow --log "$work/free.log" --save "$work/free" || fail "$kind: $(cat "$work/err")"
    refuses 1 "needs at least" "$train" $small --data "$book" $narrow --vram 16K
    on_text $narrow --vram "$(needed)" --steps 2 --save-state "$work/state" --log "$work/first.log" ||
        fail "$kind: $(cat "$work/err")"
    on_text $narrow --resume "$work/state" --log "$work/rest.log" --save "$work/rest" ||
        fail "$kind: $(cat "$work/err")"
    cat "$work/first.log" "$work/rest.log" >"$work/both.log"
    mv "$work/rest" "$work/both"
    same both
done
refuses 1 "ckpt.state bf16, this run has fp32; --resume-changed continues" "$train" $small \
    --data "$book" --dtype bf16 --optimizer muon --ema-decay 0.9 --resume "$work/state"
runs "changed: state was bf16, is fp32" "$train" $small --data "$book" --dtype bf16 --optimizer muon \
    --ema-decay 0.9 --resume "$work/state" --resume-changed

# The loss of weights alone equals the loss at the end of the run.
on_text --load "$work/whole" --steps 0 --val "$root/doc/tour.md" || fail "--steps 0: $(cat "$work/err")"
[ "$(sed -n 's/^validation loss //p' "$work/out")" = \
    "$(sed -n 's/^{"validation_step": 8, "validation_loss": \([0-9.]*\),.*/\1/p' "$work/whole.log" |
        awk '{ printf "%.4f", $1 }')" ] || fail "another validation loss: $(cat "$work/out")"

# ---- text -----------------------------------------------------------------------------------------

on_text --sample-every 2 --sample-tokens 9 --samples 2 || fail "--sample-every: $(cat "$work/err")"
[ "$(grep -c '^step [24]:$' "$work/out")" = 2 ] || fail "no text while training: $(cat "$work/out")"
write="$sample --hidden 16 --heads 2 --layers 2 --mlp 32 --length 16 --threads 1 --load $work/whole"
runs "ab" $write --prompt ab --sample-tokens 40 --sample-seed 3
cp "$work/out" "$work/a"
runs "ab" $write --prompt ab --sample-tokens 40 --sample-seed 3 --vram 2M
cmp -s "$work/out" "$work/a" || fail "the budget changed a text"
runs "ab" $write --prompt ab --sample-tokens 40 --sample-seed 4
runs "profile: op" $write --prompt ab --sample-tokens 4 --profile
cmp -s "$work/out" "$work/a" && fail "the seed changes nothing"
runs "" $write --temperature 0 --top-k 5 --top-p 0.9
runs "" "$sample" --load "$models/qwen2" --prompt "
" --sample-tokens 20 --length 8
refuses 2 "load" "$sample"
refuses 1 "token 97, and the model has 48" "$sample" --load "$models/qwen2" --prompt a

# A signal also ends work between two steps: a long text, a long measurement.
for look in "--sample-every 1 --sample-tokens 900000000" "--val $book --val-every 1 --val-batches 100000 --length 1"; do
    rm -f "$work/stop.log" "$work/stop.state"
    timeout -k 1 60 "$train" $small --data "$book" --steps 100000 $look --log "$work/stop.log" \
        --save-state "$work/stop.state" >"$work/out" 2>"$work/err" &
    pid=$!
    wait_steps "$work/stop.log" 0
    sleep 0.3
    kill -TERM $pid
    wait $pid || fail "stopped with $look: status $?"
    grep -q "^stopped after [12] of 100000 steps" "$work/out" || fail "$look: $(tail -n 3 "$work/out")"
    [ -s "$work/stop.state" ] || fail "$look: no state"
done

# ---- bad input ------------------------------------------------------------------------------------

refuses 2 "the presets are tiny, .*gpt2-124M" "$train" --model gpt5
printf '{"model_type": "mamba"}' >"$work/config.json"
refuses 2 '"model_type" is "mamba"; known are gpt2, .*llama, .*gemma3_text, .*smollm3, .*and gpt_oss' "$train" --model "$work/config.json"
sed 's/"gelu_new"/"relu"/' "$models/gpt2/config.json" >"$work/config.json"
refuses 2 '"activation_function" is "relu"' "$train" --model "$work/config.json"
sed 's/"llama3"/"ntk"/' "$models/llama/config.json" >"$work/config.json"
refuses 2 '"rope_parameters.rope_type" is "ntk"' "$train" --model "$work/config.json"
for model in gpt2 llama; do # weights of two layers
    sed 's/\("n_layer"\|"num_hidden_layers"\): 2/\1: 1/' "$models/$model/config.json" >"$work/config.json"
    refuses 1 "the model has no place for .*1\." "$train" --model "$work/config.json" --load "$models/$model" \
        --data "$models/$model/tokens.bin" --length 12
done
sed 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' "$models/llama/config.json" >"$work/config.json"
refuses 1 "its lm_head.weight is not the embedding" "$train" --model "$work/config.json" --load "$models/llama" \
    --data "$models/llama/tokens.bin" --length 12
sed 's/"use_cache": true/"quantization_config": {"quant_method": "gptq"}/' "$models/llama/config.json" >"$work/config.json"
refuses 2 '"quantization_config.quant_method" is "gptq", which is not supported' "$train" --model "$work/config.json"
sed 's/"llama"/"mistral"/' "$models/llama/config.json" >"$work/config.json" # a window of 4096, as the class has
"$train" --model "$work/config.json" --plan-only --length 12 --data "$models/llama/tokens.bin" >"$work/out" 2>&1 || fail "mistral: $(cat "$work/out")"
sed 's/"use_cache"/"use_cash"/' "$models/llama/config.json" >"$work/config.json"
refuses 2 '"use_cash" is true: this setting is not known' "$train" --model "$work/config.json"
sed 's/"num_key_value_heads": 2/"num_key_value_heads": 3/' "$models/llama/config.json" >"$work/config.json"
refuses 2 "not a multiple of 3" "$train" --model "$work/config.json"
sed 's/"num_hidden_layers": 2/"num_hidden_layers": 9000000/' "$models/llama/config.json" >"$work/config.json"
refuses 2 '"num_hidden_layers" is above 4096' "$train" --model "$work/config.json"
sed 's/\("original_max_position_embeddings":\) 16/\1 1e300/' "$models/llama/config.json" >"$work/config.json"
refuses 2 '"original_max_position_embeddings" is above' "$train" --model "$work/config.json"
grep -v hidden_size "$models/llama/config.json" >"$work/config.json"
refuses 2 '"hidden_size" is missing' "$train" --model "$work/config.json"
printf '{' >"$work/config.json"
refuses 2 "line" "$train" --model "$work/config.json"
refuses 2 "nothing-here" "$train" --model "$work/nothing-here/config.json"
refuses 2 "positions for 256" "$train" --length 257
refuses 2 "does not divide" "$train" --batch 4 --micro-batch 3
refuses 2 "each head has its own keys" "$train" --kv-heads 2
refuses 2 "does not divide into 3 heads" "$train" --heads 3
refuses 2 "--val FILES" "$train" --val-every 3
refuses 2 "fp32 or bf16" "$train" --dtype fp16
refuses 2 "give adamw, sgd, lion, adafactor or muon" "$train" --optimizer adam
refuses 1 "there are 'fp32', 'bf16' and '8bit'" "$train" $small --data "$book" --state fp16
refuses 1 "muon keeps no state in 8 bits" "$train" $small --data "$book" --dtype bf16 --state 8bit --optimizer muon
refuses 2 "add --dtype bf16" "$train" --grad-dtype bf16
for mode in "state bf16" "state 8bit" "matmul fp8" "activations 8bit"; do
    # shellcheck disable=SC2086
    refuses 1 "would change nothing: .*--dtype bf16" "$train" $small --data "$book" --$mode
done
refuses 2 "did you mean --data" "$train" --dta x
refuses 1 "no such file" "$train" --data "$work/none*.bin"
refuses 1 'two\\x0alines: ' "$train" --data "$work/two
lines"
refuses 1 "token 0 is .*, and the model has 4" "$train" $small --vocabulary 4 --data "$models/gpt2/tokens.bin"
refuses 1 "has 48 tokens, the model's has 40" "$train" $small --vocabulary 40 --data "$models/qwen2/tokens.bin"
head -c 1060 "$models/gpt2/tokens.bin" >"$work/cut.bin"
refuses 1 "the file is truncated" "$train" $small --data "$work/cut.bin"

# A refusal names what would help, each planned: what fits does, and the rest is what is needed.
help="$train $small --data $book --steps 1 --batch 4"
refuses 1 "needs at least" $help --vram 1K --save "$work/none"
grep -q "^  --micro-batch 1: needs" "$work/err" || fail "no remedy: $(cat "$work/err")"
grep -q "^  --dtype bf16 --state bf16: needs" "$work/err" || fail "no remedy: $(cat "$work/err")"
[ ! -e "$work/none" ] || fail "a remedy wrote weights"
refuses 1 "needs at least" $help --micro-batch 1 --vram 1K
least=$(needed)
refuses 1 "^  --micro-batch 1: fits" $help --vram "$least" --plan-out "$work/none"
[ ! -e "$work/none" ] || fail "a remedy wrote its plan"
refuses 1 "needs at least" $help --micro-batch 1 --vram 1K --graph-out "$work/own.graph"
CKPT_GRAPH_OUT=$work/kept.graph refuses 1 "^  --micro-batch 1: fits" $help --vram "$least"
! cmp -s "$work/own.graph" "$work/kept.graph" || fail "a remedy wrote its graph over that of the run"
refuses 1 "^  --micro-batch 1: fits" $help --vram "$least"
runs "memory: peak .* of a step, as planned; budget" $help --micro-batch 1 --vram "$least"
refuses 1 "needs at least" $help --micro-batch 1 --vram $((least - 1))
! grep -q "  --micro-batch" "$work/err" || fail "an option of the run is no remedy: $(cat "$work/err")"
runs "with the other programs; budget none" $help --batch 1 --length 8 --sample-every 1 --sample-tokens 4 --samples 64

refuses 1 "^  --lora-rank 64: needs" "$train" --device cpu --threads 1 --hidden 256 --heads 4 --layers 2 --mlp 1024 \
    --length 16 --batch 1 --data random --steps 1 --vram 1K

# Without options: the included text, if it is found.
program=$(cd "${train%/*}" && pwd)/${train##*/}
(cd "$work" && "$program" --plan-only >out 2>err) || grep -q "name a text with --data" "$work/err" ||
    fail "no text: $(cat "$work/err")"

finish
