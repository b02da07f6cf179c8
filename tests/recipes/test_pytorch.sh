#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of doc/recipe-pytorch.md and doc/import.md, on a CPU with a tiny GPT-2 that PyTorch exported.
. "${srcdir:-.}/tests/recipes/pages.sh"
home=$work/home
program ckpt
program pt2-train --device cpu --threads 1 --steps 3
for name in pt2 safetensors; do
    gzip -dc "$root/tests/import/models/gpt2.$name.gz" >"$home/model.$name" || exit 77
done
[ -x tests/pt2/shards ] || exit 77
mkdir "$work/samples"
tests/pt2/shards "$home/model.safetensors" "$work/samples" 8 1 || fail "no samples"
rm "$home/model.safetensors"
cp "$work/samples"/*.safetensors "$home/train.safetensors"
run_page doc/recipe-pytorch.md 4
for file in tuned.safetensors tuned.pt2 adapter_model.safetensors merged.safetensors report.txt; do
    [ -s "$home/$file" ] || fail "no $file"
done
run_page doc/import.md 3
[ -s "$home/model.c" ] || fail "no model in C"
runs "inputs" ./ckpt import "$home/tuned.pt2"
finish
