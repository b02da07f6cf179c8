#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference files of the picture encoder: transformers' CLIPVisionModel and
CLIPImageProcessor.

    pip install torch transformers pillow
    python3 make_sight_reference.py [DIRECTORY]

writes clip/: image_encoder/ and image_processor/ as save_pretrained has them, with random weights
that bf16 can hold, picture.png, and features.safetensors: the bytes "pixels" [H, W, 3] that the
processor makes of the picture, before it scales them, and "features", the hidden states of the last
layer but one, in float64.
"""

import math
import pathlib
import sys

import numpy
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import CLIPImageProcessor, CLIPVisionConfig, CLIPVisionModel

# 257 rows, as the encoder of Wan 2.1 has them.
CONFIG = dict(hidden_size=12, num_attention_heads=2, intermediate_size=20, num_hidden_layers=3, image_size=32,
              patch_size=2, hidden_act="gelu")


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent) / "clip"
    root.mkdir(exist_ok=True)
    torch.manual_seed(7)
    model = CLIPVisionModel(CLIPVisionConfig(**CONFIG)).double().eval()
    with torch.no_grad():
        for name, w in model.named_parameters():
            x = torch.randn(w.shape, dtype=torch.float64)
            x = x / math.sqrt(w[0].numel()) if w.ndim > 1 else x * 0.2 + name.endswith("weight")
            w.copy_(x.to(torch.bfloat16).double())
    # Larger than the encoder's pictures, wider than high, and with an odd excess.
    y, x = numpy.mgrid[0:41, 0:67]
    rgb = numpy.stack([(x * 3 + y) % 256, (y * 6 + 20 * ((x // 8 + y // 8) % 2)) % 256, (x * y) % 256], -1)
    picture = Image.fromarray(rgb.astype(numpy.uint8))
    picture.save(root / "picture.png")
    processor = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=32)
    same = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=32, do_rescale=False, do_normalize=False)
    pixels = torch.as_tensor(numpy.asarray(same(picture)["pixel_values"][0])).to(torch.uint8).permute(1, 2, 0)
    mean, deviation = (torch.tensor(v, dtype=torch.float64) for v in (processor.image_mean, processor.image_std))
    seen = (pixels.double() / 255 - mean) / deviation
    made = torch.as_tensor(numpy.asarray(processor(picture)["pixel_values"][0])).permute(1, 2, 0)
    assert (seen - made).abs().max() < 1e-5
    with torch.no_grad():
        out = model(seen.permute(2, 0, 1)[None], output_hidden_states=True).hidden_states[-2][0]
    save_file({"pixels": pixels.float().contiguous(), "features": out.float().contiguous()}, str(root / "features.safetensors"))
    model.to(torch.bfloat16).save_pretrained(root / "image_encoder")
    processor.save_pretrained(root / "image_processor")


main()
