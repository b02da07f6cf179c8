#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes torch_rnn.h: an LSTM and a GRU of PyTorch in float64, their results and gradients.

usage: make_torch_rnn.py >torch_rnn.h
"""
import textwrap

import torch

BATCH, LENGTH, INPUTS, WIDTH = 2, 5, 3, 4


def rows(name, values):
    text = ", ".join(f"{float(x):.9g}" for x in values.flatten())
    print(f"static const double torch_{name}[] = {{")
    print(textwrap.fill(text, 99, initial_indent="    ", subsequent_indent="    ") + "};")


torch.manual_seed(5)
torch.set_default_dtype(torch.float64)
x = torch.randn(BATCH, LENGTH, INPUTS).float().double()
weight = torch.randn(BATCH, LENGTH, WIDTH).float().double()
print("/* SPDX-License-Identifier: Apache-2.0 */")
print(f"/* Made by make_torch_rnn.py with PyTorch {torch.__version__}. */")
print("/* clang-format off */")
print(f"enum {{ TORCH_BATCH = {BATCH}, TORCH_LENGTH = {LENGTH}, TORCH_INPUTS = {INPUTS}, "
      f"TORCH_WIDTH = {WIDTH} }};")
rows("x", x)
rows("weight", weight)
for name, kind in ("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU):
    net = kind(INPUTS, WIDTH, batch_first=True)
    net.load_state_dict({k: v.float().double() for k, v in net.state_dict().items()})
    y, last = net(x)
    last = torch.cat(last) if name == "lstm" else last
    loss = (y * weight).sum() + (last[-1] ** 2).sum()
    loss.backward()
    rows(f"{name}_y", y.detach())
    rows(f"{name}_last", last.detach())
    for key, p in net.named_parameters():
        rows(f"{name}_{key}", p.detach())
        rows(f"{name}_{key}_gradient", p.grad)
