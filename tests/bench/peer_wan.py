#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A step of fine-tuning a Wan shape by PyTorch: flow matching on random latents and texts, adapters on the linear layers of the
blocks (or all weights) in bf16 with fp32 masters, fused AdamW, clipping, compiled blocks.

    pip install torch
    python3 peer_wan.py --size 5B --grid 31x44x80 --lora-rank 32 --checkpoints
    python3 peer_wan.py --size A14B --grid 21x60x104 --checkpoints --swap 30

--grid: latent frames, rows and columns. --swap N: the weights of N blocks stay in pinned host memory; two buffers on the device take
them in turn, each copied while the block before it computes, as the programs do that people use. The model is written out, with one
row of modulation a sample, so diffusers is not needed. peer.py says what is printed.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import peer

# width, heads, layers, MLP, channels of the latents
SIZES = {"1.3B": (1536, 12, 30, 8960, 16), "5B": (3072, 24, 30, 14336, 48), "A14B": (5120, 40, 40, 13824, 16),
         "tiny": (256, 2, 4, 512, 16)}
TEXT_ROWS, TEXT_WIDTH, HEAD = 512, 4096, 128


def read_options():
    p = peer.options(__doc__.split("\n")[0])
    p.add_argument("--size", default="5B", choices=SIZES)
    p.add_argument("--grid", default="31x44x80", type=lambda text: [int(n) for n in text.split("x")])
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--lora-rank", type=int, default=32, help="0: all weights are trained")
    p.add_argument("--checkpoints", action="store_true")
    p.add_argument("--swap", type=int, default=0)
    o = p.parse_args()
    if o.swap and not (o.checkpoints and o.lora_rank):
        p.error("--swap: needs --checkpoints and frozen weights")
    return o


class Linear(nn.Module):
    def __init__(self, n_in, n_out, rank=0, trained=False):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_out, n_in).normal_(0, n_in**-0.5), requires_grad=trained)
        self.bias = nn.Parameter(torch.zeros(n_out), requires_grad=trained)
        self.a = nn.Parameter(torch.empty(rank, n_in).normal_(0, n_in**-0.5)) if rank else None
        self.b = nn.Parameter(torch.zeros(n_out, rank)) if rank else None

    def forward(self, x):
        y = F.linear(x, self.weight, self.bias)
        return y if self.a is None else y + F.linear(F.linear(x, self.a), self.b)


def rotate(x, cos, sin):
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, width, rank, trained):
        super().__init__()
        self.q, self.k, self.v, self.o = (Linear(width, width, rank, trained) for _ in range(4))
        self.norm_q, self.norm_k = (nn.Parameter(torch.ones(width), requires_grad=trained) for _ in range(2))

    def forward(self, x, source, turn=None):
        q, k = F.rms_norm(self.q(x), self.norm_q.shape, self.norm_q, 1e-6), self.k(source)
        k = F.rms_norm(k, self.norm_k.shape, self.norm_k, 1e-6)
        q, k, v = (y.unflatten(-1, (-1, HEAD)) for y in (q, k, self.v(source)))
        if turn is not None:
            q, k = rotate(q, *turn), rotate(k, *turn)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return self.o(y.transpose(1, 2).flatten(2))


def modulated(x, scale, shift):
    return (F.layer_norm(x.float(), x.shape[-1:], eps=1e-6) * (1 + scale) + shift).to(x.dtype)


class Block(nn.Module):
    def __init__(self, width, mlp, rank, trained):
        super().__init__()
        self.table = nn.Parameter(torch.empty(1, 6, width).normal_(0, 0.02), requires_grad=trained)
        self.attention, self.cross = Attention(width, rank, trained), Attention(width, rank, trained)
        self.norm, self.norm_bias = (nn.Parameter(f(width), requires_grad=trained) for f in (torch.ones, torch.zeros))
        self.up, self.down = Linear(width, mlp, rank, trained), Linear(mlp, width, rank, trained)

    def forward(self, x, m, text, cos, sin):
        shift1, scale1, gate1, shift2, scale2, gate2 = (self.table.float() + m).chunk(6, 1)
        y = modulated(x, scale1, shift1)
        x = (x.float() + gate1 * self.attention(y, y, (cos, sin))).to(x.dtype)
        x = x + self.cross(F.layer_norm(x, x.shape[-1:], self.norm, self.norm_bias, 1e-6), text)
        y = self.down(F.gelu(self.up(modulated(x, scale2, shift2)), approximate="tanh"))
        return (x.float() + gate2 * y).to(x.dtype)


