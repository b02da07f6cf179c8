#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Where the time of steps goes and the least that it could be, by unit: a row of floor.py for each
# model and budget, from plans alone.  With STEPS each step also runs on the GPU, and the row has
# what it took and the times of its ops in it.
#
# usage: bench-floor.sh; ROWS chooses some of the rows below, MACHINE names a machine file, ALONE a
# file of floor.py --time, OUT a folder that keeps graphs and plans, COGVIDEO a directory with the
# config.json of CogVideoX-5B, without which its rows are left out.
set -eu

here=$(dirname "$0")
python=${PYTHON:-python3}
machine=${MACHINE:-$here/../../machines/h200-141.json}
out=${OUT-}
[ -n "$out" ] || { out=$(mktemp -d) && trap 'rm -rf "$out"' EXIT; }

stdit='stdit-train --model XL/2 --ema-decay 0 --sample-steps 0'
cogvideo="cogvideo-train --model ${COGVIDEO-} --random --data random"
lm='lm-train --data random'
rows="stdit-13800-free|$stdit --latent 15x46x80 --vram none
stdit-13800-26G|$stdit --latent 15x46x80 --vram 26G
stdit-13800-24G+64G|$stdit --latent 15x46x80 --vram 24G --host 64G
stdit-13800-12G+64G|$stdit --latent 15x46x80 --vram 12G --host 64G
stdit-54000-28G|$stdit --latent 15x90x160 --vram 28G
stdit-54000-24G+64G|$stdit --latent 15x90x160 --vram 24G --host 64G
vae-17x256x256|vae-train --model v1.2 --ema-decay 0 --random 17x256x256 --vram none
cogvideo-lora-free|$cogvideo --lora-rank 128 --vram none
cogvideo-lora-24G|$cogvideo --lora-rank 128 --vram 24G
cogvideo-full-24G+100G|$cogvideo --vram 24G --host 100G
gpt2-124M|$lm --model gpt2-124M --vocabulary 50304 --length 1024 --batch 64 --vram none
gpt2-1558M|$lm --model gpt2-1558M --vocabulary 50304 --length 1024 --batch 16 --vram none
bert-base|$lm --model bert-base --vocabulary 30528 --length 512 --batch 64 --vram none"

# row NAME COMMAND
row() {
    base=$out/$1 log=$out/$1.log times=$machine
    options="--dtype bf16 --grad-dtype bf16"
    case $2 in vae-*) options="--dtype bf16" ;; esac
    set -- "$1" "$2 $options --machine $machine --graph-out $base.graph --plan-out $base.plan"
    if [ -n "${STEPS-}" ]; then
        set -- "$1" "$2 --device cuda --steps $STEPS --log $log --machine-out $base.machine"
        times=$base.machine
    else
        set -- "$1" "$2 --plan-only"
    fi
    # shellcheck disable=SC2086
    if ! ./$2 >"$base.out" 2>&1; then
        printf '%s failed: %s\n' "$1" "$(tail -n 1 "$base.out")" >&2
        return
    fi
    measured=
    [ -z "${STEPS-}" ] || measured=$(sed -n 's/.*"step": .*"ms": \([^,]*\),.*/\1/p' "$log" |
        tail -n +4 | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
    # shellcheck disable=SC2086
    $python "$here/floor.py" "$base.graph" "$base.plan" --machine "$times" --name "$1" \
        ${ALONE:+--alone "$ALONE"} ${measured:+--measured $measured} $head
    head=
}

head=--head
echo "$rows" >"$out/rows"
while IFS='|' read -r name command <&3; do
    case $name in cogvideo-*) [ -n "${COGVIDEO-}" ] || continue ;; esac
    case " ${ROWS:-$name} " in
    *" $name "*) row "$name" "$command" ;;
    esac
done 3<"$out/rows"
