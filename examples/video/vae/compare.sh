#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares normally distributed latents with codebook entries: runs vae-train twice, on the same
# clip, with the same seed, steps and budget, and prints a table of the results.
#
# usage: compare.sh DIRECTORY [OPTION OF vae-train]...
set -eu

train=${VAE_TRAIN:-./vae-train}
out=${1:?"a directory to write to"}
shift
mkdir -p "$out"

# number PATTERN FILE: the text matched by \( \) in the last matching line.
number() {
    sed -n "s/.*$1.*/\1/p" "$2" | tail -n 1
}

for quantizer in kl vq; do
    rm -f "$out/$quantizer.log"
    "$train" --quantizer $quantizer --vram 12M --output "$out/$quantizer" --log "$out/$quantizer.log" \
        --save "$out/$quantizer.safetensors" "$@" >"$out/$quantizer.txt"
done

# Reconstruction loss: the mean difference of a value, over the first and over the last ten steps.
row() {
    printf '%-8s %6s %12s %12s %10s %12s %12s\n' "$@"
}

row latents steps 'loss before' after PSNR perplexity 'peak bytes'
for quantizer in kl vq; do
    text=$out/$quantizer.txt log=$out/$quantizer.log
    row $quantizer "$(number '"step": \([0-9]*\),' "$log")" \
        "$(number 'value: \([0-9.]*\) over' "$text")" \
        "$(number 'steps, \([0-9.]*\) over' "$text")" \
        "$(number 'PSNR \([0-9.]* dB\)' "$text")" \
        "$(number 'perplexity \([0-9.]*\)' "$text" | grep . || echo -)" \
        "$(number '"arena_bytes": \([0-9]*\),' "$log")"
done
