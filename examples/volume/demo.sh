#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Phantoms: eight to learn from, Dice and a picture of two others.  usage: demo.sh DIRECTORY, with
# the programs in $PROGRAMS.
set -e
bin=${PROGRAMS:-.} out=$1
rm -rf "$out"
mkdir -p "$out"
"$bin/examples/volume/phantom" "$out" 10 40
sed '10,11d' "$out/list.csv" >"$out/train.csv"
sed '2,9d' "$out/list.csv" >"$out/new.csv"
"$bin/volume-train" --data "$out/train.csv" --classes 3 --levels 3 --width 8 --patch 24x24x24 \
    --steps 250 --lr 5e-3 --schedule cosine --save "$out/weights.safetensors"
"$bin/volume-infer" --data "$out/new.csv" --classes 3 --levels 3 --width 8 --window 24x24x24 \
    --load "$out/weights.safetensors" --output "$out/labels" --picture "$out/slices.png"
