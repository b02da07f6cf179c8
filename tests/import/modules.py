# SPDX-License-Identifier: Apache-2.0
"""Models of make_models.py that are written out here."""
import math

import torch
from torch import nn
from torch.nn import functional as F


class Probe(nn.Module):
    """Every kind of name that an archive has: tied, transposed, constant, kept and changing buffers."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 12, padding_idx=0)
        self.tied = nn.Linear(12, 40, bias=False)
        self.tied.weight = self.embed.weight
        self.turned = nn.Parameter(torch.randn(12, 12).t() * 0.3)
        self.mlp = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 12))
        self.register_buffer("scale", torch.rand(12) + 0.5)
        self.register_buffer("shift", torch.rand(12), persistent=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("average", torch.zeros(12))
        self.unused = nn.Parameter(torch.randn(3))

    def forward(self, ids, weights):
        self.calls.add_(1)
        x = self.embed(ids) * self.scale + self.shift
        x = x @ self.turned
        with torch.no_grad():
            self.average.mul_(0.9).add_(x.mean((0, 1)), alpha=0.1)
        x = F.layer_norm(x + self.mlp(x), (12,)) * torch.tensor([1.0, 2.0, 3.0] * 4)
        return {"logits": self.tied(x), "mean": (x * weights[..., None]).sum(1)}


class Norms(nn.Module):
    """A CNN whose normalisations keep running statistics."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8),
                                   nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.deep = nn.Sequential(nn.Conv2d(8, 8, 3, padding="same", groups=8), nn.Hardswish(),
                                  nn.Conv2d(8, 16, 1), nn.BatchNorm2d(16, momentum=0.3), nn.SiLU(inplace=True))
        self.head = nn.Linear(16, 10)

    def forward(self, image, label):
        x = self.deep(self.first(image))
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        return F.cross_entropy(self.head(x), label, label_smoothing=0.1)


