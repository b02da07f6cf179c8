#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes random_expressions.txt: random expressions, and their values and gradients by JAX in float64.

    python3 tests/ops/make_random_expressions.py > tests/ops/random_expressions.txt

A line is a program for a stack of tensors, as test_random_expressions.c reads it, "1" or "2",
the loss, and the gradients of a [3, 4], b [4] and c [3, 1].  The loss is sum(y w); of programs with "2"
also 0.01 sum(g^2), where g is the gradient of sum(y) by a: so second derivatives are in it.
"""
import random

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

COUNT, LENGTH = 300, 14


def fill(n, start):
    """Multiples of 1/16 between -0.9 and 0.9, exact in fp32."""
    return np.array([((7 * (k + start) + 3) % 29 - 14) / 16 + 1 / 64 for k in range(n)])


A, B, C = fill(12, 0).reshape(3, 4), fill(4, 5), fill(3, 11).reshape(3, 1)
WEIGHT = fill(12, 17).reshape(3, 4)


def positive(x):
    return x * x + 0.5


UNARY = {
    "e": lambda x: jnp.exp(jnp.tanh(x)), "t": jnp.tanh, "s": jax.nn.sigmoid, "i": jnp.sin, "o": jnp.cos,
    "p": jax.nn.softplus, "n": lambda x: -x, "f": jax.scipy.special.erf,
    "q": lambda x: jnp.sqrt(positive(x)), "l": lambda x: jnp.log(positive(x)),
    "r": lambda x: jax.lax.rsqrt(positive(x)), "1": lambda x: jnp.log1p(jnp.abs(x)),
    "x": lambda x: jnp.expm1(jnp.sin(x)), "u": lambda x: jax.nn.leaky_relu(x, 0.1),
    "y": lambda x: jax.nn.elu(x, 1.0), "h": lambda x: jnp.abs(x), "G": lambda x: jax.nn.gelu(x, approximate=False),
    "m": lambda x: x * jnp.tanh(jax.nn.softplus(x)), "c": lambda x: jnp.clip(x, -0.4, 0.6),
    "3": lambda x: positive(x) ** 1.5, "M": lambda x: jnp.mean(x, -1, keepdims=True),
    "S": lambda x: jax.nn.softmax(x, -1), "L": lambda x: jax.scipy.special.logsumexp(x, -1, keepdims=True),
}
FIRST_ONLY = {"g": lambda x: jax.nn.gelu(x, approximate=True), "v": jax.nn.silu}
BINARY = {
    "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y,
    "/": lambda x, y: x / positive(y), "<": jnp.minimum, ">": jnp.maximum,
    "^": lambda x, y: positive(x) ** jnp.tanh(y), "?": lambda x, y: jnp.where(x < y, x * y, y),
}
KINKS = set("uyh1c<>?")


def draw(rng, twice):
    program, depth = "", 0
    while len(program) < LENGTH or depth != 1:
        if depth == 0 or (len(program) < LENGTH and rng.random() < 0.35):
            program, depth = program + rng.choice("ABCA"), depth + 1
        elif depth > 1 and rng.random() < 0.6:
            program, depth = program + rng.choice(list(BINARY)), depth - 1
        else:
            program += rng.choice(list(UNARY) + ([] if twice else list(FIRST_ONLY)))
    return program


def run(program, a, b, c, seen=None):
    stack = []
    for op in program:
        if op in "ABC":
            stack.append({"A": a, "B": b, "C": c}[op])
            continue
        y = stack.pop()
        if op in BINARY:
            x = stack.pop()
            if seen is not None and op in KINKS:
                seen.append(x - y)
            stack.append(BINARY[op](x, y))
            continue
        if seen is not None and op in KINKS:
            seen.extend([y, y + 0.4, y - 0.6] if op == "c" else [y])
        stack.append((UNARY.get(op) or FIRST_ONLY[op])(y))
        if seen is not None:
            seen.append(1 / stack[-1] if jnp.max(jnp.abs(stack[-1])) > 20 else jnp.ones(1))
    return stack.pop()


def value(program, twice, a, b, c):
    loss = jnp.sum(run(program, a, b, c) * WEIGHT)
    if twice:
        g = jax.grad(lambda x: jnp.sum(run(program, x, b, c)))(a)
        loss += 0.01 * jnp.sum(g * g)
    return loss


def is_good(program, loss, gradients):
    """No place near a kink, nothing large, and something to compare."""
    seen = []
    run(program, A, B, C, seen)
    near = min((float(jnp.min(jnp.abs(x))) for x in seen), default=1)
    largest = max(float(jnp.max(jnp.abs(g))) for g in gradients)
    return near > 2e-3 and 1e-2 < largest < 30 and abs(loss) < 100


def main():
    rng = random.Random(19)
    made, known = 0, set()
    while made < COUNT:
        twice = made % 3 == 2
        program = draw(rng, twice)
        if program in known or not set("ABC") & set(program):
            continue
        known.add(program)
        loss, gradients = jax.value_and_grad(lambda *x: value(program, twice, *x), (0, 1, 2))(A, B, C)
        if not is_good(program, float(loss), gradients):
            continue
        numbers = [float(loss)] + [float(v) for g in gradients for v in np.ravel(g)]
        print(program, 2 if twice else 1, " ".join(f"{v:.7g}" for v in numbers))
        made += 1


main()
