#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports small PyTorch models with what PyTorch computes for them: see tests/import/README.

    make_models.py kept FOLDER [NAME...]   the models whose files are in tests/import/models, packed
    make_models.py all  FOLDER [NAME...]   these and many more, not packed: a few GB
    make_models.py crossed FOLDER          the two in tests/import/crossed

Run by hand, with torch, diffusers, transformers, timm and safetensors installed; nothing is downloaded.
Files depend on the versions, which are written in them.  A model that cannot be made is reported and
skipped; the exit status is then 1.
"""
import gzip
import logging
import math
import os
import sys
import time
import warnings
import zlib

os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

MODELS = {}  # name: (in tests/import/models, function that returns module, args, kwargs)


def model(name, kept=False):
    def enter(make):
        MODELS[name] = (kept, make)
        return make
    return enter


def floats(*shape):
    return torch.randn(shape)


def integers(top, *shape):
    return torch.randint(0, top, shape)


# ---- modules written out ------------------------------------------------------------------------


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


model("dynamic", kept=True)(lambda: (Dynamic(), (floats(3, 10, 8), floats(3)), {}))
# Those exported with other sizes: the arguments of the export, and the dimensions that may differ.
DYNAMIC = {"dynamic": ((torch.ones(5, 16, 8), torch.ones(5)),
                       ({0: torch.export.Dim("b", min=2, max=64), 1: 2 * torch.export.Dim("t", min=3, max=32)},
                        {0: torch.export.Dim("b", min=2, max=64)}))}
model("probe", kept=True)(lambda: (Probe(), (), dict(ids=integers(40, 2, 6), weights=floats(2, 6))))
model("norms", kept=True)(lambda: (Norms(), (floats(4, 3, 12, 12), integers(10, 4)), {}))
model("volume", kept=True)(lambda: (Volume(), (floats(1, 1, 6, 8, 8), integers(3, 1, 6, 8, 8)), {}))
model("autoencoder3d", kept=True)(lambda: (Autoencoder3d(), (floats(1, 3, 3, 8, 8),), {}))

# ---- diffusers ----------------------------------------------------------------------------------


def diffusion(name, cls, config, inputs, kept=False):
    def make():
        import diffusers
        return getattr(diffusers, cls)(**config), (), dict(inputs(), return_dict=False)
    model(name, kept)(make)


def wan(channels, timestep):
    return (dict(num_attention_heads=2, attention_head_dim=24, in_channels=channels, out_channels=channels,
                 text_dim=16, freq_dim=16, ffn_dim=48, num_layers=1, rope_max_seq_len=32),
            lambda: dict(hidden_states=floats(1, channels, 3, 8, 8), timestep=integers(999, *timestep),
                         encoder_hidden_states=floats(1, 7, 16)))


def cogvideo(rotary):
    def inputs():
        more = dict(image_rotary_emb=(floats(32, 16), floats(32, 16))) if rotary else {}
        return dict(hidden_states=floats(1, 2, 4, 8, 8), timestep=integers(999, 1),
                    encoder_hidden_states=floats(1, 6, 24), **more)
    return dict(num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, time_embed_dim=16,
                text_embed_dim=24, num_layers=1 if not rotary else 2, sample_width=8, sample_height=8,
                sample_frames=5, max_text_seq_length=6, use_rotary_positional_embeddings=rotary), inputs


diffusion("wan", "WanTransformer3DModel", *wan(16, (1,)), kept=True)
diffusion("wan_turns", "WanTransformer3DModel", *wan(8, (1, 48)))
diffusion("cogvideo", "CogVideoXTransformer3DModel", *cogvideo(False), kept=True)
diffusion("cogvideo_rotary", "CogVideoXTransformer3DModel", *cogvideo(True))
diffusion("hunyuanvideo", "HunyuanVideoTransformer3DModel",
          dict(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=12, num_layers=1,
               num_single_layers=1, num_refiner_layers=1, patch_size=1, patch_size_t=1, guidance_embeds=True,
               text_embed_dim=16, pooled_projection_dim=8, rope_axes_dim=(4, 4, 4)),
          lambda: dict(hidden_states=floats(1, 4, 3, 4, 4), timestep=integers(999, 1),
                       encoder_hidden_states=floats(1, 12, 16), encoder_attention_mask=torch.ones(1, 12),
                       pooled_projections=floats(1, 8), guidance=floats(1)))
diffusion("flux", "FluxTransformer2DModel",
          dict(patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
               num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=[4, 4, 8],
               guidance_embeds=True),
          lambda: dict(hidden_states=floats(1, 16, 4), encoder_hidden_states=floats(1, 8, 32),
                       pooled_projections=floats(1, 32), timestep=floats(1), img_ids=floats(16, 3),
                       txt_ids=floats(8, 3), guidance=floats(1)))
diffusion("qwenimage", "QwenImageTransformer2DModel",
          dict(patch_size=2, in_channels=16, out_channels=4, num_layers=2, attention_head_dim=16,
               num_attention_heads=3, joint_attention_dim=16, axes_dims_rope=(8, 4, 4)),
          lambda: dict(hidden_states=floats(1, 16, 16), encoder_hidden_states=floats(1, 7, 16),
                       encoder_hidden_states_mask=torch.ones(1, 7).long(), timestep=floats(1),
                       img_shapes=[(1, 4, 4)]))
diffusion("pixart", "PixArtTransformer2DModel",
          dict(sample_size=8, num_layers=2, patch_size=2, attention_head_dim=8, num_attention_heads=3,
               caption_channels=32, in_channels=4, cross_attention_dim=24, out_channels=8, norm_num_groups=8,
               use_additional_conditions=False),
          lambda: dict(hidden_states=floats(1, 4, 8, 8), encoder_hidden_states=floats(1, 9, 32),
                       timestep=integers(999, 1), added_cond_kwargs=dict(resolution=None, aspect_ratio=None)))
diffusion("mochi", "MochiTransformer3DModel",
          dict(patch_size=2, num_attention_heads=2, attention_head_dim=8, num_layers=2, pooled_projection_dim=16,
               in_channels=4, qk_norm="rms_norm", text_embed_dim=16, time_embed_dim=4, activation_fn="swiglu",
               max_sequence_length=16),
          lambda: dict(hidden_states=floats(1, 4, 2, 16, 16), encoder_hidden_states=floats(1, 16, 16),
                       timestep=integers(999, 1), encoder_attention_mask=torch.ones(1, 16).bool()))
diffusion("dit", "DiTTransformer2DModel",
          dict(num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=8, num_layers=1,
               sample_size=8, patch_size=2, num_embeds_ada_norm=10, norm_num_groups=4),
          lambda: dict(hidden_states=floats(2, 4, 8, 8), timestep=integers(999, 2), class_labels=integers(10, 2)),
          kept=True)


def unet(widths, size, heads, projection):
    config = dict(block_out_channels=widths, layers_per_block=1, sample_size=size, in_channels=4, out_channels=4,
                  down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                  up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), attention_head_dim=heads,
                  norm_num_groups=4, cross_attention_dim=8)
    if projection:
        config.update(use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=8,
                      transformer_layers_per_block=(1, 1), projection_class_embeddings_input_dim=80)

    def inputs():
        more = dict(added_cond_kwargs=dict(text_embeds=floats(1, 32), time_ids=floats(1, 6))) if projection else {}
        return dict(sample=floats(1, 4, size, size), timestep=integers(999, 1),
                    encoder_hidden_states=floats(1, 7, 8), **more)
    return config, inputs


diffusion("unet", "UNet2DConditionModel", *unet((4, 8), 8, 2, False), kept=True)
diffusion("unet_sdxl", "UNet2DConditionModel", *unet((32, 64), 16, (2, 4), True))


def vae(name, cls, config, *shape):
    def make():
        import diffusers
        return Recon(getattr(diffusers, cls)(**config)), (floats(*shape),), {}
    model(name)(make)


TWO = dict(down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2)
vae("vae_image", "AutoencoderKL", dict(block_out_channels=(16, 32), latent_channels=4, norm_num_groups=8, **TWO),
    1, 3, 16, 16)
vae("vae_wan", "AutoencoderKLWan",
    dict(base_dim=16, decoder_base_dim=16, z_dim=48, dim_mult=[1, 1, 1, 1], num_res_blocks=1,
         temperal_downsample=[False, True, True], is_residual=True, in_channels=12, out_channels=12, patch_size=2,
         scale_factor_spatial=16), 1, 3, 5, 32, 32)
vae("vae_cogvideo", "AutoencoderKLCogVideoX",
    dict(block_out_channels=(8, 8, 8, 8), latent_channels=4, layers_per_block=1, norm_num_groups=2), 1, 3, 9, 16, 16)
vae("vae_hunyuan", "AutoencoderKLHunyuanVideo",
    dict(latent_channels=4, block_out_channels=(8, 8, 8, 8), layers_per_block=1, norm_num_groups=4), 1, 3, 9, 16, 16)


@model("written", kept=True)
def written():
    return Written(), (floats(4, 8), torch.randperm(4), integers(4, 4), integers(3, 4, 2), integers(8, 4)), {}


@model("settings", kept=True)
def settings():
    return Settings(), (floats(4, 4, 4), integers(4, 4), integers(5, 4)), {}


@model("edges", kept=True)
def edges():
    return Edges(), (floats(3, 4), integers(4, 3), floats(1, 2, 7, 7)), {}


@model("whole", kept=True)
def whole():
    return Whole(), (integers(100, 5),), {}


@model("vq")
def _():
    import diffusers
    return (diffusers.VQModel(block_out_channels=(16, 32), latent_channels=3, num_vq_embeddings=32,
                              norm_num_groups=8, **TWO), (floats(1, 3, 16, 16),), dict(return_dict=False))


# ---- transformers -------------------------------------------------------------------------------


def hugging(name, cls, config_class, config, inputs, kept=False, attention="sdpa"):
    def make():
        import transformers
        c = getattr(transformers, config_class)(**config)
        c.use_cache = False
        m = getattr(transformers, cls)._from_config(c, attn_implementation=attention)
        return m, (), dict(inputs(), return_dict=False)
    model(name, kept)(make)


def tokens(vocabulary=99, **more):
    def inputs():
        ids = integers(vocabulary, 2, 16)
        return dict(input_ids=ids, labels=integers(vocabulary, 2, 16), **more)
    return inputs


def language(name, family, kept=False, attention="sdpa", **config):
    every = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 intermediate_size=64, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    hugging(name, family + "ForCausalLM", family + "Config", {**every, **config}, tokens(use_cache=False), kept,
            attention)


SIZES = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
SMALL = dict(vocab_size=99, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
hugging("gpt2", "GPT2LMHeadModel", "GPT2Config", dict(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64),
        tokens(use_cache=False), kept=True)
language("llama", "Llama", kept=True)
language("qwen2", "Qwen2")
language("qwen3", "Qwen3", head_dim=8)
language("mistral", "Mistral")
language("gemma2", "Gemma2", attention="eager", head_dim=8)
language("phi3", "Phi3")
language("gpt_oss", "GptOss", attention="eager", head_dim=8, num_local_experts=4, num_experts_per_tok=2)
language("qwen3_moe", "Qwen3Moe", head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
language("mixtral", "Mixtral", kept=True, num_local_experts=4, hidden_size=16, intermediate_size=16,
         num_hidden_layers=1)
language("gpt_neox", "GPTNeoX")
language("olmoe", "Olmoe", num_experts=4, num_experts_per_tok=2)
language("qwen2_moe", "Qwen2Moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
         shared_expert_intermediate_size=24)
language("granitemoe", "GraniteMoe", num_local_experts=4, num_experts_per_tok=2)
language("deepseek_v3", "DeepseekV3", n_routed_experts=8, num_experts_per_tok=2, n_group=4, topk_group=2,
         moe_intermediate_size=16, first_k_dense_replace=1, q_lora_rank=12, kv_lora_rank=8, qk_rope_head_dim=4,
         qk_nope_head_dim=8, v_head_dim=8, num_key_value_heads=4)
language("jamba", "Jamba", num_experts=4, num_experts_per_tok=2, mamba_d_state=4, mamba_dt_rank=4,
         use_mamba_kernels=False, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2)
language("glm4_moe", "Glm4Moe", n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, head_dim=8)

T5 = dict(vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)


def masked_ids():
    return dict(input_ids=integers(99, 2, 16), attention_mask=torch.ones(2, 16).long())


hugging("t5_encoder", "T5EncoderModel", "T5Config", dict(T5, feed_forward_proj="gated-gelu"), masked_ids)
hugging("umt5_encoder", "UMT5EncoderModel", "UMT5Config", dict(T5, feed_forward_proj="gated-gelu"), masked_ids)
hugging("t5", "T5ForConditionalGeneration", "T5Config", dict(T5, decoder_start_token_id=0),
        lambda: dict(input_ids=integers(99, 2, 16), labels=integers(99, 2, 8), use_cache=False))
hugging("bert", "BertForMaskedLM", "BertConfig", dict(SMALL, max_position_embeddings=24), tokens(), kept=True)
hugging("distilbert", "DistilBertForSequenceClassification", "DistilBertConfig",
        dict(vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=64),
        lambda: dict(input_ids=integers(99, 2, 16), labels=integers(2, 2)))
PIXELS = dict(image_size=16, patch_size=4, num_labels=5)
hugging("vit", "ViTForImageClassification", "ViTConfig", dict(SMALL, **PIXELS),
        lambda: dict(pixel_values=floats(2, 3, 16, 16), labels=integers(5, 2)), kept=True)
hugging("clip", "CLIPModel", "CLIPConfig",
        dict(text_config=dict(SIZES, max_position_embeddings=16, eos_token_id=2),
             vision_config=dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                                image_size=32, patch_size=8)),
        lambda: dict(input_ids=integers(99, 2, 16), pixel_values=floats(2, 3, 32, 32), return_loss=True))
hugging("dinov2", "Dinov2Model", "Dinov2Config",
        dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=28, patch_size=14),
        lambda: dict(pixel_values=floats(2, 3, 28, 28)))
hugging("whisper", "WhisperForConditionalGeneration", "WhisperConfig",
        dict(vocab_size=99, num_mel_bins=8, d_model=16, encoder_layers=1, decoder_layers=1,
             encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
             max_source_positions=16, max_target_positions=24, pad_token_id=0, bos_token_id=1, eos_token_id=2,
             decoder_start_token_id=1),
        lambda: dict(input_features=floats(2, 8, 32), labels=integers(99, 2, 10), use_cache=False), kept=True)

# ---- timm ---------------------------------------------------------------------------------------

for timm_name in ("resnet50", "convnext_tiny", "vit_small_patch16_224", "efficientnet_b0", "regnety_004",
                  "deit3_small_patch16_224", "densenet121", "maxvit_tiny_rw_224"):
    def timm_make(name=timm_name):
        import timm
        return timm.create_model(name, pretrained=False), (floats(2, 3, 224, 224),), {}
    model("timm_" + timm_name)(timm_make)


# ---- export and reference -----------------------------------------------------------------------


def without_dropout(module):
    """No two programs draw the same numbers."""
    for m in module.modules():
        for holder in (m, getattr(m, "config", None)):
            for key, value in list(getattr(holder, "__dict__", {}).items()):
                if isinstance(value, float) and "drop" in key:
                    setattr(holder, key, 0.0)
        if isinstance(m, nn.modules.dropout._DropoutNd):
            m.p = 0.0


def shorten(module):
    """Values of 16 bits, which pack to half; nothing that starts as a constant stays one."""
    with torch.no_grad():
        for p in module.parameters():
            if p.numel() > 1 and (p == p.flatten()[0]).all():
                p.add_(0.1 * torch.randn(p.shape))
            p.copy_(p.to(torch.bfloat16).float())


def without_paths(graph_module):
    """Source lines are named from the packages, not from where they are installed."""
    folders = sorted(sys.path + [os.path.dirname(os.path.abspath(__file__))], key=len, reverse=True)
    for m in graph_module.modules():
        for node in getattr(getattr(m, "graph", None), "nodes", []):
            trace = node.meta.get("stack_trace")
            for folder in filter(None, folders if trace else []):
                trace = trace.replace(folder + "/", "")
            if trace:
                node.meta["stack_trace"] = trace


def flat(outputs):
    return [x for x in torch.utils._pytree.tree_leaves(outputs) if isinstance(x, torch.Tensor)]


def loss_of(outputs, targets):
    """The first output if it is a number, else the mean squared distances to targets, added."""
    if outputs[0].ndim == 0:
        return outputs[0]
    return sum(F.mse_loss(x, targets[i].to(x.dtype)) for i, x in enumerate(outputs) if i in targets)


def make_targets(outputs):
    if outputs[0].ndim == 0:
        return {}
    return {i: torch.randn(x.shape) for i, x in enumerate(outputs) if x.is_floating_point() and x.requires_grad}


def to_type(tree, dtype):
    return torch.utils._pytree.tree_map(
        lambda x: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x, tree)


def run(make, state, args, kwargs, targets, dtype):
    """Loss, gradients by name, buffers after it, outputs; of a module of its own, in a dtype."""
    torch.manual_seed(0)
    m = make()[0]
    without_dropout(m)
    m.load_state_dict(state)
    m.to(dtype).train()
    if dtype == torch.float64 and hasattr(m, "set_experts_implementation"):
        m.set_experts_implementation("eager")  # grouped products have no fp64
    outputs = flat(m(*to_type(args, dtype), **to_type(kwargs, dtype)))
    targets = make_targets(outputs) if targets is None else targets
    loss = loss_of(outputs, targets)
    loss.backward()
    grads = {n: p.grad if p.grad is not None else torch.zeros_like(p) for n, p in m.named_parameters()}
    return loss.detach(), grads, dict(m.named_buffers()), [x.detach() for x in outputs], targets


def distance(a, b):
    """The largest difference of two sets of gradients, each over the largest value of its tensor or
    a thousandth of the largest of all."""
    top = max([float(x.abs().max()) for x in b.values() if x.numel()] + [1e-30])
    return max(float((a[n].double() - b[n].double()).abs().max()) / max(float(b[n].abs().max()), 1e-3 * top)
               for n in b if b[n].numel())


def inputs_by_name(program, args, kwargs):
    values = program._get_flat_args_with_check(args, kwargs)[0]
    specs = [s for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    assert len(values) == len(specs)
    return {s.arg.name: v for s, v in zip(specs, values) if isinstance(v, torch.Tensor)}


def same_storage(t):
    return t.detach().clone().contiguous()


def reference(name, make, module, program, args, kwargs, kept):
    before = {n: b.clone() for n, b in module.named_buffers()}
    state = {n: t.clone() for n, t in module.state_dict().items()}
    loss, grads, after, outputs, targets = run(make, state, args, kwargs, None, torch.float32)
    kind, error = ("output" if outputs[0].ndim == 0 else "mse"), ""
    try:
        loss64, grads64, after64, outputs64, _ = run(make, state, args, kwargs, targets, torch.float64)
        error = f"{distance(grads, grads64):.2e}"
        loss, grads, after, outputs = loss64, grads64, after64, outputs64
    except (RuntimeError, ValueError, TypeError) as e:
        print(f"{name}: no reference in fp64: {str(e).splitlines()[0][:100]}")
    narrow = lambda t: same_storage(t.float() if t.is_floating_point() else t)  # noqa: E731
    tensors = {"loss": narrow(loss)}
    tensors.update({"input." + n: narrow(t) for n, t in inputs_by_name(program, args, kwargs).items()})
    tensors.update({f"target.{i}": narrow(t) for i, t in targets.items()})
    tensors.update({"grad." + n: narrow(t) for n, t in grads.items()})
    tensors.update({"after." + n: narrow(t) for n, t in after.items()
                    if not torch.equal(t.double(), before[n].double())})
    if not kept:
        tensors.update({f"output.{i}": narrow(t) for i, t in enumerate(outputs)})
    notes = {"torch": torch.__version__, "loss": kind, "error": error, "model": name}
    return tensors, notes


def pack(path):
    with open(path, "rb") as f, gzip.GzipFile(path + ".gz", "wb", 9, mtime=0) as g:
        g.write(f.read())
    os.remove(path)


WITHOUT_VALUES = ("norms", "bert")  # in the folder "empty", too


def export_empty(module, args, kwargs, path):
    args, kwargs = torch.utils._pytree.tree_map(
        lambda x: x.to("meta") if isinstance(x, torch.Tensor) else x, (args, kwargs))
    program = torch.export.export(module.to("meta"), args, kwargs, strict=False)
    without_paths(program.graph_module)
    torch.export.save(program, path)


def make_one(name, folder, packed):
    kept, make = MODELS[name]
    torch.manual_seed(0)
    module, _, _ = make()
    torch.manual_seed(zlib.crc32(name.encode()))
    without_dropout(module)
    shorten(module)
    _, args, kwargs = make()
    module.train()
    state = {n: t.clone() for n, t in module.state_dict().items()}
    others, sizes = DYNAMIC.get(name, (args, None))
    program = torch.export.export(module, others, kwargs, dynamic_shapes=sizes, strict=False)
    without_paths(program.graph_module)
    module.load_state_dict(state)
    path = os.path.join(folder, name + ".pt2")
    torch.export.save(program, path)
    tensors, notes = reference(name, make, module, program, args, kwargs, packed)
    save_file(tensors, os.path.join(folder, name + ".safetensors"), metadata=notes)
    if name in WITHOUT_VALUES:
        empty = os.path.join(os.path.dirname(os.path.abspath(folder)) if packed else folder, "empty")
        os.makedirs(empty, exist_ok=True)
        export_empty(make()[0], args, kwargs, os.path.join(empty, name + ".pt2"))
        if packed:
            pack(os.path.join(empty, name + ".pt2"))
    if packed:
        pack(path)
        pack(os.path.join(folder, name + ".safetensors"))
    return notes, sum(p.numel() for p in module.parameters())


class Crossed(nn.Module):
    """A transformer of one block with batches and lengths of any size, dropout, a loss of its own,
    matrices that are large enough for codes, and a table that is large enough to be offloaded."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8192, 64)
        self.norm = nn.LayerNorm(64)
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)
        self.head = nn.Linear(64, 40, bias=False)

    def forward(self, ids, labels):
        x = self.embed(ids)
        q, k, v = (p.unflatten(-1, (4, 16)).transpose(1, 2) for p in self.qkv(self.norm(x)).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + F.dropout(self.out(a), 0.1, self.training)
        x = x + F.dropout(self.down(F.gelu(self.up(x))), 0.1, self.training)
        return F.cross_entropy(self.head(x).float().flatten(0, 1), labels.flatten())


class MeanOfLinear(nn.Module):
    """The loss is bf16."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4, dtype=torch.bfloat16)

    def forward(self, x):
        return self.linear(x).mean()


def make_crossed(folder):
    """fp32 and bf16, with weights of 17 values and a table of zeros behind row 40, so that they pack."""
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        torch.manual_seed(0)
        module, ids = Crossed().train(), integers(40, 3, 12)
        sizes = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("length", min=2, max=512)}
        with torch.no_grad():
            for p in module.parameters():
                p.copy_((p * 32).round().clamp(-8, 8) / 32 if p.ndim > 1 else p.round())
            module.embed.weight[40:] = 0
        program = torch.export.export(module.to(dtype), (ids, ids), dynamic_shapes=(sizes, sizes), strict=False)
        without_paths(program.graph_module)
        path = os.path.join(folder, name + ".pt2")
        torch.export.save(program, path)
        pack(path)
        print(f"crossed {name}: {sum(p.numel() for p in module.parameters())} values", flush=True)
    path = os.path.join(folder, "loss.pt2")
    torch.export.save(torch.export.export(MeanOfLinear(), (torch.ones(2, 4, dtype=torch.bfloat16),), strict=False), path)
    pack(path)
    return 0


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "crossed":
        return make_crossed(sys.argv[2])
    if len(sys.argv) < 3 or sys.argv[1] not in ("kept", "all"):
        sys.exit(__doc__)
    packed, folder = sys.argv[1] == "kept", sys.argv[2]
    os.makedirs(folder, exist_ok=True)
    torch.set_num_threads(1)
    failed = 0
    for name in sys.argv[3:] or [n for n, (kept, _) in MODELS.items() if kept or not packed]:
        start = time.time()
        try:
            notes, count = make_one(name, folder, packed)
            print(f"{name}: {count} values, torch's own error {notes['error'] or 'unknown'}, "
                  f"{time.time() - start:.0f} s", flush=True)
        except Exception as e:  # the next model may work
            failed = 1
            print(f"{name}: {type(e).__name__}: {str(e).splitlines()[0][:300] if str(e) else ''}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
