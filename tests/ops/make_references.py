#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes references.safetensors: inputs, results and gradients of the main ops, in JAX, float64.

    pip install jax
    python3 make_references.py [DIRECTORY]

A case NAME has inputs NAME.in0, NAME.in1, ..., its result NAME.out, a weight NAME.r and gradients
NAME.grad0, ... of sum(out r).  Integer inputs have no gradient.  adamw.* holds three steps of the
optimizer on a small network.
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


if __name__ == "__main__":
    main()
