#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the adapters of the language models' tests, and what PEFT computes with them in float64.

    pip install torch transformers peft
    python3 make_adapter_reference.py [DIRECTORY [NAME...]]

writes, for the models of make_lm_reference.py in DIRECTORY, MODEL/NAME/: a directory as PEFT saves
it, with adapter of llama another rank and alpha for one layer and rsLoRA, dora DoRA with layers that
are trained as a whole; in it expected.safetensors: loss, pred and the gradients of all that is trained
as lm-train writes with --dump, so with the rows of B of q and k with their pairs side by side; and
steps.safetensors: what PEFT has after three steps of AdamW.  The numbers of adapter are beside it in
adapted.safetensors.
"""

import pathlib
import sys

import numpy as np
import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from make_lm_reference import BATCH, LENGTH, VOCABULARY, as_ours, side_by_side

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS = {
    ("gpt2", "adapter"): dict(r=2, lora_alpha=6, target_modules=["c_attn", "c_fc", "mlp.c_proj"]),
    ("llama", "adapter"): dict(r=3, lora_alpha=4, target_modules=LINEAR, use_rslora=True,
                               rank_pattern={"layers.1.self_attn.q_proj": 2},
                               alpha_pattern={"layers.1.self_attn.q_proj": 5}),
    ("gpt2", "dora"): dict(r=2, lora_alpha=3, target_modules=["c_attn", "c_fc"], use_dora=True,
                           fan_in_fan_out=True, modules_to_save=["ln_f", "h.1.ln_2"]),
    ("llama", "dora"): dict(r=2, lora_alpha=4, target_modules=LINEAR, use_dora=True,
                            modules_to_save=["lm_head", "model.norm"]),
}


def draw(model):
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, w in model.named_parameters():
            if "lora_magnitude" in name:
                x = w * (1 + 0.2 * torch.randn(w.shape, generator=generator, dtype=torch.float64))
            elif "lora_" in name:
                x = 0.2 * torch.randn(w.shape, generator=generator, dtype=torch.float64)
            elif "modules_to_save" in name:
                x = w + 0.1 * torch.randn(w.shape, generator=generator, dtype=torch.float64)
            else:
                continue
            w.copy_(x.bfloat16().double())


def ours(name, x, config):
    name = name.replace(".default.", ".")
    name = name.replace("lora_magnitude_vector.weight", "lora_magnitude_vector")
    if "lora_" not in name:
        name = name.removeprefix("base_model.model.").replace(".modules_to_save", "")
        return as_ours(name, x, config)
    heads = {"q_proj": config.num_attention_heads,
             "k_proj": getattr(config, "num_key_value_heads", None)}
    for part, n in heads.items():
        if part + ".lora_B" in name or part + ".lora_magnitude" in name:
            x = side_by_side(x, n)
    return name, x


def batch(where, name):
    raw = (where / "tokens.bin").read_bytes()[1024:]
    tokens = np.frombuffer(raw, np.uint32 if name == "llama" else np.uint16).astype(np.int64)
    return (torch.tensor(tokens[:-1].reshape(BATCH, LENGTH)),
            torch.tensor(tokens[1:].reshape(BATCH, LENGTH)))


def loss_of(model, x, y):
    scores = model(input_ids=x).logits
    return scores, torch.nn.functional.cross_entropy(scores.reshape(-1, VOCABULARY), y.reshape(-1))


def save(tensors, path):
    save_file({k: v.detach().float().contiguous().clone() for k, v in tensors.items()}, path)


def make(name, variant, root):
    where = root / name
    base = AutoModelForCausalLM.from_pretrained(where, dtype=torch.float64,
                                                attn_implementation="eager")
    model = get_peft_model(base, LoraConfig(**ADAPTERS[name, variant])).double().train()
    draw(model)
    x, y = batch(where, name)
    scores, loss = loss_of(model, x, y)
    loss.backward()
    out = {"loss": loss, "pred": scores}
    for key, w in model.named_parameters():
        if w.grad is not None:
            key, grad = ours(key, w.grad, base.config)
            out["grad." + key] = grad
    beside = variant == "adapter"
    if not beside or not (where / variant).exists():
        model.save_pretrained(where / variant)
        weights = where / variant / "adapter_model.safetensors"
        save(load_file(weights), weights)
        (where / variant / "README.md").unlink(missing_ok=True)
    save(out, where / "adapted.safetensors" if beside else where / variant / "expected.safetensors")
    steps = torch.optim.AdamW([w for w in model.parameters() if w.requires_grad], lr=1e-2,
                              betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    for _ in range(3):
        steps.zero_grad()
        loss_of(model, x, y)[1].backward()
        steps.step()
    save(get_peft_model_state_dict(model), where / variant / "steps.safetensors")
    print(name, variant, "loss", float(loss), len(out), "tensors")


if __name__ == "__main__":
    for name, variant in ADAPTERS:
        if not sys.argv[2:] or variant in sys.argv[2:]:
            make(name, variant, pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "lm"))
