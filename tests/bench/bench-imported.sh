#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Models of transformers, timm and diffusers on one GPU: by pt2-train, free and in half of that
# memory, and by PyTorch (peer_imported.py); Llama also recorded by hand.  Results are added to
# $OUT/imported.txt as they come.
#
# usage: bench-imported.sh [MODEL]...; gpt2 llama vit unet wan cogvideo.  BUILD is the folder of the
# programs, SMALL=--small a size for a test.  ARCHIVES is a folder of peer_imported.py --empty: the
# models there need no library.  rows.sh has the other variables.
set -u

# shellcheck source=tests/bench/rows.sh
. "$(dirname "$0")/rows.sh"
rows_to imported 10

build=${BUILD:-build}
[ $# -gt 0 ] || set -- gpt2 llama vit unet wan cogvideo
size="${SMALL-} ${ARCHIVES:+--archives $ARCHIVES}"

for model; do
    loss=
    case $model in
    vit) loss='--loss ce:target' ;;
    unet | wan | cogvideo) loss='--loss mse:target' ;;
    esac
    compare_with_next
    # shellcheck disable=SC2086
    peer "$model, PyTorch" peer_imported.py "$model" $size
    # shellcheck disable=SC2086
    if ! timeout "$limit" "$python" "$here/peer_imported.py" "$model" --export "$work" $size >"$work/out" 2>&1; then
        note "$model" "no archive: $(tail -n 1 "$work/out")"
        continue
    fi
    run="$build/pt2-train --model $work/$model.pt2 --data $work/$model.safetensors --grad-dtype bf16 $loss"
    # shellcheck disable=SC2086
    ours "$model" $run
    # Half of what the process takes, libraries included.
    half=$("$python" -c "import json, sys; print(json.loads(open('$work/log').read().splitlines()[-1])['process_bytes'] // 2)" 2>/dev/null)
    # shellcheck disable=SC2086
    [ -z "$half" ] || [ "$half" = 0 ] || ours "$model, half" $run --vram "$half"
    case $model in
    gpt2) ours "gpt2, by hand" "$build/lm-train" --model gpt2-124M --data random --dtype bf16 --grad-dtype bf16 --batch 16 --length 1024 ;;
    llama) ours "llama, by hand" "$build/lm-train" --model llama3.2-1B --data random --dtype bf16 --grad-dtype bf16 --batch 4 --length 1024 ;;
    esac
    rm -f "$work/$model".*
done
