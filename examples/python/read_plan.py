#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says what a plan does: what runs again, what is offloaded, and when.

    ckpt plan --graph gpt2.graph --machine h200-141 --vram 4G --host 8G --output gpt2.plan
    python3 read_plan.py gpt2.plan

The file is text, one fact a line; what follows "  # " is a name:

    KEY VALUE                            totals: bytes and seconds
    run OP | again OP | host OP          one line a step; "again" computes once more, "host" on the CPU
    device|host|nvme S FIRST LAST OFFSET a storage is in that tier in those steps
    workspace STEP OFFSET                so is the workspace of a step
    copy FROM TO AFTER BEFORE START END  between two of those lines, by number; seconds
"""
import sys


def read_plan(path):
    """Totals, steps, residences and copies."""
    totals, steps, residences, copies = {}, [], [], []
    with open(path, encoding="utf-8") as f:
        if f.readline() != "libckpt-plan 4\n":
            raise ValueError(f"{path} is no plan file of version 4")
        for line in f:
            facts, _, name = line.rstrip("\n").partition("  # ")
            key, *values = facts.split()
            if key in ("run", "again") or (key == "host" and "steps" in totals and
                                           len(steps) < totals["steps"]):
                steps.append({"how": key, "op": int(values[0]), "name": name})
            elif key == "workspace" or len(values) == 4:
                storage = None if key == "workspace" else int(values[0])
                residences.append({"tier": "device" if key == "workspace" else key, "name": name,
                                   "storage": storage})
            elif key == "copy":
                copies.append({"from": int(values[0]), "to": int(values[1]),
                               "start": float(values[4]), "end": float(values[5])})
            elif len(values) == 1 and key not in ("signature", "pin"):
                totals[key] = None if values[0] == "none" else float(values[0])
    return totals, steps, residences, copies


def main(path):
    totals, steps, residences, copies = read_plan(path)
    again = [s for s in steps if s["how"] == "again"]
    held = totals["persistent"] + totals["transient"]
    print(f"device     {held / 2**20:10.2f} MiB")
    print(f"step       {1e3 * totals['seconds']:10.3f} ms, of it {1e3 * totals['recompute_seconds']:.3f}"
          f" ms for {len(again)} ops that run again")
    for step in again[:5]:
        print(f"  again    {step['name']}")
    out = [c for c in copies if residences[c["from"]]["tier"] == "device"]
    print(f"offloaded  {len(out)} storages")
    for copy in out[:5]:
        print(f"  to {residences[copy['to']]['tier']} from {1e3 * copy['start']:.3f} to "
              f"{1e3 * copy['end']:.3f} ms: {residences[copy['from']]['name']}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: read_plan.py FILE")
    main(sys.argv[1])
