#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes torch_optimizers.h: what the optimizers of PyTorch make of given gradients, in float64.

usage: make_torch_optimizers.py >torch_optimizers.h
"""
import textwrap

import torch

STEPS, ROWS, COLS = 6, 5, 3

# Name, shape, optimizer, and the gradients scaled so that no two kinds see the same.
CASES = [
    ("sgd", (ROWS, COLS), lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.05)),
    ("momentum", (ROWS, COLS), lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, dampening=0.25, weight_decay=0.05)),
    ("nesterov", (ROWS, COLS), lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.05)),
    ("adamw", (ROWS, COLS), lambda p: torch.optim.AdamW(
        p, lr=0.1, betas=(0.8, 0.95), weight_decay=0.05)),
    ("adafactor", (ROWS, COLS), lambda p: torch.optim.Adafactor(
        p, lr=0.1, eps=(1e-7, 1e-3), weight_decay=0.05)),
    ("adafactor_vector", (ROWS * COLS,), lambda p: torch.optim.Adafactor(
        p, lr=0.1, eps=(1e-7, 1e-3))),
    ("muon_tall", (ROWS, COLS), lambda p: torch.optim.Muon(p, lr=0.1, weight_decay=0.05)),
    ("muon_wide", (COLS, ROWS), lambda p: torch.optim.Muon(
        p, lr=0.1, weight_decay=0, nesterov=False, adjust_lr_fn="match_rms_adamw")),
]


def rows(name, values):
    text = ", ".join(f"{float(x):.9g}" for x in values.flatten())
    print(f"static const double torch_{name}[] = {{")
    print(textwrap.fill(text, 99, initial_indent="    ", subsequent_indent="    ") + "};")


torch.manual_seed(1)
start = torch.randn(ROWS * COLS).double()
gradients = torch.randn(STEPS, ROWS * COLS).double()
print("/* SPDX-License-Identifier: Apache-2.0 */")
print(f"/* Made by make_torch_optimizers.py with PyTorch {torch.__version__}. */")
print("/* clang-format off */")
print(f"enum {{ TORCH_STEPS = {STEPS}, TORCH_ROWS = {ROWS}, TORCH_COLS = {COLS} }};")
rows("start", start)
rows("gradients", gradients)
for name, shape, make in CASES:
    w = start.clone().reshape(shape).requires_grad_(True)
    optimizer = make([w])
    for g in gradients:
        w.grad = g.clone().reshape(shape)
        optimizer.step()
    rows(name, w.detach())
