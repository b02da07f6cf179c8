#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference files of the whole-model test: an STDiT3 in JAX, float64 throughout.

    pip install jax
    python3 make_stdit_reference.py [DIRECTORY]

writes stdit_features.safetensors (what the trainer takes with --features), stdit_weights.safetensors
(what it takes with --load) and stdit_expected.safetensors (loss, pred and grad.<key>, as it writes
with --dump).  It shares no code with the C implementation: every layer is written out in the plainest
form, one sample at a time for the text.  All weights and inputs are numbers that bf16 can hold, so
that a bf16 run starts from exactly the same model.
"""

import pathlib
import sys

import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tensor_file

HIDDEN, HEADS, DEPTH, MLP = 24, 2, 2, 4
CHANNELS, OUT_CHANNELS, PATCH = 4, 8, 2
CAPTION, TEXT = 20, 10
BATCH, FRAMES, HEIGHT, WIDTH = 2, 3, 5, 8  # a grid of 3 rows and 4 columns
HEAD_DIM = HIDDEN // HEADS
FEATURES = 256  # of a timestep


# ---- layers ----------------------------------------------------------------------------------


def linear(w, name, x):
    return x @ w[name + ".weight"].T + w[name + ".bias"]


def silu(x):
    return x / (1 + jnp.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + jnp.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def layer_norm(x):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-6)


def rms_norm(x, weight):
    return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weight


def softmax(x):
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attend(q, k, v):
    """q [..., L, heads, d], k and v [..., M, heads, d]."""
    scores = jnp.einsum("...lhd,...mhd->...hlm", q, k) / np.sqrt(HEAD_DIM)
    return jnp.einsum("...hlm,...mhd->...lhd", softmax(scores), v)


def rotate(x):
    """Rotary embedding of x [..., L, heads, d] by its place on axis L."""
    freqs = rope_freqs()
    angle = np.arange(x.shape[-3])[:, None] * freqs[None, :]
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    a, b = x[..., 0::2], x[..., 1::2]
    return jnp.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)


def rope_freqs():
    return 10000.0 ** (-2 * np.arange(HEAD_DIM // 2) / HEAD_DIM)


def heads(x):
    return x.reshape(x.shape[:-1] + (HEADS, HEAD_DIM))


def flat(x):
    return x.reshape(x.shape[:-2] + (HIDDEN,))


# ---- embedders -------------------------------------------------------------------------------


def sinusoid(t):
    freqs = np.exp(-np.log(10000.0) * np.arange(FEATURES // 2) / (FEATURES // 2))
    angle = t[:, None] * freqs[None, :]
    return np.concatenate([np.cos(angle), np.sin(angle)], 1)


def embed_scalar(w, name, value):
    return linear(w, name + ".mlp.2", silu(linear(w, name + ".mlp.0", sinusoid(value))))


def position_table(rows, columns, height, width):
    """[rows columns, HIDDEN]: the first half of the channels holds the column, the last the row."""
    quarter = HIDDEN // 4
    inv = 10000.0 ** (-2 * np.arange(quarter) / (HIDDEN // 2))
    scale = np.sqrt(height * width) / 512
    base = round(np.sqrt(rows * columns))

    def half(n):
        angle = (np.arange(n) / scale * base / n)[:, None] * inv[None, :]
        return np.concatenate([np.sin(angle), np.cos(angle)], 1)

    column, row = half(columns), half(rows)
    table = [np.concatenate([column[j], row[i]]) for i in range(rows) for j in range(columns)]
    return np.stack(table)


def embed_patches(w, z):
    """z [B, C, T, H, W] -> [B, T, S, HIDDEN], tokens of a frame row by row."""
    b, c, t, h, wd = z.shape
    z = jnp.pad(z, ((0, 0), (0, 0), (0, 0), (0, -h % PATCH), (0, -wd % PATCH)))
    rows, columns = z.shape[3] // PATCH, z.shape[4] // PATCH
    z = z.reshape(b, c, t, rows, PATCH, columns, PATCH)
    kernel = w["x_embedder.proj.weight"][:, :, 0]
    x = jnp.einsum("bctiyjx,ocyx->btijo", z, kernel) + w["x_embedder.proj.bias"]
    return x.reshape(b, t, rows * columns, HIDDEN), rows, columns


# ---- blocks ----------------------------------------------------------------------------------


def choose(x_mask, noised, clean):
    """Per frame: x_mask [B, T], the others [B, T, S, HIDDEN]."""
    return jnp.where(x_mask[:, :, None, None], noised, clean)


def frames(x):
    return x[:, None, None, :]


def modulate(x, shift, scale):
    return x * (1 + frames(scale)) + frames(shift)


def self_attention(w, name, x, temporal):
    """x [B, T, S, HIDDEN]; spatial: along S, temporal: along T with rotary positions."""
    if temporal:
        x = x.swapaxes(1, 2)
    qkv = linear(w, name + ".qkv", x)
    q, k, v = (heads(qkv[..., i * HIDDEN : (i + 1) * HIDDEN]) for i in range(3))
    q = rms_norm(q, w[name + ".q_norm.weight"])
    k = rms_norm(k, w[name + ".k_norm.weight"])
    if temporal:
        q, k = rotate(q), rotate(k)
    out = linear(w, name + ".proj", flat(attend(q, k, v)))
    return out.swapaxes(1, 2) if temporal else out


def cross_attention(w, name, x, texts):
    """texts: one [len, HIDDEN] per sample; a sample sees its own tokens only."""
    out = []
    for sample, text in zip(x, texts):
        q = heads(linear(w, name + ".q_linear", sample.reshape(-1, HIDDEN)))
        kv = linear(w, name + ".kv_linear", text)
        k, v = heads(kv[:, :HIDDEN]), heads(kv[:, HIDDEN:])
        out.append(flat(attend(q, k, v)).reshape(sample.shape))
    return linear(w, name + ".proj", jnp.stack(out))


def block(w, name, x, texts, t6, t6_clean, x_mask, temporal):
    table = w[name + ".scale_shift_table"]
    noised = jnp.moveaxis(table[None] + t6.reshape(-1, 6, HIDDEN), 1, 0)
    clean = jnp.moveaxis(table[None] + t6_clean.reshape(-1, 6, HIDDEN), 1, 0)

    def modulated(x, shift, scale):
        n = layer_norm(x)
        return choose(
            x_mask,
            modulate(n, noised[shift], noised[scale]),
            modulate(n, clean[shift], clean[scale]),
        )

    def gated(x, gate):
        return choose(x_mask, x * frames(noised[gate]), x * frames(clean[gate]))

    x = x + gated(self_attention(w, name + ".attn", modulated(x, 0, 1), temporal), 2)
    x = x + cross_attention(w, name + ".cross_attn", x, texts)
    hidden = gelu(linear(w, name + ".mlp.fc1", modulated(x, 3, 4)))
    return x + gated(linear(w, name + ".mlp.fc2", hidden), 5)


def final_layer(w, x, t, t_clean, x_mask):
    table = w["final_layer.scale_shift_table"]
    z = modulate(layer_norm(x), table[0] + t, table[1] + t)
    # The clean set is applied to what the first set already modulated, as Open-Sora does.
    again = modulate(layer_norm(z), table[0] + t_clean, table[1] + t_clean)
    return linear(w, "final_layer.linear", choose(x_mask, z, again))


def unpatchify(x, rows, columns):
    """x [B, T, S, pT pH pW C], channel fastest -> [B, C, T, HEIGHT, WIDTH]."""
    x = x.reshape(BATCH, FRAMES, rows, columns, PATCH, PATCH, OUT_CHANNELS)
    x = x.transpose(0, 6, 1, 2, 4, 3, 5)
    x = x.reshape(BATCH, OUT_CHANNELS, FRAMES, rows * PATCH, columns * PATCH)
    return x[:, :, :, :HEIGHT, :WIDTH]


def stdit(w, f, x_in):
    fps = embed_scalar(w, "fps_embedder", f["fps"])
    t = embed_scalar(w, "t_embedder", f["t"]) + fps
    t_clean = embed_scalar(w, "t_embedder", np.zeros(BATCH)) + fps
    t6, t6_clean = (linear(w, "t_block.1", silu(s)) for s in (t, t_clean))
    y = gelu(linear(w, "y_embedder.y_proj.fc1", f["y"]))
    y = linear(w, "y_embedder.y_proj.fc2", y)
    texts = [y[b][np.flatnonzero(f["mask"][b])] for b in range(BATCH)]
    x, rows, columns = embed_patches(w, x_in)
    x = x + position_table(rows, columns, f["height"][0], f["width"][0])
    x_mask = f["x_mask"] != 0
    for i in range(DEPTH):
        for kind in ("spatial", "temporal"):
            name = f"{kind}_blocks.{i}"
            x = block(w, name, x, texts, t6, t6_clean, x_mask, kind == "temporal")
    return unpatchify(final_layer(w, x, t, t_clean, x_mask), rows, columns)


# ---- objective -------------------------------------------------------------------------------


def loss(w, f):
    """Rectified flow: x_u = (1 - u) z + u eps, target z - eps, noised frames only."""
    z, eps = f["z"], f["eps"]
    u = (f["t"] / 1000)[:, None, None, None, None]
    noised = (f["x_mask"] != 0)[:, None, :, None, None]
    x_in = jnp.where(noised, (1 - u) * z + u * eps, z)
    pred = stdit(w, f, x_in)[:, :CHANNELS]
    square = jnp.where(noised, (pred - (z - eps)) ** 2, 0).sum((1, 2, 3, 4))
    count = f["x_mask"].sum(1) * CHANNELS * HEIGHT * WIDTH
    return (square / count).mean(), pred


# ---- weights and inputs ----------------------------------------------------------------------


def block_shapes(name):
    square = lambda out, n_in: {".weight": (out, n_in), ".bias": (out,)}
    layers = {
        ".attn.qkv": square(3 * HIDDEN, HIDDEN),
        ".attn.q_norm": {".weight": (HEAD_DIM,)},
        ".attn.k_norm": {".weight": (HEAD_DIM,)},
        ".attn.proj": square(HIDDEN, HIDDEN),
        ".cross_attn.q_linear": square(HIDDEN, HIDDEN),
        ".cross_attn.kv_linear": square(2 * HIDDEN, HIDDEN),
        ".cross_attn.proj": square(HIDDEN, HIDDEN),
        ".mlp.fc1": square(MLP * HIDDEN, HIDDEN),
        ".mlp.fc2": square(HIDDEN, MLP * HIDDEN),
    }
    shapes = {name + ".scale_shift_table": (6, HIDDEN)}
    for layer, parts in layers.items():
        shapes.update({name + layer + part: shape for part, shape in parts.items()})
    return shapes


def parameter_shapes():
    shapes = {
        "x_embedder.proj.weight": (HIDDEN, CHANNELS, 1, PATCH, PATCH),
        "x_embedder.proj.bias": (HIDDEN,),
    }
    for name in ("t_embedder", "fps_embedder"):
        shapes[name + ".mlp.0.weight"] = (HIDDEN, FEATURES)
        shapes[name + ".mlp.0.bias"] = (HIDDEN,)
        shapes[name + ".mlp.2.weight"] = (HIDDEN, HIDDEN)
        shapes[name + ".mlp.2.bias"] = (HIDDEN,)
    shapes["t_block.1.weight"] = (6 * HIDDEN, HIDDEN)
    shapes["t_block.1.bias"] = (6 * HIDDEN,)
    shapes["y_embedder.y_proj.fc1.weight"] = (HIDDEN, CAPTION)
    shapes["y_embedder.y_proj.fc1.bias"] = (HIDDEN,)
    shapes["y_embedder.y_proj.fc2.weight"] = (HIDDEN, HIDDEN)
    shapes["y_embedder.y_proj.fc2.bias"] = (HIDDEN,)
    for i in range(DEPTH):
        shapes.update(block_shapes(f"spatial_blocks.{i}"))
        shapes.update(block_shapes(f"temporal_blocks.{i}"))
    shapes["final_layer.scale_shift_table"] = (2, HIDDEN)
    shapes["final_layer.linear.weight"] = (PATCH * PATCH * OUT_CHANNELS, HIDDEN)
    shapes["final_layer.linear.bias"] = (PATCH * PATCH * OUT_CHANNELS,)
    return shapes


def make_weights(rng):
    """No weight is zero, so that every gradient says something."""
    weights = {}
    for name, shape in parameter_shapes().items():
        value = rng.standard_normal(shape)
        if name.endswith("_norm.weight"):
            value = 1 + 0.2 * value
        elif name.endswith(".weight"):
            value *= 1 / np.sqrt(np.prod(shape[1:]))
        elif name.endswith("scale_shift_table"):
            value *= 0.3
        else:
            value *= 0.1
        weights[name] = tensor_file.bf16_round(value)
    return weights


def make_features(rng):
    latent = (BATCH, CHANNELS, FRAMES, HEIGHT, WIDTH)
    mask = np.zeros((BATCH, TEXT), np.int32)
    mask[0, :7] = 1
    mask[1, [0, 1, 2, 4]] = 1  # a hole: packing must look at every place
    return {
        "z": tensor_file.bf16_round(rng.standard_normal(latent)),
        "y": tensor_file.bf16_round(rng.standard_normal((BATCH, TEXT, CAPTION))),
        "mask": mask,
        "fps": np.array([24.0, 8.0]),
        "t": np.array([171.0, 748.0]),
        "eps": tensor_file.bf16_round(rng.standard_normal(latent)),
        "x_mask": np.array([[1, 0, 1], [0, 1, 1]], np.int32),
        "height": np.full(BATCH, 8.0 * HEIGHT),
        "width": np.full(BATCH, 8.0 * WIDTH),
    }


def main():
    directory = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    rng = np.random.default_rng(1)
    weights, features = make_weights(rng), make_features(rng)
    (value, pred), grads = jax.value_and_grad(loss, has_aux=True)(weights, features)
    buffers = {
        "y_embedder.y_embedding": tensor_file.bf16_round(rng.standard_normal((TEXT, CAPTION))),
        "rope.freqs": rope_freqs(),
    }
    expected = {"loss": value, "pred": pred}
    expected.update({"grad." + name: grads[name] for name in weights})
    tensor_file.write(directory / "stdit_features.safetensors", features)
    tensor_file.write(
        directory / "stdit_weights.safetensors",
        weights | buffers,
        bf16=set(weights) | {"y_embedder.y_embedding"},
    )
    tensor_file.write(directory / "stdit_expected.safetensors", expected)
    norm = np.sqrt(sum(float((g**2).sum()) for g in grads.values()))
    print(f"loss {float(value):.9f}, gradient norm {norm:.9f}, {len(weights)} parameters")


if __name__ == "__main__":
    main()
