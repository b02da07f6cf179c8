#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Preference losses of lm-train: loss, log-probabilities, gradients and five steps in float64
# (make_preference_reference.py); a toy whose optimum is known; the same numbers under budgets, in
# micro-steps, on two ranks, resumed, with codes and with a cache of the reference; and wrong input
# gets a sentence before the first step.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${LM_TRAIN:-./lm-train} compare=${COMPARE:-./tests/model/compare}
lm=$root/tests/model/lm given=$root/tests/model/preference
device="--device ${CKPT_DEVICE:-cpu} --threads 1"
llama="--model $lm/llama --load $lm/llama --adapter $lm/llama/adapter --tokenizer bytes"
rate="--lr 0.001 --clip-norm 0 --weight-decay 0 --beta2 0.95"
dpo="--loss dpo --beta 0.4 --label-smoothing 0.1 --data $given/pairs.jsonl --batch 2"
orpo="--loss orpo --orpo-lambda 0.7 --data $given/pairs.jsonl --batch 2"
kto="--loss kto --beta 0.4 --desirable-weight 1.5 --undesirable-weight 0.8 --data $given/labelled.jsonl --batch 3"

# losses LOG: step, loss and norm of each step.
losses() {
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$1"
}

# trains NAME OPTION...
trains() {
    name=$1
    shift
    rm -f "$work/$name.log"
    # shellcheck disable=SC2086
    "$train" $device --in-order --log "$work/$name.log" "$@" >"$work/$name.out" 2>"$work/err" ||
        fail "$name: $(tail -n 1 "$work/err")"
    losses "$work/$name.log" >"$work/$name.losses"
    [ -s "$work/$name.losses" ] || fail "$name: no losses"
}

# same NAME OTHER: the same bits.
same() {
    cmp -s "$work/$1.losses" "$work/$2.losses" ||
        fail "$2: other losses: $(cat "$work/$1.losses" "$work/$2.losses")"
}

# close NAME OTHER SHARE: losses and norms that differ by that share at the most.
close() {
    paste -d " " "$work/$1.losses" "$work/$2.losses" | awk -v share="$3" '{
        for (i = 1; i <= 3; i++)
            bad += ($i - $(i + 3)) ^ 2 > (share * $i) ^ 2
    } END { exit bad || !NR }' || fail "$2: $(cat "$work/$2.losses") instead of $(cat "$work/$1.losses")"
}

# ---- float64 -----------------------------------------------------------------------------------------

for loss in dpo orpo kto; do
    eval "options=\$$loss"
    # shellcheck disable=SC2154,SC2086
    CKPT_VERIFY=1 trains $loss $llama $options --lr 0 --steps 1 --dump "$work/$loss.safetensors"
    "$compare" "$given/$loss.safetensors" "$work/$loss.safetensors" 2e-5 0 || fail "$loss differs"
    # shellcheck disable=SC2086
    trains steps $llama $options $rate --steps 5
    sed -n "s/^$loss //p" "$given/steps.txt" | tr ' ' '\n' | paste -d ' ' - "$work/steps.losses" |
        awk '{ bad += ($1 - $3) ^ 2 > (2e-4 * $1) ^ 2 } END { exit bad || NR != 5 }' ||
        fail "$loss: $(cat "$work/steps.losses") instead of $(sed -n "s/^$loss //p" "$given/steps.txt")"
    # shellcheck disable=SC2086
    trains bf16 $llama $options --lr 0 --steps 1 --dtype bf16
    close $loss bf16 5e-2
done
for key in rewards/chosen rewards/rejected rewards/accuracies rewards/margins logps/chosen logps/rejected; do
    grep -q "\"$key\": [-0-9]" "$work/dpo.log" || fail "dpo: no $key in the log"
done
grep -q '"kl": [0-9]' "$work/kto.log" && grep -q '"rewards/chosen"' "$work/kto.log" || fail "kto: no kl in the log"
grep -q '"nll_loss": .*"log_odds_ratio": -' "$work/orpo.log" || fail "orpo: no log_odds_ratio in the log"

# ---- a toy whose optimum is known ----------------------------------------------------------------------

