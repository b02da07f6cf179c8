#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference of preference losses: dpo, orpo and kto on the Llama of make_lm_reference.py with
the adapters of make_adapter_reference.py, in float64.

    pip install torch transformers peft trl
    python3 make_preference_reference.py [DIRECTORY]

reads DIRECTORY/llama and writes DIRECTORY/../preference/: pairs.jsonl and labelled.jsonl, whose
characters are tokens; LOSS.safetensors with loss, pred (log-probabilities of the texts) and the
gradients of all factors as lm-train writes with --dump; and steps.txt with the losses of five steps.
The losses are written here as the papers have them, and must be those of trl.  And distill.safetensors:
a step of distillation from GPT-2.
"""

import collections
import json
import pathlib
import sys
from types import SimpleNamespace

import numpy as np
import torch
from peft import PeftModel
from safetensors.torch import save_file
from torch.nn.functional import logsigmoid, sigmoid
from transformers import AutoModelForCausalLM
from trl import DPOTrainer, KTOTrainer
from trl.experimental.orpo import ORPOTrainer

from make_adapter_reference import ours
from make_lm_reference import BATCH as BATCH_OF_TOKENS, LENGTH, VOCABULARY, as_ours

END, IGNORED = 2, -100
BETA, SMOOTHING, LAMBDA, DESIRABLE, UNDESIRABLE = 0.4, 0.1, 0.7, 1.5, 0.8
BATCH = {"dpo": 2, "orpo": 2, "kto": 3}
STEPS, LR = 5, 1e-3


def texts():
    rng = np.random.default_rng(5)

    def text(low, high):
        return [int(i) for i in rng.integers(4, 48, rng.integers(low, high))]

    pairs = [(text(1, 5), text(1, 7), text(1, 7)) for _ in range(4)]
    labelled = [(text(1, 5), text(1, 7), bool(i % 3)) for i in range(6)]
    labelled[1] = (labelled[0][0], *labelled[1][1:])  # two completions of one prompt
    return pairs, labelled


def write_lines(path, keys, rows):
    def value(x):
        return x if isinstance(x, bool) else "".join(map(chr, x))

    lines = [json.dumps(dict(zip(keys, map(value, row)))) for row in rows]
    path.write_text("".join(line + "\n" for line in lines))


def logps(model, samples):
    """Per sample: the sum over the tokens of its completion and its end, and their number."""
    out = []
    for prompt, completion in samples:
        ids = torch.tensor([prompt + completion + [END]])
        p = model(input_ids=ids[:, :-1]).logits.log_softmax(-1)[0]
        p = p.gather(1, ids[0, 1:, None])[:, 0][len(prompt) - 1:]
        out.append((p.sum(), len(p)))
    return torch.stack([p for p, _ in out]), torch.tensor([n for _, n in out])


def reference(model, samples):
    with torch.no_grad(), model.disable_adapter():
        return logps(model, samples)[0]


def dpo(model, rows):
    chosen, rejected = [(p, c) for p, c, _ in rows], [(p, r) for p, _, r in rows]
    p, q = [logps(model, x)[0] for x in (chosen, rejected)], [reference(model, x) for x in (chosen, rejected)]
    z = BETA * (p[0] - q[0] - p[1] + q[1])
    each = -(1 - SMOOTHING) * logsigmoid(z) - SMOOTHING * logsigmoid(-z)
    return each.mean(), torch.stack(p, 1), ("dpo", each, (*p, *q))


def orpo(model, rows):
    chosen, rejected = [(p, c) for p, c, _ in rows], [(p, r) for p, _, r in rows]
    (p, n), (r, m) = logps(model, chosen), logps(model, rejected)
    a, b = p / n, r / m
    z = a - b - torch.log1p(-a.exp()) + torch.log1p(-b.exp())
    each = -LAMBDA * logsigmoid(z)
    return -p.sum() / n.sum() + each.mean(), torch.stack([a, b], 1), ("orpo", each, (a, b))


def kto(model, rows, others):
    own, other = [(p, c) for p, c, _ in rows], [(p, c) for (p, _, _), c in zip(rows, others)]
    with torch.no_grad():
        far = logps(model, other)[0] - reference(model, other)
    point = far.mean().clamp(min=0)
    p, q = logps(model, own)[0], reference(model, own)
    label = torch.tensor([x for _, _, x in rows])
    z = BETA * torch.where(label, p - q - point, point - p + q)
    each = torch.where(label, DESIRABLE, UNDESIRABLE) * (1 - sigmoid(z))
    return each.mean(), p[:, None], ("kto", each, (p, q, label, far))


class Column:
    """A model of trl's whose log-probabilities are given: one column of "tokens"."""

    def __init__(self, *columns):
        self.columns = [c.detach()[:, None] for c in columns]

    def __call__(self, **_):
        p = self.columns.pop(0)
        return SimpleNamespace(log_probs=p, entropy=p * 0, mean_logits=p * 0, is_top1=p == 0)


