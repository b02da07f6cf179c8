#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plans of CogVideoX-5B with adapters when the tensors between its 42 blocks do not all fit:
# recompute grows with the missing memory.  Everything fits below 10G.  With a tenth less a few
# blocks are recomputed, and with half of it half of the blocks; a search that frees each storage
# once would already recompute nearly all of them at 9.9G.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

mkdir "$work/5b"
sed -e 's/"attention_head_dim": [0-9]*/"attention_head_dim": 64/' \
    -e 's/"max_text_seq_length": [0-9]*/"max_text_seq_length": 226/' \
    -e 's/"num_attention_heads": [0-9]*/"num_attention_heads": 48/' \
    -e 's/"num_layers": [0-9]*/"num_layers": 42/' \
    -e 's/"sample_frames": [0-9]*/"sample_frames": 49/' \
    -e 's/"sample_height": [0-9]*/"sample_height": 60/' \
    -e 's/"sample_width": [0-9]*/"sample_width": 90/' \
    -e 's/"text_embed_dim": [0-9]*/"text_embed_dim": 4096/' \
    -e 's/"time_embed_dim": [0-9]*/"time_embed_dim": 512/' \
    "$root/tests/cogvideo/5b/config.json" >"$work/5b/config.json"

# plan BUDGET: the table of its plan, in $work/BUDGET, and the share of recompute, in percent.
plan() {
    ${COGVIDEO_TRAIN:-./cogvideo-train} --model "$work/5b" --random --data random --device cpu --dtype bf16 --grad-dtype bf16 \
        --lora-rank 128 --frozen nf4 --state 8bit --machine h100-80 --plan-only --vram "$1" >"$work/$1" 2>&1 ||
        fail "$1: $(tail -n 2 "$work/$1")"
    share=$(sed -n 's/.* recompute .* \([0-9.]*\)% of the compute.*/\1/p' "$work/$1")
    [ "$share" ] || fail "$1: no recompute in $(cat "$work/$1")"
}
# at_most BUDGET TIMES: recompute under it, beside that under 10G.
at_most() {
    plan "$1"
    awk "BEGIN { exit $share > $once * $2 }" || fail "under $1 $share % of recompute, under 10G $once %"
}

plan 10G
once=$share
at_most 9G 1.25
at_most 8G 1.6
kept=$(sed -n 's/.* activations kept *\([0-9.]*\) GiB.*/\1/p' "$work/8G")
awk "BEGIN { exit !(\"$kept\" > 2 && \"$kept\" < 5) }" || fail "under 8G '$kept' GiB are kept"

finish
