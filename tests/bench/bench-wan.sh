#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fine-tuning of Wan on one GPU, beside PyTorch (peer_wan.py): adapters for 5B at 121 x 704 x 1280 without a budget, in 24G, and in
# 16G to 6G with host memory; all weights of 5B; adapters for one expert of A14B at 81 x 480 x 832.  Weights and latents are random.
# Results are added to $OUT/wan.txt as they come, with their ratio to the first row of their part.
#
# usage: bench-wan.sh [PART]...; parts: ours peers full full-peer a14b a14b-both a14b-peer small.  WAN_TRAIN names wan-train, RANK the rank,
# CLIP5 and CLIP14 the clips (FxHxW); rows.sh has the other variables.
set -u

# shellcheck source=tests/bench/rows.sh
. "$(dirname "$0")/rows.sh"
rows_to wan 8

train=${WAN_TRAIN:-${BUILD:-build}/wan-train}
rank=${RANK:-32}
clip5=${CLIP5:-121x704x1280}
clip14=${CLIP14:-81x480x832}
[ $# -gt 0 ] || set -- ours peers a14b a14b-both a14b-peer full full-peer

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
# pair NAME ...: the same for a pair of models
pair() {
    config "$1/transformer" "${@:2}"
    config "$1/transformer_2" "${@:2}"
    echo '{"boundary_ratio": 0.875}' >"$work/$1/model_index.json"
}
pair A14B-pair 40 40 13824 16
pair tiny-pair 2 4 512 16

# wan MODEL CLIP NAME OPTION...
wan() {
    local model=$1 clip=$2 name=$3
    shift 3
    ours "$name" "$train" --model "$work/$model" --random --dtype bf16 --data random --frames "${clip%%x*}" \
        --size "$(echo "$clip" | awk -Fx '{ print $3 "x" $2 }')" --batch 1 "$@"
}

# torch SIZE CLIP FACTOR NAME OPTION...; FACTOR: pixels along the side of a latent
torch() {
    local size=$1 name=$4 grid
    grid=$(echo "$2" | awk -Fx -v f="$3" '{ print ($1 - 1) / 4 + 1 "x" $2 / f "x" $3 / f }')
    shift 4
    peer "$name" peer_wan.py --size "$size" --grid "$grid" "$@"
}

for part; do
    compare_with_next
    case $part in
    ours)
        wan 5B "$clip5" "5B, free" --lora-rank "$rank"
        wan 5B "$clip5" "5B, 24G" --lora-rank "$rank" --vram 24G
        for budget in 16G 12G 8G 6G; do
            wan 5B "$clip5" "5B, $budget + 64G" --lora-rank "$rank" --vram $budget --host 64G
        done
        ;;
    peers)
        torch 5B "$clip5" 16 "PyTorch 5B, compiled" --lora-rank "$rank"
        torch 5B "$clip5" 16 "PyTorch 5B, compiled, checkpoints" --lora-rank "$rank" --checkpoints
        ;;
    full)
        wan 5B "$clip5" "5B full, free" --grad-dtype bf16
        wan 5B "$clip5" "5B full, 24G + 100G" --grad-dtype bf16 --vram 24G --host 100G
        ;;
    full-peer) torch 5B "$clip5" 16 "PyTorch 5B full, compiled, checkpoints" --lora-rank 0 --checkpoints ;;
    a14b)
        wan A14B "$clip14" "A14B, 24G + 64G" --lora-rank "$rank" --vram 24G --host 64G
        wan A14B "$clip14" "A14B, free" --lora-rank "$rank"
        ;;
    a14b-both) wan A14B-pair "$clip14" "A14B, both experts in one run, 24G + 64G" --expert both --lora-rank "$rank" --vram 24G --host 64G ;;
    a14b-peer) torch A14B "$clip14" 8 "PyTorch A14B, compiled, 30 blocks on the host" --lora-rank "$rank" --checkpoints --swap 30 ;;
    small) # a check of this script
        wan tiny 5x64x64 "tiny, free" --lora-rank 4
        wan tiny 5x64x64 "tiny, full"
        wan tiny-pair 5x64x64 "tiny, both experts" --expert both --lora-rank 4
        torch tiny 5x64x64 8 "PyTorch tiny" --lora-rank 4 --eager
        torch tiny 5x64x64 8 "PyTorch tiny, all weights" --lora-rank 0 --eager --checkpoints
        ;;
    *)
        echo "bench-wan.sh: no part is called $part" >&2
        exit 2
        ;;
    esac
done
