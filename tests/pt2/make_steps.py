#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Five steps of AdamW by PyTorch of models in tests/import/models: the reference of test_pt2_steps.sh.

    make_steps.py tests/pt2/steps.safetensors [NAME...]      writes steps.safetensors.gz

Run by hand, with what tests/import/make_models.py needs.  A step has the samples of one call of the
model; those of step c are the inputs of its reference as tests/pt2/shards.c changes them.  Of each
parameter the file has NAME/value/PARAMETER, 8 evenly spread elements after the steps, computed in
fp64, and NAME/limit/PARAMETER, how far another implementation may be from them: 1e-4 of the largest
update, or three times the distance of PyTorch's own fp32 where that is more.  A gradient that is zero
but for rounding gives any update: where PyTorch's own is a thousandth of the learning rate away, the
limit is what two such updates may differ by.  Matrices and kernels decay, the rest does not.
"""
import gzip
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "import"))
import make_models as models  # noqa: E402
import torch  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

NAMES = ["bert", "gpt2", "llama", "vit", "whisper", "norms", "volume", "unet", "cogvideo", "wan"]
STEPS, ELEMENTS, RATE, DECAY = 5, 8, 1e-3, 0.01
kept = os.path.join(os.path.dirname(os.path.abspath(models.__file__)), "models")


def unpack(name, end, folder):
    path = os.path.join(folder, name + end)
    with gzip.open(os.path.join(kept, name + end + ".gz")) as f, open(path, "wb") as g:
        g.write(f.read())
    return path


def of_step(x, c):
    return x * (1 + c / 8) if x.is_floating_point() else (x + c) % (x.max() + 1)


def train(module, inputs, target, args, kwargs, names, dtype):
    """Parameters after the steps.  inputs: by name, of which those of the call have the order `names`."""
    module.to(dtype).train()
    matrices = [p for p in module.parameters() if p.requires_grad and p.ndim > 1]
    rest = [p for p in module.parameters() if p.requires_grad and p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": rest, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW([g for g in groups if g["params"]], lr=RATE)
    leaves, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    for c in range(STEPS):
        values = [of_step(inputs[n], c) for n in names]
        values = iter([v.to(dtype) if v.is_floating_point() else v for v in values])
        step = [next(values) if isinstance(x, torch.Tensor) else x for x in leaves]
        a, k = torch.utils._pytree.tree_unflatten(step, spec)
        targets = {} if target is None else {0: of_step(target, c).to(dtype)}
        adamw.zero_grad()
        models.loss_of(models.flat(module(*a, **k)), targets).backward()
        adamw.step()
    return {n: p.detach().double() for n, p in module.named_parameters()}


def make(name, folder):
    program = torch.export.load(unpack(name, ".pt2", folder))
    with safe_open(unpack(name, ".safetensors", folder), "pt") as f:
        tensors = {n: f.get_tensor(n) for n in f.keys()}
    inputs = {n[len("input."):]: x for n, x in tensors.items() if n.startswith("input.")}
    before, after = program.state_dict, {}
    for dtype in (torch.float64, torch.float32):
        torch.manual_seed(0)
        module, args, kwargs = models.MODELS[name][1]()
        models.without_dropout(module)
        module.load_state_dict(before, strict=False)
        names = list(models.inputs_by_name(program, args, kwargs))
        after[dtype] = train(module, inputs, tensors.get("target.0"), args, kwargs, names, dtype)
    out = {}
    for n, p in after[torch.float64].items():
        own = (after[torch.float32][n] - p).abs().max()
        update = (p - before[n].double()).abs().max()
        at = [k * p.numel() // min(ELEMENTS, p.numel()) for k in range(min(ELEMENTS, p.numel()))]
        out[f"{name}/value/{n}"] = p.flatten()[at].float()
        own, update = float(own), float(update)
        limit = max(1e-4 * update, 3 * own, 2.2 * STEPS * RATE if own > RATE / 1000 else 1e-12)
        out[f"{name}/limit/{n}"] = torch.tensor([limit])
        if own * 3 > 1e-4 * update:
            print(f"{name}: {n}: PyTorch's own fp32 is {own / max(update, 1e-30):.1e} of the update away")
    return out


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    tensors = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[2:] or NAMES:
            tensors.update(make(name, folder))
    save_file(tensors, sys.argv[1], metadata={"torch": torch.__version__})
    models.pack(sys.argv[1])


if __name__ == "__main__":
    main()
