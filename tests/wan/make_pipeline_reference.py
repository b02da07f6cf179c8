#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference of wan-sample: latents of diffusers' pipelines on small random weights.

    pip install torch diffusers transformers safetensors ftfy
    python3 make_pipeline_reference.py [DIRECTORY]

writes into DIRECTORY/pipeline:

t2v/  a pair of transformers, scheduler and model_index.json, as a model's directory
i2v/  a transformer of 36 channels, and its model_index.json
noise.safetensors  the initial noise of two clips; and the latents after STEPS steps from PROMPTS in
t2v.safetensors with UniPC, t2v_euler, i2v, and ti2v: the first transformer of t2v with a given first
frame; i2v_image, ti2v_image: the latents of their picture, picture.png
sight/  a transformer that also reads features of the picture, by the encoder in clip/
(make_sight_reference.py), with sight and sight_image as i2v has them
frame.rgb  the last frame of the first clip of t2v, bytes

The autoencoder has the weights and the statistics of tests/wan/test_wan_vae.c, as in
make_wan_vae_reference.py.

The text encoder is tests/text/umt5, with the tokenizer tests/tokenizer/umt5.json.  All weights are
numbers that bf16 can hold; the pipelines compute in float32.
"""

import json
import pathlib
import sys

import numpy as np
import PIL.Image
import torch
from diffusers import (AutoencoderKLWan, FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler,
                       WanImageToVideoPipeline, WanPipeline, WanTransformer3DModel)
from safetensors.torch import save_file
from transformers import (CLIPImageProcessor, CLIPVisionModel, PreTrainedTokenizerFast,
                          UMT5EncoderModel)

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cogvideo"))
from make_vae_reference import draw, weights  # noqa: E402

SHAPE = (1, 16, 3, 4, 6)
STEPS = 4
PROMPTS = ["A rabbit &amp;amp; a dog  walk across a meadow.", "the sea at night"]
NEGATIVE = "blurred, grey"
CALL = dict(height=32, width=48, num_frames=9, num_inference_steps=STEPS, output_type="latent")


def transformer(channels, seed, **more):
    model = WanTransformer3DModel(
        num_attention_heads=1, attention_head_dim=16, num_layers=1, in_channels=channels,
        out_channels=16, text_dim=24, freq_dim=32, ffn_dim=32, **more)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, w in model.named_parameters():
            x = torch.randn(w.shape, generator=generator)
            x = 1 + 0.1 * x if "norm" in name and w.ndim == 1 else x * 0.2
            w.copy_(x.bfloat16().float())
    return model.eval()


def write(where, model):
    where.mkdir(parents=True, exist_ok=True)
    weights = {k: v.bfloat16().contiguous() for k, v in model.state_dict().items()}
    save_file(weights, where / "diffusion_pytorch_model.safetensors", {"format": "pt"})
    settings = {k: v for k, v in model.config.items() if not k.startswith("_")}
    (where / "config.json").write_text(
        json.dumps({"_class_name": "WanTransformer3DModel", **settings}, indent=1) + "\n")


def scheduler():
    return UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True,
                                   flow_shift=3.0)


def autoencoder():
    m = AutoencoderKLWan(base_dim=8, num_res_blocks=1, latents_mean=[c / 8 - 1 for c in range(16)],
                         latents_std=[1 / 2 + c / 16 for c in range(16)])
    with torch.no_grad():
        for name, p in m.named_parameters():
            x = (0.5 * draw(name, p.numel()) + 1 if name.endswith("gamma")
                 else weights(name, p.shape))
            p.copy_(torch.from_numpy(np.asarray(x)).reshape(p.shape))
    return m.eval()


def picture():
    y, x = np.mgrid[0:32, 0:48]
    return PIL.Image.fromarray(np.stack([8 * y, 5 * x, 255 - 4 * (x + y) // 2], 2).astype(np.uint8))


def parts(**more):
    text = UMT5EncoderModel.from_pretrained(HERE / "../text/umt5", torch_dtype=torch.float32)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(HERE / "../tokenizer/umt5.json"),
                                        pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    return dict(tokenizer=tokenizer, text_encoder=text.eval(), vae=autoencoder(), **more)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE) / "pipeline"
    high, low, image = transformer(16, 1), transformer(16, 2), transformer(36, 4)
    write(root / "t2v/transformer", high)
    write(root / "t2v/transformer_2", low)
    write(root / "i2v/transformer", image)
    sight = transformer(36, 5, image_dim=12, added_kv_proj_dim=16)
    write(root / "sight/transformer", sight)
    (root / "sight/model_index.json").write_text(
        '{"_class_name": "WanImageToVideoPipeline", "boundary_ratio": null}\n')
    clip = dict(image_encoder=CLIPVisionModel.from_pretrained(HERE / "clip/image_encoder", torch_dtype=torch.float32),
                image_processor=CLIPImageProcessor.from_pretrained(HERE / "clip/image_processor"))
    pipe = WanPipeline(**parts(transformer=high, transformer_2=low, scheduler=scheduler()),
                       boundary_ratio=0.875)
    (root / "t2v/scheduler").mkdir(exist_ok=True)
    (root / "t2v/scheduler/scheduler_config.json").write_text(pipe.scheduler.to_json_string())
    (root / "t2v/model_index.json").write_text(
        '{"_class_name": "WanPipeline", "boundary_ratio": 0.875, "expand_timesteps": false}\n')
    (root / "i2v/model_index.json").write_text(
        '{"_class_name": "WanImageToVideoPipeline", "boundary_ratio": null}\n')
    noise = torch.randn(2, *SHAPE[1:], generator=torch.Generator().manual_seed(7))
    out = {"noise": noise}

    def sample(pipe, i, **more):
        return pipe(prompt=PROMPTS[i], negative_prompt=NEGATIVE, latents=noise[i:i + 1].clone(),
                    **{**CALL, **more}).frames[0]

    with torch.no_grad():
        out["t2v"] = torch.stack(
            [sample(pipe, i, guidance_scale=4.0, guidance_scale_2=3.0) for i in range(2)])
        frames = sample(pipe, 0, guidance_scale=4.0, guidance_scale_2=3.0, output_type="np")
        (root / "frame.rgb").write_bytes(np.round(frames[-1] * 255).astype(np.uint8).tobytes())
        pipe.scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
        out["t2v_euler"] = sample(pipe, 0, guidance_scale=5.0)

        given = picture()
        given.save(root / "picture.png")
        for name, model, expand in (("i2v", image, False), ("ti2v", high, True), ("sight", sight, False)):
            pipe = WanImageToVideoPipeline(**parts(transformer=model, scheduler=scheduler()),
                                           **(clip if name == "sight" else {}), expand_timesteps=expand)
            out[name] = sample(pipe, 0, image=given, guidance_scale=5.0)
            pixels = pipe.video_processor.preprocess(given, height=32, width=48)
            latents = pipe.prepare_latents(pixels, 1, 16, 32, 48, 9, torch.float32, "cpu",
                                           latents=noise[:1])[1]
            out[name + "_image"] = latents[0] if expand else latents[0, 4:]
        embeds = pipe.encode_image(given, "cpu")[0]
    for name, x in out.items():
        key = "noise" if name == "noise" else "encoded_image" if name.endswith("_image") else "encoded_video"
        more = {"image_embeds": embeds.float().contiguous()} if name == "sight_image" else {}
        save_file({key: x.float().contiguous(), **more}, root / f"{name}.safetensors")
        print(name, tuple(x.shape), float(x.norm()))


if __name__ == "__main__":
    main()