# Completions a, b, c of one prompt with rewards log 9, log 3 and 0: of each pair as many samples as a
# Bradley-Terry model gives.  The best policy is the reference times exp(reward / beta), and its loss
# the mean entropy of the pairs.
pair() {
    i=0
    while [ $i -lt "$3" ]; do
        echo "{\"prompt\": \"p\", \"chosen\": \"$1\", \"rejected\": \"$2\"}"
        i=$((i + 1))
    done
}
{
    pair a b 3 && pair b a 1 && pair b c 3 && pair c b 1 && pair a c 9 && pair c a 1
} >"$work/toy.jsonl"
toy="--model tiny --layers 1 --hidden 32 --mlp 64 --heads 2 --loss dpo --data $work/toy.jsonl --batch 18 --clip-norm 0
    --weight-decay 0 --warmup 0"
# shellcheck disable=SC2086
trains toy $toy --beta 0.5 --lr 0.01 --schedule cosine --steps 150 --reference-cache "$work/toy.cache"
tail -n 1 "$work/toy.losses" | awk '{ exit ($2 - 0.430530) ^ 2 > 1e-4 ^ 2 }' ||
    fail "the toy's loss is $(tail -n 1 "$work/toy.losses"), and its least one 0.430530"
# The mean margin of these rewards is (2 log 3 + 2 log 3 + 8 log 9) / 18 in the order of the samples.
sed -n 's/.*"rewards\/margins": \([^,]*\),.*/\1/p' "$work/toy.log" | tail -n 1 |
    awk '{ exit ($1 - 1.220680) ^ 2 > 0.01 ^ 2 || !NR }' || fail "the toy's margins are others"

# ---- the same numbers ----------------------------------------------------------------------------------

data="--data $given/pairs.jsonl --tokenizer bytes --length 16 --batch 4"
base="--model tiny-llama --layers 2 --hidden 64 --mlp 128 $data"
new="$base --loss dpo --lora-rank 3 --lr 0.01 --steps 4 --seed 3"
# shellcheck disable=SC2086
{
    trains free $new
    refuses 1 "needs at least" "$train" $device $new --vram 4K
    least=$(needed)
    trains tight $new --vram "$least"
    same free tight
    trains host $new --vram "$least" --host 4M
    same free host
    for micro in 1 2; do
        trains micro $new --micro-batch $micro
        close free micro 2e-5
    done
    trains chunk $new --loss-chunk 16
    close free chunk 2e-5
    # Of a large vocabulary, smaller chunks of scores need less memory, and give the same numbers.
    wide="$new --vocabulary 4096 --micro-batch 1 --steps 2"
    trains wide $wide
    refuses 1 "needs at least" "$train" $device $wide --vram 4K
    whole=$(needed)
    refuses 1 "needs at least" "$train" $device $wide --vram 4K --loss-chunk 4
    few=$(needed)
    [ "$few" -lt "$whole" ] || fail "chunks of scores need $few bytes, all at once $whole"
    trains chunks $wide --vram "$few" --loss-chunk 4
    close wide chunks 2e-5
    trains first $new --steps 2 --save-state "$work/state"
    trains both $new --resume "$work/state"
    cat "$work/first.losses" "$work/both.losses" >"$work/all.losses"
    same free all
    trains codes $new --frozen nf4
    cmp -s "$work/free.losses" "$work/codes.losses" && fail "nothing is in codes"
    refuses 1 "needs at least" "$train" $device $new --vram 4K --frozen nf4
    trains tight $new --frozen nf4 --vram "$(needed)"
    same codes tight
    trains one $new --batch 1 --steps 1

    # The cache has the numbers that the weights without adapters give.
    trains cached $new --reference-cache "$work/cache"
    close free cached 2e-5
    trains again $new --reference-cache "$work/cache"
    same cached again
    full="$base --loss dpo --lr 1e-3 --seed 3 --reference-cache $work/full"
    trains full $full --steps 4 --val "$given/pairs.jsonl"
    trains first $full --steps 2 --save-state "$work/state" --val "$given/pairs.jsonl"
    trains both $full --steps 4 --resume "$work/state" --vram 90% --val "$given/pairs.jsonl"
    cat "$work/first.losses" "$work/both.losses" >"$work/all.losses"
    same full all
    refuses 1 "was computed with other weights" "$train" $device $full --steps 1 --seed 4 --val "$given/pairs.jsonl"
    refuses 1 "was computed for other data" "$train" $device $full --steps 1 --length 6
    refuses 1 "are not those of the start" "$train" $device $full --steps 4 --resume "$work/state" \
        --reference-cache "$work/none" --val "$given/pairs.jsonl"
    cp "$work/cache" "$work/full"
    refuses 1 "other data\|other weights" "$train" $device $full --steps 1 --val "$given/pairs.jsonl"
}

