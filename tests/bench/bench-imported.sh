#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Models of transformers, timm and diffusers on one GPU: by pt2-train, free and in half of that
# memory, and by PyTorch (peer_imported.py); Llama also recorded by hand.  Results are appended to
# $OUT/imported.txt as they come and printed at the end.
#
# usage: bench-imported.sh [MODEL]...; gpt2 llama vit unet wan cogvideo.  BUILD is the folder of the
# programs, PYTHON the interpreter, STEPS the steps of a run, LIMIT the seconds of each, DEVICE the
# device, SMALL=--small a size for a test.
set -u

build=${BUILD:-build} python=${PYTHON:-python3} steps=${STEPS:-10} limit=${LIMIT:-150} device=${DEVICE:-cuda}
out=${OUT:-/tmp}
here=$(dirname "$0")
[ $# -gt 0 ] || set -- gpt2 llama vit unet wan cogvideo
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
results=$out/imported.txt

note() {
    printf '%-28s %s\n' "$1" "$2" | tee -a "$results"
}

# ours NAME COMMAND...: the median step, the prediction, and what the process takes
ours() {
    local name=$1
    shift
    rm -f "$work/log"
    if ! timeout "$limit" "$@" --device "$device" --steps "$steps" --log "$work/log" --grad-dtype bf16 >"$work/out" 2>&1; then
        note "$name" "failed: $(grep -a -m 2 'train: ' "$work/out" | tr '\n' ' ')"
        return
    fi
    note "$name" "$("$python" - "$work/log" <<'PY'
import json, statistics, sys
rows = [json.loads(line) for line in open(sys.argv[1]) if '"step":' in line]
last = rows[-1]
print("%.2f ms, predicted %.2f, process %.2f GiB, loss %.4f" % (
    statistics.median(r["ms"] for r in rows[min(3, len(rows) - 1):]), last["predicted_ms"],
    last["process_bytes"] / 2**30, last["loss"]))
PY
    )"
}

peer() {
    if timeout "$limit" "$python" "$here/peer_imported.py" "$1" --device "$device" --steps "$steps" ${SMALL-} >"$work/peer" 2>"$work/error"; then
        note "$1, PyTorch" "$(tail -n 1 "$work/peer")"
    else
        note "$1, PyTorch" "failed: $(tail -n 1 "$work/error")"
    fi
}

for model; do
    loss=
    case $model in
    vit) loss='--loss ce:target' ;;
    unet | wan | cogvideo) loss='--loss mse:target' ;;
    esac
    peer "$model"
    if ! timeout "$limit" "$python" "$here/peer_imported.py" "$model" --export "$work" ${SMALL-} >"$work/out" 2>&1; then
        note "$model" "no archive: $(tail -n 1 "$work/out")"
        continue
    fi
    run="$build/pt2-train --model $work/$model.pt2 --data $work/$model.safetensors $loss"
    # shellcheck disable=SC2086
    ours "$model" $run
    # Half of what the process takes, libraries included.
    half=$("$python" -c "import json, sys; print(json.loads(open('$work/log').read().splitlines()[-1])['process_bytes'] // 2)" 2>/dev/null)
    # shellcheck disable=SC2086
    [ -z "$half" ] || [ "$half" = 0 ] || ours "$model, half" $run --vram "$half"
    case $model in
    gpt2) ours "gpt2, by hand" "$build/lm-train" --model gpt2-124M --data random --dtype bf16 --batch 16 --length 1024 ;;
    llama) ours "llama, by hand" "$build/lm-train" --model llama3.2-1B --data random --dtype bf16 --batch 4 --length 1024 ;;
    esac
    rm -f "$work/$model".*
done
echo
cat "$results"
