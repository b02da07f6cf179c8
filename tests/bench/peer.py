# SPDX-License-Identifier: Apache-2.0
"""What peers in PyTorch share: a step with fp32 masters of bf16 weights, fused AdamW and clipping, and its times.

A JSON line after every step, so that a run that is ended has its numbers, too: milliseconds of a step (the median without the first
three), losses, and on a GPU the bytes at the peak of the allocator and of the process.
"""

import argparse
import json
import time

import torch

SKIPPED = 3


def options(description):
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--eager", action="store_true", help="compile nothing")
    p.add_argument("--device", default="cuda")
    return p


def memory(device):
    if device != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info()
    return {"peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2), "process_gib": round((total - free) / 2**30, 2)}


def update(weights, masters, optimizer):
    for w, m in zip(weights, masters):
        m.grad, w.grad = None if w.grad is None else w.grad.float(), None
    torch.nn.utils.clip_grad_norm_(masters, 1.0)
    optimizer.step()
    with torch.no_grad():
        torch._foreach_copy_(weights, masters)
    optimizer.zero_grad()


def run(o, model, batch, loss, rate, decay=0.0):
    """o.steps steps on loss(*batch()).  The time of batch() does not count; a model's `counted` is its number of tokens."""
    weights = [w for w in model.parameters() if w.requires_grad]
    masters = [torch.nn.Parameter(w.detach().float()) for w in weights]
    optimizer = torch.optim.AdamW(masters, rate, weight_decay=decay, fused=o.device == "cuda")
    wait = torch.cuda.synchronize if o.device == "cuda" else (lambda: None)
    times, tokens, losses = [], [], []
    result = {"parameters": sum(p.numel() for p in model.parameters()), "trained": sum(w.numel() for w in weights)}
    for _ in range(o.steps):
        given = batch()
        wait()
        begin = time.perf_counter()
        value = loss(*given)
        value.backward()
        update(weights, masters, optimizer)
        wait()
        times.append(time.perf_counter() - begin)
        tokens.append(getattr(model, "counted", 0))
        losses.append(round(value.item(), 3))
        kept, counted = times[SKIPPED:] or times, tokens[SKIPPED:] or tokens
        result["ms"] = round(1e3 * sorted(kept)[len(kept) // 2], 2)
        if any(counted):
            result["tokens_per_second"] = round(sum(counted) / sum(kept))
        print(json.dumps({**result, "losses": losses, **memory(o.device)}), flush=True)
