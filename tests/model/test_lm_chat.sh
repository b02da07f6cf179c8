#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lm-train and lm-sample on conversations: rows of several are those of single ones, for any budget,
# number of ranks and resumed run; a model learns to answer; wrong data gets one sentence.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${LM_TRAIN:-./lm-train} sample=${LM_SAMPLE:-./lm-sample}
templates=$root/tests/model/chat
small="--hidden 16 --heads 2 --layers 2 --mlp 32 --length 192 --threads 1 --device cpu --optimizer sgd --lr 0.1 --warmup 0"

# 24 conversations, of 1 to 3 turns.
awk 'BEGIN {
    for (i = 0; i < 24; i++) {
        printf "{\"messages\": ["
        for (t = 0; t <= i % 3; t++)
            printf "%s{\"role\": \"user\", \"content\": \"%s%d\"}, {\"role\": \"assistant\", \"content\": \"%d é\"}",
                t ? ", " : "", substr("abcdefghijk", 1, 1 + i * 7 % 11), t, i * 37 % 100
        print "]}"
    }
}' >"$work/talks.jsonl"

# on_talks NAME OPTION...: a run with a log and weights of that name.
on_talks() {
    name=$1
    shift
    rm -f "$work/$name.log"
    "$train" $small --data "$work/talks.jsonl" --chat-template "$templates/ends.jinja" \
        --log "$work/$name.log" --save "$work/$name" --steps 3 "$@" >"$work/out" 2>"$work/err" ||
        fail "$name: $(tail -n 2 "$work/err")"
}

losses() {
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p; s/.*"validation_loss": \([^,]*\),.*/v \1/p' "$work/$1.log"
}

# near A B: their losses differ by less than 1e-6, of the larger one.
near() {
    losses "$1" >"$work/a"
    losses "$2" >"$work/b"
    paste -d ' ' "$work/a" "$work/b" | awk -v n="$3" '
        { d = $2 - $4; d = d < 0 ? -d : d; if (d > 1e-6 * $2) bad = 1 }
        END { exit bad || NR != n }' || fail "$1 and $2: $(cat "$work/a" "$work/b")"
}

# ---- packing ----------------------------------------------------------------------------------

for model in tiny tiny-llama "tiny-gemma2 --kv-heads 1" "tiny-gemma3 --kv-heads 1" "tiny-phi --kv-heads 2"; do
    on_talks alone --model $model --batch 24 --val "$work/talks.jsonl"
    grep -q "24 samples of 192; 24 conversations, .* of the rows filled" "$work/out" || fail "no numbers: $(cat "$work/out")"
    on_talks packed --model $model --pack --batch 1
    rows=$(sed -n 's/^data:.* files*, \([0-9]*\) samples of.*/\1/p' "$work/out")
    [ "${rows:-24}" -lt 24 ] || fail "$rows rows are not packed"
    on_talks packed --model $model --pack --batch "$rows" --val "$work/talks.jsonl"
    near alone packed 4
    on_talks micro --model $model --pack --batch "$rows" --micro-batch 1 --val "$work/talks.jsonl"
    near alone micro 4
done

# The same bits under a budget, in a resumed run, and rows of two ranks as one rank has them.
"$train" $small --model tiny-llama --data "$work/talks.jsonl" --chat-template "$templates/ends.jinja" \
    --pack --batch 2 --vram 16K >"$work/out" 2>"$work/err"
smallest=$(needed)
on_talks free --model tiny-llama --pack --batch 2 --save-state "$work/state"
on_talks tight --model tiny-llama --pack --batch 2 --vram "$smallest"
cmp -s "$work/free" "$work/tight" || fail "other weights under a budget"
on_talks six --model tiny-llama --pack --batch 2 --steps 6
on_talks resumed --model tiny-llama --pack --batch 2 --steps 6 --resume "$work/state"
cmp -s "$work/six" "$work/resumed" || fail "other weights after --resume"
on_talks one --model tiny-llama --pack --batch 2
# As ranks without a launcher, which share their data and gradients.
# on_two NAME OPTION...: a run of two ranks with a log and weights of that name.
on_two() {
    name=$1
    shift
    rm -f "$work/$name.log" "$work/meet"
    for rank in 1 0; do
        RANK=$rank WORLD_SIZE=2 timeout 100 "$train" $small --data "$work/talks.jsonl" --steps 3 --pack \
            --chat-template "$templates/ends.jinja" --model tiny-llama --ranks "file:$work/meet" \
            --log "$work/$name.log" --save "$work/$name" "$@" >"$work/rank.$rank" 2>&1 &
    done
    wait
    grep -q memory: "$work/rank.0" || fail "$name: $(tail -n 2 "$work/rank.0" "$work/rank.1")"
}
on_two two --batch 1
near one two 3
# Balanced ranks have the rows of a step in another order: the same step, and its states.
on_talks one --model tiny-llama --pack --batch 4
for kind in time tokens; do
    on_two balanced --batch 2 --balance $kind --save-state "$work/two.state"
    near one balanced 3
    on_two six --batch 2 --balance $kind --steps 6
    on_two resumed --batch 2 --balance $kind --steps 6 --resume "$work/two.state"
    cmp -s "$work/six" "$work/resumed" || fail "--balance $kind: other weights after --resume"
