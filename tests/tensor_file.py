# SPDX-License-Identifier: Apache-2.0
"""Writes safetensors files: an 8-byte header length, a JSON header, the tensors one after another.

Used by the scripts that make the reference files of the tests.
"""

import json
import struct

import numpy as np


def bf16_bits(x):
    """The upper halves of fp32 values, rounded to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_round(x):
    """float64 values that bf16 can hold."""
    return (bf16_bits(x).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def encode(value, bf16):
    value = np.asarray(value)
    if value.dtype.kind in "iub":
        return "I32", value.astype("<i4").tobytes()
    if bf16:
        assert np.array_equal(bf16_round(value), value), "not a bf16 value"
        return "BF16", bf16_bits(value).astype("<u2").tobytes()
    return "F32", value.astype("<f4").tobytes()


def write(path, tensors, bf16=()):
    """tensors: name -> array (float: F32, integer: I32); the names in bf16 are stored as BF16."""
    header, blobs, offset = {}, [], 0
    for name, value in tensors.items():
        dtype, blob = encode(value, name in bf16)
        header[name] = {
            "dtype": dtype,
            "shape": list(np.shape(value)),
            "data_offsets": [offset, offset + len(blob)],
        }
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
