#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LoRA adapters of a language model under small budgets on one GPU, beside PyTorch (peer_lora.py): 8,192 tokens free, in 24G, 16G,
# 12G and 8G with host memory, 4-bit frozen weights in 10G, 8G and 6G, packed and padded conversations, and 131,072 tokens in 80G.
# Results are added to $OUT/lora.txt as they come; rows of 8,192 tokens are followed by their ratio to the own 24G + host of the call.
#
# usage: bench-lora.sh [PART]...; parts: ours nf4 peers peft packing long small.  TRAIN names lm-train, MODEL the preset, LENGTH, LONG
# and ROW the tokens, HOST the host memory, LONG_STEPS the steps of the long samples; rows.sh has the other variables.
set -u

# shellcheck source=tests/bench/rows.sh
. "$(dirname "$0")/rows.sh"
rows_to lora 10

train=${TRAIN:-build/lm-train}
model=${MODEL:-llama3.1-8B}
length=${LENGTH:-8192}
long=${LONG:-131072}
row=${ROW:-4096}
host=${HOST:-64G}
templates=$here/../model/chat
[ $# -gt 0 ] || set -- ours nf4 peers peft packing long

# lora NAME LENGTH OPTION...
lora() {
    local name=$1 tokens=$2
    shift 2
    ours "$name" "$train" --model "$model" --dtype bf16 --lora-rank 16 --length "$tokens" --data random --batch 1 "$@"
}

# torch NAME LENGTH OPTION...
torch() {
    local name=$1 tokens=$2
    shift 2
    peer "$name" peer_lora.py --model "$model" --length "$tokens" "$@"
}

# Conversations of a mix, in rows of one and of several; a byte is a token, which changes no time.
packing() {
    [ -f "$work/talks.jsonl" ] || "$python" "$here/mix.py" "$row" 2000 "$work/talks.jsonl"
    talks=(--data "$work/talks.jsonl" --tokenizer bytes --chat-template "$templates/ends.jinja" --batch 2)
    lora "rows of $row, a conversation each" "$row" "${talks[@]}"
    lora "rows of $row, packed" "$row" "${talks[@]}" --pack
    lora "rows of $row, packed, 24G" "$row" "${talks[@]}" --pack --vram 24G
    torch "PyTorch, compiled, 8 padded to the longest" "$row" --batch 8 --mix --checkpoints
}

for part; do
    case $part in
    ours)
        compare_with_next
        lora "24G + $host" "$length" --vram 24G --host "$host"
        lora "free" "$length"
        lora "24G" "$length" --vram 24G
        for budget in 16G 12G 8G; do
            lora "$budget + $host" "$length" --vram $budget --host "$host"
        done
        ;;
    nf4)
        lora "nf4 10G" "$length" --frozen nf4 --vram 10G
        for budget in 10G 8G 6G; do
            lora "nf4 $budget + $host" "$length" --frozen nf4 --vram $budget --host "$host"
        done
        ;;
    peers)
        torch "PyTorch, compiled" "$length"
        torch "PyTorch, compiled, checkpoints" "$length" --checkpoints
        torch "PyTorch, compiled, checkpoints, nf4" "$length" --checkpoints --frozen nf4
        ;;
    peft) # transformers and peft, and bitsandbytes where it is
        torch "peft, compiled, checkpoints" "$length" --peft --checkpoints
        torch "peft, compiled, checkpoints, nf4" "$length" --peft --checkpoints --frozen nf4
        torch "peft, checkpoints, nf4 of bitsandbytes" "$length" --peft --checkpoints --frozen bnb --eager
        ;;
    packing)
        compare_with_next
        packing
        ;;
    long)
        compare_with_next
        steps=${LONG_STEPS:-4}
        lora "$long tokens, 79G" "$long" --vram 79G
        lora "$long tokens, 79G + $host" "$long" --vram 79G --host "$host"
        torch "PyTorch, $long tokens, checkpoints" "$long" --checkpoints
        rows_to lora 10
        ;;
    small) # a check of this script
        model=tiny-llama
        lora "tiny, free" 128
        lora "tiny, nf4" 128 --frozen nf4
        row=256 && packing
        torch "PyTorch tiny" 128 --eager --frozen nf4 --checkpoints
        torch "PyTorch tiny, peft" 128 --eager --peft --frozen nf4
        ;;
    *)
        echo "bench-lora.sh: no part is called $part" >&2
        exit 2
        ;;
    esac
done
