#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the adapters of the language models' tests, and what PEFT computes with them in float64.

    pip install torch transformers peft
    python3 make_adapter_reference.py [DIRECTORY]

writes, for the models of make_lm_reference.py in DIRECTORY, NAME/adapter/: a directory as PEFT saves
it, of llama with another rank and alpha for one layer and rsLoRA, and adapted.safetensors: loss, pred
and the gradients of all factors as lm-train writes with --dump, so with the rows of B of q and k with
their pairs side by side.
"""

import pathlib
import sys

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from make_lm_reference import BATCH, LENGTH, VOCABULARY, side_by_side

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS = {
    "gpt2": LoraConfig(r=2, lora_alpha=6, target_modules=["c_attn", "c_fc", "mlp.c_proj"]),
    "llama": LoraConfig(r=3, lora_alpha=4, target_modules=LINEAR, use_rslora=True,
                        rank_pattern={"layers.1.self_attn.q_proj": 2},
                        alpha_pattern={"layers.1.self_attn.q_proj": 5}),
}


def draw(model):
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, w in model.named_parameters():
            if "lora_" in name:
                x = 0.2 * torch.randn(w.shape, generator=generator, dtype=torch.float64)
                w.copy_(x.bfloat16().double())


def ours(name, x, config):
    name = name.replace(".default.", ".")
    heads = {"q_proj": config.num_attention_heads,
             "k_proj": getattr(config, "num_key_value_heads", None)}
    for part, n in heads.items():
        if part + ".lora_B" in name:
            x = side_by_side(x, n)
    return name, x


def make(name, root):
    where = root / name
    base = AutoModelForCausalLM.from_pretrained(where, dtype=torch.float64,
                                                attn_implementation="eager")
    model = get_peft_model(base, ADAPTERS[name]).double().train()
    draw(model)
    raw = (where / "tokens.bin").read_bytes()[1024:]
    tokens = np.frombuffer(raw, np.uint32 if name == "llama" else np.uint16).astype(np.int64)
    x = torch.tensor(tokens[:-1].reshape(BATCH, LENGTH))
    y = torch.tensor(tokens[1:].reshape(BATCH, LENGTH))
    scores = model(input_ids=x).logits
    loss = torch.nn.functional.cross_entropy(scores.reshape(-1, VOCABULARY), y.reshape(-1))
    loss.backward()
    out = {"loss": loss.detach(), "pred": scores.detach()}
    for key, w in model.named_parameters():
        if w.grad is not None:
            key, grad = ours(key, w.grad, base.config)
            out["grad." + key] = grad
    save_file({k: v.float().contiguous().clone() for k, v in out.items()},
              where / "adapted.safetensors")
    model.float().save_pretrained(where / "adapter")
    (where / "adapter" / "README.md").unlink(missing_ok=True)
    print(name, "loss", float(loss), len(out), "tensors;",
          len(load_file(where / "adapter" / "adapter_model.safetensors")), "of adapters")


if __name__ == "__main__":
    for name in ADAPTERS:
        make(name, pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "lm"))
