#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sampling and decoding of a Wan shape by diffusers, with random weights: the other side of bench-wan-sample.sh.

    pip install torch diffusers
    python3 peer_wan_sample.py make DIR           # DIR has transformer/config.json: adds vae/, text.safetensors, latents.safetensors
    python3 peer_wan_sample.py sample DIR --clip 121x704x1280 --limit 24 --offload block
    python3 peer_wan_sample.py decode DIR --limit 12 --tiling

sample runs the published pipeline with guidance (two passes a step) from given features of the text; --offload: none, block or leaf of
diffusers' group offloading with a stream. decode runs the autoencoder, in tiles or whole. --limit: GiB that the allocator may take.
Prints a JSON line: seconds of a step (the median without the first two) or of the second decode, and GiB at the peak.
"""

import argparse
import json
import statistics
import time

import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel
from safetensors.torch import load_file, save_file

TINY = {"base_dim": 16, "decoder_base_dim": 16, "num_res_blocks": 1}
FULL = {"base_dim": 160, "decoder_base_dim": 256, "num_res_blocks": 2}
CHANNELS, FACTOR = 48, 16


def read_options():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=["make", "sample", "decode"])
    p.add_argument("directory")
    p.add_argument("--tiny", action="store_true", help="of make: an autoencoder of small widths")
    p.add_argument("--clip", default="121x704x1280", type=lambda text: [int(n) for n in text.split("x")])
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--limit", type=float, default=0)
    p.add_argument("--offload", default="none", choices=["none", "block", "leaf"])
    p.add_argument("--tiling", action="store_true")
    p.add_argument("--dtype", default="bfloat16")
    p.add_argument("--device", default="cuda")
    return p.parse_args()


def fill(module, dtype, device="cpu"):
    """Random weights of about unit gain, drawn on the device and moved to the host."""
    module = module.to(dtype).to_empty(device=device)
    with torch.no_grad():
        for name, w in module.named_parameters():
            if w.ndim > 1 and "table" not in name and "gamma" not in name:
                w.normal_(0, (w.numel() // w.shape[0]) ** -0.5)
            else:
                w.fill_(1 if "norm" in name and "bias" not in name else 0)
    return module.eval().to("cpu")


def set_limit(o):
    if o.limit and o.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1, o.limit * 2**30 / total))


def make(o):
    torch.manual_seed(0)
    with torch.device("meta"):
        vae = AutoencoderKLWan(z_dim=CHANNELS, dim_mult=[1, 2, 4, 4], attn_scales=[], temperal_downsample=[False, True, True],
                               latents_mean=[0.0] * CHANNELS, latents_std=[1.0] * CHANNELS, is_residual=True, in_channels=12,
                               out_channels=12, patch_size=2, scale_factor_temporal=4, scale_factor_spatial=FACTOR,
                               **(TINY if o.tiny else FULL))
    fill(vae, torch.bfloat16).save_pretrained(o.directory + "/vae")
    width = WanTransformer3DModel.load_config(o.directory + "/transformer")["text_dim"]
    save_file({"prompt_embedding": torch.randn(1, 512, width)}, o.directory + "/text.safetensors")
    frames, height, width = o.clip
    for name, n in (("latents", frames), ("first", 1)):
        z = torch.randn(CHANNELS, (n - 1) // 4 + 1, height // FACTOR, width // FACTOR)
        save_file({"encoded_video": z}, f"{o.directory}/{name}.safetensors")


def sample(o):
    dtype = getattr(torch, o.dtype)
    with torch.device("meta"):
        transformer = WanTransformer3DModel.from_config(WanTransformer3DModel.load_config(o.directory + "/transformer"))
    transformer = fill(transformer, dtype, o.device)
    set_limit(o)
    transformer.rope = type(transformer.rope)(transformer.config.attention_head_dim, transformer.config.patch_size, 1024)
    scheduler = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=5.0)
    vae = AutoencoderKLWan.from_pretrained(o.directory + "/vae", torch_dtype=dtype)
    pipeline = WanPipeline(tokenizer=None, text_encoder=None, vae=vae, scheduler=scheduler, transformer=transformer,
                           expand_timesteps=True)
    if o.offload == "none":
        transformer.to(o.device)
    else:
        more = {"num_blocks_per_group": 1} if o.offload == "block" else {}
        transformer.enable_group_offload(onload_device=torch.device(o.device), offload_device=torch.device("cpu"),
                                         offload_type=o.offload + "_level", use_stream=o.device == "cuda", **more)
    WanPipeline._execution_device = property(lambda self: torch.device(o.device))
    text = load_file(o.directory + "/text.safetensors")["prompt_embedding"].to(o.device, dtype)
    times = []

    def ended(pipe, step, t, tensors):
        if o.device == "cuda":
            torch.cuda.synchronize()
        times.append(time.monotonic())
        return tensors

    pipeline.set_progress_bar_config(disable=True)
    frames, height, width = o.clip
    pipeline(prompt_embeds=text, negative_prompt_embeds=text, num_frames=frames, height=height, width=width,
             num_inference_steps=o.steps, output_type="latent", callback_on_step_end=ended)
    steps = [b - a for a, b in zip(times, times[1:])]
    return statistics.median(steps[1:] or steps)


def decode(o):
    set_limit(o)
    vae = AutoencoderKLWan.from_pretrained(o.directory + "/vae", torch_dtype=getattr(torch, o.dtype)).to(o.device)
    if o.tiling:
        vae.enable_tiling()
    z = load_file(o.directory + "/latents.safetensors")["encoded_video"][None].to(o.device, vae.dtype)
    for _ in range(2):
        begin = time.monotonic()
        frames = vae.decode(z).sample
        ((frames.float() * 127.5 + 127.5).round().to(torch.uint8)).cpu()
        del frames
        seconds = time.monotonic() - begin
    return seconds


def main():
    o = read_options()
    if o.what == "make":
        make(o)
        return
    with torch.no_grad():
        seconds = {"sample": sample, "decode": decode}[o.what](o)
    peak = torch.cuda.max_memory_reserved() / 2**30 if o.device == "cuda" else 0
    print(json.dumps({"seconds": round(seconds, 4), "peak_gib": round(peak, 2)}))


main()
