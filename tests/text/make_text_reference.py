#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference files of the text encoder: Hugging Face's T5 and UMT5 in float64.

    pip install torch transformers safetensors
    python3 make_text_reference.py [DIRECTORY]

writes DIRECTORY/t5/: config.json, weights in two files with an index, decoder included, and
DIRECTORY/t5_expected.safetensors: for lengths of 1, 7 and 226 the tokens (tokens.N), how many of
them count (lengths.N) and what the encoder gives with a mask (masked.N) and without (whole.N); the
buckets of the distances -225 .. 225 (buckets); and the same model with 8 buckets up to 20 (few).
DIRECTORY/umt5/ and umt5_expected.safetensors are those of UMT5EncoderModel, whose layers have a
table each; its vocabulary is that of tests/tokenizer/umt5.json.

Hugging Face computes squares of norms, softmax and buckets in float32 whatever the type of the
model.  All weights are numbers that bf16 can hold.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import T5Config, T5ForConditionalGeneration, UMT5Config, UMT5EncoderModel
from transformers.models.t5.modeling_t5 import T5Attention

CONFIG = dict(
    vocab_size=448, d_model=24, d_kv=8, d_ff=40, num_layers=2, num_decoder_layers=1, num_heads=4,
    relative_attention_num_buckets=32, relative_attention_max_distance=128, dropout_rate=0,
    feed_forward_proj="gated-gelu", tie_word_embeddings=False, layer_norm_epsilon=1e-6)


def draw(model, seed):
    """Weights of a size that lets every part matter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, w in model.named_parameters():
            x = torch.randn(w.shape, generator=generator, dtype=torch.float64)
            if w.ndim == 1:
                x = 1 + 0.1 * x
            elif "relative" in name or "shared" in name:
                pass
            else:
                x = x * 0.2
            w.copy_(x.bfloat16().double())


def write_umt5(root):
    config = UMT5Config(**{**CONFIG, "vocab_size": 512, "num_layers": 3})
    config._attn_implementation = "eager"
    model = UMT5EncoderModel(config).double().eval()
    draw(model, 6)
    out = {}
    generator = torch.Generator().manual_seed(10)
    with torch.no_grad():
        for n in (1, 7, 150):
            tokens = torch.randint(0, 512, (2, n), generator=generator)
            lengths = torch.tensor([n, (n + 2) // 3])
            mask = torch.arange(n)[None] < lengths[:, None]
            x = model(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
            out.update({f"tokens.{n}": tokens.int(), f"lengths.{n}": lengths.int(),
                        f"masked.{n}": x.float()})
    where = root / "umt5"
    where.mkdir(parents=True, exist_ok=True)
    weights = {k: v.bfloat16().contiguous().clone() for k, v in model.state_dict().items()
               if "embed_tokens" not in k}
    save_file(weights, where / "model.safetensors", {"format": "pt"})
    settings = {**CONFIG, "vocab_size": 512, "num_layers": 3, "scalable_attention": True}
    (where / "config.json").write_text(
        json.dumps({"architectures": ["UMT5EncoderModel"], "model_type": "umt5", **settings},
                   indent=1) + "\n")
    save_file({k: v.contiguous() for k, v in out.items()}, root / "umt5_expected.safetensors")


def write_weights(model, where):
    where.mkdir(parents=True, exist_ok=True)
    weights = {k: v.bfloat16().contiguous().clone() for k, v in model.state_dict().items()
               if "embed_tokens" not in k}
    names = sorted(weights)
    parts = [names[: len(names) // 2], names[len(names) // 2:]]
    files = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for part, file in zip(parts, files):
        save_file({k: weights[k] for k in part}, where / file, {"format": "pt"})
    index = {"metadata": {"total_size": 2 * sum(w.numel() for w in weights.values())},
             "weight_map": {k: f for part, f in zip(parts, files) for k in part}}
    (where / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    (where / "config.json").write_text(
        json.dumps({"architectures": ["T5EncoderModel"], "model_type": "t5", **CONFIG}, indent=1)
        + "\n")


def run(model, tokens, lengths):
    mask = torch.arange(tokens.shape[1])[None] < lengths[:, None]
    encoder = model.encoder
    return (encoder(input_ids=tokens, attention_mask=mask.long()).last_hidden_state,
            encoder(input_ids=tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    config = T5Config(**CONFIG)
    config._attn_implementation = "eager"
    model = T5ForConditionalGeneration(config).double().eval()
    draw(model, 5)
    out = {}
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for n in (1, 7, 226):
            tokens = torch.randint(0, CONFIG["vocab_size"], (2, n), generator=generator)
            lengths = torch.tensor([n, (n + 2) // 3])
            masked, whole = run(model, tokens, lengths)
            out.update({f"tokens.{n}": tokens.int(), f"lengths.{n}": lengths.int(),
                        f"masked.{n}": masked.float(), f"whole.{n}": whole.float()})
        distances = torch.arange(-225, 226)
        bucket = T5Attention._relative_position_bucket
        out["buckets"] = bucket(distances, True, 32, 128).int()
        out["few"] = bucket(distances, True, 8, 20).int()
    write_weights(model, root / "t5")
    save_file({k: v.contiguous() for k, v in out.items()}, root / "t5_expected.safetensors")
    print("masked.226", float(out["masked.226"].norm()))
    write_umt5(root)


if __name__ == "__main__":
    main()
