#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LoRA adapters of a language model under small budgets on one GPU, beside PyTorch (peer_lora.py): 8,192 tokens free, in 24G, 16G,
# 12G and 8G with host memory, 4-bit frozen weights in 10G, 8G and 6G, and 131,072 tokens in 80G.  Each run has a time limit; results
# are appended to $OUT/lora.txt as they come.  Rows are followed by their ratio to the own 24G row of the same call.
#
# usage: bench-lora.sh [PART]...; parts: peers ours nf4 long.  TRAIN names lm-train, PYTHON the interpreter of the peer, MODEL the
# preset, LENGTH and LONG the tokens, HOST the host memory, STEPS and LONG_STEPS the steps of a run, LIMIT the seconds of each, FLAGS
# more options of lm-train, DEVICE the device.
set -u

train=${TRAIN:-build/lm-train}
python=${PYTHON:-python3}
limit=${LIMIT:-240}
device=${DEVICE:-cuda}
model=${MODEL:-llama3.1-8B}
length=${LENGTH:-8192}
long=${LONG:-131072}
host=${HOST:-64G}
results=${OUT:-/tmp}/lora.txt
here=$(dirname "$0")
[ $# -gt 0 ] || set -- ours nf4 peers long
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
base=

# note NAME TEXT
note() {
    printf '%-48s %s\n' "$1" "$2" | tee -a "$results"
}

# ratio MS: beside the first row that set base
ratio() {
    [ -n "$base" ] && awk -v a="$1" -v b="$base" 'BEGIN { printf ", %.3f of 24G", a / b }'
}

# ours STEPS LENGTH NAME OPTION...: the median step, the prediction, and what the process takes
ours() {
    local steps=$1 tokens=$2 name=$3 log=$work/log text
    shift 3
    rm -f "$log"
    # shellcheck disable=SC2086
    if ! timeout "$limit" "$train" --model "$model" --dtype bf16 --lora-rank 16 --data random --batch 1 --length "$tokens" \
        --device "$device" --steps "$steps" --log "$log" "$@" ${FLAGS-} >"$work/out" 2>&1; then
        note "$name" "failed: $(grep -a 'lm-train:' "$work/out" | head -n 2 | tr '\n' ' ')"
        return
    fi
    text=$("$python" - "$log" <<'PY'
import json, statistics, sys
rows = [json.loads(line) for line in open(sys.argv[1]) if '"step":' in line]
last = rows[-1]
print("%.2f ms, predicted %.2f, arena %.2f GiB, process %.2f GiB, loss %.3f" % (
    statistics.median(r["ms"] for r in rows[min(3, len(rows) - 1):]), last["predicted_ms"],
    last["arena_bytes"] / 2**30, last["process_bytes"] / 2**30, last["loss"]))
PY
    )
    [ "$name" = "24G + $host" ] && base=${text%% ms*}
    note "$name" "$text$(ratio "${text%% ms*}")"
}

# peer STEPS LENGTH NAME OPTION...
peer() {
    local steps=$1 tokens=$2 name=$3
    shift 3
    if timeout "$limit" "$python" "$here/peer_lora.py" --model "$model" --length "$tokens" --device "$device" --steps "$steps" "$@" \
        >"$work/peer" 2>"$work/error"; then
        note "$name" "$(tail -n 1 "$work/peer")"
    else
        note "$name" "failed: $(grep -a Error "$work/error" | tail -n 1)"
    fi
}

n=${STEPS:-10}
m=${LONG_STEPS:-4}
for part; do
    case $part in
    ours)
        ours "$n" "$length" "24G + $host" --vram 24G --host "$host"
        ours "$n" "$length" "free"
        ours "$n" "$length" "24G" --vram 24G
        for budget in 16G 12G 8G; do
            ours "$n" "$length" "$budget + $host" --vram $budget --host "$host"
        done
        ;;
    nf4)
        ours "$n" "$length" "nf4 10G" --frozen nf4 --vram 10G
        for budget in 10G 8G 6G; do
            ours "$n" "$length" "nf4 $budget + $host" --frozen nf4 --vram $budget --host "$host"
        done
        ;;
    peers)
        peer "$n" "$length" "PyTorch, compiled"
        peer "$n" "$length" "PyTorch, compiled, checkpoints" --checkpoints
        ;;
    long)
        ours "$m" "$long" "$long tokens, 79G" --vram 79G
        ours "$m" "$long" "$long tokens, 79G + $host" --vram 79G --host "$host"
        peer "$m" "$long" "PyTorch, $long tokens, checkpoints" --checkpoints
        ;;
    *)
        echo "bench-lora.sh: no part is called $part" >&2
        exit 2
        ;;
    esac
done
