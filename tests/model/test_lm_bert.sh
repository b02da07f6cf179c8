#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lm-train with BERT: budgets, micro-steps, ranks and resumed runs give the same numbers; five steps
# of AdamW are those of transformers (make_lm_reference.py); weights go to Hugging Face's files and
# back; and wrong input gets a sentence.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${LM_TRAIN:-./lm-train} sample=${LM_SAMPLE:-./lm-sample} compare=${COMPARE:-./tests/model/compare}
bert=$root/tests/model/lm/bert
book=$root/doc/tour.md
small="--model tiny-bert --hidden 16 --heads 2 --layers 2 --mlp 32 --length 24 --threads 1 --device cpu"
all="--next-sentence --mask-share 0.3"

on_text() {
    rm -f "$work/$1.log"
    name=$1
    shift
    # shellcheck disable=SC2086
    "$train" $small --data "$book" --steps 4 --log "$work/$name.log" --save "$work/$name" "$@" \
        >"$work/out" 2>"$work/err" || fail "$name: $(tail -n 1 "$work/err")"
}

losses() {
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$1"
}

# same NAME: that run has the losses and weights of the run without a budget.
same() {
    losses "$work/free.log" >"$work/a"
    losses "$work/$1.log" >"$work/b"
    [ -s "$work/a" ] && cmp -s "$work/a" "$work/b" || fail "$1: other losses: $(cat "$work/b")"
    cmp -s "$work/free" "$work/$1" || fail "$1: other weights"
}

# near NAME: the same to a millionth.
near() {
    losses "$work/free.log" >"$work/a"
    losses "$work/$1.log" >"$work/b"
    paste "$work/a" "$work/b" | awk '{ bad += ($2 - $5) ^ 2 > (4e-6 * $2) ^ 2 } END { exit bad || NR != 4 }' ||
        fail "$1: $(paste "$work/a" "$work/b")"
}

# ---- the same numbers ------------------------------------------------------------------------------

# shellcheck disable=SC2086
{
    on_text free --batch 4 $all
    refuses 1 "needs at least" "$train" $small --data "$book" --batch 4 $all --vram 16K
    least=$(needed)
    on_text tight --batch 4 $all --vram "$least"
    same tight
    on_text host --batch 4 $all --vram "$least" --host 16M
    same host
    on_text first --batch 4 $all --steps 2 --save-state "$work/state"
    on_text rest --batch 4 $all --resume "$work/state"
    cat "$work/first.log" "$work/rest.log" >"$work/both.log"
    cp "$work/rest" "$work/both"
    same both
    on_text micro --batch 4 $all --micro-batch 1
    near micro
    for rank in 1 0; do
        RANK=$rank WORLD_SIZE=2 timeout 100 "$train" $small --data "$book" --steps 4 --batch 2 $all --zero 3 \
            --vram "$least" --ranks "file:$work/meet" --log "$work/ranks.log" >"$work/out.$rank" 2>&1 &
    done
    wait
    near ranks
    grep -q "^masks: 6 of 21 tokens of a sample at most, pairs; .CLS. 257, .SEP. 258, .MASK. 259" "$work/out.0" ||
        fail "$(cat "$work/out.0")"
    wide="--batch 4 $all --hidden 128 --mlp 256 --dtype bf16 --activations 8bit"
    on_text free $wide
    refuses 1 "needs at least" "$train" $small --data "$book" $wide --vram 16K
    on_text bits --vram "$(needed)" $wide
    same bits
}

# Masks of validation are those of its rows, whatever the batch.
want=
for batch in 1 3 8; do
    # shellcheck disable=SC2086
    got=$("$train" $small --load "$work/rest" $all --data "$book" --val "$root/doc/llmc.md" --val-batches 999 --batch $batch \
        --steps 0 2>"$work/err" | sed -n 's/.*validation loss //p')
    [ -n "$got" ] && [ "${want:=$got}" = "$got" ] || fail "validation: $got instead of $want: $(cat "$work/err")"
done

# ---- transformers ----------------------------------------------------------------------------------

there="--model $bert --load $bert --data $bert/tokens.bin --in-order --batch 2 --length 12 --next-sentence
    --mask-share 0.4 --device cpu"
pieces=false
"$train" --plan-only --model "$bert" --data "$bert/tokens.bin" >"$work/out" 2>"$work/err" ||
    grep -q "without \(PCRE2\|ICU\)\|needs ICU" "$work/err" || fail "$(cat "$work/err")"
