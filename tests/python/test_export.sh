#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The GPT-2 of examples/python, exported by the PyTorch that is here, is planned.  Skipped without one.
set -eu
python3 -c 'import torch, torch.export.pt2_archive' 2>/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

GPT2_SMALL=1 python3 -B "${srcdir:-.}/examples/python/gpt2.py" "$work/gpt2.pt2"
./ckpt import "$work/gpt2.pt2" >"$work/said"
grep -q '^parameters  *16 tensors, 70592 values' "$work/said" || { cat "$work/said" && exit 1; }
./ckpt plan --pt2 "$work/gpt2.pt2" --machine rtx4090 >/dev/null
