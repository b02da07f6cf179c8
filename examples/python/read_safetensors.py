#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the tensors of a safetensors file: weights (--save), states (--save-state), latents.

    python3 read_safetensors.py model.safetensors [NAME]

With NAME, prints the values of that tensor, too.  The file is eight bytes (the length of a header,
little-endian), the header as JSON, and the bytes of the tensors.  The header has for each tensor its
dtype, its shape and where its bytes begin and end, counted from the end of the header.
"""
import array
import json
import struct
import sys

CODES = {"F64": "d", "F32": "f", "I64": "q", "I32": "i", "I16": "h", "I8": "b", "U8": "B", "BOOL": "B"}


def read_header(f):
    """The tensors by name, the metadata, and where the data begin."""
    (length,) = struct.unpack("<Q", f.read(8))
    header = json.loads(f.read(length))
    return header, header.pop("__metadata__", {}), 8 + length


def read_values(f, tensor, start):
    """The values of a tensor, flat."""
    begin, end = tensor["data_offsets"]
    f.seek(start + begin)
    data = f.read(end - begin)
    if tensor["dtype"] == "BF16":  # the upper half of an fp32
        wide = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
        return struct.unpack(f"<{len(data) // 2}f", wide)
    if tensor["dtype"] == "F16":
        return struct.unpack(f"<{len(data) // 2}e", data)
    values = array.array(CODES[tensor["dtype"]])
    values.frombytes(data)
    return values


def main(path, name=None):
    with open(path, "rb") as f:
        tensors, metadata, start = read_header(f)
        for key, value in metadata.items():
            print(f"{key}: {value[:100]}")
        for key, tensor in tensors.items():
            print(f"{tensor['dtype']:5} {str(tensor['shape']):20} {key}")
        if name:
            print(*read_values(f, tensors[name], start))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: read_safetensors.py FILE [NAME]")
    main(*sys.argv[1:])
