#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# STDiT3-XL/2 training on one GPU under a few budgets of the device and the host: predicted and
# measured step, what the process takes of the device, the ratio to the step without a budget in the
# same run and, where PEER names a command that takes "--mode M --grid HxW --frames N" and prints
# {"ms": ...}, the ratio to that.
#
# usage: bench-gpu.sh [STEPS]; ROWS chooses some of the rows below, MACHINE
# names a machine file, FLAGS are more options of stdit-train.
set -eu

train=${STDIT_TRAIN:-./stdit-train}
steps=${1:-12}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# name, latent, budgets of the device and the host, and the mode and grid of the peer
rows='13800-free      15x46x80   0    0     compile       23x40
13800-26G       15x46x80   26G  0     compile_ckpt  23x40
13800-24G+64G   15x46x80   24G  64G   -             -
13800-16G+64G   15x46x80   16G  64G   -             -
13800-12G+64G   15x46x80   12G  64G   -             -
54000-free      15x90x160  0    0     compile_ckpt  45x80
54000-28G       15x90x160  28G  0     compile_ckpt  45x80
54000-24G+64G   15x90x160  24G  64G   -             -'

median() {
    sort -n "$1" | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

# The last value of a member in the log.
logged() {
    sed -n "s/.*\"$1\": \([0-9.e+-]*\).*/\1/p" "$work/log" | tail -n 1
}

# peer MODE GRID: milliseconds, once per mode and grid
peer() {
    [ -n "${PEER-}" ] && [ "$1" != - ] || return 0
    known=$work/peer-$1-$2
    if [ ! -f "$known" ]; then
        # shellcheck disable=SC2086
        $PEER --mode "$1" --grid "$2" --frames 15 --steps 9 >"$work/peer.out" 2>"$work/peer.err" ||
            tail -n 5 "$work/peer.err" >&2
        sed -n 's/.*"ms": \([0-9.]*\).*/\1/p' "$work/peer.out" | tail -n 1 >"$known"
    fi
    cat "$known"
}

row() {
    rm -f "$work/log"
    if ! "$train" --model XL/2 --dtype bf16 --ema-decay 0 --latent "$2" --steps "$steps" \
        --vram "$3" --host "$4" --device cuda ${FLAGS-} --log "$work/log" ${MACHINE:+--machine "$MACHINE"} \
        --out "$work/pictures" >"$work/out" 2>&1; then
        printf '%-14s failed: %s\n' "$1" "$(tail -n 1 "$work/out")"
        return
    fi
    sed -n 's/.*"step": .*"ms": \([^,]*\),.*/\1/p' "$work/log" | tail -n +4 >"$work/ms"
    ms=$(median "$work/ms")
    [ "$3" != 0 ] || echo "$ms" >"$work/free-$2"
    awk -v name="$1" -v budget="$3" -v predicted="$(logged predicted_ms)" -v ms="$ms" \
        -v arena="$(logged arena_bytes)" -v process="$(logged process_bytes)" \
        -v free="$(cat "$work/free-$2" 2>/dev/null)" -v peer="$(peer "$5" "$6")" '
        BEGIN {
            gib = 1024 * 1024 * 1024
            printf "%-14s %7s %9.2f %9.2f %11.1f %11.1f %8.1f%% %7s %10s %7s\n", name,
                budget == "0" ? "none" : budget, arena / gib, process / gib, predicted, ms,
                100 * (predicted / ms - 1), free == "" ? "-" : sprintf("%.3f", ms / free),
                peer == "" ? "-" : peer, peer == "" ? "-" : sprintf("%.3f", ms / peer) }'
}

printf '%-14s %7s %9s %9s %11s %11s %9s %7s %10s %7s\n' tokens budget arena process predicted \
    measured error "to free" peer ratio
echo "$rows" | while read -r name latent budget host mode grid; do
    case " ${ROWS:-$name} " in
    *" $name "*) row "$name" "$latent" "$budget" "$host" "$mode" "$grid" ;;
    esac
done