def trainer(**settings):
    """A trainer of trl without its model and data, for its losses alone."""
    metrics = collections.defaultdict(lambda: collections.defaultdict(list))
    accelerator = SimpleNamespace(device="cpu", gather_for_metrics=lambda x: x, gather=lambda x: x)
    return SimpleNamespace(
        accelerator=accelerator, model=SimpleNamespace(training=True), aux_loss_enabled=False, ld_alpha=None, precompute_ref_logps=True,
        f_divergence_type="reverse_kl", loss_weights=[1.0], beta=BETA, label_smoothing=SMOOTHING,
        use_weighting=False, calculate_KL=True, desirable_weight=DESIRABLE, _tp_size=1,
        undesirable_weight=UNDESIRABLE, _metrics=metrics, _total_train_tokens=0, num_sft=0,
        **settings)


def given(n, **more):
    """The inputs of n texts of a prompt's token and a completion's."""
    return {"input_ids": torch.ones(n, 2, dtype=torch.long), "attention_mask": torch.ones(n, 2),
            "completion_mask": torch.tensor([[0, 1]] * n), **more}


def dpo_of_trl(p, r, q, s):
    """One pair: its aot_unpaired is the sigmoid loss with smoothing."""
    t = trainer(loss_types=["aot_unpaired"])
    batch = given(2, ref_chosen_logps=q.detach()[None], ref_rejected_logps=s.detach()[None])
    return DPOTrainer._compute_loss(t, Column(torch.stack([p, r])), batch, False)


def orpo_of_trl(a, b):
    t = SimpleNamespace(beta=LAMBDA, accelerator=SimpleNamespace(device="cpu"))
    return -ORPOTrainer.odds_ratio_loss(t, a.detach(), b.detach())[0]


def kto_of_trl(p, q, label, far):
    t = trainer(loss_type="kto")
    t._compute_kl_logps = lambda model, batch: far.detach()
    batch = given(len(p), label=label, ref_logps=q, ref_KL_logps=far * 0)
    return KTOTrainer._compute_loss(t, Column(p), batch, False)


def check_trl(kind, each, x):
    """Compares with trl's loss of the same numbers; odds are fp32 there."""
    if kind == "dpo":
        theirs = torch.stack([dpo_of_trl(*one) for one in zip(*x)])
    else:
        theirs = {"orpo": orpo_of_trl, "kto": kto_of_trl}[kind](*x)
    ours = each.mean() if kind == "kto" else each
    torch.testing.assert_close(ours.detach(), theirs.double(), rtol=1e-5, atol=1e-6)


def other_completions(rows):
    """Of each sample, the completion of the nearest one before with another prompt."""
    out = []
    for i, (prompt, _, _) in enumerate(rows):
        k = 1
        while rows[i - k][0] == prompt:
            k += 1
        out.append(rows[i - k][1])
    return out


