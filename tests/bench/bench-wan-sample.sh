#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Sampling and decoding of Wan TI2V-5B on one GPU beside diffusers (peer_wan_sample.py), with random weights of the published shapes:
# a denoising step of 121 x 704 x 1280 with guidance in 24G, 12G and 8G, and the autoencoder 2.2 on that clip under 12G.  diffusers
# offloads blocks or leaves to the host with a stream, and decodes in tiles.  Nothing is downloaded; the weights take 12 GB in $TMPDIR.
# Each run has a time limit; results are appended to $OUT/wan-sample.txt as they come.
#
# usage: bench-wan-sample.sh [PART]...; parts: sample sample-peer decode decode-peer small (a check of this script).  WAN_SAMPLE and
# WAN_DECODE name the programs, PYTHON the interpreter of the peer, STEPS the steps of a run, LIMIT the seconds of each, DEVICE the
# device, CLIP the clip (FxHxW), HOST the host memory of a run, BUDGETS some of the budgets in GiB, OFFLOADS some of the peer's ways.
set -u

# shellcheck source=tests/bench/rows.sh
. "$(dirname "$0")/rows.sh"
rows_to wan-sample 6

build=${BUILD:-build}
sample=${WAN_SAMPLE:-$build/wan-sample} decode=${WAN_DECODE:-$build/wan-decode}
clip=${CLIP:-121x704x1280}
host=${HOST:-64G}
budgets=${BUDGETS:-24 12 8}
offloads=${OFFLOADS:-none block leaf}
peer=$here/peer_wan_sample.py
[ $# -gt 0 ] || set -- sample sample-peer decode decode-peer
made=

# model HEADS LAYERS MLP TEXT [OPTION]...: the directory of a model of these sizes, once
model() {
    [ -z "$made" ] || return 0
    mkdir -p "$work/model/transformer"
    cat >"$work/model/transformer/config.json" <<JSON
{"_class_name": "WanTransformer3DModel", "patch_size": [1, 2, 2], "num_attention_heads": $1, "attention_head_dim": 128,
 "num_layers": $2, "ffn_dim": $3, "in_channels": 48, "out_channels": 48, "text_dim": $4, "freq_dim": 256, "eps": 1e-06,
 "cross_attn_norm": true, "qk_norm": "rms_norm_across_heads", "rope_max_seq_len": 1024}
JSON
    echo '{"_class_name": "WanPipeline", "expand_timesteps": true}' >"$work/model/model_index.json"
    shift 4
    if ! "$python" "$peer" make "$work/model" --clip "$clip" "$@" >"$work/out" 2>&1; then
        note "weights of the autoencoder" "failed: $(tail -n 1 "$work/out")"
        exit 1
    fi
    made=yes
}

# seconds FILE: of a step, from the last line of progress that has it
seconds() {
    tr '\r' '\n' <"$1" | sed -n 's/.*, \([0-9.]*\) \(s\/step\|steps\/s\).*/\1 \2/p' | tail -n 1 |
        awk '{ printf "%.4f", $2 == "s/step" ? $1 : 1 / $1 }'
}

# failed FILE NAME
failed() {
    note "$2" "failed: $(grep -a 'wan-[a-z]*:\|Error' "$1" | tail -n 1)"
}

# ours_sample NAME OPTION...
ours_sample() {
    local name=$1 size
    shift
    size=$(echo "$clip" | awk -Fx '{ print $3 "x" $2 }')
    if timeout "$limit" "$sample" --model "$work/model" --random --dtype bf16 --text "$work/model/text.safetensors" \
        --negative "$work/model/text.safetensors" --frames "${clip%%x*}" --size "$size" --steps "$steps" --device "$device" \
        --out "$work/latents" "$@" >"$work/out" 2>"$work/error"; then
        note "$name" "$(seconds "$work/error") s a step; $(awk '/predicted step/ { print "predicted", $3, $4 }
            /^  peak/ { print "peak", $2, $3 }' "$work/out" | paste -sd, -)"
    else
        failed "$work/error" "$name"
    fi
}

# The wall of a program, in seconds.
wall() {
    local begin
    begin=$(date +%s.%N)
    timeout "$limit" "$@" >"$work/out" 2>"$work/error" || return 1
    awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { printf "%.3f", b - a }'
}

# ours_decode NAME OPTION...: the wall of a clip less that of its first frame alone, which has the start and the weights
ours_decode() {
    local name=$1 one all
    shift
    set -- "$decode" --model "$work/model" --device "$device" --output "$work/clip.rgb" "$@"
    if one=$(wall "$@" --latents "$work/model/first.safetensors") && all=$(wall "$@" --latents "$work/model/latents.safetensors"); then
        note "$name" "$(awk -v a="$all" -v b="$one" 'BEGIN { printf "%.2f s, of %.2f with start and weights", a - b, a }'); $(awk '
            /predicted step/ { print "predicted", $3, $4 } /^  peak/ { print "peak", $2, $3 }' "$work/out" | paste -sd, -)"
    else
        failed "$work/error" "$name"
    fi
}

# theirs NAME OPTION...
theirs() {
    local name=$1
    shift
    if timeout "$limit" "$python" "$peer" "$1" "$work/model" --clip "$clip" --steps "$steps" --device "$device" "${@:2}" \
        >"$work/out" 2>"$work/error"; then
        note "$name" "$(tail -n 1 "$work/out")"
    else
        failed "$work/error" "$name"
    fi
}

for part; do
    case $part in
    small) clip=${CLIP:-5x64x64} && model 1 2 64 64 --tiny ;;
    *) model 24 30 14336 4096 ;;
    esac
    case $part in
    sample)
        for budget in $budgets; do
            ours_sample "sample, ${budget}G + $host" --vram "${budget}G" --host "$host"
        done
        ;;
    sample-peer)
        for budget in $budgets; do
            for offload in $offloads; do
                theirs "diffusers, ${budget}G, offload $offload" sample --limit "$budget" --offload "$offload"
            done
        done
        ;;
    decode)
        ours_decode "decode, 12G" --vram 12G
        ours_decode "decode, 8G + $host" --vram 8G --host "$host"
        ;;
    decode-peer)
        theirs "diffusers, decode in 12G, tiles" decode --limit 12 --tiling
        theirs "diffusers, decode in 12G, whole" decode --limit 12
        theirs "diffusers, decode free, whole" decode
        ;;
    small)
        ours_sample "tiny sample, free"
        ours_sample "tiny sample, 8M + 64M" --vram 8M --host 64M
        for offload in none block leaf; do
            theirs "diffusers, tiny, offload $offload" sample --offload $offload
        done
        ours_decode "tiny decode" --dtype bf16
        theirs "diffusers, tiny decode, tiles" decode --tiling
        theirs "diffusers, tiny decode, whole" decode
        ;;
    *)
        echo "bench-wan-sample.sh: no part is called $part" >&2
        exit 2
        ;;
    esac
done