done
on_two none --batch 2
cmp -s "$work/none" "$work/balanced" && fail "--balance deals the rows as without"
refuses 2 "is for rows of --pack" "$train" $small --data "$work/talks.jsonl" --balance time
refuses 2 "give time, tokens or none" "$train" $small --data "$work/talks.jsonl" --pack --balance rows
cp "$work/talks.jsonl" "$work/kept.jsonl"
sed 's/é/è/' "$work/kept.jsonl" >"$work/talks.jsonl"
refuses 1 "digest of the conversations" "$train" $small --model tiny-llama --data "$work/talks.jsonl" \
    --chat-template "$templates/ends.jinja" --pack --batch 2 --steps 6 --resume "$work/state"
cp "$work/kept.jsonl" "$work/talks.jsonl"

# ---- samples that are too long ------------------------------------------------------------------

short="--model tiny --data $work/talks.jsonl --chat-template $templates/ends.jinja --batch 2 --steps 1"
refuses 1 "talks.jsonl:[0-9]*: .* tokens are more than --length 60" "$train" $small $short --length 60
runs "of 24 conversations 16 are cut and 0 left out" "$train" $small $short --length 60 --too-long cut
runs "of 24 conversations 0 are cut and 16 left out" "$train" $small $short --length 60 --too-long drop --pack
refuses 1 "that is short enough" "$train" $small $short --length 10 --too-long drop
refuses 2 "give refuse, cut or drop" "$train" $small $short --too-long never
refuses 2 "too-long: the data have no conversations" "$train" $small --model tiny --data random --too-long cut
refuses 2 "chat-template: the data have no conversations" "$train" $small --model tiny --data random --chat-template "$work/x"
refuses 2 "too-long: --loss dpo cuts texts" "$train" $small --model tiny --data "$work/talks.jsonl" --loss dpo --lora-rank 2 \
    --too-long cut

# ---- answers ----------------------------------------------------------------------------------

# A model of Qwen's tokenizer, whose marks are tokens.
mkdir "$work/tokenizer"
cp "$root/tests/tokenizer/qwen2.json" "$work/tokenizer/tokenizer.json"
cp "$templates/chatml.jinja" "$work/tokenizer/chat_template.jinja"
printf '%s\n' '{"prompt": "say a", "completion": "cat"}' '{"prompt": "say b", "completion": "dog"}' >"$work/pairs.jsonl"
printf '%s\n' '[{"prompt": "say a", "answer": "cat"},' \
    ' {"messages": [{"role": "user", "content": "say b"}], "answer": " dog "},' \
    ' {"prompt": "say b", "answer": "cat"}]' >"$work/questions.json"
runs "exact answers 2 of 3" "$train" --model tiny-llama --hidden 32 --heads 2 --layers 2 --mlp 64 --vocabulary 490 \
    --length 64 --threads 1 --tokenizer "$work/tokenizer" --data "$work/pairs.jsonl" --val "$work/pairs.jsonl" \
    --eval "$work/questions.json" --batch 2 --steps 60 --lr 1e-2 --warmup 0 --sample-tokens 12 --save-hf "$work/hf" \
    --log "$work/answers.log" --val-every 30
grep -q '"validation_perplexity": 1\..*"exact_answers": 0.66666' "$work/answers.log" || fail "log: $(grep exact "$work/answers.log")"
runs "exact answers: 2 of 3" "$train" --load "$work/hf" --model "$work/hf" --length 64 --threads 1 --steps 0 \
    --data "$work/pairs.jsonl" --eval "$work/questions.json" --sample-tokens 12
talk="--load $work/hf --threads 1 --length 64 --sample-tokens 12 --temperature 0"
runs "^dog$" "$sample" $talk --chat "say b"
echo '{"messages": [{"role": "user", "content": "say a"}]}' >"$work/turn.json"
runs "^cat$" "$sample" $talk --messages "$work/turn.json"

# ---- what is refused ----------------------------------------------------------------------------

refuses 2 "exclude each other" "$sample" $talk --chat a --messages "$work/turn.json"
echo '[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]' >"$work/turn.json"
refuses 1 "the last turn is of assistant" "$sample" $talk --messages "$work/turn.json"
refuses 1 "has no room for an answer" "$sample" $talk --length 8 --chat "a long question"
refuses 2 "needs --chat TEXT" "$sample" $talk --chat-template "$templates/ends.jinja"
refuses 1 "there is none beside the tokenizer" "$train" $small --model tiny --data "$work/talks.jsonl"
refuses 1 "nothing.jinja" "$train" $small --model tiny --data "$work/talks.jsonl" --chat-template "$work/nothing.jinja"
refuses 1 "has no conversations" "$train" $small --model tiny --data "$templates/ends.jinja" --pack
refuses 1 "learns no conversations" "$train" --model bert-base --data "$work/talks.jsonl" --length 32 --layers 1 --steps 1
refuses 1 "and the model has 470" "$train" --model tiny --vocabulary 470 --tokenizer "$work/tokenizer" \
    --data "$work/pairs.jsonl" --length 64
refuses 1 "answer" "$train" $small $short --eval "$work/talks.jsonl"
: >"$work/empty.jsonl"
refuses 1 "no conversation in it" "$train" $small --model tiny --data "$work/empty.jsonl" --chat-template "$templates/ends.jinja"
echo '{"messages": [{"role": "user", "content": "a"}]}' >"$work/unanswered.jsonl"
refuses 1 "unanswered.jsonl:1: the last turn is of user" "$train" $small --model tiny --data "$work/unanswered.jsonl" \
    --chat-template "$templates/ends.jinja"
finish
