#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the numbers of test_stdit_schedule that Open-Sora 1.2 rounds in bf16.

    pip install numpy ml_dtypes
    python3 make_rounding_reference.py

prints the rows of the tables `rounded` and `scales` there.  Sizes reach the shift of times and the
position table as bf16 tensors: every operation on them rounds its result to bf16, by ml_dtypes and
not by code of ours.  Numbers that are no tensors (the sizes of sample 0, taken out for the position
scale) stay fp64 from there on.
"""

import math

import numpy as np
from ml_dtypes import bfloat16

SIZES = [
    (144, 256, 1), (144, 256, 51), (240, 426, 204), (360, 640, 102), (480, 854, 1),
    (480, 854, 408), (720, 1280, 51), (1080, 1920, 1), (1023, 1537, 289), (301, 517, 339),
    (90, 77, 1), (111, 2047, 901), (512, 512, 17),
]


def shift(height, width, frames, dtype):
    h, w, f = (np.array([x], dtype) for x in (height, width, frames))
    area = (h * w).astype(dtype)
    space = np.sqrt((area / np.array(512 * 512, dtype)).astype(dtype)).astype(dtype)
    if f[0] == 1:
        length = np.ones_like(f)
    else:
        # floor division of floats: the quotient of what fmod leaves, rounded
        groups = ((f.astype(np.float64) - np.fmod(f.astype(np.float64), 17)) / 17).astype(dtype)
        length = (groups * np.array(5, dtype)).astype(dtype)
    r = (space * np.sqrt(length).astype(dtype)).astype(dtype)
    less = (r - np.array(1, dtype)).astype(dtype)
    return float(r[0]), float(less[0])


def position_scale(height, width, dtype):
    h, w = (float(np.array([x], dtype)[0]) for x in (height, width))
    return math.sqrt(h * w) / 512


for h, w, f in SIZES:
    (r, less), (r64, less64) = shift(h, w, f, bfloat16), shift(h, w, f, np.float64)
    print(f"        {{{h}, {w}, {f}, {r!r}, {less!r}, {r64!r}, {less64!r}}},")
print()
for h, w in dict.fromkeys((h, w) for h, w, _ in SIZES):
    print(f"        {{{h}, {w}, {position_scale(h, w, bfloat16)!r}, {position_scale(h, w, np.float64)!r}}},")
