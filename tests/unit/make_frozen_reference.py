#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes frozen_reference.h, the tables of test_frozen, by the definitions and not by code of ours.

    pip install numpy scipy
    python3 make_frozen_reference.py >frozen_reference.h

NF4 by its definition (Dettmers et al. 2023, appendix E): quantiles of a normal distribution for 8
even parts of the probabilities from 0.9677083, the mean of 1 - 1/30 and 1 - 1/32 over two, down to
1/2, for 7 parts with the other sign, and zero, divided by the largest.  bitsandbytes has them in
fp32 of another program; they must agree.  Then blocks of 64 values, and what each format makes of
them: the nearest code by a search in float64.
"""

import numpy as np
from scipy.stats import norm

PUBLISHED = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
             -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
             0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
             0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
BLOCK = 64


def nf4():
    above = norm.ppf(np.linspace(0.9677083, 0.5, 9)[:-1])
    below = -norm.ppf(np.linspace(0.9677083, 0.5, 8)[:-1])
    values = np.sort(np.concatenate([above, [0.0], below]))
    values /= values.max()
    assert np.abs(values - PUBLISHED).max() < 2e-7
    return values.astype(np.float32)


def bits(x):
    return [int(b) for b in np.asarray(x, np.float32).view(np.uint32)]


def round_bf16(x):
    b = int(np.float32(x).view(np.uint32))
    return (b + 0x7FFF + (b >> 16 & 1)) >> 16


def value_bf16(b):
    return float(np.uint32(b << 16).view(np.float32))


def blocks():
    draw = np.random.RandomState(1)
    alike = draw.standard_normal(BLOCK) * 0.02
    outlier = draw.standard_normal(BLOCK) * 0.02
    outlier[17] = -1.5
    positive = draw.uniform(0.0, 3e-5, BLOCK)
    zeros = np.zeros(BLOCK)
    wide = draw.standard_normal(BLOCK) * np.exp(draw.standard_normal(BLOCK) * 3)
    return np.concatenate([alike, outlier, positive, zeros, wide]).astype(np.float32)


def nearest(x, grid):
    """The index in the grid; a tie or what is too near to one to be told in fp32 is not drawn."""
    away = np.abs(x[:, None] - grid[None, :])
    two = np.sort(away, axis=1)[:, :2]
    assert (two[:, 1] - two[:, 0] > 1e-6).all()
    return away.argmin(axis=1)


def codes(x, table):
    scales, q4, q8 = [], [], []
    for block in x.reshape(-1, BLOCK):
        scale = round_bf16(np.abs(block).max())
        y = block.astype(np.float64) / (value_bf16(scale) or 1.0)
        scales.append(scale)
        q4.append(nearest(y, table.astype(np.float64)))
        q8.append(nearest(y, np.arange(-127, 128) / 127.0) - 127)
    return scales, np.concatenate(q4), np.concatenate(q8)


def put(kind, name, words, form):
    print(f"static const {kind} {name}[] = {{")
    for i in range(0, len(words), 8):
        print("    " + ", ".join(format(int(w), form) for w in words[i:i + 8]) + ",")
    print("};")


def main():
    table, x = nf4(), blocks()
    scales, q4, q8 = codes(x, table)
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Made by make_frozen_reference.py: NF4 by its definition, and blocks in codes. */")
    print("#include <stdint.h>\n")
    put("uint32_t", "reference_nf4", bits(table), "#010x")
    put("uint32_t", "reference_values", bits(x), "#010x")
    put("uint16_t", "reference_scales", scales, "#06x")
    print("/* Two in a byte, the first in the high half. */")
    put("uint8_t", "reference_nf4_codes", q4[0::2] << 4 | q4[1::2], "#04x")
    put("int8_t", "reference_int8_codes", q8, "d")


main()