class Swap:
    """Weights of the last n blocks in host memory; two buffers on the device."""

    def __init__(self, blocks, n):
        self.blocks, self.first, self.backward = blocks, len(blocks) - n, False
        self.stream = torch.cuda.Stream()
        frozen = [[p for p in b.parameters() if not p.requires_grad] for b in blocks]
        self.weights = dict(enumerate(frozen[self.first:], self.first))
        self.host = {i: [p.data.cpu().pin_memory() for p in w] for i, w in self.weights.items()}
        self.buffer = [[torch.empty_like(p) for p in frozen[-1]] for _ in range(2)]
        self.holds, self.ready, self.free = [None, None], [None, None], [None, None]
        for i, w in self.weights.items():
            for p, buffer in zip(w, self.buffer[i % 2]):
                p.data = buffer

    def fetch(self, i):
        slot = i % 2
        if i not in self.weights or self.holds[slot] == i:
            return
        with torch.cuda.stream(self.stream):
            if self.free[slot]:
                self.stream.wait_event(self.free[slot])
            for buffer, host in zip(self.buffer[slot], self.host[i]):
                buffer.copy_(host, non_blocking=True)
        self.holds[slot], self.ready[slot] = i, self.stream.record_event()

    def enter(self, i):
        """Before block i computes; the block that used the other buffer has been enqueued."""
        self.free[(i + 1) % 2] = torch.cuda.current_stream().record_event()
        self.fetch(i)
        if i in self.weights:
            torch.cuda.current_stream().wait_event(self.ready[i % 2])
        self.fetch(i - 1 if self.backward else i + 1)


class Model(nn.Module):
    def __init__(self, o):
        super().__init__()
        width, _, layers, mlp, self.channels = SIZES[o.size]
        trained = not o.lora_rank
        self.grid = (o.grid[0], o.grid[1] // 2, o.grid[2] // 2)
        linear = lambda a, b: Linear(a, b, 0, trained)
        self.patch, self.head = linear(4 * self.channels, width), linear(width, 4 * self.channels)
        self.text1, self.text2 = linear(TEXT_WIDTH, width), linear(width, width)
        self.time1, self.time2, self.rows = linear(256, width), linear(width, width), linear(width, 6 * width)
        self.table = nn.Parameter(torch.empty(1, 2, width).normal_(0, 0.02), requires_grad=trained)
        self.blocks = nn.ModuleList(Block(width, mlp, o.lora_rank, trained) for _ in range(layers))
        parts, axes = (HEAD - 4 * (HEAD // 6), 2 * (HEAD // 6), 2 * (HEAD // 6)), []
        for axis, (n, part) in enumerate(zip(self.grid, parts)):
            angle = torch.arange(n).float()[:, None] / 1e4 ** (torch.arange(0, part, 2).float() / part)
            shape = [1, 1, 1, -1]
            shape[axis] = n
            axes.append(angle.view(shape).expand(*self.grid, -1))
        angle = torch.cat(axes, -1).flatten(0, 2)[:, None]
        self.cos, self.sin, self.swap = angle.cos(), angle.sin(), None

    def block(self, i, *inputs):
        if self.swap:
            self.swap.enter(i)
        return self.blocks[i](*inputs)

    def forward(self, x, t, text, o):
        f = 1e3 * t.float()[:, None] / 1e4 ** (torch.arange(128).float() / 128)
        t = self.time2(F.silu(self.time1(torch.cat([f.cos(), f.sin()], -1).to(x.dtype))))
        m = self.rows(F.silu(t)).unflatten(-1, (6, -1)).float()
        x, text = self.patch(x), self.text2(F.gelu(self.text1(text), approximate="tanh"))
        if o.lora_rank:
            x.requires_grad_()
        for i in range(len(self.blocks)):
            inputs = (i, x, m, text, self.cos, self.sin)
            x = checkpoint(self.block, *inputs, use_reentrant=False) if o.checkpoints else self.block(*inputs)
        shift, scale = (self.table.float() + t.float()[:, None]).chunk(2, 1)
        return self.head(modulated(x, scale, shift))


def loss_of(model, o):
    places = model.grid[0] * model.grid[1] * model.grid[2]
    clean = torch.randn(o.batch, places, 4 * model.channels, dtype=torch.float32)
    noise, t = torch.randn_like(clean), torch.rand(o.batch, dtype=torch.float32)
    noisy = clean + t[:, None, None] * (noise - clean)
    text = torch.randn(o.batch, TEXT_ROWS, TEXT_WIDTH)
    if model.swap:
        model.swap.backward = False
    loss = F.mse_loss(model(noisy.to(text.dtype), t, text, o).float(), noise - clean)
    if model.swap:
        model.swap.backward = True
    return loss


def main():
    o = read_options()
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device(o.device)
    model = Model(o)
    if o.swap:
        model.swap = Swap(model.blocks, o.swap)
    if not o.eager:
        for block in model.blocks:
            block.compile()
    peer.run(o, model, lambda: (model, o), loss_of, 1e-4, 0.01)


if __name__ == "__main__":
    main()
