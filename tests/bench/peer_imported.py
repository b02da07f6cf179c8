#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model of transformers, timm or diffusers for pt2-train, and its step by PyTorch: compiled, bf16 with fp32 masters, fused
AdamW, clipping.  bench-imported.sh calls it.

    peer_imported.py MODEL --export FOLDER      FOLDER/MODEL.pt2 with random weights, and FOLDER/MODEL.safetensors with data
    peer_imported.py MODEL --steps N            steps; peer.py says what is printed

--small is a size for a test without a GPU."""
import os
import sys

os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
import torch  # noqa: E402

import peer  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pt2"))


def language(config, batch, length):
    import transformers
    ids = torch.randint(0, config.vocab_size, (batch, length))
    return (transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa"),
            dict(input_ids=ids, labels=ids.clone()), dict(use_cache=False, return_dict=False), None)


def gpt2(small):
    import transformers
    size = dict(n_layer=2, n_embd=64, n_head=2) if small else {}
    config = transformers.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **size)
    return language(config, 2 if small else 16, 64 if small else 1024)


def llama(small):
    import transformers
    size = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                vocab_size=512) if small else dict(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
        vocab_size=128256)
    config = transformers.LlamaConfig(head_dim=32 if small else 64, rope_theta=500000.0, tie_word_embeddings=True, **size)
    return language(config, 2 if small else 4, 64 if small else 1024)


def vit(small):
    import timm
    model = timm.create_model("vit_tiny_patch16_224" if small else "vit_base_patch16_224", depth=2 if small else 12)
    batch = 2 if small else 64
    return model, dict(x=torch.randn(batch, 3, 224, 224)), {}, torch.randint(0, 1000, (batch,))


def unet(small):
    import diffusers
    size = dict(block_out_channels=(32, 64), down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=32) if small else dict(
        cross_attention_dim=768)
    model = diffusers.UNet2DConditionModel(sample_size=64, attention_head_dim=8, **size)
    batch, side = (2, 16) if small else (8, 64)
    sample = torch.randn(batch, 4, side, side)
    given = dict(sample=sample, timestep=torch.randint(0, 1000, (batch,)),
                 encoder_hidden_states=torch.randn(batch, 77, 32 if small else 768))
    return model, given, dict(return_dict=False), torch.randn_like(sample)


def wan(small):
    import diffusers
    size = dict(num_attention_heads=2, attention_head_dim=32, ffn_dim=128, num_layers=2, text_dim=32) if small else dict(
        num_attention_heads=12, attention_head_dim=128, ffn_dim=8960, num_layers=30)
    clip = torch.randn(1, 16, *((3, 8, 8) if small else (21, 60, 104)))
    given = dict(hidden_states=clip, timestep=torch.randint(0, 1000, (1,)),
                 encoder_hidden_states=torch.randn(1, 512, 32 if small else 4096))
    return diffusers.WanTransformer3DModel(**size), given, dict(return_dict=False), torch.randn_like(clip)


def cogvideo(small):
    import diffusers
    size = dict(num_attention_heads=2, attention_head_dim=32, num_layers=2, text_embed_dim=32, sample_width=8,
                sample_height=8, sample_frames=9) if small else {}
    clip = torch.randn(1, *((3, 16, 8, 8) if small else (13, 16, 60, 90)))
    given = dict(hidden_states=clip, timestep=torch.randint(0, 1000, (1,)),
                 encoder_hidden_states=torch.randn(1, 226, 32 if small else 4096))
    return diffusers.CogVideoXTransformer3DModel(**size), given, dict(return_dict=False), torch.randn_like(clip)


MODELS = {f.__name__: f for f in (gpt2, llama, vit, unet, wan, cogvideo)}


def half(value):
    return value.to(torch.bfloat16) if value is not None and value.is_floating_point() else value


def load(o):
    torch.manual_seed(0)
    model, given, fixed, target = MODELS[o.model](o.small)
    return model.to(torch.bfloat16).train(), {k: half(v) for k, v in given.items()}, fixed, half(target)


def export(o):
    import safetensors.torch
    model, given, fixed, target = load(o)
    path = os.path.join(o.export, o.model)
    with torch.no_grad():
        torch.export.save(torch.export.export(model, (), {**given, **fixed}, strict=False), path + ".pt2")
    if target is not None:
        given = {**given, "target": target.to(torch.int32) if o.model == "vit" else target}
    safetensors.torch.save_file({k: v.contiguous() for k, v in given.items()}, path + ".safetensors")


def loss_of(o, result, target):
    if target is None:
        return result[0]
    if o.model == "vit":
        return torch.nn.functional.cross_entropy(result.float(), target)
    return torch.nn.functional.mse_loss(result[0].float(), target.float())


def step(o):
    model, given, fixed, target = load(o)
    model = model.to(o.device)
    given = {k: v.to(o.device) for k, v in given.items()}
    target = target.to(o.device) if target is not None else None
    run = model if o.eager else torch.compile(model)
    peer.run(o, model, lambda: (), lambda: loss_of(o, run(**given, **fixed), target), 1e-4, 0.01)


def main():
    p = peer.options(__doc__.split("\n")[0])
    p.add_argument("model", choices=MODELS)
    p.add_argument("--export")
    p.add_argument("--small", action="store_true")
    o = p.parse_args()
    export(o) if o.export else step(o)


main()
