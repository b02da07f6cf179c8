#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A PyTorch model becomes a graph that ckpt plans: the same weights, moments and gradients as in the
# graph next to this test, for any version of PyTorch.  Skipped without PyTorch.
set -eu
here=${srcdir:-.}/tests/python
python3 -c 'import torch, torch.export, torch.utils.flop_counter' 2>/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 "$here/check_export.py" "$work/gpt2.graph"
for graph in "$work/gpt2.graph" "$here/gpt2-small.graph"; do
    ./ckpt plan --graph "$graph" | grep -E '^    (parameters|optimizer state|gradients) ' \
        >"$work/$(basename "$graph" .graph).txt"
done
cmp "$work/gpt2.txt" "$work/gpt2-small.txt" || { echo "FAIL: $(cat "$work/gpt2.txt")" && exit 1; }
./ckpt plan --graph "$work/gpt2.graph.sort" >/dev/null
