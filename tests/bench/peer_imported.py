#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model of transformers, timm or diffusers for pt2-train, and its step by PyTorch: compiled, bf16 with fp32 masters, fused
AdamW, clipping.  bench-imported.sh calls it.

    peer_imported.py MODEL --export FOLDER      FOLDER/MODEL.pt2 with random weights, and FOLDER/MODEL.safetensors with data
    peer_imported.py MODEL --steps N            steps; peer.py says what is printed
    peer_imported.py MODEL --empty FOLDER       FOLDER/MODEL.pt2 without values, some hundred KiB

--archives FOLDER takes the module from such an archive, with random weights, where its library is not installed.
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
    return (lambda: transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa"),
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
    def make():
        import timm
        return timm.create_model("vit_tiny_patch16_224" if small else "vit_base_patch16_224", depth=2 if small else 12)
    batch = 2 if small else 64
    return make, dict(x=torch.randn(batch, 3, 224, 224)), {}, torch.randint(0, 1000, (batch,))


def of_diffusers(name, **size):
    def make():
        import diffusers
        return getattr(diffusers, name)(**size)
    return make


def unet(small):
    size = dict(block_out_channels=(32, 64), down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=32) if small else dict(
        cross_attention_dim=768)
    batch, side = (2, 16) if small else (16, 64)
    sample = torch.randn(batch, 4, side, side)
    given = dict(sample=sample, timestep=torch.randint(0, 1000, (batch,)),
                 encoder_hidden_states=torch.randn(batch, 77, 32 if small else 768))
    make = of_diffusers("UNet2DConditionModel", sample_size=64, attention_head_dim=8, **size)
    return make, given, dict(return_dict=False), torch.randn_like(sample)


def wan(small):
    size = dict(num_attention_heads=2, attention_head_dim=32, ffn_dim=128, num_layers=2, text_dim=32) if small else dict(
        num_attention_heads=12, attention_head_dim=128, ffn_dim=8960, num_layers=30)
    clip = torch.randn(1, 16, *((3, 8, 8) if small else (13, 60, 104)))
    given = dict(hidden_states=clip, timestep=torch.randint(0, 1000, (1,)),
                 encoder_hidden_states=torch.randn(1, 512, 32 if small else 4096))
    return of_diffusers("WanTransformer3DModel", **size), given, dict(return_dict=False), torch.randn_like(clip)


def cogvideo(small):
    size = dict(num_attention_heads=2, attention_head_dim=32, num_layers=2, text_embed_dim=32, sample_width=8,
                sample_height=8, sample_frames=9) if small else {}
    clip = torch.randn(1, *((3, 16, 8, 8) if small else (13, 16, 60, 90)))
    given = dict(hidden_states=clip, timestep=torch.randint(0, 1000, (1,)),
                 encoder_hidden_states=torch.randn(1, 226, 32 if small else 4096))
    return of_diffusers("CogVideoXTransformer3DModel", **size), given, dict(return_dict=False), torch.randn_like(clip)


MODELS = {f.__name__: f for f in (gpt2, llama, vit, unet, wan, cogvideo)}


def half(value):
    return value.to(torch.bfloat16) if value is not None and value.is_floating_point() else value


def small_buffers(make):
    """The buffers below 2 MiB with their values, such as angles: libckpt recognises these.  No parameter takes memory."""
    import accelerate
    with accelerate.init_empty_weights(include_buffers=False):
        model = make().to(torch.bfloat16)
    return {k: v for k, v in model.named_buffers() if v.device.type != "meta" and v.nbytes < 2 << 20}


def empty(o):
    """The archive without values, for a machine that lacks the library of the model."""
    make, given, fixed, _ = MODELS[o.model](o.small)
    with torch.device("meta"):
        model = make().to(torch.bfloat16).train()
    given = {k: half(v).to("meta") for k, v in given.items()}
    program = torch.export.export(model, (), {**given, **fixed}, strict=False)
    for name, value in small_buffers(make).items():
        kept = program.state_dict if name in program.state_dict else program.constants
        kept[name] = value
    torch.export.save(program, os.path.join(o.empty, o.model + ".pt2"))


def filled(name, value):
    """Random numbers where the archive has none; what has one axis is a weight of a norm or a bias."""
    if value.device.type != "meta":
        return value
    if value.dim() == 1:
        made = torch.full(value.shape, float(name.endswith("weight")), dtype=value.dtype)
    else:
        made = (0.02 * torch.randn(value.shape)).to(value.dtype)
    return torch.nn.Parameter(made, value.requires_grad) if isinstance(value, torch.nn.Parameter) else made


def read(o):
    from torch.export.passes import move_to_device_pass
    program = torch.export.load(os.path.join(o.archives, o.model + ".pt2"))
    for kept in (program.state_dict, program.constants):
        for name, value in kept.items():
            kept[name] = filled(name, value)
    program.example_inputs = None
    device = torch.device("cpu" if o.export else o.device)
    if device.type == "cuda":  # tensors say cuda:0, and the program asserts what it is told here
        device = torch.device("cuda", torch.cuda.current_device())
    return move_to_device_pass(program, str(device)).module()


def load(o):
    torch.manual_seed(0)
    make, given, fixed, target = MODELS[o.model](o.small)
    model = read(o) if o.archives else make().to(torch.bfloat16).train()
    return model, {k: half(v) for k, v in given.items()}, fixed, half(target)


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
    p.add_argument("--empty")
    p.add_argument("--archives")
    p.add_argument("--export")
    p.add_argument("--small", action="store_true")
    o = p.parse_args()
    (empty if o.empty else export if o.export else step)(o)


main()
