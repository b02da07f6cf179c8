#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says what a machine file knows: rates, and the times of ops that were measured.

    ckpt machine --output machine.json
    python3 read_machine.py machine.json

The file is one JSON object.  Bytes and seconds are its units: "flops", "bandwidth", "d2h", "h2d",
"nvme_read" are per second, "overhead" is what starting an op takes.  "costs" has the seconds of ops,
by a key of 16 hex digits made from op, dtypes and shapes: that of "op" lines in graph files.
"""
import json
import sys


def main(path):
    with open(path, encoding="utf-8") as f:
        machine = json.load(f)
    if machine.get("format") != "libckpt-machine 1":
        raise ValueError(f"{path} is no machine file of version 1")
    print(f"{machine['name']}: {machine['source']}")
    print("estimated" if machine["estimate"] else "measured")
    print(f"memory     {machine['memory'] / 2**30:10.2f} GiB")
    print(f"arithmetic {machine['flops'] / 1e12:10.2f} TFLOP/s")
    for key in ("bandwidth", "d2h", "h2d", "nvme_read", "nvme_write"):
        print(f"{key:10} {machine[key] / 1e9:10.2f} GB/s")
    print(f"{len(machine['costs'])} ops were timed")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: read_machine.py FILE")
    main(sys.argv[1])