class Settings(nn.Module):
    """Settings of ops that change the result and that few models have."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4))
        self.kernel = nn.Parameter(torch.randn(4, 4, 3))
        self.table = nn.Parameter(torch.randn(4, 3, 5))

    def forward(self, x, row, column):
        y = x * self.w
        out = [y.var(-1, unbiased=False), y.std(1, unbiased=False), F.softplus(y, beta=2, threshold=1), y.T]
        out.append(F.conv1d(y, self.kernel, padding="valid", stride=2))
        out.append(y.to(torch.float32, copy=True).add_(1) * y)
        out.append(torch.where(x.bfloat16() > x * 1.001, y, self.w) + torch.where((row > 0) == row, self.w, y))
        out.append(self.w * torch.full((4,), 2.7, dtype=torch.int64) * torch.tensor([300, 5, -1, 2]).to(torch.uint8))
        out.append(self.table[row, :, column - 2])
        out.append(torch.view_as_real(torch.view_as_complex(y[..., :2].contiguous()) * 2 + 1))
        seen = torch.ones(2, 4, dtype=torch.bool).tril(2)
        out.append(F.scaled_dot_product_attention(y[:, None, :2], y[:, None], y[:, None, :, :3], attn_mask=seen))
        zero = self.w - self.w.detach()
        out.append(torch.stack([zero, 2 * zero]).max(0)[0] * 3 + torch.stack([zero, 3 * zero]).min(0)[0])
        return tuple(out)


class Written(nn.Module):
    """Writes by index: of several axes, with and without accumulation, by masks; counts; groups of rows."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(8))
        self.values = nn.Parameter(torch.randn(4, 8))
        self.experts = nn.Parameter(torch.randn(3, 8, 4))

    @staticmethod
    def products(x, w, ends):
        if x.dtype != torch.float64:  # grouped products have none
            return F.grouped_mm(x, w, offs=ends)
        begins = [0] + ends.tolist()
        return torch.cat([x[b:e] @ w[i] for i, (b, e) in enumerate(zip(begins, begins[1:]))])

    def forward(self, x, order, repeated, expert, column):
        y = x * self.w
        out = [y[torch.zeros(4, dtype=torch.int64), column]]
        a = y.clone()
        a[order] = a[order] + self.values  # every place once
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(order.shape[0])
        out.append(a[inverse, 1:])
        b = torch.zeros(4, 3, 8, dtype=x.dtype)
        b[order, :, repeated] = self.values[:, :3]  # axes that are no neighbours
        b[order, inverse % 3, 1] = y[:, 2]
        b[torch.tensor([0, -1])] = 2.0
        b[:, torch.tensor([2, 0])] = torch.tensor([7.0], dtype=x.dtype)
        out.append(b * y[:, None])
        c = y.index_put((repeated,), self.values, accumulate=True)
        c[repeated] = 0.25  # all writers of a place agree
        out.append(c.index_add(1, repeated, y[:, :4], alpha=0.5))
        d = y.index_put((order[:, None], repeated[None]), self.values[:1, :4], accumulate=True)
        d[x > 0.3] = 0.5
        d[y.sum(1) > 0] = self.w
        out.append(torch.zeros_like(d).scatter_(1, repeated[:, None], 1.5) * d)
        last = torch.zeros(4, dtype=torch.int64)
        last[repeated] = order  # in order, as PyTorch does for so few
        out.append(y * last[:, None])
        e = torch.zeros(4, dtype=torch.int64).index_put((repeated,), order, accumulate=True)
        counts = torch.histc(repeated.float() - 1, bins=5, min=-1, max=2)
        out.append(self.w[:5] * counts + e.float().sum())
        rank, place = torch.sort(expert.reshape(-1))
        ends = torch.cumsum(torch.histc(rank.float(), bins=3, min=0, max=2), 0, dtype=torch.int32)
        f = self.products(y[place // 2], self.experts, ends)
        out.append(f @ self.experts[0].t() * y[place // 2])
        return tuple(out)


class Edges(nn.Module):
    """Values at which functions bend, numbers that round, and settings of pictures, windows and losses."""

    def __init__(self):
        super().__init__()
        bends = [-6, -3, -2.5, -1, -0.5, 0, 0.5, 1, 1.5, 2.5, 3, 6]
        self.w = nn.Parameter(torch.tensor(bends, dtype=torch.float32).view(3, 4))
        self.v = nn.Parameter(torch.randn(3, 2, 3))
        self.g = nn.Parameter(torch.rand(1, 1, 3) + 0.5)
        self.columns = nn.Parameter(torch.randn(1, 12, 9))

    def bends(self):
        w = self.w
        out = [w.clamp(-1.0, 1.5), w.clamp(min=0.5), w.clamp_max(1.0), torch.clamp(w, w.detach(), w.detach() + 1)]
        out += [F.relu6(w), F.hardtanh(w, -1.0, 2.5), F.hardswish(w), F.hardsigmoid(w), F.elu(w, 0.7), F.selu(w)]
        out += [F.celu(w, 0.7), F.threshold(w, 0.5, 2.0), F.hardshrink(w, 1.0), F.softshrink(w, 1.0)]
        out += [F.glu(w, 1).repeat(1, 2), w.clamp(2.0, -1.0) + w]
        out += [torch.fmod(w * 1.3, 2.0), torch.cdist(w, w).repeat(1, 2)[:, :4], w**0 * w, torch.frac(w) * w]
        return torch.stack(out)

    def numbers(self, x):
        """Angles in the thousands show how numbers are rounded; truth values add to truth values."""
        angle = 10000.0 ** torch.linspace(0.0, 1.0, 40) * math.pi / 2.0 * (x[0, 0] * 0 + 0.3)
        half = (torch.arange(4) / 7.0 + 0.6).half().float()
        truth = ((x > 0) + (x > 1)) * ((x > 0) * (x < 2))
        return (0.1 * angle.cos() * self.w.sum(), truth * self.w + (half * self.w).topk(4, largest=False)[0],
                torch.cat([torch.zeros(0), self.w], -1) * x, F.dropout(self.w, 1.0) + self.w * x,
                torch.cat([self.w.repeat(0, 1), (x.sigmoid() * 255).byte() / 255 * self.w]),
                nn.utils.rnn.pad_sequence([self.w[:2], self.w * x], batch_first=True, padding_value=0.5))

    def pictures(self, p):
        p = p * self.w.sum()
        pools = [F.avg_pool2d(p, 3, 2, ceil_mode=True), F.avg_pool2d(p, 3, 2, 1, ceil_mode=True)[..., :3, :3],
                 F.avg_pool2d(p, 3, 2, ceil_mode=True, count_include_pad=False),
                 F.avg_pool2d(p, 2, divisor_override=3), F.adaptive_max_pool2d(p, 3)]
        sizes = [dict(size=(5, 3), mode="bilinear", align_corners=True), dict(size=(5, 3), mode="bicubic"),
                 dict(size=(5, 3), mode="bicubic", antialias=True), dict(size=(5, 3), mode="nearest-exact")]
        factors = [dict(scale_factor=1.3, mode="bilinear"), dict(scale_factor=1.3, mode="nearest")]
        whole = F.pixel_unshuffle(p[..., :6, :6], 2)
        columns = F.fold(self.columns, (6, 6), 2, stride=2) + F.fold(F.unfold(p[..., :6, :6], 3, padding=1), (6, 6),
                                                                     3, padding=1).sum(1, keepdim=True)
        return (torch.stack(pools), torch.stack([F.interpolate(p, **s) for s in sizes]),
                torch.stack([F.interpolate(p, **s) for s in factors]), whole, columns, p.unfold(3, 3, 2))

    def losses(self, x, label):
        w, share = self.w, x.softmax(1)
        nll = [F.nll_loss(w.log_softmax(1), label, weight=w.new_tensor([1.0, 2.0, 3.0, 0.5]), ignore_index=2)]
        nll += [F.cross_entropy(w, share, label_smoothing=0.1), F.binary_cross_entropy(w.sigmoid(), share)]
        nll += [F.binary_cross_entropy_with_logits(w, share, weight=x.abs()), F.cosine_similarity(w, x).sum()]
        nll += [F.binary_cross_entropy(w.clamp(0.0, 1.0), (w > 0).to(w.dtype)),
                F.cosine_similarity(w[:, None], x[None], dim=1).sum()]
        return torch.stack(nll)

    def turns(self):
        """Rotary embeddings with one table of angles, of which each reads other rows."""
        w = self.columns.view(12, 9)[:8, :8] * 1.0
        angle = torch.arange(16)[:, None] * 0.3 ** torch.arange(4)
        cos, sin = (f(torch.cat([angle, angle], 1)) for f in (torch.cos, torch.sin))
        turned = torch.cat([-w[:, 4:], w[:, :4]], 1)
        row = w[:1] * cos[:3, None] + torch.cat([-w[:1, 4:], w[:1, :4]], 1) * sin[:3, None]
        rows = [(cos[:8], sin[:8]), (cos[::2], sin[::2]), (cos[:1].expand(8, 8), sin[:1].expand(8, 8))]
        return (row, *(w * c + turned * s for c, s in rows))

    def forward(self, x, label, p):
        y = F.conv1d(x[:, None].repeat(1, 2, 2), torch._weight_norm(self.v, self.g, 2))
        return (self.bends(), *self.numbers(x), *self.pictures(p), self.losses(x, label), y, *self.turns(),
                F.one_hot(label, 4) * self.w)


class Whole(nn.Module):
    """Whole numbers of a step that fp32 does not hold."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(97))

    def forward(self, ids):
        return self.w[ids * 1000003 % 97]


class Volume(nn.Module):
    """A 3-D segmentation network: strided and transposed convolutions, a skip, a loss for each voxel."""

    def __init__(self):
        super().__init__()
        self.fine = nn.Sequential(nn.Conv3d(1, 6, 3, padding=1), nn.InstanceNorm3d(6, affine=True), nn.LeakyReLU())
        self.down = nn.Conv3d(6, 12, 3, stride=2, padding=1)
        self.slope = nn.PReLU(12)
        self.up = nn.ConvTranspose3d(12, 6, 2, stride=2)
        self.head = nn.Conv3d(12, 3, 1)

    def forward(self, volume, classes):
        fine = self.fine(volume)
        up = self.up(self.slope(self.down(fine)))
        return F.cross_entropy(self.head(torch.cat([fine, up], 1)), classes)


class Autoencoder3d(nn.Module):
    """A video autoencoder: causal padding in time, group norm, doubling by nearest neighbours."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Conv3d(3, 8, 3)
        self.norm = nn.GroupNorm(2, 8)
        self.down = nn.Conv3d(8, 8, 3, stride=(1, 2, 2))
        self.latent = nn.Conv3d(8, 4, 1)
        self.leave = nn.Conv3d(2, 8, 3)
        self.gamma = nn.Parameter(torch.ones(8, 1, 1, 1))
        self.out = nn.Conv3d(8, 3, 3)

    @staticmethod
    def pad(x):
        return F.pad(x, (1, 1, 1, 1, 2, 0), mode="replicate")

    def forward(self, video):
        x = F.silu(self.norm(self.enter(self.pad(video))))
        mean, logvar = self.latent(self.down(self.pad(x))).chunk(2, dim=1)
        kl = 0.5 * (mean.pow(2) + logvar.clamp(-30, 20).exp() - 1 - logvar.clamp(-30, 20)).mean()
        x = F.interpolate(mean, scale_factor=(1.0, 2.0, 2.0), mode="nearest")
        x = F.normalize(self.leave(self.pad(x)), dim=1) * self.gamma * 8 ** 0.5
        return F.mse_loss(self.out(self.pad(F.silu(x))), video) + 1e-2 * kl


class Recon(nn.Module):
    """An autoencoder of diffusers from end to end."""

    def __init__(self, vae):
        super().__init__()
        self.vae = vae

    def forward(self, x):
        d = self.vae.encode(x).latent_dist
        return self.vae.decode(d.mode(), return_dict=False)[0], d.mean, d.logvar


class Dynamic(nn.Module):
    """Sizes that are known with the batch: numbers from sizes, writes through views, a region without gradients."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 16)
        self.outer = nn.Linear(32, 8)
        self.register_buffer("largest", torch.zeros(()))

    def forward(self, x, weights):
        b, t, _ = x.shape
        h = self.inner(x).relu_().view(b, t // 2, 32)
        with torch.no_grad():
            middle = h.mean(1, keepdim=True)
            self.largest.copy_(middle.max())
        kept = torch.zeros(b, t // 2, 8)
        kept[:, :1] = 3.0
        kept[:, 1::1, ::2] = self.outer(h - middle)[:, 1:, 1::2]
        kept[0].mul_(2.0)
        scores = torch.arange(t // 2)[:, None] >= torch.arange(t // 2)
        y = F.scaled_dot_product_attention(kept, h[..., :8], h[..., 8:16], attn_mask=scores)
        return {"y": y * weights[:, None, None] / (b * t)}


class Sums(nn.Module):
    """Sums of products by letters; writes that add and average, and by masks in order; products of numbers."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(3, 4))
        self.b = nn.Parameter(torch.randn(4, 5))
        self.s = nn.Parameter(torch.randn(4, 4, 2))
        self.v = nn.Parameter(torch.randn(3, 1))

    def letters(self, x):
        a, b, s, v, e = self.a, self.b, self.s, self.v, torch.einsum
        y = x[:, :, None] * b
        out = [e("ij,jk", a, b), e("ba", a), e("ij->", a), e("ij->i", a), e("ij, kj -> ikj", a, b.t()), e("i,j->ij", v[:, 0], a[0])]
        out += [e("iik->ik", s), e("iik", s), e("iik,k->i", s, s[0, 0]), e("kiji->jk", e("ijk,l->kjli", s, s[0, :, 0]))]
        out += [e("ij,ij->ij", a, x), e("ij,ij->i", a, x), e("ij,jk,kl->il", a, b, y[0].t()), e("ij,ij,i->j", a, x, v[:, 0])]
        out += [e("bik,bjk->bij", y, y.flip(1)), e("...ij,...jk->...ik", y, b.t()), e("b...,...b->...", a, x.t() * 2)]
        out += [e(",ij->ji", a[0, 0], x), e("ij,jk->ik", v, b), e("...i,j...->j...", v, a.t()), e("ab,cd,ac->bd", a, y[:2, 0], a[:, :2])]
        none = e("ij,jk->ik", a[:0], b), e("ij,jk->ik", a[:, :0], b[:0]), e("i,i->i", a[:0, 0], x[:0, 1])
        return [*out, torch.cat([none[0], none[1] + b[:3]]), torch.cat([none[2], v[:, 0]])]

    def writes(self, x, place, row):
        a, v = self.a, self.v
        out = [x.scatter_reduce(d, place[d], a * 2, how, include_self=k) * self.a
               for d in (0, 1) for how in ("sum", "mean") for k in (True, False)]
        y = x * v
        y[:, 1:3].scatter_reduce_(1, place[1][:, :1] // 2, a[:, :1], "mean")
        out += [y, x[:, :1].scatter_reduce(1, place[1][:, :3] * 0, a[:, :3], "mean", include_self=False) * v]
        out += [a[0, 0].scatter_reduce(0, row[0] * 0, x[0, 0] * v[0, 0], "sum"), a.scatter_reduce(0, place[0][:0], a[:0], "mean")]
        out += [a.scatter_add(1, place[1][:, :0], x), v.scatter_add(0, row[:, None] % 3, v * 2)]
        return out

    def masks(self, x, row):
        a, v, b = self.a, self.v, self.b
        out = [a.masked_scatter(x > 0, b), (x * v).masked_scatter((row > 0)[:, None], b * 2)]
        out += [a.masked_scatter(torch.tensor([False, True, False, True]), b), v.masked_scatter(v.detach() > -9, a)]
        out += [a.masked_scatter(x > 99, b[0]), torch.cat([a[:0].masked_scatter(x[:0] > 0, b), a])]
        out += [a.masked_scatter(torch.zeros(3, 4, dtype=torch.bool), b[:0]), b.masked_scatter(x[:1, :1] < 99, b.flip(0))]
        return out

    def forward(self, x, place, row, count):
        turns = count * row  # 2^24 and more are refused
        return (*self.letters(x), *self.writes(x, place, row), *self.masks(x, row), self.b[(turns * turns) % 4])


class Angles(nn.Module):
    """Rotary embedding whose angles are a product, as transformers before 5.20 writes it."""

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(16, 32)
        self.register_buffer("inv_freq", 100.0 ** -(torch.arange(0, 8, 2) / 8), persistent=False)

    def forward(self, x):
        q = self.q(x).unflatten(-1, (4, 8)).transpose(1, 2)
        places = torch.arange(x.shape[1])[None, None, :].to(x.dtype)
        turns = (self.inv_freq[None, :, None].to(x.dtype) @ places).transpose(1, 2)
        turns = torch.cat([turns, turns], -1)
        half = torch.cat([-q[..., 4:], q[..., :4]], -1)
        return (q * turns.cos()[:, None] + half * turns.sin()[:, None],)


class Islands(nn.Module):
    """What models in bf16 compute in fp32: norms, modulations and gates of a block, as diffusers writes Wan; and
    rotary embeddings of pairs, one of them read or written between its halves."""

    def __init__(self, width=16, heads=2, length=6):
        super().__init__()
        self.heads = heads
        self.table = nn.Parameter(torch.randn(1, 3, width) / 4)
        self.first, self.last = nn.LayerNorm(width, elementwise_affine=False), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out, self.end = (nn.Linear(width, width) for _ in range(5))
        angles = torch.arange(length)[:, None] * 10.0 ** -torch.arange(0, 1, 2 * heads / width)
        self.register_buffer("cosines", angles.cos()[None, :, None].repeat_interleave(2, -1), persistent=False)
        self.register_buffer("sines", angles.sin()[None, :, None].repeat_interleave(2, -1), persistent=False)

    @staticmethod
    def norm(module, x):
        weights = (None, None) if module.weight is None else (module.weight.float(), module.bias.float())
        return F.layer_norm(x.float(), module.normalized_shape, *weights, module.eps).to(x.dtype)

    def turn(self, x, between=None):
        one, two = x.unflatten(-1, (-1, 2)).unbind(-1)
        c, s = self.cosines[..., 0::2], self.sines[..., 1::2]
        to = torch.zeros_like(x)
        first = one * c
        to[..., 0::2] = first - two * s
        if between == "read":
            seen = to * 2
        elif between == "written":
            first.mul_(0.5)
        to[..., 1::2] = one * s + two * c
        return (to + seen if between == "read" else to).type_as(x)

    def forward(self, x, time):
        shift, scale, gate = (self.table + time.float()).chunk(3, 1)
        y = (self.norm(self.first, x.float()) * (1 + scale) + shift).type_as(x)
        q, k, v = (f(y).unflatten(-1, (self.heads, -1)) for f in (self.q, self.k, self.v))
        q, k = self.turn(q), self.turn(k)
        odd = self.turn(v, "read") + self.turn(v * 1, "written")
        a = F.scaled_dot_product_attention(*(p.transpose(1, 2) for p in (q, k, v))).transpose(1, 2).flatten(2)
        x = (x.float() + self.out(a) * gate).type_as(x)
        x = (x.float() + self.end(self.norm(self.last, x.float()).type_as(x)).float() * gate).type_as(x)
        return x, odd


class Pairs(nn.Module):
    """Rotary embeddings of pairs in a batch of any size: one that is an op, one of bf16 whose result is wider, and one of
    a single place that is turned to all."""

    def __init__(self, length=6, width=8):
        super().__init__()
        self.a = nn.Linear(width, width)
        angles = torch.arange(length)[:, None] * 10.0 ** -torch.arange(0, 1, 2 / width)
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def turn(self, x, to):
        one, two = x.unflatten(-1, (-1, 2)).unbind(-1)
        to[..., 0::2] = one * self.cosines - two * self.sines
        to[..., 1::2] = one * self.sines + two * self.cosines
        return to

    def forward(self, x):
        y = self.a(x)
        wide = self.turn(x.bfloat16(), torch.zeros_like(x))
        return self.turn(y, torch.zeros_like(y)), wide * y, self.turn(y[:, :1], torch.zeros_like(y))


class Tiles(nn.Module):
    """A tensor repeated by tile, random values between equal bounds, and writes to places that differ, as a router
    of experts makes them."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x, index):
        y = self.a(x)
        random = torch.empty_like(y).uniform_(2, 3).clamp(max=2) + torch.empty_like(y).normal_(5, 0)
        scores = torch.full_like(y, float("-inf")).scatter_(1, index, y.gather(1, index) * 2)
        counts = torch.zeros_like(index).scatter(1, index[:, :1], index[:, 1:])
        counts = counts + torch.zeros_like(index).scatter(1, index, torch.tensor([[3, 5], [7, 9], [2, 4]]))
        return scores.sigmoid(), torch.tile(y * random, (2,)), torch.tile(y, (2, 1, 3)), y[:, :2] * counts


class Slots(nn.Module):
    """Buffers that are changed through views of them, and a parameter that is not trained: what a step leaves in each
    is the next step's."""

    def __init__(self):
        super().__init__()
        self.w = nn.Linear(4, 4)
        self.register_buffer("queue", torch.randn(6, 4))
        self.register_buffer("turned", torch.randn(4, 6))
        self.register_buffer("chain", torch.randn(2, 3, 4))
        self.register_buffer("steps", torch.randn(7, 4))
        self.register_buffer("pairs", torch.randn(6))
        self.register_buffer("hidden", torch.randn(3, 4), persistent=False)
        self.register_buffer("seen", torch.randn(3, 4))
        self.register_buffer("region", torch.randn(3, 4))
        self.register_buffer("place", torch.zeros(2, 2, dtype=torch.int64))
        self.register_buffer("one", torch.randn(3, 4))
        self.register_buffer("other", self.one)
        self.teacher = nn.Parameter(torch.randn(4, 4), requires_grad=False)

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self.other = self.one  # a cast has made two of it
        return self

    def forward(self, x):
        y = self.w(x * 1.0)
        before = self.queue[2:5] * 1.0
        with torch.no_grad():
            self.queue[1:4] = y  # has no gradient
            self.teacher.mul_(0.9).add_(self.w.weight, alpha=0.1)
            row = self.region[1]  # a view that leaves the region
        row.add_(1.0)
        self.turned.t()[3:].transpose(0, 1).mul_(0.5)
        a, b = self.chain.view(6, 4).chunk(2)  # two views of one buffer
        a.select(1, 2).fill_(7.0)
        b.unbind(1)[0].copy_(a[:, 2] * 2)
        self.steps[1:6:2].add_(1.0)
        self.steps[::3] *= 2.0
        self.pairs.view(3, 2).expand(3, 2)[:, 1].neg_()
        self.pairs.unsqueeze(0).squeeze(0).narrow(0, 1, 2).zero_()
        self.hidden.reshape(4, 3)[1:].flatten().sub_(1.0)
        copy = self.seen.t().reshape(12)  # copies, which leave the buffer
        copy.zero_()
        self.seen.to(torch.bfloat16)[0].zero_()
        self.place[1].view(2)[0] += 1
        self.one[0].add_(1.0)  # one memory under two names
        self.other[:, 1].mul_(3.0)
        z = x * 1.0
        z[:, 0] = 0.0
        x.view(12)[:4].zero_()  # an input, for this step
        out = [before, y @ self.teacher.detach(), self.queue[:3] * y, self.turned[:, :3].t() * y, self.chain[1] * y]
        out += [self.steps[3:6] * y, self.pairs[:4] * y, self.hidden * y, self.seen * y, self.region * y, self.one * y]
        return (*out, self.other + copy.view(3, 4), self.place * y[:2, :2], z * y, x * y)


class Unkept(nn.Module):
    """Writes that a step of the library does not keep, or not as PyTorch: one of each kind is refused."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.w = nn.Parameter(torch.randn(4))
        self.table = torch.ones(4)
        self.register_buffer("rows", torch.ones(3, 4))
        self.register_buffer("row", self.rows[1])
        self.register_buffer("line", torch.ones(4))
        if kind == "frozen":
            self.frozen = nn.Parameter(self.w.data, requires_grad=False)

    def forward(self, x):
        y = self.w * 2.0
        if self.kind == "frozen":
            y = y * self.frozen
        with torch.no_grad():
            if self.kind == "weight":
                self.w.view(2, 2)[0].clamp_(-1.0, 1.0)
            if self.kind == "part":
                self.rows.add_(x)
            if self.kind == "gradient":
                y.view(2, 2)[1].mul_(3.0)
            if self.kind == "diagonal":
                self.line.view(2, 2).diagonal().add_(1.0)
            if self.kind == "window":
                self.line.unfold(0, 2, 2)[0].add_(1.0)
            if self.kind == "constant":
                self.table[:2].add_(1.0)
        return (y * x + self.rows + self.row + self.table + self.line).sum()


class Teacher(nn.Module):
    """A step writes a parameter that is not trained: a functional program has its value as an output.  Two tensors of
    one memory leave a region without gradients."""

    def __init__(self):
        super().__init__()
        self.w = nn.Linear(4, 4)
        self.teacher = nn.Parameter(torch.randn(4, 4), requires_grad=False)

    def forward(self, x):
        self.teacher.t()[1:].mul_(0.5)
        with torch.no_grad():
            rows = x * 2.0
            row = rows[1]
        row.add_(1.0)
        rows[0] = 3.0
        return self.w(x) @ self.teacher * rows, row


class Mixed(nn.Module):
    """A model in bf16 whose norms are kept in fp32, with weights that bf16 does not hold."""

    def __init__(self):
        super().__init__()
        self.half, self.whole_values = torch.bfloat16, True
        self.first, self.last = (nn.Linear(16, 16, dtype=self.half) for _ in range(2))
        self.norm = nn.LayerNorm(16)
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("var", torch.ones(16))
        with torch.no_grad():
            self.norm.weight.add_(0.1 * torch.randn(16))
            self.norm.bias.add_(0.1 * torch.randn(16))

    def to(self, dtype):
        if dtype == torch.float64:
            self.half = dtype
            super().to(dtype)
        return self

    def forward(self, x):
        y = x.to(self.half) + self.first(x.to(self.half))
        w, b = self.norm.weight, self.norm.bias
        rms = w * (y.to(w.dtype) * torch.rsqrt(y.to(w.dtype).pow(2).mean(-1, keepdim=True) + 1e-6)).to(self.half)
        out = [y + self.last(F.layer_norm(y.to(w.dtype), (16,), w, b).to(self.half)), rms]
        out += [F.layer_norm(y, (16,), w, b), F.silu(F.group_norm(y, 4, w, b))]
        return (*out, F.batch_norm(y, self.mean, self.var, w, b, True))


class Aliases(nn.Module):
    """Results that are memory of an operand, and those that are not: dropout that drops nothing, einsum of one operand,
    parts with other axes.  What is written to one is read from the other."""

    def __init__(self):
        super().__init__()
        self.w = nn.Linear(4, 4)
        self.register_buffer("line", torch.randn(3, 4))
        self.register_buffer("turned", torch.randn(4, 3))
        self.register_buffer("rows", torch.randn(3, 4))
        self.register_buffer("length", torch.ones(()))

    def forward(self, x):
        y = self.w(x)
        a, b, c, d, e, f = (y * (1.0 + i) for i in range(6))
        F.dropout(a, 0.0)[1:].mul_(2.0)
        F.dropout1d(a.view(3, 2, 2), 0.5, training=False)[0].add_(1.0)
        F.alpha_dropout(a, 0.0).sub_(0.5)
        F.dropout(a, 0.0, inplace=True).add_(0.25)
        torch.einsum("ij->ji", b)[1].add_(1.0)
        turned, corner = torch.einsum("ij->ji", c), torch.einsum("ii->i", c[:, :3])
        whole, sums = torch.einsum("ij,->ij", c, c.new_ones(())), torch.einsum("ij->i", c)
        c.mul_(3.0)  # two of these are c
        d[:, :2].reshape(3, 2, 1)[:, 1].zero_()
        d[:, ::3].flatten().add_(9.0)  # a copy
        d[:, 2:].reshape(6)[1:].add_(9.0)  # a copy
        lists = torch.broadcast_tensors(d, d[:1])[0]
        d.neg_()
        e = e.unsqueeze_(0).transpose_(1, 2)
        e[0, 1].mul_(2.0)
        diagonal = f.diagonal(1)
        f.square_()
        first, second = f.tensor_split(2)
        second.add_(1.0)
        with torch.no_grad():
            F.dropout(self.line, 0.0)[1].add_(1.0)
            torch.einsum("ij->ji", self.turned)[0].mul_(2.0)
            self.rows[:, 1:3].reshape(3, 1, 2)[1].add_(y[1, 1:3])
            torch.broadcast_tensors(self.rows, x)[0][2].mul_(0.5)
            torch.div(self.length, 3.0, out=self.length)
        out = [a, b, turned, corner, whole, sums, d, lists, e, diagonal, first, second]
        return (*out, self.line * y, self.turned.t() * y, self.rows * y * self.length)


class Recurrent(nn.Module):
    """Recurrent layers in two directions and of two layers, with projections of the state, and cells."""

    def __init__(self):
        super().__init__()
        self.a = nn.LSTM(4, 6, num_layers=2, bidirectional=True, proj_size=3)
        self.b = nn.GRU(6, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.c = nn.RNN(10, 4, bias=False)
        self.d = nn.RNN(4, 4, nonlinearity="relu", batch_first=True)
        self.cells = nn.ModuleList([nn.LSTMCell(4, 4), nn.GRUCell(4, 4), nn.RNNCell(4, 4, bias=False)])

    def forward(self, x, start):
        y, (h, c) = self.a(x)
        z, last = self.b(y.transpose(0, 1), start)
        w, end = self.d(self.c(z)[0])
        state = memory = gate = plain = end[0]
        for i in range(2):
            state, memory = self.cells[0](w[:, i], (state, memory))
            gate = self.cells[1](state, gate)
            plain = self.cells[2](gate, plain)
        return y, h.reshape(-1, 3), c.reshape(-1, 6), z, last, w, memory, plain


class Distances(nn.Module):
    """Losses of distances, norms of several orders, bags of an embedding, pictures that are read at places of a step."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.both = nn.Bilinear(6, 6, 3)
        self.sums, self.means, self.most = (nn.EmbeddingBag(9, 4, mode=m) for m in ("sum", "mean", "max"))
        self.padded = nn.EmbeddingBag(9, 4, padding_idx=2)
        self.register_buffer("begins", torch.tensor([0, 3, 3, 7]))
        self.theta = nn.Parameter(torch.tensor([[[0.6, 0.1, 0.2], [-0.1, 0.7, 0.1]]]))
        self.picture = nn.Parameter(torch.randn(1, 2, 4, 5))

    def losses(self, x, sign):
        a, b = self.a(x), self.b(x)
        out = [F.cosine_embedding_loss(a, b, sign, margin=0.1), F.triplet_margin_loss(a, b, b.flip(0)),
               F.triplet_margin_loss(a, b, x, swap=True, p=1.0, reduction="sum"), F.pairwise_distance(a, b, p=1.5).sum(),
               F.margin_ranking_loss(a[:, 0], b[:, 0], sign, margin=0.3), F.hinge_embedding_loss(a[:, 1], sign, margin=0.5),
               F.soft_margin_loss(a[:, 2], sign), a.norm(), a.norm(p=3, dim=0).sum(), torch.linalg.vector_norm(b, 1)]
        return (torch.stack(out), self.both(a, b), torch.mv(a, b[0]), torch.addmv(a[:, 0], b, a[1]), *torch.std_mean(a, 1),
                *torch.var_mean(b), a.as_strided((3, 4), (6, 1), 2))

    def bags(self, ids, weights):
        flat = ids.flatten()
        return (self.sums(ids, per_sample_weights=weights), self.sums(flat, self.begins), self.means(ids), self.padded(ids),
                self.means(flat, self.begins), self.most(ids))

    def grids(self, x):
        grid = F.affine_grid(self.theta, (1, 2, 3, 3), align_corners=False)
        free = x[:3].reshape(1, 3, 3, 2).tanh() * self.theta[0, 0, 0]
        return (F.grid_sample(self.picture, grid, align_corners=False), F.grid_sample(self.picture, free, align_corners=True),
                F.grid_sample(self.picture, 1.3 * free, padding_mode="border", align_corners=False),
                F.grid_sample(self.picture, free.detach(), mode="nearest", align_corners=False))

    def forward(self, x, sign, ids, weights):
        return (*self.losses(x, sign), *self.bags(ids, weights), *self.grids(x))


class Nothing(nn.Module):
    """Tensors without elements, from slices and ranges, through layers, products and complex numbers to a join."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Parameter(torch.randn(4, 4))
        self.none, self.rows, self.unread = nn.Linear(0, 4), nn.Parameter(torch.zeros(0, 4)), nn.Parameter(torch.zeros(2, 0))
        for name, persistent in (("kept", True), ("other", False)):
            self.register_buffer(name, torch.zeros(0, 2), persistent=persistent)
        self.register_buffer("whole", torch.zeros(0, dtype=torch.long))

    def sums(self, x):
        """What has elements although an operand has none; a buffer without elements is changed."""
        e, b = x.flatten(0, 1)[:4, 4:], self.b
        self.kept.add_(1)
        return (self.a(torch.cat([x[0], self.rows])) + self.none(x[0, :, 4:]), self.kept.sum() + b, self.other.sum(1).sum() * b,
                e.prod() * b.prod() + e.sum(1)[:, None] * b, (e > 0).any() * b, (e > 0).all(1)[:, None] * b, self.none(e),
                e @ e.T + b, torch.bmm(e[None], e.T[None]) + b, torch.einsum("ij,kj->ik", e, e) + b, b[self.whole].sum() + b,
                torch.addmm(self.none.bias, e, self.none.weight.T), F.pad(self.rows, (0, 0, 1, 3)) + b)

    def forward(self, x):
        angles = torch.outer(x[0, :, 0], torch.arange(0, 0, 2) / 2)
        turns = torch.view_as_real(torch.polar(torch.ones_like(angles), angles)).flatten(1)
        y = torch.cat([F.gelu(self.a(part)) @ self.b for part in (x[:, 3:], x)], 1)
        return y, torch.cat([angles.cos(), turns, y[0], torch.outer(x[0, :, 1], torch.linspace(0, 1, 0))], 1), *self.sums(x)


class Special(nn.Module):
    """Functions that the library has no op for, where they are hard; order, bounds, Fourier transforms."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(4, 6))

    def forward(self, x, index):
        a, t = self.a * x, torch
        near = 1 - (a.square() + 0.1) * 1e-5  # angles of directions that are nearly the same
        y = [t.acos(near), t.asin(-near), t.acos(a.tanh() * 0.9), t.asin(a.tanh() * 0.9), t.atan(a * 4), t.arctan(a / 100),
             t.atan2(a, a.flip(0) + 0.3), t.atan2(a[0], -a.abs()), t.asinh(a * 3), t.acosh(a.abs() + 1.01),
             (t.erfc(a.abs() + 4) * 1e8), t.special.ndtr(-a.abs() - 4) * 1e5, t.sinc(a), t.rad2deg(a), t.deg2rad(a),
             t.hypot(a, a + 1), t.copysign(a, a.flip(0)), t.xlogy(a.relu(), a.abs() + (a < 0)), t.special.xlog1py(a, a.abs()),
             t.fmax(a, a.flip(0)), t.fmin(a, a.flip(1)), t.logit(a.sigmoid(), eps=0.2), t.logit(a.sigmoid()),
             a.cumprod(1), a.relu().cumprod(0), a.relu().cummax(1)[0], a.cummin(0)[0], a.logcumsumexp(1),
             a.relu().median(), a.median(1)[0], a.median(0, keepdim=True)[0], a.kthvalue(2, 1)[0], t.msort(a),
             a[t.bucketize(a.detach()[:, 0], t.tensor([-1.0, 0.0, 1.0]).to(a.dtype))],
             a.gather(1, t.searchsorted(a.detach().sort(1)[0], a.detach(), right=True).clamp(max=5)),
             t.take_along_dim(a, index, 1), t.take_along_dim(a, a.argsort(0)[:1], 0), t.take(a, t.tensor([0, -1, 3])),
             t.diag(a[0], 1), t.diag(a[:, :4]), t.diag_embed(a, -1), t.trace(a), a * (a > 0).count_nonzero(1)[:, None],
             t.dist(a, a.flip(0), 3), t.cdist(a[:2], a[2:], p=1), t.where(a.isnan(), 1, a).nansum(1), a.nanmean(),
             t.bernoulli(t.ones_like(a)) * a, a + 0 * t.randint(0, 5, (4, 6)) + t.randperm(6) * 0]
        c = t.complex(a, a + 1)
        y += [c.abs(), c.angle(), t.view_as_real(c.conj() * c), t.view_as_real(c / (c + 2)), (c / 2).imag, a.angle()]
        f = t.fft.rfft(a, n=9)
        y += [f.abs(), t.fft.fft2(a).real, t.fft.irfft(f * f, n=9), t.fft.irfft2(t.fft.rfft2(a, norm="ortho")),
              t.fft.irfft(c, norm="forward"), t.view_as_real(t.fft.ifft(c, dim=0, norm="ortho")), t.fft.fftn(c, s=(3, 7)).imag]
        return tuple(y)


class Ends(nn.Module):
    """Functions at infinite values, at what is no number, and where squares overflow or vanish."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.ones(4, 5))

    def forward(self, x):
        t, a, inf, nan = torch, self.a * x, float("inf"), float("nan")
        b, far, none = a.flip(1), t.where(x > 5, inf, x), t.where(x > 5, nan, x)
        shown = lambda y: t.where(y.isinf(), t.where(y > 0, 3.0, -3.0), y.nan_to_num(nan=-5.0))  # noqa: E731
        hide, lost = t.where(x > 5, -inf, a), t.where(x > 5, nan, a)
        bounds = t.tensor([0.0, 1.0, 1.0, 2.0]).to(a.dtype)
        poles = t.tensor([0.0, -0.0, -1.0, -2.5, -1e-9, -1e-20, -3e38, -1e10, -inf, 3e38, nan]).to(a.dtype) * (x[0, 0] * 0 + 1)
        return (shown(hide.logcumsumexp(1)), shown(t.logaddexp(hide.detach(), hide.detach().flip(1))) * a,
                shown(lost.cummax(1)[0]), shown(lost.cummin(1)[0]), shown(lost.cummax(0)[0]),
                t.bucketize(none, bounds) * a, t.searchsorted(bounds, none, right=True) * a,
                t.atan2(far, far.flip(1)) * a, t.atan2(-far, x) * a, shown(t.atan2(none, x.flip(1))) * a,
                t.atan2(x * 1e-25, -far) * a, t.atan2(x.detach() * 1e-25, x.flip(1) * 1e-25) * a, t.atan2(x * 1e25, b.detach() * 1e25) * a,
                t.hypot(a * 1e25, b * 2e25) * 1e-25, t.hypot(a * 1e-25, b * 3e-25) * 1e25, shown(t.hypot(none, x.flip(1))) * a,
                t.complex(a * 1e25, b * 1e25).abs() * 1e-25, shown(t.complex(none, x).abs()) * a, shown(t.hypot(far, -far.flip(1))) * a,
                t.xlogy(x * 0, far) * a, t.special.xlog1py(x * 0, far) * a, t.xlogy(2.0, a.abs() + 1), t.xlogy(a, 3.0),
                shown(t.xlogy(x * 0, none)) * a, shown(t.lgamma(t.where(x > 5, 0.0, x.abs() + 0.5))) * a,
                shown(t.lgamma(far.abs() + 1)) * a, shown(t.digamma(far.abs() + 1)) * a, shown(t.special.entr(x)) * a,
                shown(t.erfinv(t.where(x > 5, 1.0, x.sign() / 2))) * a,
                shown(t.lgamma(poles[:9])) * a[0, 0], shown(t.digamma(poles) * 1e-20) * a[0, 0])


class Products(nn.Module):
    """Products over chosen axes, of blocks, of chains, of complex numbers; functions of them; slices that are copied."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(4, 6))

    def turned(self, a):
        t, c = torch, torch.complex(a, a + 1)
        y = [c @ c.T, t.bmm(c[None], c.conj().T[None]), t.exp(c), t.exp(1j * a), (2 - 1j) * c, c / (1 + 2j),
             (c * 1).add_(c).mul_(1j).exp_(), c.mv(c[0]), c[0].dot(c[1])]
        return [t.view_as_real(z) for z in y]

    def whole(self, a):
        t, i = torch, torch.arange(12).view(3, 4)
        none = t.zeros(0, dtype=t.int64)
        return [t.addr(i, i[:, 0], i[0], beta=2, alpha=3) * a[:3, :4], i.index_add(0, t.tensor([2, 0]), i[:2], alpha=3) * a[:3, :4],
                t.tensordot(a[:, :1], a, ([1], [1])), a.index_copy(0, none, a[:0]), a.index_add(0, none, a[:0], alpha=2)]

    def forward(self, x):
        t, a = torch, self.a * x
        b, c = a.view(2, 2, 6), a.view(2, 4, 3)
        near = a.tanh() * 0.9
        return (t.tensordot(b, a.view(2, 6, 2), ([0, 2], [0, 1])), t.tensordot(a, a[0], 0), t.tensordot(a, a), t.inner(b, a[0]),
                t.inner(a, a), t.kron(a[:2, :2], b[:, :, :3]), t.kron(a[0], a[:2]), t.chain_matmul(a, a.T, a),
                t.linalg.multi_dot([a[0], a.T, a, a[1]]), t.matrix_power(a[:, :4], 5), t.matrix_power(b[..., :2], 1),
                t.addr(a @ a.T, a[:, 0], a[:, 1], beta=0.5, alpha=2), t.addbmm(a, c, c.mT.repeat(1, 1, 2)[..., :6], alpha=0.5),
                t.linalg.cross(a[:, :3], a[:, 3:]), t.cross(a[:3], a[1:], dim=0), a.index_copy(1, t.tensor([5, 0]), a[:, :2] * 2),
                a[0].index_copy(0, t.tensor([2]), a[1, 3:4]), *self.turned(a), *self.whole(a), t.lgamma(a), t.lgamma(a.abs() * 300 + 0.01),
                t.digamma(a.abs() * 5 + 0.3), t.digamma(-near.abs() - 1.05), t.erfinv(near), t.erfinv(near / 1000),
                t.special.entr(a.abs() + 0.1))
