#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says how a run went, from the file of --log.

    lm-train --steps 100 --log run.jsonl
    python3 read_log.py run.jsonl

Each line is a JSON object.  A run begins with one that has "libckpt", the version, and its settings;
each step is one that has "step".
"""
import json
import sys


def main(path):
    with open(path, encoding="utf-8") as f:
        records = [json.loads(line) for line in f if line.strip()]
    for record in records:
        if "libckpt" in record:
            print("run of libckpt", record["libckpt"])
    steps = [record for record in records if "step" in record and "loss" in record]
    if steps:
        print("each step has", ", ".join(steps[-1]))
    for record in steps[:1] + steps[-1:]:
        print(f"step {record['step']}  loss {record['loss']:.4f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: read_log.py FILE")
    main(sys.argv[1])
