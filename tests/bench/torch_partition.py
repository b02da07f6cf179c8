#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's partitioner recomputes at equal saved bytes, beside our planner and the optimum.

    pip install torch transformers timm diffusers scipy
    python3 torch_partition.py --answers OUT.json NAME
    python3 torch_partition.py TEST_PARTITION [NAME ...]

The first line writes the storages that torch.compile saves from the forward to the backward pass of a
model of torch_graphs.py, for some values of torch._functorch.config.activation_memory_budget, and the
fewest FLOP that any set of as many bytes recomputes.  The second prints the table of doc/bench for
several models; TEST_PARTITION is the program tests/plan/test_partition, which asks our planner.
Only products have a cost.  Exits with 77 if a package is missing.
"""

import copy
import json
import os
import subprocess
import sys
import tempfile

import torch_graphs as graphs

try:
    import numpy as np
    import torch
    import torch._functorch.config as config
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_matrix
    from torch._functorch import partitioners
except ImportError as e:
    print(f"torch_partition.py: {e}", file=sys.stderr)
    sys.exit(77)

BUDGETS = [0.1, 0.3, 0.5, 0.7, 0.9]
TABLE = ["transformer4", "vit_b16", "resnet50", "convnext_t", "bert_base", "gpt2", "llama_1b",
         "t5_base", "unet3d", "sd15_unet", "dit_xl2", "wan_1b"]
PROOF_SECONDS = 30


def price_attention_on_cpu():
    """Attention traced for the CPU counts as expensive, as the kernels for GPUs do."""
    lists = partitioners.get_default_op_list

    def with_cpu():
        types = lists()
        types.compute_intensive_ops.add(
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu)
        return types
    partitioners.get_default_op_list = with_cpu


class Question:
    """Which storages to save: those that the backward pass can need, and the ops to make them."""

    def __init__(self, steps):
        self.steps = steps
        self.maker = {}
        for i, op in enumerate(steps.ops):
            if op.phase == "forward":
                self.maker.update((s, i) for s in op.writes)
        self.fed = {s for op in steps.ops if not op.reads for s in op.writes
                    if steps.storages[s][0] == "input"}
        # What the update reads is a result of the forward pass: saved, and counted by no one.
        self.results = {s for op in steps.ops if op.phase == "update" for s in op.reads}
        self.free = self.fed | self.results

    def made(self, storages):
        """The storages that are neither parameters nor inputs nor results."""
        return {s for s in storages if s in self.maker and s not in self.free}

    def saved_bytes(self, saved):
        return sum(self.steps.storages[s][1] for s in saved)

    def needed(self):
        return self.made(s for op in self.steps.ops if op.phase == "backward" for s in op.reads)

    def optimum(self, bytes_):
        """The fewest FLOP recomputed with this many bytes saved, from an integer program; a lower
        bound of it where PROOF_SECONDS end before the proof."""
        s_of = sorted(s for s in self.maker if s not in self.free)
        o_of = sorted({self.maker[s] for s in s_of})
        x = {s: i for i, s in enumerate(s_of)}
        r = {o: len(s_of) + i for i, o in enumerate(o_of)}
        n = len(s_of) + len(o_of)
        rows, low = [], []
        for s in self.needed():
            rows.append({x[s]: 1, r[self.maker[s]]: 1})
            low.append(1)
        for o in o_of:
            for s in self.made(self.steps.ops[o].reads):
                rows.append({x[s]: 1, r[self.maker[s]]: 1, r[o]: -1})
                low.append(0)
        entries = [(i, j, v) for i, row in enumerate(rows) for j, v in row.items()]
        size = np.array([self.steps.storages[s][1] for s in s_of], float)
        entries += [(len(rows), x[s], -size[x[s]] / max(bytes_, 1)) for s in s_of]
        low.append(-1)
        i, j, v = zip(*entries)
        a = coo_matrix((v, (i, j)), (len(low), n)).tocsr()
        cost = np.zeros(n)
        for o in o_of:
            cost[r[o]] = self.steps.ops[o].flops
        unit = cost.max() or 1
        result = milp(cost / unit, integrality=np.ones(n), bounds=Bounds(0, 1),
                      constraints=LinearConstraint(a, low, np.inf),
                      options={"time_limit": PROOF_SECONDS, "mip_rel_gap": 1e-6})
        return round(result.mip_dual_bound * unit)


def partition(joint, steps, question, budget):
    """PyTorch's answer: saved storages, and the ops that its backward pass runs again."""
    config.activation_memory_budget = budget
    module = copy.deepcopy(joint.module)
    parameters = [i for i, n in enumerate(n for n in module.graph.nodes if n.op == "placeholder")
                  if hasattr(n.meta.get("desc"), "target")]
    forward, backward = partitioners.min_cut_rematerialization_partition(
        module, None, num_fwd_outputs=joint.n_forward, static_lifetime_input_indices=parameters)
    names = {n.name: n for n in joint.module.graph.nodes}
    saved, again = set(), []
    for node in backward.graph.nodes:
        here = names.get(node.name)
        if here is None:
            if node.op in ("placeholder", "call_function"):
                raise RuntimeError(f"{node.name} is not in the joint graph")
        elif node.op == "placeholder":
            saved.add(steps.of[here])
        elif steps.phase_of(node.name) == "forward":
            again.append(steps.node_op[node.name])
    early = [n.name for n in forward.graph.nodes if steps.phase_of(n.name) == "backward"]
    if early:
        print(f"{joint.name}: PyTorch's forward pass runs {len(early)} ops that our graph has in "
              f"its backward pass, such as {early[0]}", file=sys.stderr)
    saved = question.made(saved)
    return {"budget": budget, "saved": sorted(saved), "saved_bytes": question.saved_bytes(saved),
            "flops": sum(steps.ops[o].flops for o in again)}


def answers(name, solver="dp"):
    """The graph of a model and what PyTorch answers for it."""
    config.activation_memory_budget_solver = solver
    joint = graphs.Joint(name)
    steps = graphs.Steps(joint)
    question = Question(steps)
    every = []
    for budget in BUDGETS:
        a = partition(joint, steps, question, budget)
        if every and every[-1]["saved"] == a["saved"]:
            continue
        a["optimum"] = question.optimum(a["saved_bytes"])
        every.append(a)
    return steps, {"model": name, "torch": torch.__version__, "solver": solver, "answers": every}


def write(answer, f):
    """JSON with a line per answer."""
    lines = ",\n  ".join(map(json.dumps, answer["answers"]))
    head = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in answer.items()
                     if k != "answers")
    f.write("{%s, \"answers\": [\n  %s]}\n" % (head, lines))


def main():
    price_attention_on_cpu()
    if len(sys.argv) == 4 and sys.argv[1] == "--answers":
        steps, a = answers(sys.argv[3])
        with open(sys.argv[2], "w") as f:
            write(a, f)
        steps.write(os.path.splitext(sys.argv[2])[0] + ".graph", products_only=True)
        return 0
    for name in sys.argv[2:] or TABLE:
        with tempfile.TemporaryDirectory() as folder:
            steps, a = answers(name)
            path = os.path.join(folder, name)
            with open(path + ".json", "w") as f:
                write(a, f)
            steps.write(path + ".graph", products_only=True)
            steps.write(path + ".priced")
            subprocess.run([sys.argv[1], path + ".graph", path + ".priced", path + ".json"],
                           check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
