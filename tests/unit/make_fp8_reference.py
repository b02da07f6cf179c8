#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes fp8_reference.h, the tables of test_fp8, by ml_dtypes and not by code of ours.

    pip install numpy ml_dtypes
    python3 make_fp8_reference.py >fp8_reference.h

For each code of e4m3 and e5m2 without its sign: the value, as bits of an fp32, and the bits of the
smallest fp32 that is rounded to it.  ml_dtypes makes infinity or NaN of what is too large; that
half of rounding, to the largest value, is no part of the tables.
"""

import warnings

import numpy as np
from ml_dtypes import float8_e4m3fn, float8_e5m2

FORMATS = [("e4m3", float8_e4m3fn, 0x7E), ("e5m2", float8_e5m2, 0x7B)]


def value_bits(code, dtype):
    value = np.array([code], np.uint8).view(dtype).astype(np.float32)
    return int(value.view(np.uint32)[0])


def code_of(bits, dtype):
    return int(np.array([bits], np.uint32).view(np.float32).astype(dtype).view(np.uint8)[0])


def first_bits(code, dtype):
    low, high = 0, value_bits(code, dtype)
    while low < high:
        middle = (low + high) // 2
        if code_of(middle, dtype) < code:
            low = middle + 1
        else:
            high = middle
    return low


def put(name, words):
    print(f"static const uint32_t {name}[] = {{")
    for i in range(0, len(words), 8):
        print("    " + ", ".join(f"0x{w:08x}" for w in words[i:i + 8]) + ",")
    print("};")


def main():
    warnings.simplefilter("ignore")
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Made by make_fp8_reference.py: codes 0 .. 127 of 8-bit dtypes as bits of fp32. */")
    print("#include <stdint.h>\n")
    for name, dtype, largest in FORMATS:
        put(f"{name}_values", [value_bits(code, dtype) for code in range(128)])
        print("/* The smallest fp32 that is rounded to each finite one. */")
        put(f"{name}_first", [first_bits(code, dtype) for code in range(largest + 1)])


main()
