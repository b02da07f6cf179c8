#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference files of CogVideoX: diffusers' transformer in float64.

    pip install torch diffusers
    python3 make_cogvideo_reference.py [--wide] [DIRECTORY]

writes, for 2b, 5b, 5b-i2v, 15 and 15-i2v, DIRECTORY/NAME/: config.json and weights as
save_pretrained has them (those of 2b in fp16, of 5b in two files with an index, the others in
bf16), step.safetensors: what a step is fed (z, eps, t, y and, of I2V, image), and
expected.safetensors: its loss, pred and grad.<key>; of 5b also adapters.safetensors, low-rank
adapters under diffusers' names, adapters_expected.safetensors, and clip.safetensors and
clip_expected.safetensors, the noise, prompt and latents of a clip that is drawn.  Latents are [B, C, F, h, w]; the rows of proj_out stand in the order of
libckpt, (frame, y, x, channel).  --wide makes two heads of 64, as the published ones have.

All weights are numbers that fp16 and bf16 can hold, so every run starts from exactly the same model.
"""

import json
import math
import pathlib
import shutil
import sys

import torch
from diffusers import CogVideoXDDIMScheduler, CogVideoXTransformer3DModel
from diffusers.models.embeddings import get_3d_rotary_pos_embed
from diffusers.pipelines.cogvideo.pipeline_cogvideox import get_resize_crop_region_for_grid
from safetensors.torch import save_file

WIDE = "--wide" in sys.argv
BATCH, TEXT, RANK, HEAD = 2, 5, 3, 64 if WIDE else 16

COMMON = dict(num_attention_heads=2, attention_head_dim=HEAD, num_layers=2, in_channels=16,
              out_channels=16, time_embed_dim=16, text_embed_dim=12, max_text_seq_length=TEXT,
              sample_width=12, sample_height=8, sample_frames=9)
NEW = dict(patch_size_t=2, patch_bias=False, use_rotary_positional_embeddings=True,
           sample_width=20, sample_height=20, sample_frames=13)

# The config, then frames, height and width of the latents.
VARIANTS = {
    "2b": (dict(), (3, 8, 10)),
    "5b": (dict(use_rotary_positional_embeddings=True), (2, 6, 10)),
    "5b-i2v": (dict(use_rotary_positional_embeddings=True, in_channels=32,
                    use_learned_positional_embeddings=True), (3, 8, 12)),
    "15": (NEW, (4, 6, 8)),
    "15-i2v": (dict(NEW, in_channels=32, ofs_embed_dim=16), (2, 8, 4)),
}


def draw(model):
    """Weights of a size that lets every part matter, on a grid that 16 bits hold."""
    with torch.no_grad():
        for name, w in list(model.named_parameters()) + list(model.named_buffers()):
            x = torch.randn(w.shape, dtype=torch.float64)
            if name.endswith("pos_embedding"):
                if name not in model.state_dict():
                    continue
                x *= 0.5
            elif w.ndim > 1:
                x *= 1 / math.sqrt(w[0].numel())
            elif name.endswith("weight"):
                x = 1 + 0.1 * x
            else:
                x *= 0.1
            w.copy_(torch.round(x * 128) / 128)


def rotary(config, frames, height, width):
    """As CogVideoXPipeline._prepare_rotary_positional_embeddings."""
    if not config.use_rotary_positional_embeddings:
        return None
    grid = (height // 2, width // 2)
    base = (config.sample_height // 2, config.sample_width // 2)
    if config.patch_size_t is None:
        crop = get_resize_crop_region_for_grid(grid, base[1], base[0])
        return get_3d_rotary_pos_embed(embed_dim=HEAD, crops_coords=crop, grid_size=grid,
                                       temporal_size=frames)
    return get_3d_rotary_pos_embed(embed_dim=HEAD, crops_coords=None, grid_size=grid,
                                   temporal_size=frames // 2, grid_type="slice", max_size=base)


def alphas(shift):
    beta = torch.linspace(0.00085 ** 0.5, 0.012 ** 0.5, 1000, dtype=torch.float64) ** 2
    a = torch.cumprod(1 - beta, 0)
    a = a / (shift + (1 - shift) * a)
    r = a.sqrt()
    r = (r - r[-1]) * r[0] / (r[0] - r[-1])
    return r ** 2


def reorder(name, g, config):
    """Rows (channel, frame, y, x) as (frame, y, x, channel)."""
    if name.startswith("proj_out."):
        g = g.reshape(config.out_channels, -1, *g.shape[1:]).transpose(0, 1).reshape(g.shape)
    return g


def add_adapters(model):
    """y = W x + b + 2 B A x of four layers a block, as PEFT computes it; A and B by name."""
    adapters = {}
    for key, layer in model.named_modules():
        if not key.endswith((".to_q", ".to_k", ".to_v", ".to_out.0")):
            continue
        a, b = (torch.round(32 * torch.randn(shape, dtype=torch.float64)) / 128 for shape in
                ((RANK, layer.in_features), (layer.out_features, RANK)))
        for which, w in (("A", a), ("B", b)):
            adapters[f"transformer.{key}.lora_{which}.weight"] = w.requires_grad_()
        plain = layer.forward
        layer.forward = lambda x, plain=plain, a=a, b=b: plain(x) + 2 * (x @ a.T) @ b.T
    return adapters


def save(path, tensors, metadata=None):
    save_file({k: v.detach().float().contiguous() for k, v in tensors.items()}, path, metadata)


def draw_clip(model, shape, directory):
    """Four steps of DDIM with guidance 6, away from zeros, as cogvideo-sample takes them."""
    config, (frames, height, width) = model.config, shape
    given = {"noise": torch.randn(16, frames, height, width),
             "prompt_embedding": torch.randn(TEXT, config.text_embed_dim)}
    scheduler = CogVideoXDDIMScheduler(
        beta_schedule="scaled_linear", prediction_type="v_prediction", snr_shift_scale=1.0,
        rescale_betas_zero_snr=True, timestep_spacing="trailing")
    scheduler.set_timesteps(4)
    x = given["noise"].double()[None]
    text = torch.stack([given["prompt_embedding"].double(),
                        torch.zeros(TEXT, config.text_embed_dim, dtype=torch.float64)])
    for t in scheduler.timesteps:
        with torch.no_grad():
            v = model(torch.cat([x, x]).transpose(1, 2), text, t.expand(2), return_dict=False,
                      image_rotary_emb=rotary(config, frames, height, width))[0].transpose(1, 2)
        x = scheduler.step(v[1:] + 6 * (v[:1] - v[1:]), t, x, return_dict=False)[0]
    save(directory / "clip.safetensors", given)
    save(directory / "clip_expected.safetensors", {"encoded_video": x[0]})


def make(name, change, shape, out):
    torch.manual_seed(len(name) + 7)
    model = CogVideoXTransformer3DModel(**dict(COMMON, **change)).double()
    draw(model)
    config, (frames, height, width) = model.config, shape
    data = {"z": torch.randn(BATCH, 16, frames, height, width, dtype=torch.float64),
            "eps": torch.randn(BATCH, 16, frames, height, width, dtype=torch.float64),
            "y": torch.randn(BATCH, TEXT, config.text_embed_dim, dtype=torch.float64)}
    if config.in_channels == 32:
        data["image"] = torch.randn(BATCH, 16, 1, height, width, dtype=torch.float64)
    data = {k: v.float() for k, v in data.items()}
    t = torch.tensor([999, 123])
    z, eps, y = (data[k].double() for k in ("z", "eps", "y"))
    abar = alphas(3.0 if name == "2b" else 1.0)[t].reshape(-1, 1, 1, 1, 1)
    x = abar.sqrt() * z + (1 - abar).sqrt() * eps
    target = abar.sqrt() * eps - (1 - abar).sqrt() * z
    if "image" in data:
        image = torch.zeros_like(x)
        image[:, :, :1] = data["image"].double()
        x = torch.cat([x, image], 1)
    ofs = torch.full((1,), 2.0, dtype=torch.float64) if config.ofs_embed_dim else None


    def step():
        pred = model(x.transpose(1, 2), y, t, ofs=ofs,
                     image_rotary_emb=rotary(config, frames, height, width),
                     return_dict=False)[0].transpose(1, 2)
        loss = ((pred - target) ** 2).mean()
        loss.backward()
        return {"loss": loss.detach(), "pred": pred.detach()}

    expected = step()
    data["t"] = t.float()
    for key, w in model.named_parameters():
        expected["grad." + key] = reorder(key, w.grad.clone(), config)
    directory = out / name
    shutil.rmtree(directory, ignore_errors=True)
    model.to(torch.float16 if name == "2b" else torch.bfloat16).save_pretrained(
        directory, max_shard_size="60KB" if name == "5b" else "10GB")
    save(directory / "step.safetensors", data)
    if name == "5b-i2v":
        save(directory / "image.safetensors", {"encoded_image": data["image"][0]})
    save(directory / "expected.safetensors", expected)
    print(name, sum(w.numel() for w in model.parameters()), "parameters, loss",
          float(expected["loss"]))
    if name == "5b":
        model.double()
        draw_clip(model, shape, directory)
        adapters = add_adapters(model)
        expected = step()
        expected.update({"grad." + key: w.grad for key, w in adapters.items()})
        note = {"transformer.r": RANK, "transformer.lora_alpha": 2 * RANK}
        save(directory / "adapters.safetensors", adapters,
             {"format": "pt", "lora_adapter_metadata": json.dumps(note)})
        save(directory / "adapters_expected.safetensors", expected)


if __name__ == "__main__":
    names = [a for a in sys.argv[1:] if not a.startswith("--")]
    where = pathlib.Path(names[0] if names else pathlib.Path(__file__).parent)
    for key, (change, shape) in VARIANTS.items():
        make(key, change, shape, where)
