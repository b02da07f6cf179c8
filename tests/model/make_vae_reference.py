#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference files of the autoencoder's test: the VAE of Open-Sora 1.2 in JAX, in float64.

    pip install jax
    python3 make_vae_reference.py [DIRECTORY]

writes vae_weights.safetensors (what vae-train takes with --load), vae_clip.safetensors and
vae_image.safetensors (--tensors), and vae_stage3.safetensors, vae_stage2.safetensors and
vae_stage1.safetensors (loss, pred and grad.<key>, as it writes with --dump; stage 1 on the image).
It shares no code with the C implementation and has its axes in another order: channels first, as in
the files.  Every kernel is walked tap by tap.  All weights and inputs are numbers that bf16 can hold,
so that a bf16 run starts from exactly the same model.

The difference of every value and what comes back is kept away from zero by the last biases: its sign,
which is all that the gradient of |x - y| has of it, does not depend on rounding.
"""

import itertools
import pathlib
import sys

import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tensor_file

LATENT, GROUPS = 2, 2
SPATIAL, SPATIAL_LAYERS = (4, 6, 6), 1
TEMPORAL, TEMPORAL_LAYERS = (4, 4, 6, 8), 1
BATCH, FRAMES, HEIGHT, WIDTH = 2, 5, 16, 12
FACTOR, KL = 0.18215, 0.5
SPACE, TIME = "spatial_vae.module.", "temporal_vae."


# ---- layers: x [N, C, places...] -----------------------------------------------------------------


def conv(x, kernel, bias, before, after, stride):
    """Tap by tap; before, after and stride have an entry per axis of places."""
    x = jnp.pad(x, [(0, 0), (0, 0)] + list(zip(before, after)))
    sizes = [(n - k) // s + 1 for n, k, s in zip(x.shape[2:], kernel.shape[2:], stride)]
    y = 0
    for tap in itertools.product(*(range(k) for k in kernel.shape[2:])):
        places = [slice(t, t + (n - 1) * s + 1, s) for t, n, s in zip(tap, sizes, stride)]
        seen = x[(slice(None), slice(None), *places)]
        y = y + jnp.einsum("nc...,kc->nk...", seen, kernel[(slice(None), slice(None), *tap)])
    return y if bias is None else y + bias.reshape((-1,) + (1,) * len(sizes))


def group_norm(w, name, x, eps):
    groups = x.reshape(x.shape[0], GROUPS, -1)
    mean = groups.mean(-1, keepdims=True)
    var = ((groups - mean) ** 2).mean(-1, keepdims=True)
    y = ((groups - mean) / jnp.sqrt(var + eps)).reshape(x.shape)
    per_channel = (-1,) + (1,) * (x.ndim - 2)
    return y * w[name + ".weight"].reshape(per_channel) + w[name + ".bias"].reshape(per_channel)


def silu(x):
    return x / (1 + jnp.exp(-x))


# ---- pictures ------------------------------------------------------------------------------------


def same(w, name, x):
    kernel = w[name + ".weight"]
    pad = [kernel.shape[2] // 2] * 2
    return conv(x, kernel, w[name + ".bias"], pad, pad, (1, 1))


def residual(w, name, x):
    h = same(w, name + ".conv1", silu(group_norm(w, name + ".norm1", x, 1e-6)))
    h = same(w, name + ".conv2", silu(group_norm(w, name + ".norm2", h, 1e-6)))
    if name + ".conv_shortcut.weight" in w:
        x = same(w, name + ".conv_shortcut", x)
    return x + h


def attention(w, name, x):
    n, c, height, width = x.shape
    h = group_norm(w, name + ".group_norm", x, 1e-6).reshape(n, c, -1).swapaxes(1, 2)
    linear = lambda key, v: v @ w[f"{name}.{key}.weight"].T + w[f"{name}.{key}.bias"]
    q, k, v = (linear(key, h) for key in ("to_q", "to_k", "to_v"))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(c)
    e = jnp.exp(scores - scores.max(-1, keepdims=True))
    h = linear("to_out.0", e / e.sum(-1, keepdims=True) @ v)
    return x + h.swapaxes(1, 2).reshape(x.shape)


def middle(w, name, x):
    x = residual(w, name + ".resnets.0", x)
    return residual(w, name + ".resnets.1", attention(w, name + ".attentions.0", x))


def encode_pictures(w, x):
    x = same(w, SPACE + "encoder.conv_in", x)
    for level in range(len(SPATIAL)):
        at = f"{SPACE}encoder.down_blocks.{level}"
        for layer in range(SPATIAL_LAYERS):
            x = residual(w, f"{at}.resnets.{layer}", x)
        if level + 1 < len(SPATIAL):
            key = at + ".downsamplers.0.conv"
            x = conv(x, w[key + ".weight"], w[key + ".bias"], (0, 0), (1, 1), (2, 2))
    x = middle(w, SPACE + "encoder.mid_block", x)
    x = same(w, SPACE + "encoder.conv_out", silu(group_norm(w, SPACE + "encoder.conv_norm_out", x, 1e-6)))
    return same(w, SPACE + "quant_conv", x)


def decode_pictures(w, z):
    x = same(w, SPACE + "decoder.conv_in", same(w, SPACE + "post_quant_conv", z))
    x = middle(w, SPACE + "decoder.mid_block", x)
    for block in range(len(SPATIAL)):
        at = f"{SPACE}decoder.up_blocks.{block}"
        for layer in range(SPATIAL_LAYERS + 1):
            x = residual(w, f"{at}.resnets.{layer}", x)
        if block + 1 < len(SPATIAL):
            x = same(w, at + ".upsamplers.0.conv", x.repeat(2, 2).repeat(2, 3))
    return same(w, SPACE + "decoder.conv_out", silu(group_norm(w, SPACE + "decoder.conv_norm_out", x, 1e-6)))


# ---- time ----------------------------------------------------------------------------------------


def causal(w, name, x, stride=1):
    kernel = w[name + ".conv.weight"]
    k, pad = kernel.shape[2], kernel.shape[3] // 2
    return conv(x, kernel, w.get(name + ".conv.bias"), (k - 1 + 1 - stride, pad, pad), (0, pad, pad),
                (stride, 1, 1))


def block(w, name, x):
    h = causal(w, name + ".conv1", silu(group_norm(w, name + ".norm1", x, 1e-5)))
    h = causal(w, name + ".conv2", silu(group_norm(w, name + ".norm2", h, 1e-5)))
    if name + ".conv3.conv.weight" in w:
        x = causal(w, name + ".conv3", x)
    return x + h


def blocks(w, name, x):
    for layer in range(TEMPORAL_LAYERS):
        x = block(w, f"{name}.{layer}", x)
    return x


def halved():
    """Time is halved after these levels."""
    return range(len(TEMPORAL) - 3, len(TEMPORAL) - 1)


def encode_time(w, z):
    at = TIME + "encoder."
    x = jnp.pad(z, ((0, 0), (0, 0), (-z.shape[2] % 4, 0), (0, 0), (0, 0)))
    x = causal(w, at + "conv_in", x)
    for level in range(len(TEMPORAL)):
        x = blocks(w, f"{at}block_res_blocks.{level}", x)
        if level in halved():
            x = causal(w, f"{at}conv_blocks.{level}", x, stride=2)
    x = blocks(w, at + "res_blocks", x)
    x = causal(w, at + "conv2", silu(group_norm(w, at + "norm1", x, 1e-5)))
    return causal(w, TIME + "quant_conv", x)


def decode_time(w, z, frames):
    at = TIME + "decoder."
    x = causal(w, at + "conv1", causal(w, TIME + "post_quant_conv", z))
    x = blocks(w, at + "res_blocks", x)
    for level in reversed(range(len(TEMPORAL))):
        x = blocks(w, f"{at}block_res_blocks.{level}", x)
        if level - 1 in halved():
            x = causal(w, f"{at}conv_blocks.{level - 1}", x)
            n, c, t, height, width = x.shape
            x = x.reshape(n, c // 2, 2, t, height, width)
            x = x.transpose(0, 1, 3, 2, 4, 5).reshape(n, c // 2, 2 * t, height, width)
    x = causal(w, at + "conv_out", silu(group_norm(w, at + "norm1", x, 1e-5)))
    return x[:, :, -frames % 4 :]


# ---- the three stages ----------------------------------------------------------------------------


def sample(moments, noise):
    mean, logvar = jnp.split(moments, 2, axis=1)
    logvar = jnp.clip(logvar, -30, 20)
    return mean + jnp.exp(logvar / 2) * noise, mean, logvar


def per_frame(record, w, x):
    """x [B, C, T, H, W] through a function of pictures."""
    n, c, t, height, width = x.shape
    y = record(w, x.swapaxes(1, 2).reshape(n * t, c, height, width))
    return y.reshape((n, t) + y.shape[1:]).swapaxes(1, 2)


def difference(x, y):
    """Sum over a frame, mean over frames."""
    return jnp.abs(x - y).sum((1, 3, 4)).mean()


def loss(w, f, stage):
    x, noise_2d, noise = (jnp.moveaxis(f[key], -1, 1) for key in ("x", "noise_2d", "noise"))
    pictures = FACTOR * sample(per_frame(encode_pictures, w, x), noise_2d)[0]
    z, mean, logvar = sample(encode_time(w, pictures), noise)
    back = decode_time(w, z, x.shape[2])
    if stage < 3:
        value = difference(pictures, back)
        if stage == 1 and x.shape[2] == 1:
            value += difference(pictures, z)
        return value, back
    y = per_frame(decode_pictures, w, back / FACTOR)
    kl = 0.5 * (mean**2 + jnp.exp(logvar) - 1 - logvar).sum() / x.shape[0]
    return difference(x, y) + KL * kl, y


# ---- weights and inputs --------------------------------------------------------------------------


def add(shapes, name, kernel, bias=True):
    shapes[name + ".weight"] = kernel
    if bias:
        shapes[name + ".bias"] = kernel[:1]


def add_norm(shapes, name, width):
    add(shapes, name, (width,))


def add_residual(shapes, name, into, out):
    add_norm(shapes, name + ".norm1", into)
    add(shapes, name + ".conv1", (out, into, 3, 3))
    add_norm(shapes, name + ".norm2", out)
    add(shapes, name + ".conv2", (out, out, 3, 3))
    if into != out:
        add(shapes, name + ".conv_shortcut", (out, into, 1, 1))


def add_middle(shapes, name, width):
    for i in range(2):
        add_residual(shapes, f"{name}.resnets.{i}", width, width)
    add_norm(shapes, name + ".attentions.0.group_norm", width)
    for key in ("to_q", "to_k", "to_v", "to_out.0"):
        add(shapes, f"{name}.attentions.0.{key}", (width, width))


def picture_shapes(shapes):
    into = SPATIAL[0]
    add(shapes, SPACE + "encoder.conv_in", (into, 3, 3, 3))
    for level, width in enumerate(SPATIAL):
        at = f"{SPACE}encoder.down_blocks.{level}"
        for layer in range(SPATIAL_LAYERS):
            add_residual(shapes, f"{at}.resnets.{layer}", into, width)
            into = width
        if level + 1 < len(SPATIAL):
            add(shapes, at + ".downsamplers.0.conv", (into, into, 3, 3))
    for side in ("encoder", "decoder"):
        add_middle(shapes, f"{SPACE}{side}.mid_block", into)
    add_norm(shapes, SPACE + "encoder.conv_norm_out", into)
    add(shapes, SPACE + "encoder.conv_out", (2 * LATENT, into, 3, 3))
    add(shapes, SPACE + "quant_conv", (2 * LATENT, 2 * LATENT, 1, 1))
    add(shapes, SPACE + "post_quant_conv", (LATENT, LATENT, 1, 1))
    add(shapes, SPACE + "decoder.conv_in", (into, LATENT, 3, 3))
    for number, width in enumerate(reversed(SPATIAL)):
        at = f"{SPACE}decoder.up_blocks.{number}"
        for layer in range(SPATIAL_LAYERS + 1):
            add_residual(shapes, f"{at}.resnets.{layer}", into, width)
            into = width
        if number + 1 < len(SPATIAL):
            add(shapes, at + ".upsamplers.0.conv", (into, into, 3, 3))
    add_norm(shapes, SPACE + "decoder.conv_norm_out", into)
    add(shapes, SPACE + "decoder.conv_out", (3, into, 3, 3))


def add_blocks(shapes, name, into, out):
    for layer in range(TEMPORAL_LAYERS):
        at = f"{name}.{layer}"
        add_norm(shapes, at + ".norm1", into)
        add(shapes, at + ".conv1.conv", (out, into, 3, 3, 3), bias=False)
        add_norm(shapes, at + ".norm2", out)
        add(shapes, at + ".conv2.conv", (out, out, 3, 3, 3), bias=False)
        if into != out:
            add(shapes, at + ".conv3.conv", (out, into, 1, 1, 1), bias=False)
        into = out


def time_shapes(shapes):
    into, last = TEMPORAL[0], TEMPORAL[-1]
    add(shapes, TIME + "encoder.conv_in.conv", (into, LATENT, 3, 3, 3), bias=False)
    for level, width in enumerate(TEMPORAL):
        add_blocks(shapes, f"{TIME}encoder.block_res_blocks.{level}", into, width)
        into = width
        if level in halved():
            add(shapes, f"{TIME}encoder.conv_blocks.{level}.conv", (into, into, 3, 3, 3))
    for side in ("encoder", "decoder"):
        add_blocks(shapes, f"{TIME}{side}.res_blocks", last, last)
    add_norm(shapes, TIME + "encoder.norm1", last)
    add(shapes, TIME + "encoder.conv2.conv", (2 * LATENT, last, 1, 1, 1))
    add(shapes, TIME + "quant_conv.conv", (2 * LATENT, 2 * LATENT, 1, 1, 1))
    add(shapes, TIME + "post_quant_conv.conv", (LATENT, LATENT, 1, 1, 1))
    add(shapes, TIME + "decoder.conv1.conv", (last, LATENT, 3, 3, 3))
    for level, width in reversed(list(enumerate(TEMPORAL))):
        add_blocks(shapes, f"{TIME}decoder.block_res_blocks.{level}", into, width)
        into = width
        if level - 1 in halved():
            add(shapes, f"{TIME}decoder.conv_blocks.{level - 1}.conv", (2 * into, into, 3, 3, 3))
    add_norm(shapes, TIME + "decoder.norm1", into)
    add(shapes, TIME + "decoder.conv_out.conv", (LATENT, into, 3, 3, 3))


def make_weights(rng):
    shapes, weights = {}, {}
    picture_shapes(shapes)
    time_shapes(shapes)
    for name, shape in shapes.items():
        value = rng.standard_normal(shape)
        if len(shape) > 1:
            value *= 1 / np.sqrt(np.prod(shape[1:]))
        elif name.endswith(".weight"):
            value = 1 + 0.2 * value
        else:
            value *= 0.1
        if name.endswith("decoder.conv_out.bias") or name.endswith("decoder.conv_out.conv.bias"):
            value = 6.0 * (-1) ** np.arange(shape[0])
        weights[name] = tensor_file.bf16_round(value)
    # The spread of a sample is a matter of one; so is the distance of the two kinds of latents.
    weights[TIME + "quant_conv.conv.bias"] = np.array([4.0, -4.0, 0.0, 0.5])
    return weights


def make_tensors(rng, frames):
    height, width = (n // 2 ** (len(SPATIAL) - 1) for n in (HEIGHT, WIDTH))
    shapes = {
        "x": (BATCH, frames, HEIGHT, WIDTH, 3),
        "noise_2d": (BATCH, frames, height, width, LATENT),
        "noise": (BATCH, -(-frames // 4), height, width, LATENT),
    }
    scale = {"x": 0.5, "noise_2d": 1, "noise": 0.5}
    return {k: tensor_file.bf16_round(scale[k] * rng.standard_normal(s)) for k, s in shapes.items()}


def trained(name, stage):
    if stage == 3 or name.startswith(TIME):
        return True
    return stage == 2 and not ("decoder" in name or "post_quant" in name)


def last(x):
    """Channels last, as programs have them: kernels [K, ..., C], clips [B, T, H, W, C]."""
    return np.moveaxis(np.asarray(x), 1, -1)


def write_stage(directory, weights, tensors, stage):
    (value, pred), grads = jax.value_and_grad(loss, has_aux=True)(weights, tensors, stage)
    expected = {"loss": value, "pred": last(pred)}
    for name, g in grads.items():
        if trained(name, stage):
            expected["grad." + name] = last(g) if g.ndim > 2 else g
    tensor_file.write(directory / f"vae_stage{stage}.safetensors", expected)
    print(f"stage {stage}: loss {value:.6f}, gradients' norm "
          f"{np.sqrt(sum((np.asarray(g) ** 2).sum() for g in grads.values())):.4f}")


def main():
    directory = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    rng = np.random.default_rng(1)
    weights, clip, image = make_weights(rng), make_tensors(rng, FRAMES), make_tensors(rng, 1)
    tensor_file.write(directory / "vae_weights.safetensors", weights, bf16=set(weights))
    tensor_file.write(directory / "vae_clip.safetensors", clip, bf16=set(clip))
    tensor_file.write(directory / "vae_image.safetensors", image, bf16=set(image))
    write_stage(directory, weights, clip, 3)
    write_stage(directory, weights, clip, 2)
    write_stage(directory, weights, image, 1)


main()
