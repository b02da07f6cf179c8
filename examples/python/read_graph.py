#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says what a graph file needs: memory by kind, its peak without a budget, the largest ops.

    lm-train --model gpt2-124M --batch 4 --data random --plan-only --graph-out gpt2.graph
    python3 read_graph.py gpt2.graph

The file is text, one fact a line; what follows "  # " is a name:

    storage KIND BYTES [persistent] [carried]
    op PHASE NUMBER WORKSPACE FLOPS BYTES KEY SECONDS [attention] [rerun] ... reads S ... writes S ...

A storage is a block of bytes, and S is its number, counted from 0.
"""
import sys
from collections import Counter


def read_graph(path):
    """Storages and ops, each a dict."""
    storages, ops = [], []
    with open(path, encoding="utf-8") as f:
        if f.readline() != "libckpt-graph 1\n":
            raise ValueError(f"{path} is no graph file of version 1")
        for line in f:
            facts, _, name = line.rstrip("\n").partition("  # ")
            words = facts.split()
            if words[0] == "storage":
                storages.append({"kind": words[1], "bytes": int(words[2]), "name": name,
                                 "persistent": "persistent" in words})
            elif words[0] == "op":
                reads, writes = words.index("reads"), words.index("writes")
                ops.append({"phase": words[1], "workspace": int(words[3]), "flops": float(words[4]),
                            "bytes": float(words[5]), "seconds": float(words[7]), "name": name,
                            "reads": [int(s) for s in words[reads + 1:writes]],
                            "writes": [int(s) for s in words[writes + 1:]]})
    return storages, ops


def peak(storages, ops):
    """The most bytes alive at one op, if everything stays from its first use to its last."""
    first, last = {}, {}
    for i, op in enumerate(ops):
        for s in op["reads"] + op["writes"]:
            first.setdefault(s, i)
            last[s] = i
    alive = sum(s["bytes"] for s in storages if s["persistent"])
    most = (0, 0)
    for i, op in enumerate(ops):
        touched = {s for s in op["reads"] + op["writes"] if not storages[s]["persistent"]}
        alive += sum(storages[s]["bytes"] for s in touched if first[s] == i)
        most = max(most, (alive + op["workspace"], -i))
        alive -= sum(storages[s]["bytes"] for s in touched if last[s] == i)
    return most[0], ops[-most[1]]["name"]


def main(path):
    storages, ops = read_graph(path)
    kinds = Counter()
    for s in storages:
        kinds[s["kind"]] += s["bytes"]
    for kind, total in kinds.most_common():
        print(f"{kind:12} {total / 2**20:10.2f} MiB")
    most, name = peak(storages, ops)
    print(f"peak         {most / 2**20:10.2f} MiB  in {name}")
    print(f"ops          {len(ops):7}     {sum(op['flops'] for op in ops) / 1e9:.2f} GFLOP")
    for op in sorted(ops, key=lambda op: -op["seconds"])[:5]:
        print(f"  {1e3 * op['seconds']:10.3f} ms  {op['name']}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: read_graph.py FILE")
    main(sys.argv[1])
