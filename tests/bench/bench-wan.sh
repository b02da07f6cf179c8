#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fine-tuning of Wan on one GPU, beside PyTorch (peer_wan.py): adapters for 5B at 121 x 704 x 1280 without a budget, in 24G, and in
# 16G to 6G with host memory; all weights of 5B; adapters for one expert of A14B at 81 x 480 x 832.  Weights and latents are random.
# Each run has a time limit; results are appended to $OUT/wan.txt as they come, with their ratio to the first row of their part.
#
# usage: bench-wan.sh [PART]...; parts: ours peers full full-peer a14b a14b-peer small.  WAN_TRAIN names wan-train, PYTHON the interpreter
# of the peer, STEPS the steps of a run, LIMIT the seconds of each, FLAGS more options of wan-train, DEVICE the device, RANK the rank,
# CLIP5 and CLIP14 the clips (FxHxW).
set -u

train=${WAN_TRAIN:-${BUILD:-build}/wan-train}
python=${PYTHON:-python3}
limit=${LIMIT:-240}
device=${DEVICE:-cuda}
rank=${RANK:-32}
steps=${STEPS:-8}
clip5=${CLIP5:-121x704x1280}
clip14=${CLIP14:-81x480x832}
results=${OUT:-/tmp}/wan.txt
here=$(dirname "$0")
[ $# -gt 0 ] || set -- ours peers a14b a14b-peer full full-peer
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
base=

# config NAME HEADS LAYERS MLP CHANNELS: the directory of a model of these sizes
config() {
    mkdir -p "$work/$1"
    cat >"$work/$1/config.json" <<JSON
{"_class_name": "WanTransformer3DModel", "patch_size": [1, 2, 2], "num_attention_heads": $2, "attention_head_dim": 128,
 "num_layers": $3, "ffn_dim": $4, "in_channels": $5, "out_channels": $5, "text_dim": 4096, "freq_dim": 256, "eps": 1e-06,
 "cross_attn_norm": true, "qk_norm": "rms_norm_across_heads", "rope_max_seq_len": 1024}
JSON
}
config 5B 24 30 14336 48
config A14B 40 40 13824 16
config tiny 2 4 512 16

# note NAME TEXT
note() {
    printf '%-48s %s\n' "$1" "$2" | tee -a "$results"
}

# ratio MS: beside the first row of the part
ratio() {
    [ -n "$base" ] || base=$1
    awk -v a="$1" -v b="$base" 'BEGIN { printf ", %.3f of the first", a / b }'
}

# ours MODEL CLIP NAME OPTION...: the median step, the prediction, and what the process takes
ours() {
    local model=$1 clip=$2 name=$3 log=$work/log text
    shift 3
    rm -f "$log"
    # shellcheck disable=SC2086
    if ! timeout "$limit" "$train" --model "$work/$model" --random --dtype bf16 --data random --frames "${clip%%x*}" \
        --size "$(echo "$clip" | awk -Fx '{ print $3 "x" $2 }')" --batch 1 --device "$device" --steps "$steps" --log "$log" \
        "$@" ${FLAGS-} >"$work/out" 2>&1; then
        note "$name" "failed: $(grep -a 'wan-train:' "$work/out" | head -n 2 | tr '\n' ' ')"
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
    note "$name" "$text$(ratio "${text%% ms*}")"
}

# peer SIZE CLIP FACTOR NAME OPTION...; FACTOR: pixels along the side of a latent
peer() {
    local size=$1 grid name=$4
    grid=$(echo "$2" | awk -Fx -v f="$3" '{ print ($1 - 1) / 4 + 1 "x" $2 / f "x" $3 / f }')
    shift 4
    if timeout "$limit" "$python" "$here/peer_wan.py" --size "$size" --grid "$grid" --device "$device" --steps "$steps" "$@" \
        >"$work/peer" 2>"$work/error"; then
        note "$name" "$(tail -n 1 "$work/peer")"
    else
        note "$name" "failed: $(grep -a Error "$work/error" | tail -n 1)"
    fi
}

for part; do
    base=
    case $part in
    ours)
        ours 5B "$clip5" "5B, free" --lora-rank "$rank"
        ours 5B "$clip5" "5B, 24G" --lora-rank "$rank" --vram 24G
        for budget in 16G 12G 8G 6G; do
            ours 5B "$clip5" "5B, $budget + 64G" --lora-rank "$rank" --vram $budget --host 64G
        done
        ;;
    peers)
        peer 5B "$clip5" 16 "PyTorch 5B, compiled" --lora-rank "$rank"
        peer 5B "$clip5" 16 "PyTorch 5B, compiled, checkpoints" --lora-rank "$rank" --checkpoints
        ;;
    full)
        ours 5B "$clip5" "5B full, free"
        ours 5B "$clip5" "5B full, 24G + 100G" --vram 24G --host 100G
        ;;
    full-peer) peer 5B "$clip5" 16 "PyTorch 5B full, compiled, checkpoints" --lora-rank 0 --checkpoints ;;
    a14b)
        ours A14B "$clip14" "A14B, 24G + 64G" --lora-rank "$rank" --vram 24G --host 64G
        ours A14B "$clip14" "A14B, free" --lora-rank "$rank"
        ;;
    a14b-peer) peer A14B "$clip14" 8 "PyTorch A14B, compiled, 30 blocks on the host" --lora-rank "$rank" --checkpoints --swap 30 ;;
    small) # a check of this script
        ours tiny 5x64x64 "tiny, free" --lora-rank 4
        ours tiny 5x64x64 "tiny, full"
        peer tiny 5x64x64 8 "PyTorch tiny" --lora-rank 4 --eager
        peer tiny 5x64x64 8 "PyTorch tiny, all weights" --lora-rank 0 --eager --checkpoints
        ;;
    *)
        echo "bench-wan.sh: no part is called $part" >&2
        exit 2
        ;;
    esac
done
