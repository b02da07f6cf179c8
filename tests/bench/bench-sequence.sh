#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that split the tokens of one sample (--sequence 2) on two GPUs, beside one GPU with all of them: STDiT XL/2 on 54,000 and
# 108,000 tokens, and CogVideoX-5B with all weights on 49 x 480 x 720, whose state two cards share (--zero 3).  Weights and latents are
# random.  Each run has a time limit; a line for each is appended to $OUT/sequence.txt as it comes: the median step, what was predicted,
# memory, the loss of the first step, which both have up to rounding, and how many times faster and smaller it is than one card.
#
# usage: bench-sequence.sh [PART]...; parts: 54000 108000 cogvideo, and small, a check of this script.  BUILD names the folder of the
# programs, STEPS the steps of a run, LIMIT the seconds of each, DEVICE the device, FLAGS more options of the trainers.
set -u

# shellcheck source=tests/bench/rows.sh
. "$(dirname "$0")/rows.sh"
rows_to sequence 8

build=${BUILD:-build}
[ $# -gt 0 ] || set -- 54000 108000 cogvideo
failed=0
alone=

# config NAME HEADS WIDTH LAYERS TEXT: the directory of a CogVideoX of these sizes
config() {
    mkdir -p "$work/$1"
    cat >"$work/$1/config.json" <<JSON
{"_class_name": "CogVideoXTransformer3DModel", "num_attention_heads": $2, "attention_head_dim": $3, "num_layers": $4,
 "in_channels": 16, "out_channels": 16, "text_embed_dim": $5, "max_text_seq_length": 226, "time_embed_dim": 512, "patch_size": 2,
 "sample_frames": 49, "sample_height": 60, "sample_width": 90, "temporal_compression_ratio": 4, "norm_eps": 1e-05,
 "use_rotary_positional_embeddings": true, "use_learned_positional_embeddings": false, "flip_sin_to_cos": true, "freq_shift": 0,
 "activation_fn": "gelu-approximate", "timestep_activation_fn": "silu", "norm_elementwise_affine": true}
JSON
}
config 5B 48 64 42 4096
config tiny 4 16 2 16

# processes N COMMAND...: N ranks; what rank R says goes to out.R
processes() {
    local n=$1 r pids= status=0
    shift
    if [ "$n" = 1 ]; then
        timeout "$limit" "$@" >"$work/out.0" 2>&1
        return
    fi
    for r in $(seq $((n - 1)) -1 0); do
        RANK=$r WORLD_SIZE=$n timeout "$limit" "$@" --ranks "file:$work/meet" >"$work/out.$r" 2>&1 &
        pids="$pids $!"
    done
    for r in $pids; do
        wait "$r" || status=1
    done
    rm -f "$work/meet"
    return $status
}

# What the plan keeps for the backward pass, in GiB.
kept() {
    awk '$1 == "activations" && $2 == "kept" { print $3 / ($4 == "KiB" ? 2 ^ 20 : $4 == "MiB" ? 1024 : 1); exit }' "$work/out.0"
}

# last NAME: a number of the last step
last() {
    sed -n "s/^{\"step\": .*\"$1\": \([^,]*\),.*/\1/p" "$work/log" | tail -n 1
}

# The loss of the first step, which is that of one card up to rounding.
first_loss() {
    sed -n 's/^{"step": 1, "loss": \([^,]*\),.*/\1/p' "$work/log"
}

# measure N NAME PROGRAM OPTION...: the first of a part is the one that others are compared with
measure() {
    local n=$1 name=$2 program=$3 ms activations text
    shift 3
    rm -f "$work/log"
    # shellcheck disable=SC2086
    if ! processes "$n" "$build/$program" --dtype bf16 --grad-dtype bf16 --batch 1 --device "$device" --steps "$steps" --warmup 1 \
        --log "$work/log" "$@" ${FLAGS-}; then
        note "$name" "failed: $(grep -ah "$program:" "$work"/out.* | head -n 2 | tr '\n' ' ')"
        failed=1
        return
    fi
    ms=$(sed -n 's/.*"step": .*"ms": \([^,]*\),.*/\1/p' "$work/log" | tail -n +4 | sort -n |
        awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
    activations=$(kept)
    text="$(first_loss) $(last predicted_ms) $(last arena_bytes)"
    echo "$ms ${activations:-0} $text" | awk '{ printf "%.1f ms, predicted %.1f, kept %.4g GiB, arena %.4g GiB, loss %.6f", $1, $4, $2,
        $5 / 2 ^ 30, $3 }' >"$work/text"
    [ -z "$alone" ] || echo "$alone $ms ${activations:-0}" | awk '{ printf ", %.3f x as fast, %.3f of the activations", $1 / $3, $4 / $2 }' \
        >>"$work/text"
    note "$name" "$(cat "$work/text")"
    [ -n "$alone" ] || alone="$ms ${activations:-1}"
}

# stdit NAME OPTION...: one card, then two
stdit() {
    local name=$1
    shift
    measure 1 "$name, one" stdit-train "$@" --ema-decay 0 --sample-steps 0
    measure 2 "$name, sequence 2" stdit-train "$@" --ema-decay 0 --sample-steps 0 --sequence 2
}

for part; do
    alone=
    case $part in
    54000) stdit "STDiT XL/2, 54,000 tokens" --model XL/2 --latent 15x90x160 ;;
    108000) stdit "STDiT XL/2, 108,000 tokens" --model XL/2 --latent 30x90x160 ;;
    cogvideo)
        measure 2 "CogVideoX 5B, sequence 2, zero 3" cogvideo-train --model "$work/5B" --random --data random --frames 49 --size 720x480 \
            --sequence 2 --zero 3
        ;;
    small)
        device=cpu limit=60
        stdit "STDiT tiny" --hidden 32 --heads 4 --depth 1 --latent 4x6x6 --caption-channels 8 --text-tokens 4
        alone=
        measure 1 "CogVideoX tiny, one" cogvideo-train --model "$work/tiny" --random --data random --frames 5 --size 64x64
        measure 2 "CogVideoX tiny, sequence 2, zero 3" cogvideo-train --model "$work/tiny" --random --data random --frames 5 \
            --size 64x64 --sequence 2 --zero 3
        ;;
    *)
        echo "bench-sequence.sh: no part is called $part" >&2
        exit 2
        ;;
    esac
done
exit $failed
