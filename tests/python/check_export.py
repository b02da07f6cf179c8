#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_export.py OUT.graph: exports the small GPT-2 of examples/python, a model with changes in
place, one with an op of which no arithmetic is known, and models refused in one sentence each."""
import contextlib
import io
import logging
import os
import sys

os.environ["GPT2_SMALL"] = "1"
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../examples/python"))
sys.dont_write_bytecode = True

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import export_graph
import gpt2


class Model(torch.nn.Module):
    """The kind says what is wrong with it."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.linear = kind, torch.nn.Linear(8, 8)
        if kind == "unused":
            self.other = torch.nn.Linear(8, 8)

    def forward(self, x):
        y = self.linear(x)
        if self.kind == "control" and y.sum() > 0:
            y = 2 * y
        if self.kind in ("in place", "spoiled"):
            y = torch.nn.functional.relu_(y)
            y = y.clone() if self.kind == "in place" else y
            y[:, :4] += x[:, :4]
        if self.kind == "sort":
            y = y.sort(dim=1).values
        return y if self.kind == "scores" else y.square().mean()


def export(module, *arguments):
    with FakeTensorMode():
        arguments = tuple(torch.zeros(a) for a in arguments)
        return export_graph.export(module(), arguments)


def build(kind):
    return export_graph.build(export(lambda: Model(kind), (4, 8)))


def refusal(call):
    try:
        call()
    except export_graph.Refused as error:
        return str(error)
    return "nothing was refused"


def dynamic():
    batch = torch.export.Dim("batch", min=2)
    x = torch.zeros(4, 8)
    return torch.export.export(Model("dynamic"), (x,), dynamic_shapes={"x": {0: batch}})


REFUSED = {
    "depends on the values of a tensor": lambda: export(lambda: Model("control"), (4, 8)),
    "must return its loss": lambda: build("scores"),
    "does not depend on 2 of the 4": lambda: build("unused"),
    "no parameter to train": lambda: export_graph.build(export(torch.nn.MSELoss, (4, 8), (4, 8))),
    "no gradient of the loss (RuntimeError: one of the variables": lambda: build("spoiled"),
    "is dynamic": lambda: export_graph.build(dynamic()),
}


def main(path):
    logging.disable(logging.CRITICAL)
    with FakeTensorMode():
        exported = export_graph.export(*gpt2.program())
    export_graph.write_graph(exported, path)
    for words, call in REFUSED.items():
        said = refusal(call)
        if words not in said or "\n" in said:
            sys.exit(f"FAIL: not \"{words}\" but: {said}")
    changes = build("in place")[0]
    if not any("relu_" in op[1] and not set(op[4]) & set(op[5]) for op in changes.ops):
        sys.exit("FAIL: a change in place makes no storage")
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        export_graph.write_graph(export(lambda: Model("sort"), (4, 8)), path + ".sort")
    if "priced as copies" not in said.getvalue() or "aten.sort" not in said.getvalue():
        sys.exit(f"FAIL: no warning of aten.sort: {said.getvalue()}")


if __name__ == "__main__":
    main(sys.argv[1])
