#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# BERT pretraining and quantization-aware training on one GPU, beside PyTorch (peer_bert.py): 64
# samples of 512 tokens without padding and with documents of 40 to 1,500 tokens; free, in 8G and in
# 4G.  Results are added to $OUT/bert.txt as they come.
#
# usage: bench-bert.sh [PART]...; parts: peers ours budgets qat large padded.  TRAIN names lm-train;
# rows.sh has the other variables.
set -u

# shellcheck source=tests/bench/rows.sh
. "$(dirname "$0")/rows.sh"
rows_to bert 14

train=${TRAIN:-build/lm-train}
[ $# -gt 0 ] || set -- peers ours budgets padded qat large
shape="--batch ${BATCH:-64} --length ${LENGTH:-512}"
bert=${BASE:-bert-base}
large=${LARGE:-bert-large}

# bert NAME OPTION...
bert() {
    local name=$1
    shift
    ours "$name" "$train" --dtype bf16 "$@"
}

# torch NAME OPTION...
torch() {
    local name=$1
    shift
    # shellcheck disable=SC2086
    peer "$name" peer_bert.py $shape "$@"
}

# Documents of 40 to 1,500 tokens, each with [SEP] behind it, as a file of llm.c.
documents() {
    [ -f "$work/documents.bin" ] || "$python" - "$work/documents.bin" <<'PY'
import sys
import numpy as np
draw = np.random.default_rng(1)
text = np.concatenate([np.append(draw.integers(104, 30522, draw.integers(40, 1501)), 102) for _ in range(4000)])
head = np.zeros(256, np.int32)
head[:3] = 20240520, 1, len(text)
with open(sys.argv[1], "wb") as f:
    f.write(head.tobytes() + text.astype(np.uint16).tobytes())
PY
}

base="--model $bert $shape"
for part; do
    compare_with_next
    # shellcheck disable=SC2086
    case $part in
    peers)
        torch "PyTorch $bert, all scores" --model "$bert"
        torch "PyTorch $bert, masked scores" --model "$bert" --head masked
        torch "PyTorch $bert, masked scores, pairs" --model "$bert" --head masked --next-sentence
        ;;
    ours)
        bert "$bert free" $base
        bert "$bert free, --grad-dtype bf16" $base --grad-dtype bf16
        bert "$bert free, pairs" $base --next-sentence
        bert "$bert free, --tune" $base --tune
        ;;
    budgets)
        bert "$bert 8G" $base --vram 8G
        bert "$bert 8G, --activations 8bit" $base --vram 8G --activations 8bit
        bert "$bert 4G" $base --vram 4G
        bert "$bert 4G + 64G" $base --vram 4G --host 64G
        bert "$bert 4G, --activations 8bit" $base --vram 4G --activations 8bit
        bert "$bert 4G, 8-bit state, bf16 gradients" $base --vram 4G --state 8bit --grad-dtype bf16
        ;;
    padded)
        documents
        torch "PyTorch $bert, padded, all scores" --model "$bert" --data "$work/documents.bin"
        torch "PyTorch $bert, padded, masked scores" --model "$bert" --head masked --data "$work/documents.bin"
        bert "$bert free, padded" $base --data "$work/documents.bin"
        bert "$bert 8G, padded" $base --data "$work/documents.bin" --vram 8G
        bert "$bert 4G, padded" $base --data "$work/documents.bin" --vram 4G
        ;;
    qat)
        for ranges in average learned dynamic; do
            bert "$bert free, --qat int8, $ranges" $base --qat int8 --qat-ranges $ranges
        done
        bert "$bert 4G, --qat int8" $base --qat int8 --vram 4G
        if [ "$bert" = bert-base ]; then
            gpt2="--model gpt2-124M --data random --batch 64 --length 1024"
            bert "GPT-2 124M free, 50,257 tokens" $gpt2
            bert "GPT-2 124M free, --vocabulary 50304" $gpt2 --vocabulary 50304
            bert "GPT-2 124M free, --qat int8" $gpt2 --qat int8
            bert "GPT-2 124M 8G, --qat int8" $gpt2 --qat int8 --vram 8G
        fi
        ;;
    large)
        base_large="--model $large $shape"
        torch "PyTorch $large, masked scores" --model "$large" --head masked
        bert "$large free" $base_large
        bert "$large 8G" $base_large --vram 8G
        bert "$large 4G + 64G, 8-bit state, bf16 gradients" $base_large --vram 4G --host 64G --state 8bit --grad-dtype bf16
        bert "$large 4G, 8-bit state, bf16 gradients" $base_large --vram 4G --state 8bit --grad-dtype bf16
        ;;
    *)
        echo "bench-bert.sh: no part is called $part" >&2
        exit 2
        ;;
    esac
done
