#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the graph of a PyTorch training step, for "ckpt plan --graph".

    python3 export_graph.py MODEL.py OUT.graph [--bf16]
    ckpt plan --graph OUT.graph --machine h200-141 --sweep

MODEL.py defines program(), which returns a module and the tuple of its arguments; the module
returns its loss, one number.  No weight is made: all tensors are fake ones, with a shape and no
bytes.  From Python, write_graph(exported, path) does the same for a torch.export.ExportedProgram.

What stands in the file, and where it comes from:

- Ops and their order: torch.export gives the forward pass, make_fx on it and torch.autograd.grad
  the backward pass, as ATen ops.  Views are no ops.
- Storages: tensors that share memory are one storage, its bytes rounded up to 512.  An op that
  changes an activation in place reads one storage and makes another; changes of buffers, as the
  moving averages of batch norm, are left out.
- FLOPs: torch.utils.flop_counter for products, convolutions and attention (causal: half of it); one
  an element for all other ops.
- Bytes moved: the operands read and written, each once.  Of a lookup in a table: the rows it makes.
- Seconds: a few cores, 60 GFLOP/s and 15 GB/s; "ckpt plan --machine" computes them anew.
- The update is libckpt's AdamW behind a clip of the global norm: two moments in fp32, and a master
  copy in fp32 of weights that are not.
- Gradients have the dtype of their weights; libckpt's own models sum them in fp32.
- Random ops run again with the same numbers, as in libckpt (and in torch.utils.checkpoint).

Not in it: workspaces of kernels, memory of the CUDA context, and what another kernel choice saves.
Needs PyTorch 2.5 or later, no GPU.
"""
import argparse
import contextlib
import importlib.util
import io
import logging
import sys
import warnings

ALIGN = 512
# Rates of machines/cpu.json, which "ckpt plan" uses without --machine.
FLOPS, BANDWIDTH, OVERHEAD = 6e10, 1.5e10, 3e-6
# Ops that stream once through their elements, but are neither products nor tagged as pointwise.
STREAMED = {
    "_softmax", "_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data",
    "native_layer_norm", "native_layer_norm_backward", "native_group_norm",
    "native_group_norm_backward", "native_batch_norm", "native_batch_norm_backward",
    "_native_batch_norm_legit_functional", "_native_batch_norm_legit", "cudnn_batch_norm",
    "_fused_rms_norm", "_fused_rms_norm_backward", "nll_loss_forward", "nll_loss_backward",
    "nll_loss2d_forward", "nll_loss2d_backward", "mse_loss", "mse_loss_backward", "sum", "mean",
    "amax", "amin", "max", "min", "var", "var_mean", "argmax", "cat", "stack", "clone", "copy",
    "_to_copy", "_unsafe_view", "constant_pad_nd", "native_dropout", "native_dropout_backward",
    "new_zeros", "new_full", "new_ones", "zeros", "ones", "full", "empty", "zeros_like",
    "ones_like",
    "full_like", "empty_like", "scalar_tensor", "arange", "slice_backward", "select_backward",
    "slice_scatter", "select_scatter", "embedding_dense_backward", "repeat", "rand", "randn",
    "rand_like", "randn_like", "upsample_nearest2d", "upsample_nearest2d_backward",
    "max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d",
    "avg_pool2d_backward", "cumsum", "flip", "roll", "index", "index_put", "_unsafe_index",
    "_unsafe_index_put", "tril", "triu", "split_with_sizes_copy", "new_empty", "new_empty_strided",
    "empty_strided", "fill", "bernoulli", "linalg_vector_norm",
}
LOOKUPS = {"embedding", "index_select", "gather"}


class Refused(Exception):
    """What cannot be exported, in one sentence."""


def sentence(error):
    """The first line of an error of PyTorch that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"


# ---- from a module to the ATen ops of a step -----------------------------------------------------


def export(module, arguments):
    """The module as a torch.export program.  It holds for these shapes only."""
    import torch

    said = io.StringIO()  # PyTorch prints its graph before some errors
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            return torch.export.export(module, arguments)
    except Exception as error:  # PyTorch raises dozens of types
        text = sentence(error)
        if "data-dependent" in str(error).lower() or "DataDependent" in text:
            raise Refused("the path through the model depends on the values of a tensor (an if, a "
                          f"loop or .item()), and a plan is for one path ({text})") from error
        raise Refused(f"torch.export does not take the model ({text})") from error


