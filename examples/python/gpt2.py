#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPT-2 in plain PyTorch, exported without a weight, to be planned on any computer.

    python3 gpt2.py gpt2.pt2
    ckpt plan --pt2 gpt2.pt2 --machine rtx4090 --vram 5G
"""
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

# The 124M model on 4 samples of 1024 tokens; GPT2_SMALL=1 is one that a test exports in a second.
SMALL = os.environ.get("GPT2_SMALL") == "1"
LAYERS, HEADS, WIDTH = (1, 2, 64) if SMALL else (12, 12, 768)
VOCABULARY, LENGTH, BATCH = (256, 64, 2) if SMALL else (50257, 1024, 4)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.c_out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(width, dim=2)
        q, k, v = (h.view(batch, length, HEADS, -1).transpose(1, 2) for h in (q, k, v))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(h.transpose(1, 2).reshape(batch, length, width))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)

    def forward(self, tokens, label):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.h:
            x = block(x)
        scores = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(scores.flatten(0, 1), label.flatten())


if __name__ == "__main__":
    with torch.device("meta"):
        model, tokens = GPT2().train(), torch.zeros(BATCH, LENGTH, dtype=torch.int64)
        exported = torch.export.export(model, (tokens, tokens.clone()), strict=False)
    torch.export.save(exported, sys.argv[1])