[ -s "$work/err" ] || pieces=true
if $pieces; then
    # shellcheck disable=SC2086
    "$train" $there --whole-words --steps 5 --warmup 0 --lr 1e-3 --clip-norm 0 --save "$work/steps" >"$work/out" 2>&1 ||
        fail "five steps: $(tail -n 1 "$work/out")"
    "$compare" "$bert/steps.safetensors" "$work/steps" 1e-5 0 >"$work/out" 2>&1 || fail "five steps of AdamW: $(cat "$work/out")"
    # shellcheck disable=SC2086
    runs "weights: " "$train" $there --steps 0 --save-hf "$work/hf"
    for file in config.json model.safetensors vocab.txt; do
        [ -s "$work/hf/$file" ] || fail "--save-hf: no $file"
    done
    # Without the head for pairs it is BertForMaskedLM; with it, untrained, it stays as it is.
    runs "weights: " "$train" --model "$work/hf" --load "$work/hf" --data "$bert/tokens.bin" --length 12 --steps 2 \
        --save-hf "$work/again"
    grep -q BertForPreTraining "$work/again/config.json" || fail "the head for pairs is lost"
    sed 's/ForPreTraining/ForMaskedLM/' "$work/hf/config.json" >"$work/config.json"
    runs "unexpected.*pooler" "$train" --model "$work/config.json" --load "$work/hf" --tokenizer "$bert/vocab.txt" \
        --data "$bert/tokens.bin" --length 12 --steps 0 --save-hf "$work/masked"
    grep -q BertForMaskedLM "$work/masked/config.json" || fail "BertForMaskedLM: $(cat "$work/masked/config.json")"
    grep -v MASK "$bert/vocab.txt" >"$work/words.txt" # under any name
    refuses 1 "tokenizer has no .MASK., which BERT needs" "$train" --model "$bert" --tokenizer "$work/words.txt" \
        --length 12 --data "$bert/tokens.bin"
    refuses 1 "shape" "$train" --model "$bert" --load "$bert" --vocabulary 60 --length 12 --data "$bert/tokens.bin"
    refuses 1 "token .* is .*, and the model has 16" "$train" --model "$bert" --vocabulary 16 --length 12 \
        --data "$bert/tokens.bin"
fi

# ---- wrong input -----------------------------------------------------------------------------------

refuses 2 "positions for 512 tokens" "$train" --model bert-base --length 513
for option in "--whole-words" "--next-sentence" "--mask-share 0.2"; do
    # shellcheck disable=SC2086
    refuses 2 "GPT-2 predicts the next token, and masks none" "$train" $option
done
refuses 2 "mask-share" "$train" --model tiny-bert --mask-share 1.5
refuses 2 "too short for the marks" "$train" --model tiny-bert --length 4 --next-sentence
refuses 2 "each head has its own keys" "$train" --model tiny-bert --kv-heads 2
refuses 2 "continues no text" "$train" --model tiny-bert --sample-every 2
refuses 2 "bert-base: BERT fills in masked tokens" "$sample" --model bert-base --load "$work/free"
refuses 2 "continues no text" "$sample" --load "$bert"
# shellcheck disable=SC2086
refuses 1 "whole-words needs --tokenizer" "$train" $small --data "$book" --whole-words
for data in "$bert/tokens.bin" random "$book"; do
    refuses 1 "are tokens 101, 102, 103 and 0, and the model has 48" "$train" --model "$bert" --tokenizer bytes --length 12 \
        --data "$data"
done
# shellcheck disable=SC2086
refuses 1 "tokens in a file and a text as bytes have different marks" "$train" $small --data "$book" \
    --val "$root/tests/model/lm/gpt2/tokens.bin"
printf 'one text\nof one document\n' >"$work/one.txt"
# shellcheck disable=SC2086
refuses 1 "has one document; --next-sentence needs two" "$train" $small --data "$work/one.txt" --next-sentence
printf '\n\n' >"$work/none.txt"
# shellcheck disable=SC2086
refuses 1 "there is no document in it" "$train" $small --data "$work/none.txt"
# shellcheck disable=SC2086
refuses 1 "has a mask of the tokens to train on" "$train" $small --data "$root/tests/model/lm/qwen2/tokens.bin"
for wrong in '"position_embedding_type": "relative_key"' '"hidden_act": "relu"' '"type_vocab_size": 3' \
    '"is_decoder": true' '"tie_word_embeddings": false'; do
    key=${wrong%%:*}
    grep -v "$key" "$bert/config.json" | sed "s/^{/{ $wrong,/" >"$work/config.json"
    refuses 2 "$key is" "$train" --model "$work/config.json" --length 12
done
finish
