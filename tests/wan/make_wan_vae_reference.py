#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes vae_expected.safetensors: what diffusers' AutoencoderKLWan gives in float64.

Weights and inputs follow from names by whole numbers, as in tests/cogvideo/make_vae_reference.py, so
that test_wan_vae.c has the same and no weights need to be kept.  Of each result about 2000 values
are kept, evenly spaced, and the root mean square error of the same class in bf16.

    pip install torch diffusers safetensors
    python3 make_wan_vae_reference.py vae_expected.safetensors
"""
import os
import sys

import numpy as np
import torch
from diffusers import AutoencoderKLWan
from safetensors.numpy import save_file

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cogvideo"))
from make_vae_reference import draw, weights  # noqa: E402

FRAMES = (1, 5, 9, 17)


def values(name, shape):
    if name.endswith("gamma"):
        return 0.5 * draw(name, int(np.prod(shape))) + 1
    return weights(name, shape)


def model(**config):
    m = AutoencoderKLWan(num_res_blocks=1, **config)
    with torch.no_grad():
        for name, p in m.named_parameters():
            p.copy_(torch.from_numpy(values(name, p.shape).reshape(p.shape)))
    return m.eval()


def moments(m, x):
    return m.encode(x.permute(0, 4, 1, 2, 3)).latent_dist.parameters


def decoded(m, z):
    return m.decode(z.permute(0, 4, 1, 2, 3)).sample


def add(out, name, m, call, x):
    with torch.no_grad():
        y, rounded = call(m.double(), x), call(m.bfloat16(), x.bfloat16()).double()
    out[name + "/bf16"] = np.array([(y - rounded).square().mean().sqrt().item()], np.float32)
    y = y[0].permute(1, 2, 3, 0).contiguous().numpy().reshape(-1)
    out[name] = y[:: y.size // 2000 + 1].astype(np.float32)
    print(name, y.size, np.abs(y).max(), out[name + "/bf16"][0], flush=True)


def run(make, tag, side, z, frames, height, width, out):
    """Inputs [1, T, H, W, C]; results as the test has them, [T, H, W, C]."""
    x = torch.from_numpy(4 * draw("x", 3 * frames * height * width)).reshape(1, frames, height, width, 3)
    shape = (1, (frames + 3) // 4, height // side, width // side, z)
    cells = torch.from_numpy(4 * draw("z", int(np.prod(shape)))).reshape(shape)
    add(out, f"{tag}/{frames}/moments", make(), moments, x)
    add(out, f"{tag}/{frames}/decoded", make(), decoded, cells)


def main():
    out = {}
    for frames in FRAMES:
        run(lambda: model(base_dim=8), "2.1", 8, 16, frames, 16, 24, out)
        run(lambda: model(base_dim=8, decoder_base_dim=16, z_dim=48, is_residual=True, patch_size=2,
                          in_channels=12, out_channels=12, scale_factor_spatial=16,
                          latents_mean=[0.0] * 48, latents_std=[1.0] * 48),
            "2.2", 16, 48, frames, 32, 48, out)
    save_file(out, sys.argv[1])


main()
