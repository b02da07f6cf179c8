#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference files of the mixtures of experts: Hugging Face's models in float64.

    pip install torch transformers tokenizers
    python3 make_moe_reference.py [DIRECTORY]

writes, for qwen3_moe and gpt_oss, DIRECTORY/NAME/: config.json, weights under the names of published
files (experts one by one, or in one tensor), tokens.bin, expected.safetensors (loss, pred and
grad.<key> as lm-train writes with --dump), steps.safetensors (the weights after five steps of AdamW)
and greedy.txt (a prompt and the 50 likeliest tokens after it, each a byte).  For gpt_oss also
mxfp4.safetensors: the same weights with those of experts in MXFP4, as the published files have them,
whose values the other files hold.

All weights are numbers that bf16 can hold, so a bf16 run starts from exactly the same model.
"""

import pathlib
import shutil
import sys

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import GptOssConfig, GptOssForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from make_lm_reference import BATCH, LENGTH, side_by_side, write_llmc

VOCABULARY, STEPS, PROMPT, GREEDY = 96, 5, b"EXPERTS", 50

MODELS = {
    "qwen3_moe": (Qwen3MoeForCausalLM, Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, intermediate_size=40, max_position_embeddings=64,
        rms_norm_eps=1e-6, tie_word_embeddings=False, moe_intermediate_size=12, num_experts=5,
        num_experts_per_tok=2, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[1],
        output_router_logits=True, router_aux_loss_coef=0.05, bos_token_id=None, eos_token_id=None,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0})),
    "gpt_oss": (GptOssForCausalLM, GptOssConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, intermediate_size=32, max_position_embeddings=64,
        rms_norm_eps=1e-5, tie_word_embeddings=False, num_local_experts=4, num_experts_per_tok=2,
        sliding_window=5, output_router_logits=False, bos_token_id=None, eos_token_id=None,
        pad_token_id=None,
        rope_parameters={"rope_type": "yarn", "rope_theta": 150.0, "factor": 4.0, "beta_fast": 4.0,
                         "beta_slow": 1.0, "truncate": False,
                         "original_max_position_embeddings": 16})),
}

CODES = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)


def to_mxfp4(w):
    """Codes and scales of [E, K, N], blocks along K: [E, N, K / 32, 16] and [E, N, K / 32]."""
    x = w.transpose(1, 2).unflatten(2, (-1, 32))
    scale = torch.floor(torch.log2(x.abs().amax(-1))) - 2
    code = (x.abs() / 2 ** scale[..., None]).unsqueeze(-1).sub(CODES).abs().argmin(-1)
    value = (CODES[code] * x.sign() * 2 ** scale[..., None]).flatten(2).transpose(1, 2)
    code = (code + 8 * (x < 0)).to(torch.uint8)
    return code[..., 0::2] | code[..., 1::2] << 4, (scale + 127).to(torch.uint8), value


def draw(model, seed):
    """Weights of a size that lets every part matter; biases reach the limit of SwiGLU."""
    generator = torch.Generator().manual_seed(seed)
    codes = {}
    with torch.no_grad():
        for name, w in model.named_parameters():
            x = torch.randn(w.shape, generator=generator, dtype=torch.float64)
            if "norm" in name:
                x = 1 + 0.1 * x
            elif name.endswith("sinks") or "embed" in name or "lm_head" in name:
                x = x
            elif name.endswith("gate_up_proj_bias"):
                x = 4 * x
            else:
                x = x * (0.1 if w.ndim < 2 else 0.6 if "self_attn" in name else 0.3)
            if model.config.model_type == "gpt_oss" and w.ndim == 3:
                codes[name + "_blocks"], codes[name + "_scales"], x = to_mxfp4(x)
            if name == "lm_head.weight":
                x[:33], x[92:] = 0, 0  # so that texts have letters and the like only
            w.copy_(x.bfloat16().double())
    return codes


def in_files(name, x):
    """Names and tensors as published."""
    if "experts.gate_up_proj" in name and x.ndim == 3 and x.shape[1] == 24:
        gate, up = x.chunk(2, dim=1)
        base = name.removesuffix("gate_up_proj")
        return [(f"{base}{e}.{part}_proj.weight", y[e]) for e in range(len(x))
                for part, y in (("gate", gate), ("up", up))]
    if "experts.down_proj" in name and x.ndim == 3 and x.shape[2] == 12:
        return [(f"{name.removesuffix('down_proj')}{e}.down_proj.weight", x[e]) for e in range(len(x))]
    return [(name, x)]


def as_ours(name, x, config):
    if "q_proj" in name:
        return side_by_side(x, config.num_attention_heads)
    if "k_proj" in name:
        return side_by_side(x, config.num_key_value_heads)
    if "q_norm" in name or "k_norm" in name:
        return side_by_side(x, 1)
    if config.model_type == "gpt_oss" and x.ndim == 3:
        return x.transpose(1, 2)
    return x


def save(where, tensors):
    save_file({k: v.detach().float().contiguous().clone() for k, v in tensors.items()}, where)


def published(model):
    return {k: v for name, w in model.state_dict().items() for k, v in in_files(name, w)}


def loss_of(model, x, y):
    out = model(input_ids=x)
    loss = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), y.flatten())
    if model.config.output_router_logits:
        loss = loss + model.config.router_aux_loss_coef * out.aux_loss
    return loss, out.logits


def greedy(model):
    ids = list(PROMPT)
    with torch.no_grad():
        for _ in range(GREEDY):
            ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    assert all(32 < i < 92 for i in ids), "a text that is shown otherwise"
    return bytes(ids)


def make_model(name, root):
    kind, config = MODELS[name]
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    where = root / name
    where.mkdir(parents=True, exist_ok=True)
    model = kind(config).double().train()
    seed = 0
    codes = draw(model, seed)
    while len(set(greedy(model))) < 15:  # a text in a circle says little of the model
        seed += 1
        codes = draw(model, seed)
    rng = np.random.default_rng(7)
    tokens = rng.integers(0, VOCABULARY, STEPS * BATCH * LENGTH + 1)
    write_llmc(where / "tokens.bin", tokens, False)
    x = torch.tensor(tokens[:-1].reshape(STEPS, BATCH, LENGTH))
    y = torch.tensor(tokens[1:].reshape(STEPS, BATCH, LENGTH))
    config.save_pretrained(where)
    files = published(model)
    files = {k: v.detach().bfloat16().contiguous() for k, v in files.items()}
    save_file(files, where / "model.safetensors")
    if codes:
        rest = {k: v for k, v in files.items() if k + "_blocks" not in codes}
        save_file({**rest, **codes}, where / "mxfp4.safetensors")
    (where / "greedy.txt").write_bytes(greedy(model))
    loss, scores = loss_of(model, x[0], y[0])
    loss.backward()
    out = {"loss": loss, "pred": scores}
    out.update({"grad." + k: as_ours(k, w.grad, config) for k, w in model.named_parameters()})
    save(where / "expected.safetensors", out)
    named = list(model.named_parameters())
    decayed = [w for k, w in named if w.ndim > 1 and not k.endswith("_bias")]
    rest = [w for k, w in named if w.ndim < 2 or k.endswith("_bias")]
    adam = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                              {"params": rest, "weight_decay": 0}], 1e-3, (0.9, 0.95))
    for step in range(STEPS):
        model.zero_grad()
        loss_of(model, x[step], y[step])[0].backward()
        adam.step()
    # a constant for all keys changes attention with a sink: nothing is left out
    save(where / "steps.safetensors", published(model))
    print(name, "loss", loss.item(), sum(w.numel() for w in model.parameters()), "weights")


def main():
    torch.set_num_threads(1)
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "lm")
    for name in MODELS:
        shutil.rmtree(root / name, ignore_errors=True)
        make_model(name, root)


if __name__ == "__main__":
    main()