def fake_inputs(exported):
    """What the program reads: (FakeTensor, is a parameter, name for people, kind)."""
    import torch
    from torch.export.graph_signature import InputKind

    values = {n.name: n.meta.get("val") for n in exported.graph.nodes if n.op == "placeholder"}
    inputs = []
    for spec in exported.graph_signature.input_specs:
        value = values[spec.arg.name]
        if not isinstance(value, torch.Tensor):
            raise Refused(f"the argument {spec.arg.name} is no tensor: make it a constant "
                          "of the model")
        if any(not isinstance(n, int) for n in value.shape):
            raise Refused(f"the shape of {spec.arg.name} is dynamic, {tuple(value.shape)}: a plan "
                          "is for one shape; export the model without dynamic_shapes")
        parameter = spec.kind == InputKind.PARAMETER
        inputs.append((value, parameter, spec.target or spec.arg.name, spec.kind))
    return inputs


def trace_step(exported):
    """The ATen graph of loss and gradients; returns it, its inputs and which are trained."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    inputs = fake_inputs(exported)
    trained = [i for i, (value, parameter, _, _) in enumerate(inputs)
               if parameter and value.is_floating_point() and is_trained(exported, inputs[i][2])]
    if not trained:
        raise Refused("the model has no parameter to train")

    def step(*values):
        values = [v.detach().requires_grad_(i in set(trained)) for i, v in enumerate(values)]
        run = torch.fx.Interpreter(exported.graph_module).run
        outputs = run(*values, enable_io_processing=False)
        loss = outputs[-1] if isinstance(outputs, (tuple, list)) else outputs
        returned = len(exported.graph_signature.user_outputs)
        if returned != 1 or loss.numel() != 1:
            raise Refused(f"the model must return its loss, one number; it returns {returned} "
                          f"tensors, the last of shape {tuple(loss.shape)}")
        if not loss.requires_grad:
            raise Refused("the loss does not depend on a parameter")
        gradients = torch.autograd.grad(loss, [values[i] for i in trained], allow_unused=True)
        return [loss.detach()] + [g for g in gradients if g is not None]

    mode = FakeTensorMode()
    with mode:
        fakes = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device)
                 for v, _, _, _ in inputs]
    try:
        return make_fx(step, tracing_mode="fake")(*fakes).graph, inputs, trained
    except (RuntimeError, NotImplementedError) as error:
        raise Refused(f"PyTorch makes no gradient of the loss ({sentence(error)})") from error


def is_trained(exported, name):
    value = exported.state_dict.get(name)
    return value is None or value.requires_grad


# ---- what an op costs ----------------------------------------------------------------------------


def tensors(node_or_value):
    """The tensors in the value of a node, flat."""
    import torch

    if isinstance(node_or_value, torch.Tensor):
        return [node_or_value]
    if isinstance(node_or_value, (tuple, list)):
        return [t for v in node_or_value for t in tensors(v)]
    return []


def size(t):
    return t.numel() * t.element_size()


def flops_of(node, unknown):
    """FLOPs of a node; names ops that it knows nothing of in unknown."""
    import torch
    from torch.utils.flop_counter import flop_registry

    value = node.meta["val"]
    packet = getattr(node.target, "overloadpacket", node.target)
    values = lambda a: torch.fx.node.map_arg(a, lambda n: n.meta["val"])
    count = flop_registry.get(packet)
    if count:
        flops = count(*values(node.args), **values(node.kwargs), out_val=value)
        return flops / 2 if is_causal(node) else flops
    name = getattr(packet, "__name__", str(packet)).rstrip("_")
    tags = getattr(node.target, "tags", ())
    reduces = getattr(torch.Tag, "reduction", None)
    if torch.Tag.pointwise not in tags and reduces not in tags and name not in STREAMED | LOOKUPS:
        unknown.add(str(packet))
        return 0
    return max((t.numel() for t in tensors(value)), default=0)


def is_causal(node):
    """Whether an attention op, or its gradient, computes only what stands before each query."""
    schema = getattr(node.target, "_schema", None)
    for i, argument in enumerate(schema.arguments if schema else ()):
        if argument.name == "is_causal":
            return bool(node.args[i] if i < len(node.args) else node.kwargs.get("is_causal", False))
    return False


def bytes_of(node):
    written = sum(size(t) for t in tensors(node.meta["val"]))
    read = [size(t) for n in node.all_input_nodes for t in tensors(n.meta["val"])]
    name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
    return written + (min(max(read, default=0), written) if name in LOOKUPS else sum(read))


# ---- the file ------------------------------------------------------------------------------------


class Graph:
    """Storages and ops in the order of the file."""

    def __init__(self):
        self.storages, self.ops = [], []

    def storage(self, kind, size_in_bytes, name, persistent=False):
        rounded = max(ALIGN, -(-size_in_bytes // ALIGN) * ALIGN)
        self.storages.append([kind, rounded, persistent, name])
        return len(self.storages) - 1

    def op(self, phase, name, flops, moved, reads, writes, rerun=False):
        unique = lambda refs: list(dict.fromkeys(refs))
        self.ops.append((phase, name, flops, moved, unique(reads), unique(writes), rerun))

    def text(self):
        body = sum(op[0] != "update" for op in self.ops)
        refs = sum(len(op[4]) + len(op[5]) for op in self.ops)
        lines = ["libckpt-graph 1", "micro 1", f"storages {len(self.storages)}",
                 f"ops {len(self.ops)}", f"body {body}", f"refs {refs}"]
        for kind, rounded, persistent, name in self.storages:
            lines.append(f"storage {kind} {rounded}{' persistent' if persistent else ''}  # {name}")
        for i, (phase, name, flops, moved, reads, writes, rerun) in enumerate(self.ops):
            # The key 0 means that no cost was measured.
            seconds = max(flops / FLOPS, moved / BANDWIDTH) + OVERHEAD
            words = [f"op {phase} {i} 0 {flops:.17g} {moved:.17g} {0:016x} {seconds:.17g}"]
            words += ["rerun"] * rerun + ["reads", *map(str, reads), "writes", *map(str, writes)]
            lines.append(" ".join(words) + f"  # {name}")
        return "\n".join(lines + ["end", ""])


def changed_by(node):
    """The tensors that an op changes in place."""
    import torch

    schema = getattr(node.target, "_schema", None)
    if torch.Tag.inplace_view in getattr(node.target, "tags", ()):
        return []  # only the shape
    arguments = zip(schema.arguments, node.args) if schema else ()
    return [value.meta["val"] for argument, value in arguments
            if argument.alias_info and argument.alias_info.is_write and value is not None]


def storage_key(t):
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(t.untyped_storage())


def put_inputs(g, placeholders, inputs, index):
    """Parameters and buffers live between steps; arguments are fed into each."""
    from torch.export.graph_signature import InputKind

    for node, (_, parameter, name, kind) in zip(placeholders, inputs):
        t = node.meta["val"]
        fed = kind == InputKind.USER_INPUT
        s = g.storage("input" if fed else "parameter", size(t), name, persistent=not fed)
        index[storage_key(t)] = s
        if fed:
            g.op("forward", f"feed of {name}", 0, size(t), [], [s], rerun=True)


def put_body(g, nodes, loss, gradients, index, unknown):
    """One op a node; a node that makes no storage and changes none is a view."""
    phase = "forward"
    for node in nodes:
        made = []
        reads = [index[storage_key(t)] for n in node.all_input_nodes
                 for t in tensors(n.meta["val"]) if size(t)]
        # An in-place change makes a new storage, except for storages that live between steps.
        changed = [t for t in changed_by(node) if not g.storages[index[storage_key(t)]][2]]
        new = [t for t in tensors(node.meta["val"]) if storage_key(t) not in index and size(t)]
        for t in changed + new:
            kind = "gradient" if storage_key(t) in gradients else "temporary"
            kind = "activation" if phase == "forward" else kind
            bytes_held = t.untyped_storage().nbytes()
            index[storage_key(t)] = g.storage(kind, bytes_held, node.name)
            made.append(index[storage_key(t)])
        if made:
            g.op(phase, f"{node.name} ({node.target})", flops_of(node, unknown), bytes_of(node),
                 reads, made, rerun=phase == "forward")
        if storage_key(loss) in index:
            phase = "backward"


def put_update(g, trained):
    """trained: (storage, gradient's storage, elements, bytes an element, name).  The norm
    of all gradients, the coefficient of the clip, then each parameter."""
    total = sum(elements for _, _, elements, _, _ in trained)
    squares = g.storage("temporary", 4, "sum of squares")
    clip = g.storage("temporary", 4, "clip coefficient")
    g.op("update", "sum_squares", 2 * total, sum(e * b for _, _, e, b, _ in trained),
         [gradient for _, gradient, _, _, _ in trained], [squares])
    g.op("update", "clip_coefficient", 0, 32, [squares], [clip])
    for parameter, gradient, elements, width, name in trained:
        state = [g.storage("optimizer", 4 * elements, f"{name} {what}", persistent=True)
                 for what in ("moment 1", "moment 2") + (("master",) if width < 4 else ())]
        moved = elements * (3 * width + 8 * len(state))
        g.op("update", f"adamw of {name}", 18 * elements, moved,
             [parameter, *state, gradient, clip], [parameter, *state])


def build(exported):
    """The graph of a training step of a torch.export program, and the ops it knows nothing of."""
    graph, inputs, trained = trace_step(exported)
    nodes = list(graph.nodes)
    placeholders = [n for n in nodes if n.op == "placeholder"]
    loss, *gradients = next(n for n in nodes if n.op == "output").args[0]
    if len(gradients) != len(trained):
        raise Refused(f"the loss does not depend on {len(trained) - len(gradients)} of the "
                      f"{len(trained)} parameters: freeze them (requires_grad_(False))")
    g, index, unknown = Graph(), {}, set()
    made_by_grad = {storage_key(n.meta["val"]) for n in gradients}
    put_inputs(g, placeholders, inputs, index)
    calls = [n for n in nodes if n.op == "call_function" and n.target.__name__ != "getitem"]
    put_body(g, calls, loss.meta["val"], made_by_grad, index, unknown)
    updates = []
    for i, node in zip(trained, gradients):
        weight, gradient = placeholders[i].meta["val"], node.meta["val"]
        updates.append((index[storage_key(weight)], index[storage_key(gradient)],
                        gradient.numel(), weight.element_size(), inputs[i][2]))
    put_update(g, updates)
    return g, unknown


def write_graph(exported, path):
    """Writes the graph file of a torch.export.ExportedProgram that returns its loss."""
    g, unknown = build(exported)
    if unknown:
        print("export_graph: priced as copies of their operands, as their arithmetic is not known: "
              + ", ".join(sorted(unknown)), file=sys.stderr)
    with open(path, "w", encoding="utf-8") as f:
        f.write(g.text())


def load_program(path):
    spec = importlib.util.spec_from_file_location("model", path)
    if not spec or not spec.loader:
        raise Refused(f"{path} is no Python file")
    model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    if not hasattr(model, "program"):
        raise Refused(f"{path} defines no program(), which returns a module and its arguments")
    return model.program


def main():
    parser = argparse.ArgumentParser(description="Writes the graph of a PyTorch training step.")
    parser.add_argument("model", help="Python file whose program() returns a module and arguments")
    parser.add_argument("graph", help="file to write, for ckpt plan --graph")
    parser.add_argument("--bf16", action="store_true",
                        help="make bf16 the default dtype (default fp32)")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)  # a refusal prints one sentence
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        program = load_program(options.model)
        if options.bf16:
            torch.set_default_dtype(torch.bfloat16)
        with FakeTensorMode():
            module, arguments = program()
            exported = export(module, arguments)
        write_graph(exported, options.graph)
    except (Refused, OSError, ImportError, SyntaxError) as error:
        sys.exit(f"export_graph: {error}")


if __name__ == "__main__":
    main()
