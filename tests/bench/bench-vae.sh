#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The video autoencoder of Open-Sora 1.2 on one GPU: encoding and decoding chunks of 17 frames of
# 720 x 1280 under a few budgets.  The time of a chunk is the mean after the first one, with
# all that reads and writes them; "wait" is the share that the host waited for the device.  Where
# PEER names a command that takes "--decode 1 --frames 17 --size 720x1280" and prints {"ms": ...}
# it runs first.
#
# usage: bench-vae.sh [CHUNKS]; ROWS chooses some of the rows below, WEIGHTS names a file of
# weights (else one is made), MACHINE a machine file, FLAGS are more options of the programs.
set -eu

chunks=${1:-8}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
model="--model v1.2 --dtype bf16 --device cuda ${MACHINE:+--machine $MACHINE} ${FLAGS-}"

# name, program, budget of the device, and whether the peer does that
rows='encode-free vae-encode 0   -
encode-12G  vae-encode 12G -
decode-free vae-decode 0   peer
decode-32G  vae-decode 32G peer
decode-12G  vae-decode 12G peer
decode-8G   vae-decode 8G  peer'

weights=${WEIGHTS:-$work/weights}
# shellcheck disable=SC2086
[ -n "${WEIGHTS-}" ] || ./vae-train $model --ema-decay 0 --random 1x64x64 --steps 1 \
    --save "$weights" >"$work/out" 2>&1 || { tail -n 2 "$work/out"; exit 1; }
{
    echo "RGBCLIP 1280 720 $((17 * chunks)) 24"
    head -c $((17 * chunks * 720 * 1280 * 3)) /dev/urandom
} >"$work/clip.rgb"
# shellcheck disable=SC2086
./vae-encode $model --load "$weights" "$work/clip.rgb" "$work/latents" >"$work/out" 2>&1 ||
    { tail -n 2 "$work/out"; exit 1; }
peer=
if [ -n "${PEER-}" ]; then
    $PEER --decode 1 --frames 17 --size 720x1280 >"$work/peer" 2>"$work/err" || tail -n 5 "$work/err" >&2
    peer=$(sed -n 's/.*"ms": \([0-9.]*\).*/\1/p' "$work/peer" | tail -n 1)
fi

# row NAME PROGRAM BUDGET PEER
row() {
    in=$work/latents out=$work/back.rgb begin=$(date +%s)
    [ "$2" = vae-decode ] || in=$work/clip.rgb out=$work/again
    # shellcheck disable=SC2086
    if ! ./$2 $model --load "$weights" --vram "$3" "$in" "$out" >"$work/out" 2>"$work/err"; then
        printf '%-12s failed: %s\n' "$1" "$(tail -n 1 "$work/err")"
        return
    fi
    total=$(($(date +%s) - begin))
    awk -v name="$1" -v budget="$3" -v total=$total -v peer="$([ "$4" = - ] || echo "$peer")" '
        /^  predicted step/ { predicted = $3 * ($4 == "s" ? 1000 : 1) }
        /^2-D part:.*at a time/ { part = $3 }
        /^2-D part:.*bands/ { bands = $5 }
        /^time:/ { ms = $2; wait = $12 }
        /^memory:/ { process = $7 == "takes" ? $8 " " $9 : "-" }
        END {
            printf "%-12s %6s %6s %5s %11s %11.1f %11.1f %6s %% %6d s %9s %7s\n", name,
                budget == "0" ? "none" : budget, part == "" ? 17 : part, bands == "" ? 1 : bands,
                process, predicted, ms, wait, total, peer == "" ? "-" : peer,
                peer == "" ? "-" : sprintf("%.3f", ms / peer) }' "$work/out"
}

printf '%-12s %6s %6s %5s %11s %11s %11s %8s %8s %9s %7s\n' row budget frames bands process \
    predicted measured wait total peer ratio
echo "$rows" | while read -r name program budget by; do
    case " ${ROWS:-$name} " in
    *" $name "*) row "$name" "$program" "$budget" "$by" ;;
    esac
done
