#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A step of LoRA on a Llama shape by PyTorch: random frozen bf16 weights, adapters on all linear layers of the blocks in bf16 with
fp32 masters, fused AdamW, clipping, compiled blocks, the loss in chunks of rows that are recomputed in the backward pass.

    pip install torch
    python3 peer_lora.py --model llama3.1-8B --length 8192 --checkpoints

The model is written out, so neither transformers nor peft is needed. Prints a JSON line: milliseconds of a step (the median without
the first three), bytes at the peak of the allocator and of the process on the device.
"""

import argparse
import json
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

# width, layers, heads, heads of keys, width of a head, MLP, vocabulary, bias of q, k and v
SIZES = {"llama3.1-8B": (4096, 32, 32, 8, 128, 14336, 128256, False), "llama3.2-1B": (2048, 16, 32, 8, 64, 8192, 128256, False),
         "qwen2.5-7B": (3584, 28, 28, 4, 128, 18944, 152064, True), "qwen2.5-14B": (5120, 48, 40, 8, 128, 13824, 152064, True),
         "tiny-llama": (64, 2, 4, 2, 16, 96, 256, False)}


def read_options():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="llama3.1-8B", choices=SIZES)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--length", type=int, default=8192)
    p.add_argument("--lora-rank", type=int, default=16)
    p.add_argument("--loss-chunk", type=int, default=4096)
    p.add_argument("--checkpoints", action="store_true")
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--eager", action="store_true")
    p.add_argument("--device", default="cuda")
    return p.parse_args()


class Linear(nn.Module):
    """A frozen layer with an adapter of rank r, scaled by alpha / r = 1."""

    def __init__(self, n_in, n_out, rank, bias=False):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_out, n_in).normal_(0, 0.02), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(n_out), requires_grad=False) if bias else None
        self.a = nn.Parameter(torch.empty(rank, n_in).normal_(0, n_in**-0.5))
        self.b = nn.Parameter(torch.zeros(n_out, rank))

    def forward(self, x):
        return F.linear(x, self.weight, self.bias) + F.linear(F.linear(x, self.a), self.b)


def frozen(*shape):
    return nn.Parameter(torch.ones(shape) if len(shape) == 1 else torch.empty(shape).normal_(0, 0.02), requires_grad=False)


def turn(x, cos, sin):
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


class Block(nn.Module):
    def __init__(self, width, heads, keys, head, mlp, bias, rank):
        super().__init__()
        self.heads, self.keys, self.head = heads, keys, head
        self.norm1, self.norm2 = frozen(width), frozen(width)
        self.q = Linear(width, heads * head, rank, bias)
        self.k = Linear(width, keys * head, rank, bias)
        self.v = Linear(width, keys * head, rank, bias)
        self.o = Linear(heads * head, width, rank)
        self.gate, self.up = Linear(width, mlp, rank), Linear(width, mlp, rank)
        self.down = Linear(mlp, width, rank)

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        split = lambda y, n: y.view(batch, length, n, self.head).transpose(1, 2)
        y = F.rms_norm(x, (width,), self.norm1, 1e-5)
        q, k, v = split(self.q(y), self.heads), split(self.k(y), self.keys), split(self.v(y), self.keys)
        y = F.scaled_dot_product_attention(turn(q, cos, sin), turn(k, cos, sin), v, is_causal=True,
                                           enable_gqa=self.heads != self.keys)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, -1))
        y = F.rms_norm(x, (width,), self.norm2, 1e-5)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self, o):
        super().__init__()
        width, layers, heads, keys, head, mlp, vocabulary, bias = SIZES[o.model]
        self.tokens, self.norm, self.head = frozen(vocabulary, width), frozen(width), frozen(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, keys, head, mlp, bias, o.lora_rank) for _ in range(layers))
        angle = torch.arange(o.length).float()[:, None] / 5e5 ** (torch.arange(0, head, 2).float() / head)
        angle = torch.cat([angle, angle], -1)
        self.cos, self.sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)

    def loss_of_rows(self, x, targets):
        x = F.rms_norm(x, (x.shape[-1],), self.norm, 1e-5)
        return F.cross_entropy(F.linear(x, self.head).float(), targets, reduction="sum")

    def forward(self, ids, targets, o):
        x = F.embedding(ids, self.tokens)
        x.requires_grad_()
        for block in self.blocks:
            x = checkpoint(block, x, self.cos, self.sin, use_reentrant=False) if o.checkpoints else block(x, self.cos, self.sin)
        rows, targets = x.reshape(-1, x.shape[-1]), targets.reshape(-1)
        parts = zip(rows.split(o.loss_chunk), targets.split(o.loss_chunk))
        return sum(checkpoint(self.loss_of_rows, a, b, use_reentrant=False) for a, b in parts) / len(targets)


def step(model, weights, masters, optimizer, batch, o):
    loss = model(*batch, o)
    loss.backward()
    for w, m in zip(weights, masters):
        m.grad, w.grad = w.grad.float(), None
    torch.nn.utils.clip_grad_norm_(masters, 1.0)
    optimizer.step()
    with torch.no_grad():
        torch._foreach_copy_(weights, masters)
    return loss


def main():
    o = read_options()
    torch.manual_seed(0)
    torch.set_default_device(o.device)
    torch.set_default_dtype(torch.bfloat16)
    model = Model(o)
    if not o.eager:
        for block in model.blocks:
            block.compile()
        model.loss_of_rows = torch.compile(model.loss_of_rows)
    weights = [w for w in model.parameters() if w.requires_grad]
    masters = [nn.Parameter(w.detach().float()) for w in weights]
    optimizer = torch.optim.AdamW(masters, 2e-4, weight_decay=0, fused=o.device == "cuda")
    wait = torch.cuda.synchronize if o.device == "cuda" else (lambda: None)
    times, losses, result = [], [], {"trained": sum(w.numel() for w in weights)}
    for _ in range(o.steps):
        ids = torch.randint(0, SIZES[o.model][6], (o.batch, o.length + 1))
        wait()
        begin = time.perf_counter()
        loss = step(model, weights, masters, optimizer, (ids[:, :-1], ids[:, 1:]), o)
        wait()
        times.append(time.perf_counter() - begin)
        losses.append(round(loss.item(), 3))
    kept = sorted(times[3:] or times)
    result.update(ms=round(1e3 * kept[len(kept) // 2], 2), losses=losses)
    if o.device == "cuda":
        free, total = torch.cuda.mem_get_info()
        result.update(peak_gib=round(torch.cuda.max_memory_allocated() / 2**30, 2), process_gib=round((total - free) / 2**30, 2))
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
