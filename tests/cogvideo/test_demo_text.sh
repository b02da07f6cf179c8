#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make demo-text`, smaller: each of four prompts samples the clip that was trained with it, nearer
# than the three others; a picture shows it; clips of other prompts are recognized as such.
set -u

. "${srcdir:-.}/tests/model/programs.sh"

programs=$(pwd)
demo() {
    (cd "$root" && DEMO_SIZE=16x12 DEMO_FRAMES=3 DEMO_HEADS=2 DEMO_LAYERS=2 DEMO_STEPS=700 \
        DEMO_FLAGS="--threads 1 --device cpu" PROGRAMS=$programs sh examples/video/cogvideo/text_demo.sh "$work/demo")
}

if ! demo >"$work/out" 2>"$work/err"; then
    grep -q "built without" "$work/err" && exit 77
    fail "$(tail -n 3 "$work/err") $(tail -n 8 "$work/out")"
fi
[ "$(tail -n 1 "$work/out")" = "$work/demo/prompts.png" ] || fail "the last line: $(tail -n 1 "$work/out")"
head -c 4 "$work/demo/prompts.png" | grep -aq PNG || fail "no picture"
[ "$(grep -c '^  *[0-9.]* *[0-9.]* *[0-9.]* *[0-9.]*$' "$work/out")" = 4 ] || fail "no distances: $(cat "$work/out")"

show=./examples/video/cogvideo/text_clips
data=$work/demo/data drawn=$work/demo/drawn
refuses 1 "did not draw its own clip" "$show" show "$work/x.png" "$data/meadow.safetensors" \
    "$data/night.safetensors" "$drawn/night/latents-1.safetensors" "$drawn/meadow/latents-1.safetensors"
refuses 1 "as many drawn" "$show" show "$work/x.png" "$data/meadow.safetensors"
refuses 1 'no tensor "encoded_video"' "$show" show "$work/x.png" "$work/demo/prompts.safetensors" \
    "$drawn/night/latents-1.safetensors"
refuses 1 "text_clips make" "$show" make

finish
