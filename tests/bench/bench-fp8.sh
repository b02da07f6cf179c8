#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The price of --matmul fp8, --activations 8bit or --state 8bit in training: a small
# STDiT3 on the included clip and a small GPT-2 on the included text learn in bf16, from a few seeds,
# without and with the mode.  Seeds show the difference between runs by chance alone.  Prints the mean
# loss of the last tenth of the steps.  On the CPU a run has one thread.
#
# usage: [MODE=matmul|activations|state] [MODES="bf16 fp8"] [SEEDS="42 43 44"] [LOGS=DIR]
#        bench-fp8.sh [STEPS [stdit|lm]]
# MODES: the modes to run (default: all).  LOGS: keeps the logs there, for loss_curves.py.
# CKPT_DEVICE=cuda runs it on a GPU.
set -eu

stdit=${STDIT_TRAIN:-./stdit-train} lm=${LM_TRAIN:-./lm-train}
data=${srcdir:-.}/examples/data docs=${srcdir:-.}/doc
steps=${1:-2000} models=${2:-stdit lm} mode=${MODE:-matmul}
case $mode in
matmul) narrow=fp8 ;;
activations) narrow=8bit ;;
state) narrow="fp32 8bit" ;;
*) echo "bench-fp8.sh: MODE=$mode: known are matmul, activations and state" >&2; exit 2 ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
CKPT_DEVICE=${CKPT_DEVICE-cpu} CKPT_THREADS=1
export CKPT_DEVICE CKPT_THREADS

# train MODEL OPTION...
train() {
    model=$1
    shift
    rm -f "$work/log"
    if [ "$model" = stdit ]; then
        set -- "$stdit" --model tiny --hidden 128 --video "$data/bunny.rgb" --size 16x16 --frames 4 \
            --sample-steps 0 --out "$work/pictures" "$@"
    else
        set -- "$lm" --model tiny --hidden 128 --heads 4 --layers 3 --length 128 --batch 2 \
            --data "$docs/design.md" "$@"
    fi
    if ! "$@" --dtype bf16 --steps "$steps" --log "$work/log" >"$work/out" 2>&1; then
        cat "$work/out" >&2
        exit 1
    fi
}

# The mean of the last tenth of the losses.
last_losses() {
    sed -n 's/.*"step": *[0-9]*,.*"loss": *\([^,}]*\).*/\1/p' "$work/log" | awk -v steps="$steps" '
        NR > steps - steps / 10 { sum += $1; n++ }
        END { if (!n) exit 1; printf "%.5f\n", sum / n }'
}

# run MODEL SEED DTYPE
run() {
    train "$1" --seed "$2" "--$mode" "$3"
    [ -z "${LOGS-}" ] || cp "$work/log" "$LOGS/$1-$2-$mode-$3.json"
    printf '%-6s seed %d, --%s %-9s  mean loss of the last %d steps %s\n' "$1" "$2" "$mode" "$3" \
        $((steps / 10)) "$(last_losses)"
}

for model in $models; do
    for seed in ${SEEDS:-42 43 44}; do
        for dtype in ${MODES:-bf16 $narrow}; do
            run "$model" $seed $dtype
        done
    done
done
