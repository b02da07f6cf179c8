#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference files of the language models: Hugging Face's models in float64.

    pip install torch transformers tokenizers
    python3 make_lm_reference.py [DIRECTORY]

writes, for gpt2, llama, qwen2 and bert, DIRECTORY/NAME/: config.json and weights as save_pretrained
has them (those of llama in two files with an index), tokens.bin (llm.c's two formats, and LLMQ's with
a mask), and expected.safetensors: loss, pred and grad.<key> as lm-train writes with --dump, so with
the linear layers of GPT-2 as [out, in] and the rows of q and k with their pairs side by side.  For
bert, whose masks are drawn here as masked.c draws them, steps.safetensors, too: the weights after five
steps.  And tokenizers on a small vocabulary: NAME.json, with the tokens of text.txt in NAME.bin.

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
from transformers import BertConfig, BertForPreTraining
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
    "bert": (BertForPreTraining, BertConfig(
        vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=40, max_position_embeddings=16, hidden_dropout_prob=0,
        attention_probs_dropout_prob=0)),
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


# ---- masked tokens ---------------------------------------------------------------------------

CLS, SEP, MASK = 2, 3, 4
ROOM, SHARE, MOST = LENGTH - 3, 0.4, 4
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [chr(97 + i) for i in range(23)]
WORDS += ["##" + chr(97 + i) for i in range(VOCABULARY - len(WORDS))]


def uniform(sample, n, seed=42, stream=0x4C4D0004):
    """The first n values of Philox 4x32-10 (Salmon et al. 2011), 24 bits each."""
    out = []
    for block in range((n + 3) // 4):
        c, k = [block, sample >> 32, sample & 0xffffffff, stream], [seed & 0xffffffff, seed >> 32]
        for _ in range(10):
            a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
            c = [b >> 32 ^ c[1] ^ k[0], b & 0xffffffff, a >> 32 ^ c[3] ^ k[1], a & 0xffffffff]
            k = [k[0] + 0x9E3779B9 & 0xffffffff, k[1] + 0xBB67AE85 & 0xffffffff]
        out += [np.float32(w >> 8) * np.float32(2.0 ** -24) for w in c]
    return out[:n]


def make_sample(pieces, number):
    """[CLS] A [SEP] B [SEP] and its predictions, from pieces (document, tokens)."""
    document, tokens = pieces[number % len(pieces)]
    u, n = uniform(number, 4 + 3 * ROOM), len(tokens)
    other = u[0] < 0.5 or n == 1
    cut = 1 + int(u[1] * np.float32(n - 1)) if n > 1 else 1
    if other:
        at = int((float(u[2]) + float(u[3]) / 2 ** 24) * len(pieces))
        while pieces[at][0] == document:
            at = (at + 1) % len(pieces)
        tokens = tokens[:cut] + pieces[at][1][:ROOM - cut]
    n, words = len(tokens), []
    for i, t in enumerate(tokens):
        if i and i != cut and WORDS[t].startswith("##"):
            words[-1][1].append(i)
        else:
            words.append((u[4 + i], [i]))
    left, chosen = max(1, int(n * SHARE + 0.5)), set()
    for _, word in sorted(words):
        if len(word) <= left:
            left -= len(word)
            chosen.update(word)
    row, segments, places, targets = [CLS], [0], [], []
    for i, t in enumerate(tokens):
        if i == cut:
            row, segments = row + [SEP], segments + [0]
        if i in chosen:
            places.append(len(row))
            targets.append(t)
            kind = u[4 + n + i]
            t = MASK if kind < np.float32(0.8) else int(u[4 + 2 * n + i] * np.float32(
                VOCABULARY)) if kind < np.float32(0.9) else t
        row, segments = row + [t], segments + [int(i >= cut)]
    row, segments = row + [SEP], segments + [1]
    fill = lambda x, size, value: x + [value] * (size - len(x))
    return (fill(row, LENGTH, 0), fill(segments, LENGTH, 0), [1] * len(row) + [0] * (LENGTH - len(row)),
            fill(places, MOST, 0), fill(targets, MOST, -100), int(other))


def bert_step(model, pieces, step):
    """The loss of a step, as BertForPreTraining computes it, and the scores at the places."""
    rows = [make_sample(pieces, step * BATCH + i) for i in range(BATCH)]
    ids, segments, mask, places, targets, pairs = (torch.tensor(x) for x in zip(*rows))
    labels = torch.full((BATCH, LENGTH), -100)
    for b in range(BATCH):
        keep = targets[b] != -100
        labels[b, places[b][keep]] = targets[b][keep]
    out = model(input_ids=ids, token_type_ids=segments, attention_mask=mask, labels=labels,
                next_sentence_label=pairs)
    scores = out.prediction_logits.gather(1, places[:, :, None].expand(-1, -1, VOCABULARY))
    return out.loss, scores


def make_bert(root):
    kind, config = MODELS["bert"]
    config._attn_implementation = "eager"
    where = root / "bert"
    where.mkdir(parents=True, exist_ok=True)
    model = kind(config).double().train()
    draw(model, 4)
    model.tie_weights()
    rng = np.random.default_rng(11)
    documents = [rng.integers(MASK + 1, VOCABULARY, n).tolist() for n in (13, 5, 21, 1, 9, 7)]
    write_llmc(where / "tokens.bin", [t for d in documents for t in [CLS] + d + [SEP]], False)
    pieces = [(i, d[at:at + ROOM]) for i, d in enumerate(documents) for at in range(0, len(d), ROOM)]
    (where / "vocab.txt").write_text("".join(w + "\n" for w in WORDS))
    config.save_pretrained(where)
    model.float().save_pretrained(where)
    model.double()
    loss, scores = bert_step(model, pieces, 0)
    loss.backward()
    out = {"loss": loss.detach(), "pred": scores.detach()}
    out.update({"grad." + k: w.grad for k, w in model.named_parameters()})
    save_file({k: v.float().contiguous().clone() for k, v in out.items()},
              where / "expected.safetensors")
    decayed = [w for w in model.parameters() if w.ndim > 1]
    rest = [w for w in model.parameters() if w.ndim < 2]
    adam = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.01},
                              {"params": rest, "weight_decay": 0}], 1e-3, (0.9, 0.999))
    for step in range(5):
        model.zero_grad()
        bert_step(model, pieces, step)[0].backward()
        adam.step()
    # A constant for all keys changes no weight of attention: its gradient is rounding alone.
    save_file({k: w.detach().float().clone() for k, w in model.named_parameters()
               if not k.endswith("key.bias")}, where / "steps.safetensors")
    print("bert loss", float(loss), {k: tuple(v.shape) for k, v in model.named_parameters()
                                     if k.startswith("cls")})


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
        make_bert(root) if name == "bert" else make_model(name, root)
    make_tokenizers(root)


if __name__ == "__main__":
    main()
