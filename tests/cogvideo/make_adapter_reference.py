#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes adapters/: adapters of the model in 5b/ as other programs write them, and their losses.

    pip install torch diffusers peft
    python3 make_adapter_reference.py [DIRECTORY]
    python3 make_adapter_reference.py --check DIRECTORY...

PEFT and diffusers write their own files; those of kohya's trainer and of the original code are
written by their names.  losses.txt has the loss of step.safetensors in float64 with each of them, by
PEFT.  --check prints the losses, by PEFT or
by diffusers, with what cogvideo-train wrote into directories.
"""

import json
import pathlib
import shutil
import sys

import torch
from diffusers import CogVideoXPipeline, CogVideoXTransformer3DModel
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file, save_file

from make_cogvideo_reference import alphas, rotary

HERE = pathlib.Path(__file__).parent
ATTENTION = ["to_q", "to_k", "to_v", "to_out.0"]


def load_model():
    return CogVideoXTransformer3DModel.from_pretrained(HERE / "5b").double()


def loss_of(model):
    """Of the samples and times of make_cogvideo_reference.py."""
    data = {k: v.double() for k, v in load_file(HERE / "5b/step.safetensors").items()}
    z, eps, y, t = (data[k] for k in ("z", "eps", "y", "t"))
    a = alphas(1.0)[t.long()].reshape(-1, 1, 1, 1, 1)
    x = a.sqrt() * z + (1 - a).sqrt() * eps
    frames, height, width = z.shape[2:]
    with torch.no_grad():
        v = model(x.transpose(1, 2), y, t.long(), return_dict=False,
                  image_rotary_emb=rotary(model.config, frames, height, width))[0].transpose(1, 2)
    return float(((v - (a.sqrt() * eps - (1 - a).sqrt() * z)) ** 2).mean())


def fill(model):
    """Factors on a grid that 16 bits hold, so that every dtype has the same."""
    torch.manual_seed(5)
    with torch.no_grad():
        for name, w in model.named_parameters():
            if "lora_A" in name or "lora_B" in name:
                w.copy_(torch.round(16 * torch.randn(w.shape, dtype=torch.float64)) / 128)


def with_peft(**settings):
    model = get_peft_model(load_model(), LoraConfig(**settings))
    fill(model)
    return model


def factors(model):
    """LAYER.lora_A.weight of the model without PEFT's prefix."""
    return {k.replace("base_model.model.", ""): v.detach().float().contiguous()
            for k, v in get_peft_model_state_dict(model).items()}


def save_peft(out, name, **settings):
    model = with_peft(**settings)
    model.float().save_pretrained(out / name)
    (out / name / "README.md").unlink()
    return loss_of(model.double())


def save_diffusers(out, name, with_settings, **settings):
    model = load_model()
    model.add_adapter(LoraConfig(**settings))
    fill(model)
    layers = {k: v.float() for k, v in get_peft_model_state_dict(model).items()}
    more = {"transformer_lora_adapter_metadata": model.peft_config["default"].to_dict()}
    CogVideoXPipeline.save_lora_weights(out, layers, weight_name=name + ".safetensors",
                                        **(more if with_settings else {}))
    return loss_of(model)


def rename(layers, change):
    """change gives the new names of A and B of a layer."""
    new = {}
    for key, w in layers.items():
        layer, which = key.replace(".weight", "").rsplit(".lora_", 1)
        new[change(layer)["AB".index(which)]] = w
    return new


def kohya(layer):
    flat = ("lora_unet__" if ".to_q" in layer else "lora_unet_") + layer.replace(".", "_")
    return flat + ".lora_down.weight", flat + ".lora_up.weight"


def original(layer):
    at, _, part = layer.replace("transformer_blocks.", "").partition(".attn1.")
    where = ("dense", 0) if part == "to_out.0" else ("query_key_value", ATTENTION.index(part))
    return tuple("model.diffusion_model.transformer.layers.%s.attention.%s.matrix_%s.%d"
                 % (at, where[0], which, where[1]) for which in "AB")


def make(out):
    losses = {}
    everything = ["to_q", "to_out.0", "ff.net.2", "ff.net.0.proj", "norm1.linear", "proj_out",
                  "text_proj", "linear_1", "norm_out.linear"]
    two = dict(r=2, lora_alpha=3, target_modules=["to_q", "to_v"])
    four = dict(r=2, lora_alpha=1, target_modules=ATTENTION)
    losses["peft"] = save_peft(out, "peft", **four)
    losses["patterns"] = save_peft(
        out, "patterns", r=2, lora_alpha=3, target_modules=everything, use_rslora=True,
        rank_pattern={"to_q": 1, r"^transformer_blocks\.1\.ff\.net\.2": 3},
        alpha_pattern={"transformer_blocks.0.attn1.to_q": 5, "proj_out": 0.5})
    losses["dora"] = save_peft(out, "dora", use_dora=True, **two)
    losses["diffusers"] = save_diffusers(out, "diffusers", True, use_rslora=True, **two)
    losses["plain"] = save_diffusers(out, "plain", False, **dict(two, lora_alpha=2))
    layers = factors(with_peft(**two))
    flat = rename(layers, kohya)
    for key in list(flat):
        if key.endswith("down.weight"):
            flat[key.replace("lora_down.weight", "alpha")] = torch.tensor(3.)
    save_file({k: v.bfloat16() for k, v in flat.items()}, out / "kohya.safetensors",
              {"ss_network_dim": "2", "ss_network_alpha": "9", "ss_network_module": "networks.lora"})
    losses["kohya"] = losses["down_up"] = losses["named"] = loss_of(with_peft(**two))
    save_file({k: v.half() for k, v in rename(layers, lambda x: (
        f"transformer.{x}.lora_down.weight", f"transformer.{x}.lora_up.weight")).items()},
        out / "down_up.safetensors", {"ss_network_alpha": "3.0"})
    save_file({k: v for k, v in rename(layers, lambda x: (
        f"base_model.model.{x}.lora_A.own.weight", f"base_model.model.{x}.lora_B.own.weight")).items()},
        out / "named.safetensors", {"lora_adapter_metadata": json.dumps({"r": 2, "lora_alpha": 3})})
    save_file(rename(factors(with_peft(**four)), original), out / "original.safetensors")
    losses["original"] = losses["peft"]
    (out / "losses.txt").write_text("".join(f"{k} {v:.9f}\n" for k, v in losses.items()))


def check(directory):
    """--save DIRECTORY/adapter_model.safetensors --lora-format peft, or any name of diffusers."""
    if (directory / "adapter_config.json").exists():
        return loss_of(PeftModel.from_pretrained(load_model(), directory).double())
    model = load_model()
    layers, settings = CogVideoXPipeline.lora_state_dict(
        directory, weight_name=next(directory.glob("*.safetensors")).name,
        return_lora_metadata=True)
    CogVideoXPipeline.load_lora_into_transformer(layers, model, metadata=settings)
    return loss_of(model.double())


if __name__ == "__main__":
    if "--check" in sys.argv:
        for name in sys.argv[2:]:
            print(f"{name} {check(pathlib.Path(name)):.9f}")
        sys.exit()
    where = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "adapters"
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    make(where)