# Two ranks take two samples each of every four; kto has a reference point on each.
for loss in dpo orpo; do
    two="$device --in-order ${base% *} 2 --loss $loss --lora-rank 3 --lr 0.01 --steps 4 --seed 3"
    # shellcheck disable=SC2086
    {
        trains whole $new --loss $loss
        rm -f "$work/ranks.log"
        RANK=1 WORLD_SIZE=2 timeout 100 "$train" $two --ranks "file:$work/meet$loss" >"$work/out.1" 2>&1 &
        RANK=0 WORLD_SIZE=2 timeout 100 "$train" $two --ranks "file:$work/meet$loss" --log "$work/ranks.log" \
            >"$work/out" 2>&1 || fail "$(tail -n 1 "$work/out")"
        wait $! || fail "rank 1: $(tail -n 1 "$work/out.1")"
    }
    losses "$work/ranks.log" >"$work/ranks.losses"
    close whole ranks 2e-5
done
# Each of two ranks computes half of a cache.
two="$device --in-order ${base% *} 2 --loss dpo --lr 1e-3 --steps 4 --seed 3 --reference-cache $work/halves"
# shellcheck disable=SC2086
{
    trains whole $base --loss dpo --lr 1e-3 --steps 4 --seed 3 --reference-cache "$work/one" --tensorboard "$work/events"
    rm -f "$work/ranks.log"
    RANK=1 WORLD_SIZE=2 timeout 100 "$train" $two --zero 3 --ranks "file:$work/meethalf" >"$work/out.1" 2>&1 &
    RANK=0 WORLD_SIZE=2 timeout 100 "$train" $two --zero 3 --ranks "file:$work/meethalf" --log "$work/ranks.log" \
        >"$work/out" 2>&1 || fail "$(tail -n 1 "$work/out")"
    wait $! || fail "rank 1: $(tail -n 1 "$work/out.1")"
}
losses "$work/ranks.log" >"$work/ranks.losses"
close whole ranks 2e-5
cmp -s "$work/one" "$work/halves" || fail "two ranks: another cache"
grep -aq "rewards/margins" "$work"/events/* || fail "no rewards in the events of TensorBoard"
# shellcheck disable=SC2086
trains plan $device $base --data "$given/labelled.jsonl" --loss kto --lora-rank 3 --steps 1 --micro-batch auto
grep -q "coupled.*reference point of KTO" "$work/plan.out" || fail "kto: $(grep -i sampl "$work/plan.out")"

# ---- single samples ------------------------------------------------------------------------------------

# A pair of equal texts has the loss log 2 and no gradient, whatever the model.
pair ab ab 2 >"$work/equal.jsonl"
# shellcheck disable=SC2086
trains equal $base --data "$work/equal.jsonl" --batch 2 --loss dpo --lora-rank 3 --steps 1
awk '{ exit ($2 - 0.693147) ^ 2 > 1e-6 ^ 2 || $3 > 1e-7 }' "$work/equal.losses" || fail "equal texts: $(cat "$work/equal.losses")"
pair "a long completion" b 1 >"$work/long.jsonl"
# shellcheck disable=SC2086
{
    one="$train $device $base --batch 1 --loss dpo --lora-rank 2 --steps 1"
    runs "1 of 2 texts lose their end, 10 tokens in all" $one --data "$work/long.jsonl" --length 7
    echo '{"prompt": "pp", "chosen": "a", "rejected": "b"}' >>"$work/long.jsonl"
    runs "1 of 2 texts lose their end, 16 tokens in all, and 1 samples are left out" $one --data "$work/long.jsonl" --length 1
    sed -i 1d "$work/long.jsonl"
    refuses 1 "no sample whose completions begin within --length" $one --data "$work/long.jsonl" --length 1
}

# ---- messages ------------------------------------------------------------------------------------------

# Messages through a template are the text that it makes of them, and a prompt is what both begin with.
user='{"role": "user", "content": "hi"}'
answer() {
    echo "{\"role\": \"assistant\", \"content\": \"$1\"}"
}
start='<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n'
end='<|im_end|>\n'
printf '%s\n' "{\"prompt\": \"$start\", \"chosen\": \"yes$end\", \"rejected\": \"no$end\"}" >"$work/texts.jsonl"
printf '%s\n' "{\"prompt\": [$user], \"chosen\": [$(answer yes)], \"rejected\": [$(answer no)]}" >"$work/messages.jsonl"
printf '%s\n' "{\"prompt\": \"hi\", \"chosen\": [$user, $(answer yes)], \"rejected\": [$user, $(answer no)]}" >"$work/whole.jsonl"
for form in texts messages whole; do
    # shellcheck disable=SC2086
    trains $form $base --length 128 --batch 1 --loss dpo --lora-rank 2 --lr 0.01 --steps 2 --data "$work/$form.jsonl" \
        --chat-template "$root/tests/model/chat/chatml.jinja"
done
same texts messages
same texts whole

# ---- wrong input ---------------------------------------------------------------------------------------

# line TEXT LINE: the sentence for a file whose second line is LINE.
line() {
    {
        pair a b 1
        printf '%s\n' "$2"
    } >"$work/wrong.jsonl"
    # shellcheck disable=SC2086
    refuses 1 "wrong.jsonl:2: $1" $one --data "$work/wrong.jsonl"
}

line '"rejected" is missing' '{"prompt": "a", "chosen": "b"}'
line '"chosen" is empty' '{"prompt": "a", "chosen": "", "rejected": "c"}'
line '"chosen" is neither a text' '{"prompt": "a", "chosen": 3, "rejected": "c"}'
line '"prompt" is missing' '{"chosen": "b", "rejected": "c"}'
line '"prompt" is missing, or not a text' '{"prompt": [], "chosen": "b", "rejected": "c"}'
line '.*begin with different' '{"chosen": [{"role": "user", "content": "a"}], "rejected": [{"role": "user", "content": "a"}]}'
line '"images"' '{"prompt": "a", "chosen": "b", "rejected": "c", "images": [1]}'
line '.*' '{"prompt": "a", "chosen": "b"'
line 'it is not an object' '["a"]'
# shellcheck disable=SC2086
{
    refuses 1 '"completion" is missing\|"chosen"' $one --data "$work/toy.jsonl" --loss kto
    refuses 2 "give ce, dpo, orpo or kto" $one --loss ipo
    refuses 2 "label-smoothing: --loss kto has no such setting" $one --loss kto --label-smoothing 0.1
    refuses 2 "beta: --loss ce has no such setting" "$train" --beta 1
    refuses 2 "has no reference" $one --loss orpo --reference-cache "$work/x"
    refuses 2 "give --reference-cache FILE, or train the adapters" "$train" $device $base --loss dpo
    refuses 2 "length auto with --loss orpo" "$train" $device $base --loss orpo --length auto
    refuses 2 "eval: a run with --loss dpo" "$train" $device $new --eval "$given/pairs.jsonl"
    refuses 2 "lora-dropout 0.1: its draws" "$train" $device $new --lora-dropout 0.1
    refuses 2 "without --lora-also" "$train" $device $new --lora-also model.norm
    refuses 2 "BERT gives no probabilities" "$train" --model tiny-bert --loss orpo
    refuses 1 "needs --data" "$train" $device --model tiny --loss orpo
    refuses 1 "none.jsonl" $one --data "$work/none.jsonl"
}
finish
