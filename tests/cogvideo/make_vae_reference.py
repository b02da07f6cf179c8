#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes vae_expected.safetensors: what diffusers' AutoencoderKLCogVideoX gives in float64.

Weights and inputs follow from names by whole numbers (draw), so that test_vae.c has the same and no
weights need to be kept.  Of each result every 3rd value is kept.

    pip install torch diffusers safetensors
    python3 make_vae_reference.py vae_expected.safetensors
"""
import sys

import numpy as np
import torch
from diffusers.models.autoencoders.autoencoder_kl_cogvideox import AutoencoderKLCogVideoX
from safetensors.numpy import save_file

KEPT = 3
KEPT_TILED = 47


def fnv(text):
    h = 2166136261
    for c in text.encode():
        h = (h ^ c) * 16777619 & 0xFFFFFFFF
    return h


def draw(name, n):
    """n numbers in [-0.5, 0.5) with 24 bits."""
    x = (np.arange(1, n + 1, dtype=np.uint64) * 2654435761 + fnv(name)) & 0xFFFFFFFF
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        x = ((x ^ (x >> np.uint64(shift))) * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    return (x >> np.uint64(8)).astype(np.float64) / 2**24 - 0.5


def weights(name, shape):
    u = draw(name, int(np.prod(shape)))
    if len(shape) == 1:
        scale, shift = (0.5, 1.0) if "norm" in name and name.endswith("weight") and "conv" not in name else (0.25, 0.0)
        return scale * u + shift
    fan = int(np.prod(shape[1:]))
    scale = 4.0
    while scale * scale * fan > 16:
        scale /= 2
    return scale * u


def model(widths, layers, groups):
    n = len(widths)
    m = AutoencoderKLCogVideoX(
        sample_height=96, sample_width=160,
        block_out_channels=widths, layers_per_block=layers, norm_num_groups=groups,
        down_block_types=("CogVideoXDownBlock3D",) * n, up_block_types=("CogVideoXUpBlock3D",) * n)
    with torch.no_grad():
        for name, p in m.named_parameters():
            p.copy_(torch.from_numpy(weights(name, p.shape).reshape(p.shape)))
    return m.double().eval()


def run(m, tag, frames, height, width, out):
    """Inputs [1, C, T, H, W]; results as the test has them, [T, H, W, C]."""
    z_shape = (1, 16, (frames + 3) // 4, height // 8, width // 8)
    x = torch.from_numpy(4 * draw("x", 3 * frames * height * width)).reshape(1, frames, height, width, 3)
    z = torch.from_numpy(4 * draw("z", int(np.prod(z_shape)))).reshape(
        1, z_shape[2], z_shape[3], z_shape[4], 16)
    with torch.no_grad():
        moments = m.encode(x.permute(0, 4, 1, 2, 3)).latent_dist.parameters
        y = m.decode(z.permute(0, 4, 1, 2, 3)).sample
    for name, t in (("moments", moments), ("decoded", y)):
        t = t[0].permute(1, 2, 3, 0).contiguous().numpy().reshape(-1)
        out[f"{tag}/{frames}x{height}x{width}/{name}"] = t[::KEPT].astype(np.float32)


def run_tiled(m, latents, height, width, out):
    """Decodes in overlapping tiles of half the sample size."""
    shape = (1, latents, height, width, 16)
    z = torch.from_numpy(4 * draw("z", int(np.prod(shape)))).reshape(shape)
    m.enable_tiling()
    with torch.no_grad():
        y = m.decode(z.permute(0, 4, 1, 2, 3)).sample
    m.disable_tiling()
    y = y[0].permute(1, 2, 3, 0).contiguous().numpy().reshape(-1)
    out["tiled"] = y[::KEPT_TILED].astype(np.float32)


def main():
    out = {}
    small = model((32, 32, 64, 64), 1, 32)
    for frames in (1, 5, 9, 16, 17, 25):
        run(small, "four", frames, 16, 24, out)
    run(small, "four", 9, 40, 24, out)
    run_tiled(small, 3, 9, 14, out)
    run(model((16, 16, 32), 2, 8), "three", 17, 24, 40, out)
    save_file(out, sys.argv[1])


if __name__ == "__main__":
    main()
