#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference files of the families of examples/lm: transformers in float64.

    pip install torch transformers
    python3 make_family_reference.py [NAME]...

writes, beside the models of make_lm_reference.py, for each model below lm/NAME/: config.json
and model.safetensors (bf16) as save_pretrained has them, tokens.bin, and from them
expected.safetensors (loss, pred and grad.<key>, as lm-train writes with --dump), steps.txt (the losses
of five steps of AdamW) and greedy.txt: a prompt and the 50 likeliest tokens behind it, one after the
other, as lm-sample prints bytes.

The windows and original lengths are shorter than a sample, and heads are wider than width / heads.
"""

import pathlib
import shutil
import sys

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

from make_lm_reference import draw, side_by_side, write_llmc

BATCH, LENGTH, VOCABULARY, STEPS, PROMPT = 2, 12, 48, 5, "+&!*)"
SHAPE = dict(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, intermediate_size=24, max_position_embeddings=64,
             bos_token_id=None, eos_token_id=None, pad_token_id=None)


def rope(kind="default", theta=100.0, **more):
    return dict(rope_type=kind, rope_theta=theta, **more)


YARN = rope("yarn", factor=4.0, original_max_position_embeddings=8, beta_fast=8, beta_slow=1)
MODELS = {
    "llama-bias": ("Llama", dict(head_dim=8, attention_bias=True, mlp_bias=True, hidden_act="gelu",
                                 tie_word_embeddings=True, rope_parameters=YARN)),
    "mistral": ("Mistral", dict(head_dim=8, sliding_window=5, rope_parameters=rope(
        "linear", factor=3.0))),
    "qwen3": ("Qwen3", dict(head_dim=8, tie_word_embeddings=True, use_sliding_window=True,
                            sliding_window=7, max_window_layers=1, rope_parameters=rope())),
    "gemma2": ("Gemma2", dict(head_dim=8, sliding_window=5, query_pre_attn_scalar=6,
                              attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
                              rope_parameters=rope())),
    "gemma3": ("Gemma3", dict(head_dim=8, num_key_value_heads=1, sliding_window=5,
                              query_pre_attn_scalar=10, layer_types=["sliding_attention",
                                                                     "full_attention"],
                              rope_parameters={"full_attention": rope("linear", 500.0, factor=2.0),
                                               "sliding_attention": rope(theta=50.0)})),
    "phi3": ("Phi3", dict(hidden_size=32, sliding_window=9, original_max_position_embeddings=8,
                          rope_parameters=rope("longrope", partial_rotary_factor=0.5,
                                               short_factor=[1.0, 1.5], long_factor=[2.0, 5.0],
                                               original_max_position_embeddings=8))),
    "olmo2": ("Olmo2", dict(hidden_size=32, rope_parameters=rope())),
    "smollm3": ("SmolLM3", dict(hidden_size=32, no_rope_layer_interval=2, attention_bias=True,
                                mlp_bias=True, tie_word_embeddings=True, use_sliding_window=True,
                                sliding_window=6, rope_parameters=rope("dynamic", factor=2.0))),
}


def as_ours(name, x, config):
    """The rows of separate q and k, and norms of heads, have their pairs side by side."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads,
             "q_norm": 0, "k_norm": 0}
    for part, n in heads.items():
        if part in name:
            return side_by_side(x, n or max(1, x.shape[0] // head_of(config)))
    return x


def head_of(config):
    head = getattr(config, "head_dim", None)
    return head or config.hidden_size // config.num_attention_heads


def loss_of(model, tokens, step):
    rows = tokens[step * BATCH * LENGTH:][:BATCH * LENGTH + 1]
    x, y = (torch.tensor(r.reshape(BATCH, LENGTH)) for r in (rows[:-1], rows[1:]))
    scores = model(input_ids=x).logits
    return torch.nn.functional.cross_entropy(scores.reshape(-1, VOCABULARY), y.reshape(-1)), scores


def greedy(model):
    """Each token from the whole text.  None where two are almost as likely, or one has no byte."""
    # a text longer than the original length has one set of factors of longrope throughout
    text = [ord(c) for c in PROMPT * (2 if model.config.model_type == "phi3" else 1)]
    for _ in range(50):
        with torch.no_grad():
            best = model(input_ids=torch.tensor([text])).logits[0, -1].topk(2)
        if best.values[0] - best.values[1] < 1e-3 or int(best.indices[0]) in (0, 10):
            return None
        text.append(int(best.indices[0]))
    return "".join(chr(c) if c >= 32 or c == 9 else f"\\x{c:02x}" for c in text)


def build(kind, settings):
    """The model with the first weights that can be told apart by their text."""
    config = getattr(transformers, {"Gemma3": "Gemma3TextConfig"}.get(kind, kind + "Config"))(
        **{**SHAPE, **settings})
    config._attn_implementation = "eager"
    for seed in range(100):
        model = getattr(transformers, kind + "ForCausalLM")(config).double().train()
        draw(model, seed)
        with torch.no_grad():
            for name, w in model.named_parameters():
                if "norm" in name and "Gemma" in kind:
                    w -= 1
        model.tie_weights()
        text = greedy(model)
        if text and len(set(text)) > 12:
            return config, model, text
    sys.exit(f"{kind}: no text")


def make(name, root):
    where = root / name
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    config, model, text = build(*MODELS[name])
    (where / "greedy.txt").write_text(text + "\n")
    tokens = np.random.default_rng(5).integers(0, VOCABULARY, STEPS * BATCH * LENGTH + 1)
    write_llmc(where / "tokens.bin", tokens, False)
    weights = {k: v.bfloat16().contiguous() for k, v in model.state_dict().items()}
    if config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    save_file(weights, where / "model.safetensors", {"format": "pt"})
    config.save_pretrained(where)
    loss, scores = loss_of(model, tokens, 0)
    loss.backward()
    out = {"loss": loss.detach(), "pred": scores.detach()}
    for key, w in model.named_parameters():
        out["grad." + key] = as_ours(key, w.grad, config)
    save_file({k: v.float().contiguous().clone() for k, v in out.items()},
              where / "expected.safetensors")
    adam = torch.optim.AdamW([{"params": [w for w in model.parameters() if (w.ndim > 1) == two],
                               "weight_decay": 0.1 if two else 0} for two in (True, False)],
                             1e-2, (0.9, 0.95))
    losses = []
    for step in range(STEPS):
        model.zero_grad()
        loss = loss_of(model, tokens, step)[0]
        loss.backward()
        adam.step()
        losses.append(float(loss))
    (where / "steps.txt").write_text("".join(f"{x:.9g}\n" for x in losses))
    print(name, losses, text)


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        make(name, pathlib.Path(__file__).parent / "lm")
