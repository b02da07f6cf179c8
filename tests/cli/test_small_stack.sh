#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Programs run with a stack of 128 KiB, as batch systems set and as threads have with musl.
. "${srcdir:-.}/tests/model/programs.sh"
data=$root/examples/data
vae=${VAE_TRAIN:-./vae-train}
[ -x "$vae" ] || exit 77
(ulimit -s 128) 2>/dev/null || exit 77

# small TEXT COMMAND...
small() {
    said=$1
    shift
    [ -x "$1" ] || return
    # shellcheck disable=SC2016
    runs "$said" sh -c 'ulimit -s 128 && exec "$@"' sh "$@"
}

yes "some text to train on" | head -n 20 >"$work/text"
small weights "${LM_TRAIN:-./lm-train}" --threads 2 --layers 1 --hidden 32 --mlp 64 --heads 2 --length 16 \
    --batch 2 --steps 2 --data "$work/text" --save "$work/w"
small weights "${LM_TRAIN:-./lm-train}" --threads 1 --layers 1 --hidden 32 --mlp 64 --heads 2 --length 16 \
    --batch 2 --steps 2 --data "$work/text" --load "$work/w" --save "$work/w"
small weights "$vae" --size 16x16 --lengths 1 --image-share 0 --batch 1 --threads 2 --video "$data/bunny.rgb" \
    --steps 1 --save "$work/vae"
small "in $work/z" "${VAE_ENCODE:-./vae-encode}" --model tiny --load "$work/vae" --threads 2 "$data/bunny.rgb" "$work/z"
small "is written" "${VIDEO_ENCODE:-./video-encode}" --vae "$work/vae" --vae-model tiny --data "$data/bunny.rgb" \
    --size 16x16 --frames 5 --threads 2 --output "$work/cache"
small sampled "${STDIT_TRAIN:-./stdit-train}" --video "$data/bunny.rgb" --hidden 24 --heads 2 --depth 1 --steps 1 \
    --sample-steps 1 --threads 2 --out "$work/out.d"
small memory: "${VOLUME_TRAIN:-./volume-train}" --data "$root/tests/volume/reference.csv" --classes 4 --levels 2 \
    --width 4 --patch 8x8x8 --batch 1 --steps 1
small memory: "${COGVIDEO_TRAIN:-./cogvideo-train}" --model "$root/tests/cogvideo/5b" --snr-shift 1 \
    --features "$root/tests/cogvideo/5b/step.safetensors" --batch 2 --steps 1
finish
