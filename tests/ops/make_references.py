#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes references.safetensors and second.safetensors, in JAX, float64.

    pip install jax
    python3 make_references.py [DIRECTORY]

A case NAME of the first has inputs NAME.in0, NAME.in1, ..., its result NAME.out, a weight NAME.r
and gradients NAME.grad0, ... of sum(out r).  Integer inputs have no gradient.  adamw.* holds three
steps of the optimizer on a small network.

The second has second derivatives.  With f = sum(r (out + out^2 / 2)), NAME.grad0, ... are gradients
of the sum over all inputs that have one of df/din along, along being NAME.along0, ...
"""

import pathlib
import sys

import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tensor_file

rng = np.random.default_rng(2)


def normal(*shape):
    """float64 values that fp32 can hold."""
    return rng.standard_normal(shape).astype(np.float32).astype(np.float64)


# ---- ops -------------------------------------------------------------------------------------


def attention(q, k, v):
    scores = jnp.einsum("...lhd,...mhd->...hlm", q, k) / np.sqrt(q.shape[-1])
    return jnp.einsum("...hlm,...mhd->...lhd", jax.nn.softmax(scores, -1), v)


def cross_attention(q, k, v, lens):
    out, first = [], 0
    for sample, n in zip(q, np.asarray(lens)):
        rows = slice(first, first + n)
        out.append(attention(sample, k[rows], v[rows]) if n else jnp.zeros_like(sample))
        first += n
    return jnp.stack(out)


def layer_norm(x):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-6)


def rms_norm(x, w):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w


def rope(x, table):
    """x [B, T, H, D], positions on axis 1: a complex product."""
    z = jax.lax.complex(x[..., 0::2], x[..., 1::2])
    z = z * jax.lax.complex(table[..., 0], table[..., 1])[None, :, None, :]
    return jnp.stack([z.real, z.imag], -1).reshape(x.shape)


def rope_table(frames, pairs):
    angle = np.arange(frames)[:, None] * 10000.0 ** (-np.arange(pairs) / pairs)[None, :]
    table = np.stack([np.cos(angle), np.sin(angle)], -1)
    return table.astype(np.float32).astype(np.float64)


def masked_mse(pred, target, mask):
    weight = jnp.asarray(mask, float)[:, None, :, None]
    square = ((pred - target) ** 2 * weight).sum((1, 2, 3))
    count = weight.sum((1, 2, 3)) * pred.shape[1] * pred.shape[3]
    return jnp.where(count > 0, square / jnp.maximum(count, 1), 0).mean()


def cross_entropy(x, label):
    return -jnp.take_along_axis(jax.nn.log_softmax(x), label[:, None], 1).mean()


MASK = np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0]], np.int32)

CASES = {
    "attention": (attention, normal(2, 13, 3, 8), normal(2, 17, 3, 8), normal(2, 17, 3, 8)),
    "cross_attention": (
        cross_attention,
        normal(3, 7, 2, 8),
        normal(12, 2, 8),
        normal(12, 2, 8),
        np.array([6, 0, 4], np.int32),
    ),
    "layer_norm": (layer_norm, normal(5, 37) * 2 + 1),
    "rms_norm": (rms_norm, normal(3, 4, 12), normal(12)),
    "gelu": (lambda x: jax.nn.gelu(x, approximate=True), normal(7, 9) * 3),
    "silu": (jax.nn.silu, normal(7, 9) * 3),
    "rope": (rope, normal(2, 6, 3, 8), rope_table(6, 4)),
    "mse": (masked_mse, normal(3, 2, 4, 5), normal(3, 2, 4, 5), MASK),
    "cross_entropy": (cross_entropy, normal(6, 11) * 2, np.array([0, 10, 3, 3, 7, 1], np.int32)),
}


def run_case(name, op, *inputs):
    floating = [i for i, x in enumerate(inputs) if x.dtype.kind == "f"]
    out = op(*inputs)
    r = normal(*out.shape)

    def total(*values):
        return (op(*values) * r).sum()

    grads = jax.grad(total, argnums=floating)(*inputs)
    result = {f"{name}.in{i}": x for i, x in enumerate(inputs)}
    result.update({f"{name}.grad{i}": g for i, g in zip(floating, grads)})
    return result | {f"{name}.out": out, f"{name}.r": r}


# ---- second derivatives ----------------------------------------------------------------------


def group_norm_silu(x, w, b):
    grouped = x.reshape(*x.shape[:-1], 2, -1)
    mean = grouped.mean((1, 2, 4), keepdims=True)
    var = grouped.var((1, 2, 4), keepdims=True)
    y = ((grouped - mean) / jnp.sqrt(var + 1e-6)).reshape(x.shape)
    return jax.nn.silu(y * w + b)


def max_pool(x):
    """Windows of 3 by 3, 2 apart, padded by 1."""
    return jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))
    )


def critic(x, kernel, w, last):
    """Convolution, group norm, GELU, pool, layer: kernel [C, 3, 3, 1], w [C]."""
    h = jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "OHWI", "NHWC")
    )
    grouped = h.reshape(*h.shape[:-1], 2, -1)
    mean, var = grouped.mean((1, 2, 4), keepdims=True), grouped.var((1, 2, 4), keepdims=True)
    h = ((grouped - mean) / jnp.sqrt(var + 1e-6)).reshape(h.shape) * w
    h = max_pool(jax.nn.gelu(h, approximate=True))
    return h.reshape(len(x), -1) @ last.T


def second_cases():
    yield from CASES.items()
    yield "group_norm_silu", (group_norm_silu, normal(2, 3, 4, 6), normal(6), normal(6))
    yield "max_pool", (max_pool, normal(2, 6, 7, 3))
    critics = (normal(2, 6, 6, 1), normal(4, 3, 3, 1), normal(4), normal(1, 36))
    yield "critic", (critic, *critics)


def run_second(name, op, *inputs):
    fixed = 1 if name in ("rope", "mse") else -1  # a table, a target
    floating = [i for i, x in enumerate(inputs) if x.dtype.kind == "f" and i != fixed]
    r, along = normal(*op(*inputs).shape), [normal(*inputs[i].shape) for i in floating]

    def f(*values):
        out = op(*values)
        return (r * (out + out**2 / 2)).sum()

    def gradients(*values):
        return jax.grad(f, floating)(*values)

    def slope(*values):
        return sum((g * a).sum() for g, a in zip(gradients(*values), along))

    result = {f"{name}.in{i}": x for i, x in enumerate(inputs)} | {f"{name}.r": r}
    result |= {f"{name}.along{i}": a for i, a in zip(floating, along)}
    grads = jax.grad(slope, floating)(*inputs)
    return result | {f"{name}.grad{i}": g for i, g in zip(floating, grads)}


# ---- the optimizer ---------------------------------------------------------------------------

STEPS = 3
# The library takes these as fp32: 1 - 0.999 in fp32 is 1.3e-5 away from 0.001.
LR, BETA1, BETA2, EPS, DECAY, CLIP, EMA = (
    float(np.float32(x)) for x in (1e-2, 0.9, 0.999, 1e-8, 0.1, 0.5, 0.9)
)


def network_loss(w, x, target):
    """x [B, 5], target [B, 2, 3]."""
    h = jax.nn.silu(x @ w["w1"].T + w["b1"])
    return ((h @ w["w2"].T - target.reshape(len(x), -1)) ** 2).mean()


def run_adamw():
    w = {"w1": normal(8, 5), "b1": normal(8), "w2": normal(6, 8)}
    x, target = normal(4, 5), normal(4, 2, 3)
    result = {f"adamw.{k}": v for k, v in w.items()} | {"adamw.x": x, "adamw.target": target}
    m = {k: np.zeros_like(v) for k, v in w.items()}
    v = {k: np.zeros_like(p) for k, p in w.items()}
    ema = dict(w)
    for step in range(1, STEPS + 1):
        loss, g = jax.value_and_grad(network_loss)(w, x, target)
        norm = np.sqrt(sum(float((p**2).sum()) for p in g.values()))
        result |= {f"adamw.loss{step}": loss, f"adamw.norm{step}": norm}
        for k in w:
            clipped = g[k] * min(1, CLIP / (norm + 1e-6))
            m[k] = BETA1 * m[k] + (1 - BETA1) * clipped
            v[k] = BETA2 * v[k] + (1 - BETA2) * clipped**2
            first, second = m[k] / (1 - BETA1**step), v[k] / (1 - BETA2**step)
            w[k] = w[k] - LR * (first / (np.sqrt(second) + EPS) + DECAY * w[k])
            ema[k] = EMA * ema[k] + (1 - EMA) * w[k]
            parts = {"value": w[k], "exp_avg": m[k], "exp_avg_sq": v[k], "ema": ema[k]}
            result |= {f"adamw.{k}.{part}{step}": x for part, x in parts.items()}
    return result


def main():
    directory = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    result = run_adamw()
    for name, (op, *inputs) in CASES.items():
        result |= run_case(name, op, *inputs)
    tensor_file.write(directory / "references.safetensors", result)
    print(f"{len(result)} tensors")
    second = {}
    for name, (op, *inputs) in second_cases():
        second |= run_second(name, op, *inputs)
    tensor_file.write(directory / "second.safetensors", second)
    print(f"{len(second)} tensors of second derivatives")


if __name__ == "__main__":
    main()