def run(kind, root, rows, loss_of):
    base = AutoModelForCausalLM.from_pretrained(root / "llama", dtype=torch.float64,
                                                attn_implementation="eager")
    model = PeftModel.from_pretrained(base, root / "llama" / "adapter", is_trainable=True).double()
    trained = [w for w in model.parameters() if w.requires_grad]
    adamw = torch.optim.AdamW(trained, lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    losses, out = [], {}
    for step in range(STEPS):
        at = [(step * BATCH[kind] + i) % len(rows) for i in range(BATCH[kind])]
        loss, pred, check = loss_of(model, rows, at)
        check_trl(*check)
        adamw.zero_grad()
        loss.backward()
        if not step:
            out = {"loss": loss.detach(), "pred": pred.detach()}
            for key, w in model.named_parameters():
                if w.requires_grad:
                    key, grad = ours(key, w.grad, base.config)
                    out["grad." + key] = grad
        losses.append(float(loss.detach()))
        adamw.step()
    save_file({k: v.float().contiguous().clone() for k, v in out.items()},
              root.parent / "preference" / f"{kind}.safetensors")
    return kind + " " + " ".join(f"{x:.9g}" for x in losses)


def distill(root):
    """Qwen 2.5 learns the eight most probable tokens of GPT-2 at each place of its data."""
    where, top, weight, temperature = root / "qwen2", 8, 0.7, 2.0
    models = [AutoModelForCausalLM.from_pretrained(root / name, dtype=torch.float64,
                                                   attn_implementation="eager")
              for name in ("gpt2", "qwen2")]
    raw, n = (where / "tokens.bin").read_bytes()[1024:], BATCH_OF_TOKENS * LENGTH + 1
    tokens = np.frombuffer(raw, np.int32, n).astype(np.int64)
    bits = np.unpackbits(np.frombuffer(raw, np.uint8, offset=4 * n), bitorder="little")[:n]
    x = torch.tensor(tokens[:-1].reshape(BATCH_OF_TOKENS, LENGTH))
    y = torch.tensor(np.where(bits, tokens, IGNORED)[1:].reshape(BATCH_OF_TOKENS, LENGTH))
    with torch.no_grad():
        best = models[0](input_ids=x).logits.log_softmax(-1).topk(top)
    scores = models[1](input_ids=x).logits
    q = (best.values / temperature).log_softmax(-1)
    p = (scores / temperature).log_softmax(-1).gather(-1, best.indices)
    each = torch.nn.functional.kl_div(p, q, log_target=True, reduction="none").sum(-1)
    entropy = torch.nn.functional.cross_entropy(scores.reshape(-1, VOCABULARY), y.reshape(-1))
    loss = (1 - weight) * entropy + weight * temperature**2 * each[y != IGNORED].mean()
    loss.backward()
    out = {"loss": loss.detach(), "pred": scores.detach()}
    for key, w in models[1].named_parameters():
        key, grad = as_ours(key, w.grad, models[1].config)
        out["grad." + key] = grad
    save_file({k: v.float().contiguous().clone() for k, v in out.items()},
              root.parent / "preference" / "distill.safetensors")


def main(root):
    to = root.parent / "preference"
    to.mkdir(exist_ok=True)
    pairs, labelled = texts()
    write_lines(to / "pairs.jsonl", ("prompt", "chosen", "rejected"), pairs)
    write_lines(to / "labelled.jsonl", ("prompt", "completion", "label"), labelled)
    others = other_completions(labelled)
    lines = [run("dpo", root, pairs, lambda m, rows, at: dpo(m, [rows[i] for i in at])),
             run("orpo", root, pairs, lambda m, rows, at: orpo(m, [rows[i] for i in at])),
             run("kto", root, labelled,
                 lambda m, rows, at: kto(m, [rows[i] for i in at], [others[i] for i in at]))]
    (to / "steps.txt").write_text("\n".join(lines) + "\n")
    distill(root)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "lm"))
