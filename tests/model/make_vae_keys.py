#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the state dict of Open-Sora's VAE v1.2, a line for a tensor: its name and its shape.

    python3 make_vae_keys.py >vae_keys.txt

The scale and the shift of the latents come first.  Written from the published layout alone: it
shares nothing with the C implementation.
"""


def show(name, *shape):
    print(name, "x".join(map(str, shape)))


def norm(name, width):
    show(f"{name}.weight", width)
    show(f"{name}.bias", width)


def conv(name, out, into, kernel, bias=True):
    show(f"{name}.weight", out, into, *kernel)
    if bias:
        show(f"{name}.bias", out)


# ---- pictures ----------------------------------------------------------------------------------

SPATIAL = "spatial_vae.module"
THREE, ONE = (3, 3), (1, 1)


def residual(name, into, out):
    norm(f"{name}.norm1", into)
    conv(f"{name}.conv1", out, into, THREE)
    norm(f"{name}.norm2", out)
    conv(f"{name}.conv2", out, out, THREE)
    if into != out:
        conv(f"{name}.conv_shortcut", out, into, ONE)


def middle(name):
    residual(f"{name}.resnets.0", 512, 512)
    residual(f"{name}.resnets.1", 512, 512)
    norm(f"{name}.attentions.0.group_norm", 512)
    for layer in "to_q", "to_k", "to_v", "to_out.0":
        conv(f"{name}.attentions.0.{layer}", 512, 512, ())


def spatial():
    conv(f"{SPATIAL}.encoder.conv_in", 128, 3, THREE)
    for block, pairs in enumerate([[(128, 128)] * 2, [(128, 256), (256, 256)],
                                   [(256, 512), (512, 512)], [(512, 512)] * 2]):
        at = f"{SPATIAL}.encoder.down_blocks.{block}"
        for i, pair in enumerate(pairs):
            residual(f"{at}.resnets.{i}", *pair)
        if block < 3:
            conv(f"{at}.downsamplers.0.conv", pairs[-1][1], pairs[-1][1], THREE)
    middle(f"{SPATIAL}.encoder.mid_block")
    norm(f"{SPATIAL}.encoder.conv_norm_out", 512)
    conv(f"{SPATIAL}.encoder.conv_out", 8, 512, THREE)
    conv(f"{SPATIAL}.quant_conv", 8, 8, ONE)
    conv(f"{SPATIAL}.post_quant_conv", 4, 4, ONE)
    conv(f"{SPATIAL}.decoder.conv_in", 512, 4, THREE)
    middle(f"{SPATIAL}.decoder.mid_block")
    for block, pairs in enumerate([[(512, 512)] * 3, [(512, 512)] * 3,
                                   [(512, 256)] + [(256, 256)] * 2,
                                   [(256, 128)] + [(128, 128)] * 2]):
        at = f"{SPATIAL}.decoder.up_blocks.{block}"
        for i, pair in enumerate(pairs):
            residual(f"{at}.resnets.{i}", *pair)
        if block < 3:
            conv(f"{at}.upsamplers.0.conv", pairs[-1][1], pairs[-1][1], THREE)
    norm(f"{SPATIAL}.decoder.conv_norm_out", 128)
    conv(f"{SPATIAL}.decoder.conv_out", 3, 128, THREE)


# ---- time --------------------------------------------------------------------------------------

TIME = "temporal_vae"
CUBE, POINT = (3, 3, 3), (1, 1, 1)


def block(name, into, out):
    norm(f"{name}.norm1", into)
    conv(f"{name}.conv1.conv", out, into, CUBE, bias=False)
    norm(f"{name}.norm2", out)
    conv(f"{name}.conv2.conv", out, out, CUBE, bias=False)
    if into != out:
        conv(f"{name}.conv3.conv", out, into, POINT, bias=False)


def four(name, into, out):
    for i in range(4):
        block(f"{name}.{i}", into if i == 0 else out, out)


def temporal():
    at = f"{TIME}.encoder"
    conv(f"{at}.conv_in.conv", 128, 4, CUBE, bias=False)
    four(f"{at}.block_res_blocks.0", 128, 128)
    four(f"{at}.block_res_blocks.1", 128, 256)
    conv(f"{at}.conv_blocks.1.conv", 256, 256, CUBE)
    four(f"{at}.block_res_blocks.2", 256, 256)
    conv(f"{at}.conv_blocks.2.conv", 256, 256, CUBE)
    four(f"{at}.block_res_blocks.3", 256, 512)
    four(f"{at}.res_blocks", 512, 512)
    norm(f"{at}.norm1", 512)
    conv(f"{at}.conv2.conv", 8, 512, POINT)
    conv(f"{TIME}.quant_conv.conv", 8, 8, POINT)
    conv(f"{TIME}.post_quant_conv.conv", 4, 4, POINT)
    at = f"{TIME}.decoder"
    conv(f"{at}.conv1.conv", 512, 4, CUBE)
    four(f"{at}.res_blocks", 512, 512)
    four(f"{at}.block_res_blocks.3", 512, 512)
    conv(f"{at}.conv_blocks.2.conv", 1024, 512, CUBE)
    four(f"{at}.block_res_blocks.2", 512, 256)
    conv(f"{at}.conv_blocks.1.conv", 512, 256, CUBE)
    four(f"{at}.block_res_blocks.1", 256, 256)
    four(f"{at}.block_res_blocks.0", 256, 128)
    norm(f"{at}.norm1", 128)
    conv(f"{at}.conv_out.conv", 4, 128, CUBE)


show("scale", 1, 4, 1, 1, 1)
show("shift", 1, 4, 1, 1, 1)
spatial()
temporal()
