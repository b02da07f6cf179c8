#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# BERT pretraining and quantization-aware training on one GPU, beside PyTorch (peer_bert.py): 64
# samples of 512 tokens without padding and with documents of 40 to 1,500 tokens; free, in 8G and in
# 4G.  Each run has a time limit; results are appended to $OUT/bert.txt as they come and printed at
# the end.
#
# usage: bench-bert.sh [PART]...; parts: peers ours budgets qat large padded.  TRAIN names lm-train,
# PYTHON the interpreter of the peer, STEPS the steps of a run, LIMIT the seconds of each, FLAGS more
# options of lm-train, DEVICE the device.
set -u

train=${TRAIN:-build/lm-train}
python=${PYTHON:-python3}
steps=${STEPS:-14}
limit=${LIMIT:-150}
device=${DEVICE:-cuda}
out=${OUT:-/tmp}
here=$(dirname "$0")
[ $# -gt 0 ] || set -- peers ours budgets padded qat large
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
results=$out/bert.txt
shape="--batch ${BATCH:-64} --length ${LENGTH:-512}"
bert=${BASE:-bert-base}
large=${LARGE:-bert-large}

# note NAME TEXT
note() {
    printf '%-44s %s\n' "$1" "$2" | tee -a "$results"
}

# ours NAME OPTION...: the median step, the prediction, and what the process takes
ours() {
    local name=$1 log=$work/log
    shift
    rm -f "$log"
    # shellcheck disable=SC2086
    if ! timeout "$limit" "$train" --dtype bf16 --device "$device" --steps "$steps" --log "$log" "$@" ${FLAGS-} \
        >"$work/out" 2>&1; then
        note "$name" "failed: $(grep -a 'lm-train:' "$work/out" | head -n 2 | tr '\n' ' ')"
        return
    fi
    note "$name" "$("$python" - "$log" <<'PY'
import json, statistics, sys
rows = [json.loads(line) for line in open(sys.argv[1]) if '"step":' in line]
last = rows[-1]
print("%.2f ms, predicted %.2f, arena %.2f GiB, process %.2f GiB, loss %.3f" % (
    statistics.median(r["ms"] for r in rows[min(4, len(rows) - 1):]), last["predicted_ms"],
    last["arena_bytes"] / 2**30, last["process_bytes"] / 2**30, last["loss"]))
PY
    )"
}

# peer NAME OPTION...
peer() {
    local name=$1
    shift
    # shellcheck disable=SC2086
    if timeout "$limit" "$python" "$here/peer_bert.py" $shape --device "$device" --steps "$steps" "$@" >"$work/peer" \
        2>"$work/error"; then
        note "$name" "$(tail -n 1 "$work/peer")"
    else
        note "$name" "failed: $(tail -n 1 "$work/error")"
    fi
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
    # shellcheck disable=SC2086
    case $part in
    peers)
        peer "PyTorch $bert, all scores" --model "$bert"
        peer "PyTorch $bert, masked scores" --model "$bert" --head masked
        peer "PyTorch $bert, masked scores, pairs" --model "$bert" --head masked --next-sentence
        ;;
    ours)
        ours "$bert free" $base
        ours "$bert free, --grad-dtype bf16" $base --grad-dtype bf16
        ours "$bert free, pairs" $base --next-sentence
        ours "$bert free, --tune" $base --tune
        ;;
    budgets)
        ours "$bert 8G" $base --vram 8G
        ours "$bert 8G, --activations 8bit" $base --vram 8G --activations 8bit
        ours "$bert 4G" $base --vram 4G
        ours "$bert 4G + 64G" $base --vram 4G --host 64G
        ours "$bert 4G, --activations 8bit" $base --vram 4G --activations 8bit
        ours "$bert 4G, 8-bit state, bf16 gradients" $base --vram 4G --state 8bit --grad-dtype bf16
        ;;
    padded)
        documents
        peer "PyTorch $bert, padded, all scores" --model "$bert" --data "$work/documents.bin"
        peer "PyTorch $bert, padded, masked scores" --model "$bert" --head masked --data "$work/documents.bin"
        ours "$bert free, padded" $base --data "$work/documents.bin"
        ours "$bert 8G, padded" $base --data "$work/documents.bin" --vram 8G
        ours "$bert 4G, padded" $base --data "$work/documents.bin" --vram 4G
        ;;
    qat)
        for ranges in average learned dynamic; do
            ours "$bert free, --qat int8, $ranges" $base --qat int8 --qat-ranges $ranges
        done
        ours "$bert 4G, --qat int8" $base --qat int8 --vram 4G
        if [ "$bert" = bert-base ]; then
            gpt2="--model gpt2-124M --data random --batch 64 --length 1024"
            ours "GPT-2 124M free, 50,257 tokens" $gpt2
            ours "GPT-2 124M free, --vocabulary 50304" $gpt2 --vocabulary 50304
            ours "GPT-2 124M free, --qat int8" $gpt2 --qat int8
            ours "GPT-2 124M 8G, --qat int8" $gpt2 --qat int8 --vram 8G
        fi
        ;;
    large)
        base_large="--model $large $shape"
        peer "PyTorch $large, masked scores" --model "$large" --head masked
        ours "$large free" $base_large
        ours "$large 8G" $base_large --vram 8G
        ours "$large 4G + 64G, 8-bit state, bf16 gradients" $base_large --vram 4G --host 64G --state 8bit --grad-dtype bf16
        ours "$large 4G, 8-bit state, bf16 gradients" $base_large --vram 4G --state 8bit --grad-dtype bf16
        ;;
    *)
        echo "bench-bert.sh: no part is called $part" >&2
        exit 2
        ;;
    esac
done
echo
cat "$results"
