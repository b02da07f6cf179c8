#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports models in the sizes in which they are used, without weights, for plan_models.sh.

    export_shapes.py FOLDER [NAME...]

Run by hand, with torch, diffusers and transformers installed; nothing is downloaded, and no memory for weights is
taken.  Weights and floats are bf16.
"""
import logging
import os
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import torch  # noqa: E402


def floats(*shape):
    return torch.empty(shape, dtype=torch.bfloat16)


def numbers(*shape):
    return torch.empty(shape, dtype=torch.long)


def language(config, batch, length):
    import transformers
    ids = numbers(batch, length)
    return (transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa"),
            dict(input_ids=ids, labels=ids, use_cache=False, return_dict=False))


def gpt2():
    import transformers
    return language(transformers.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0), 8, 1024)


def llama():
    import transformers
    return language(transformers.LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, head_dim=64, rope_theta=500000.0, tie_word_embeddings=True), 4, 1024)


def vit():
    import transformers
    config = transformers.ViTConfig(num_labels=1000, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    return (transformers.ViTForImageClassification._from_config(config, attn_implementation="sdpa"),
            dict(pixel_values=floats(32, 3, 224, 224), labels=numbers(32), return_dict=False))


def unet():
    import diffusers
    return (diffusers.UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8),
            dict(sample=floats(4, 4, 64, 64), timestep=numbers(4), encoder_hidden_states=floats(4, 77, 768),
                 return_dict=False))


def wan():
    import diffusers
    return (diffusers.WanTransformer3DModel(num_attention_heads=12, attention_head_dim=128, ffn_dim=8960, num_layers=30),
            dict(hidden_states=floats(1, 16, 21, 60, 104), timestep=numbers(1),
                 encoder_hidden_states=floats(1, 512, 4096), return_dict=False))


def cogvideo():
    import diffusers
    return (diffusers.CogVideoXTransformer3DModel(),
            dict(hidden_states=floats(1, 13, 16, 60, 90), timestep=numbers(1),
                 encoder_hidden_states=floats(1, 226, 4096), return_dict=False))


MODELS = {"GPT-2 124M, 8 x 1024 tokens": gpt2, "Llama 3.2 1B, 4 x 1024 tokens": llama,
          "ViT-B 16, 32 x 224 x 224": vit, "U-Net of SD 1.5, 4 x 512 x 512": unet,
          "Wan 1.3B, 81 x 480 x 832": wan, "CogVideoX 2B, 49 x 480 x 720": cogvideo}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    os.makedirs(sys.argv[1], exist_ok=True)
    for name in sys.argv[2:] or MODELS:
        with torch.device("meta"):
            model, inputs = MODELS[name]()
            model = model.to(torch.bfloat16).train()
            program = torch.export.export(model, (), inputs, strict=False)
        torch.export.save(program, os.path.join(sys.argv[1], name + ".pt2"))
        print(f"{name}: {sum(p.numel() for p in model.parameters())} values", flush=True)


if __name__ == "__main__":
    main()
