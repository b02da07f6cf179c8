#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference files of Wan: diffusers' transformer in float64, and the noise of training.

    pip install torch diffusers
    python3 make_wan_reference.py [DIRECTORY]

writes t2v/, ti2v/ (first frames given, a timestep for each token), i2v/ (36 channels in small:
noise, mask, condition) and sight/ (I2V of 2.1, which reads features of a picture, too): config.json and weights as save_pretrained has them, those of ti2v being
t2v's, and step.safetensors: what a step is fed (x, target, t, y and, of i2v, image and sight), its loss, pred,
and for every parameter "grad.NAME" [3]: the sum of squares of its gradient and its products with two
patterns (see pattern).  noise_reference.h has levels and weights of the loss.  features.safetensors
is data of wan-train for t2v, and losses.txt the loss of one step with it: plain, with the weights
"bell" at a shift of 3, with the empty prompt, and with the adapters of each file NAME.safetensors, in the names and with the
scales of four programs; differences.safetensors has those of ComfyUI with differences of weights.

All weights and inputs are numbers that bf16 can hold, so every run starts from the same model.
"""

import json
import math
import pathlib
import sys

import numpy
import torch
from diffusers import WanTransformer3DModel
from diffusers.models import embeddings
from safetensors.torch import save_file

BATCH, TEXT, CHANNELS = 2, 5, 4
COMMON = dict(patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=16, out_channels=CHANNELS,
              text_dim=8, freq_dim=16, ffn_dim=16)
# Channels in, then frames, height and width of the latents.
VARIANTS = {"sight": (4 + 2 * CHANNELS, (2, 4, 4)), "t2v": (CHANNELS, (3, 6, 4)), "ti2v": (CHANNELS, (3, 4, 6)),
            "i2v": (4 + 2 * CHANNELS, (2, 4, 4))}
# The features of a picture: their rows (257 of CLIP) and width.  Text then has 512 rows, which tell
# diffusers where the picture ends.
SIGHT, SIGHT_WIDTH, ROWS = 3, 12, 512


def timestep_features(timesteps, dim, **_):
    """diffusers' timestep embedding, cosines first, with frequencies in float64."""
    f = torch.exp(-math.log(10000) * torch.arange(dim // 2, dtype=torch.float64) / (dim // 2))
    angle = timesteps.double().reshape(-1, 1) * f
    return torch.cat([torch.cos(angle), torch.sin(angle)], -1)


def rounded(x):
    return x.to(torch.bfloat16).double()


def draw(model):
    """Weights of a size that lets every part matter."""
    with torch.no_grad():
        for name, w in model.named_parameters():
            x = torch.randn(w.shape, dtype=torch.float64)
            if name.endswith("scale_shift_table") or name.endswith("bias"):
                x *= 0.2
            elif w.ndim > 1:
                x /= math.sqrt(w[0].numel())
            else:
                x = 1 + 0.2 * x
            w.copy_(rounded(x))


def pattern(n, k):
    return torch.tensor([(i * (3 + 4 * k) + k) % (11 + 2 * k) - 5. for i in range(n)], dtype=torch.float64)


def step(model, name, size):
    frames, height, width = size
    z = [BATCH, CHANNELS, frames, height, width]
    x, target = rounded(torch.randn(z)), rounded(torch.randn(z))
    y, sight = rounded(torch.randn(BATCH, TEXT, COMMON["text_dim"])), None
    t = torch.tensor([[0., 612.5], [250., 250.]] if name == "ti2v" else [812.25, 31.], dtype=torch.float64)
    out = {"x": x, "target": target, "y": y, "t": t}
    seen, times, weight = x, t, torch.ones(BATCH, 1, frames, 1, 1, dtype=torch.float64)
    if name == "ti2v":
        tokens = height * width // 4
        times = torch.cat([t[:, :1].expand(-1, tokens), t[:, 1:].expand(-1, (frames - 1) * tokens)], 1)
        weight[0, :, 0] = 0  # the first frame of the first sample is given
        out["noised"] = weight.reshape(BATCH, frames)
    if name in ("i2v", "sight"):
        mask, image = torch.zeros(BATCH, 4, *size, dtype=torch.float64), rounded(torch.randn(z))
        mask[:, :, 0] = 1
        out["image"] = image
        seen = torch.cat([x, mask, image], 1)
    if name == "sight":
        out["y"] = y = torch.nn.functional.pad(y, (0, 0, 0, ROWS - TEXT))
        out["sight"] = sight = rounded(torch.randn(BATCH, SIGHT, SIGHT_WIDTH))
    pred = model(hidden_states=seen, timestep=times, encoder_hidden_states=y, encoder_hidden_states_image=sight,
                 return_dict=False)[0]
    each = ((pred - target) ** 2 * weight).sum((1, 2, 3, 4)) / (weight.sum((1, 2, 3, 4)) * CHANNELS * height * width)
    loss = each.mean()
    loss.backward()
    out |= {"pred": pred.detach(), "loss": loss.detach().reshape(1)}
    for key, w in model.named_parameters():
        g = w.grad.reshape(-1)
        out["grad." + key] = torch.stack([(g * g).sum(), g @ pattern(len(g), 0), g @ pattern(len(g), 1)])
    return out


def weights_of_loss(k):
    """Levels k s / (1 + (k - 1) s) of 1000 even ones, and DiffSynth's weights of the loss there."""
    s = 1 - numpy.arange(1000) / 1000
    s = k * s / (1 + (k - 1) * s)
    y = numpy.exp(-2 * ((1000 * s - 500) / 1000) ** 2)
    return s, (y - y.min()) * (1000 / (y - y.min()).sum()), (y.min(), 1000 / (y - y.min()).sum())


# Layers with adapters, and their names in the original code.
LAYERS = {"blocks.0.attn1.to_q": "blocks.0.self_attn.q", "blocks.0.attn2.to_k": "blocks.0.cross_attn.k",
          "blocks.1.attn2.to_out.0": "blocks.1.cross_attn.o", "blocks.0.ffn.net.0.proj": "blocks.0.ffn.0",
          "blocks.1.ffn.net.2": "blocks.1.ffn.2"}
RANK = 2
# Names of A and B from those of a layer, the name of alpha, and its value.
PROGRAMS = {
    "diffusers": (lambda d, o: f"transformer.{d}.lora_A.weight", lambda d, o: f"transformer.{d}.lora_B.weight", None, 0),
    "comfyui": (lambda d, o: f"diffusion_model.{o}.lora_down.weight", lambda d, o: f"diffusion_model.{o}.lora_up.weight",
                lambda d, o: f"diffusion_model.{o}.alpha", 1.5),
    "musubi": (lambda d, o: f"lora_unet_{o.replace('.', '_')}.lora_down.weight",
               lambda d, o: f"lora_unet_{o.replace('.', '_')}.lora_up.weight",
               lambda d, o: f"lora_unet_{o.replace('.', '_')}.alpha", 1),
    "diffsynth": (lambda d, o: f"{o}.lora_A.default.weight", lambda d, o: f"{o}.lora_B.default.weight", None, 0),
}


def adapt(model, name):
    """Adds adapters to the weights; returns their file."""
    a_name, b_name, alpha_name, alpha = PROGRAMS[name]
    out = {}
    for ours, other in LAYERS.items():
        w = model.get_submodule(ours).weight
        a, b = rounded(torch.randn(RANK, w.shape[1]) / 4), rounded(torch.randn(w.shape[0], RANK) / 4)
        out |= {a_name(ours, other): a.float32(), b_name(ours, other): b.float32()}
        if alpha_name:
            out[alpha_name(ours, other)] = torch.tensor(alpha, dtype=torch.float64).float32()
        with torch.no_grad():
            w += (alpha / RANK if alpha_name else 1) * (b @ a)
    return out


# Parameters with differences, and their names in the files of ComfyUI.
DIFFERENCES = {"blocks.0.attn1.to_q.bias": "blocks.0.self_attn.q.diff_b", "blocks.1.norm2.weight": "blocks.1.norm3.diff",
               "blocks.1.norm2.bias": "blocks.1.norm3.diff_b", "blocks.0.attn2.norm_k.weight": "blocks.0.cross_attn.norm_k.diff",
               "blocks.1.scale_shift_table": "blocks.1.modulation.diff", "scale_shift_table": "head.modulation.diff",
               "patch_embedding.weight": "patch_embedding.diff", "blocks.1.attn1.to_v.weight": "blocks.1.self_attn.v.diff",
               "condition_embedder.text_embedder.linear_1.bias": "text_embedding.0.diff_b"}


def differ(model):
    """Adds them to the weights; returns the file, with an alpha that scales none of them."""
    out = adapt(model, "comfyui")
    out["diffusion_model.blocks.1.self_attn.v.alpha"] = torch.tensor(0.5)
    for ours, other in DIFFERENCES.items():
        w = model.get_parameter(ours)
        d = rounded(torch.randn(w.shape) / 4)
        out["diffusion_model." + other] = d.float32()
        with torch.no_grad():
            w += d
    return out


def features(root, make):
    """Data of a program, the loss of one step, and the same with adapters."""
    z, eps = (rounded(torch.randn(BATCH, CHANNELS, 3, 6, 4)) for _ in range(2))
    y = torch.zeros(BATCH, 512, COMMON["text_dim"], dtype=torch.float64)
    y[:, :7] = rounded(torch.randn(BATCH, 7, COMMON["text_dim"]))
    t = torch.tensor([812.25, 31.], dtype=torch.float64)
    s = (t / 1000).reshape(-1, 1, 1, 1, 1)
    empty = torch.zeros(512, COMMON["text_dim"], dtype=torch.float64)
    empty[0] = rounded(torch.randn(COMMON["text_dim"]))
    save_file({"z": z.float32(), "eps": eps.float32(), "t": t.float32(), "y": y.to(torch.bfloat16),
               "prompt_embedding": empty.to(torch.bfloat16)},
              str(root / "features.safetensors"))

    def loss(model, weight=1, text=y):
        pred = model(hidden_states=(1 - s) * z + s * eps, timestep=t, encoder_hidden_states=text, return_dict=False)[0]
        return (((pred - (eps - z)) ** 2).mean((1, 2, 3, 4)) * weight).mean().item()

    low, scale = weights_of_loss(3)[2]
    bell = (torch.exp(-2 * (t / 1000 - 0.5) ** 2) - low).clamp(min=0) * scale
    lines = [f"plain {loss(make()):.9g}", f"bell {loss(make(), bell):.9g}",
             f"dropped {loss(make(), text=empty.expand(BATCH, -1, -1)):.9g}"]
    for name in PROGRAMS:
        model = make()
        save_file(adapt(model, name), str(root / f"{name}.safetensors"))
        lines.append(f"{name} {loss(model):.9g}")
    model = make()
    save_file(differ(model), str(root / "differences.safetensors"))
    lines.append(f"differences {loss(model):.9g}")
    (root / "losses.txt").write_text("\n".join(lines + [""]))


def noise_reference(path):
    lines = ["/* SPDX-License-Identifier: Apache-2.0 */", "/* Written by make_wan_reference.py. */",
             "static const struct {", "    double shift, level, weight;", "} noise_reference[] = {"]
    for k in (1, 3, 5, 12):
        s, w, _ = weights_of_loss(k)
        for i in (0, 1, 250, 417, 700, 999):
            lines.append("    {%d, %.17g, %.17g}," % (k, s[i], w[i]))
    path.write_text("\n".join(lines + ["};", ""]))


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    noise_reference(root / "noise_reference.h")
    embeddings.get_timestep_embedding = timestep_features
    torch.Tensor.float32 = lambda x: x.to(torch.float32).contiguous()
    torch.Tensor.float = torch.Tensor.double  # where the model computes in fp32
    for name, (channels, size) in VARIANTS.items():
        torch.manual_seed(1 + len(name))
        layers = 1 if name in ("i2v", "sight") else 2
        more = dict(image_dim=SIGHT_WIDTH, added_kv_proj_dim=32) if name == "sight" else {}
        model = WanTransformer3DModel(in_channels=channels, num_layers=layers, **COMMON, **more).double()
        draw(model)
        at = root / name
        if name == "ti2v":
            model.load_state_dict(kept)
        elif name == "t2v":
            kept = {k: w.clone() for k, w in model.state_dict().items()}
        out = step(model, name, size)
        model.to(torch.bfloat16).save_pretrained(at)
        if name == "ti2v":
            (at / "diffusion_pytorch_model.safetensors").unlink()
            (at / "model_index.json").write_text(json.dumps({"expand_timesteps": True}) + "\n")
        save_file({k: v.float32() for k, v in out.items()}, str(at / "step.safetensors"))

    def make():
        model = WanTransformer3DModel(in_channels=CHANNELS, num_layers=2, **COMMON).double()
        model.load_state_dict(kept)
        return model

    with torch.no_grad():
        features(root, make)


main()
