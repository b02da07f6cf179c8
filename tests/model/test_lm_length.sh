#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lm-train --length auto: the longest multiple of 128 that fits, the same in every run and on every
# rank, and limited by the model and the data.  Also plans of Llama 3.1 8B: 131,072 tokens, and 8,192
# in small budgets.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

train=${LM_TRAIN:-./lm-train}
cat >"$work/config.json" <<'END'
{"model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
 "num_key_value_heads": 1, "vocab_size": 256, "max_position_embeddings": 1100, "rms_norm_eps": 1e-5,
 "tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false, "hidden_act": "silu"}
END
small="--model $work/config.json --device cpu --threads 1 --steps 2 --batch 1"
book="--data $root/doc/design.md --tokenizer bytes"

# chosen FILE: the length that a run printed.
chosen() {
    sed -n 's/^length: \([0-9,]*\) tokens (--length auto).*/\1/p' "$1" | tr -d ,
}

# is NAME LENGTH OPTION...: a plan with --length auto chooses this length.
is() {
    name=$1 length=$2
    shift 2
    runs "--length auto" "$train" $small --plan-only --length auto "$@"
    [ "$(chosen "$work/out")" = "$length" ] || fail "$name: $(grep '^length' "$work/out") instead of $length"
}

refuses 1 "needs at least" "$train" $small $book --plan-only --length 640 --vram 16K
budget=$(needed)

# ---- the length for a budget ----------------------------------------------------------------------

is "smallest budget of 640" 640 $book --vram "$budget"
grep -q "640 tokens (--length auto), which need .*; 768 tokens need " "$work/out" || fail "no needs: $(grep ^length "$work/out")"
grep -q "^data: .* samples of 640$" "$work/out" || fail "data: $(grep ^data "$work/out")"
refuses 1 "needs at least" "$train" $small $book --plan-only --length 768 --vram "$budget"
is "one byte less" 512 $book --vram $((budget - 1))
is "random tokens" 640 --data random --vram "$budget"
is "host memory, for tensors of 1 MiB and more" 640 $book --vram "$budget" --host 64M
is "validation" 640 $book --val "$root/doc/design.md" --vram "$budget"
is "micro-batches" 768 $book --batch 2 --micro-batch auto --vram $((budget + budget / 4))
refuses 1 "needs at least" "$train" $small $book --plan-only --length 896 --batch 2 --micro-batch 1 \
    --vram $((budget + budget / 4))
is "chunks of the loss" 640 $book --loss-chunk auto --vram "$budget"
refuses 1 "needs at least" "$train" $small $book --length auto --vram 16K

# ---- the same numbers as with that length ---------------------------------------------------------

runs "--length auto" "$train" $small $book --vram "$budget" --length auto --save "$work/auto" --save-state "$work/state"
runs "memory" "$train" $small $book --vram "$budget" --length 640 --save "$work/given"
cmp -s "$work/auto" "$work/given" || fail "other weights than with --length 640"
runs "memory" "$train" $small $book --steps 3 --length 640 --resume "$work/state"
refuses 1 "length 640, this run has 512" "$train" $small $book --steps 3 --length 512 --resume "$work/state"
RANK=1 WORLD_SIZE=2 timeout 100 "$train" $small $book --ranks "file:$work/meet" --length auto --vram "$budget" \
    >"$work/one" 2>&1 &
RANK=0 WORLD_SIZE=2 timeout 100 "$train" $small $book --ranks "file:$work/meet" --length auto --vram "$budget" \
    --log "$work/log" >"$work/zero" 2>&1 || fail "rank 0: $(tail -n 2 "$work/zero")"
wait $! || fail "rank 1: $(tail -n 2 "$work/one")"
[ "$(chosen "$work/zero")" -ge 512 ] || fail "two ranks: $(cat "$work/zero")"

# ---- limits and refusals ---------------------------------------------------------------------------

is "the model" 1024 $book --vram 1G
grep -q "the model has positions for no more" "$work/out" || fail "the model: $(grep ^length "$work/out")"
head -c 700 "$root/doc/design.md" >"$work/short"
is "the data" 640 --data "$work/short" --tokenizer bytes --vram 1G
grep -q "the data have no longer samples" "$work/out" || fail "the data: $(grep ^length "$work/out")"
is "a given chunk" 512 $book --loss-chunk 8 --vram 1G
head -c 100 "$root/doc/design.md" >"$work/short"
refuses 1 "too few for a sample of 128" "$train" $small --data "$work/short" --tokenizer bytes --length auto
refuses 2 "--length auto with --resume" "$train" $small $book --length auto --resume "$work/state"
refuses 2 "--length auto with --eval" "$train" $small $book --length auto --eval "$work/short"
refuses 2 "--length auto with --distill" "$train" $small $book --length auto --distill "$work/short"
refuses 2 "--length auto with --plan-in" "$train" $small $book --length auto --plan-in "$work/plan"
refuses 2 "--length auto with --sample-every" "$train" $small $book --length auto --sample-every 2
refuses 2 "multiple of 128" "$train" --model "$root/tests/model/lm/llama" --length auto
refuses 2 "cut before a plan" "$train" --model tiny-bert --length auto
refuses 2 "length" "$train" $small $book --length most

# ---- 131,072 tokens, 16.8 billion scores -----------------------------------------------------------

long="--model llama3.1-8B --dtype bf16 --lora-rank 16 --data random --batch 1 --length 131072 --plan-only"
runs "predicted step" "$train" $long --machine h100-80 --vram 80G

# ---- small budgets with host memory ------------------------------------------------------------------

# A step in 8G takes at most 1.25 times that in 24G, by plan (doc/lm.md).
for budget in 24G 8G; do
    runs "predicted step" "$train" --model llama3.1-8B --dtype bf16 --lora-rank 16 --data random --batch 1 --length 8192 \
        --plan-only --machine h100-80 --vram $budget --host 64G
    sed -n 's/^ *predicted step *\([0-9.]*\) ms.*/\1/p' "$work/out" >"$work/$budget"
done
paste "$work/8G" "$work/24G" | awk '{ exit !($2 > 0 && $1 <= 1.25 * $2) }' ||
    fail "8G takes $(cat "$work/8G") ms, 24G $(cat "$work/24G")"
finish
