#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference files of the language models: Hugging Face's models in float64.

    pip install torch transformers tokenizers
    python3 make_lm_reference.py [DIRECTORY]

writes, for gpt2, llama and qwen2, DIRECTORY/NAME/: config.json and weights as save_pretrained has
them (those of llama in two files with an index), tokens.bin (llm.c's two formats, and LLMQ's with a
mask), and expected.safetensors: loss, pred and grad.<key> as lm-train writes with --dump, so with
the linear layers of GPT-2 as [out, in] and the rows of q and k with their pairs side by side.  And
tokenizers on a small vocabulary: NAME.json, with the tokens of text.txt in NAME.bin.

All weights are numbers that bf16 can hold, so a bf16 run starts from exactly the same model.
"""

import json
import pathlib
import shutil
import struct
import sys

import numpy as np
import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers import Qwen2Config, Qwen2ForCausalLM

BATCH, LENGTH, VOCABULARY = 2, 12, 48

MODELS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(
        vocab_size=VOCABULARY, n_positions=16, n_embd=24, n_layer=2, n_head=3, n_inner=40,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=1, eos_token_id=2)),
    "llama": (LlamaForCausalLM, LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, intermediate_size=40, max_position_embeddings=64,
        rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
        rope_parameters={"rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0,
                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 16})),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, intermediate_size=40, max_position_embeddings=64,
        rms_norm_eps=1e-6, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0})),
}


def draw(model, seed):
    """Weights of a size that lets every part matter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, w in model.named_parameters():
            x = torch.randn(w.shape, generator=generator, dtype=torch.float64)
            if w.ndim == 1 and name.endswith("weight"):
                x = 1 + 0.1 * x
            else:
                x = x * (0.15 if w.ndim == 2 else 0.1)
            w.copy_(x.bfloat16().double())


def side_by_side(x, heads):
    """Rows (or entries) of q or k: the two halves of each head become pairs."""
    half = x.shape[0] // heads // 2
    return x.reshape(heads, 2, half, -1).transpose(1, 2).reshape(x.shape)


def as_ours(name, x, config):
    if config.model_type == "gpt2":
        name = name.removeprefix("transformer.")
        conv = any(part in name for part in ("c_attn.w", "c_proj.w", "c_fc.w"))
        return name, x.T.contiguous() if conv else x
    if "q_proj" in name:
        return name, side_by_side(x, config.num_attention_heads)
    if "k_proj" in name:
        return name, side_by_side(x, config.num_key_value_heads)
    return name, x


def write_llmc(path, tokens, wide):
    header = np.zeros(256, np.int32)
    header[:3] = (20240801, 7, len(tokens)) if wide else (20240520, 1, len(tokens))
    data = np.asarray(tokens).astype(np.uint32 if wide else np.uint16)
    path.write_bytes(header.tobytes() + data.tobytes())


def write_llmq(path, tokens, mask):
    header = b"BIN.TOK\n" + struct.pack("<5i", 1, 4, len(tokens), VOCABULARY, 1)
    bits = np.packbits(np.asarray(mask, np.uint8), bitorder="little")
    path.write_bytes(header.ljust(1024, b"\0") + np.asarray(tokens, np.int32).tobytes()
                     + bits.tobytes())


def write_weights(model, where):
    """As Hugging Face's own files: single ones for two, and two with an index for one."""
    weights = {k: v.float().contiguous() for k, v in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    if model.config.model_type == "gpt2":  # without the prefix, as the published file
        weights = {k.removeprefix("transformer."): v for k, v in weights.items()}
        weights["h.0.attn.bias"] = torch.ones(1, 1, 16, 16).tril()  # a mask: to be left alone
    if model.config.model_type != "llama":
        save_file(weights, where / "model.safetensors", {"format": "pt"})
        return
    names = sorted(weights)
    parts = [names[: len(names) // 2], names[len(names) // 2 :]]
    files = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for part, file in zip(parts, files):
        save_file({k: weights[k] for k in part}, where / file, {"format": "pt"})
    index = {"metadata": {"total_size": 4 * sum(w.numel() for w in weights.values())},
             "weight_map": {k: f for part, f in zip(parts, files) for k in part}}
    (where / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def make_model(name, root):
    kind, config = MODELS[name]
    config._attn_implementation = "eager"
    where = root / name
    where.mkdir(parents=True, exist_ok=True)
    model = kind(config).double().train()
    draw(model, len(name))
    if config.tie_word_embeddings:
        model.tie_weights()
    rng = np.random.default_rng(7)
    tokens = rng.integers(0, VOCABULARY, BATCH * LENGTH + 1)
    mask = np.ones(len(tokens), bool)
    if name == "qwen2":
        mask[[3, 4, 5, 15, 24]] = False
        write_llmq(where / "tokens.bin", tokens, mask)
    else:
        write_llmc(where / "tokens.bin", tokens, name == "llama")
    x = torch.tensor(tokens[:-1].reshape(BATCH, LENGTH))
    y = torch.tensor(np.where(mask, tokens, -100)[1:].reshape(BATCH, LENGTH))
    scores = model(input_ids=x).logits
    loss = torch.nn.functional.cross_entropy(scores.reshape(-1, VOCABULARY), y.reshape(-1))
    loss.backward()
    out = {"loss": loss.detach(), "pred": scores.detach()}
    for key, w in model.named_parameters():
        key, grad = as_ours(key, w.grad, config)
        out["grad." + key] = grad
    save_file({k: v.float().contiguous().clone() for k, v in out.items()},
              where / "expected.safetensors")
    write_weights(model, where)
    config.save_pretrained(where)
    print(name, "loss", float(loss))


# ---- tokenizers ------------------------------------------------------------------------------

LLAMA = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

TEXT = (
    "The budget's a wall; we'll see, I'd say, that THEY'RE 12345 times larger.\n\n"
    "  Indented\tby a tab, and    by blanks   \n\r\n"
    "Gr\u00fc\u00dfe, \u4f60\u597d, \u043c\u0438\u0440, \U0001f600\u200d\U0001f525 x\u00b2 = \u00bd\u2026"
    "<|endoftext|>after the end<|endoftext|>"
    + "a" * 300 + " " * 70 + "z\u00a0\u3000\n"
)


def make_tokenizers(root):
    corpus = [(root.parent.parent.parent / "doc" / "tour.md").read_text()] + [TEXT] * 3
    (root / "text.txt").write_bytes(TEXT.encode())
    for name in ("gpt2", "llama"):
        t = Tokenizer(models.BPE(ignore_merges=name == "llama"))
        if name == "gpt2":
            t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        else:
            t.pre_tokenizer = pre_tokenizers.Sequence([
                pre_tokenizers.Split(Regex(LLAMA), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        t.decoder = tokenizers.decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=420, special_tokens=["<|endoftext|>"], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        t.train_from_iterator(corpus, trainer)
        t.save(str(root / f"{name}-tokenizer.json"))
        ids = t.encode(TEXT, add_special_tokens=False).ids
        assert t.decode(ids, skip_special_tokens=False) == TEXT
        write_llmc(root / f"{name}-text.bin", ids, name == "llama")
        if name == "gpt2":
            (root / "pair").mkdir(exist_ok=True)
            t.model.save(str(root / "pair"))
        print(name, "tokens", len(ids))


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "lm")
    root.mkdir(exist_ok=True)
    for name in MODELS:
        shutil.rmtree(root / name, ignore_errors=True)
        make_model(name, root)
    make_tokenizers(root)


if __name__ == "__main__":
    main()
