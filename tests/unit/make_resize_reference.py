#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints resize_reference.h: how Open-Sora 1.2 brings frames and images to a size.

    pip install torch numpy pillow
    python3 make_resize_reference.py >resize_reference.h

Frames by torch's interpolate in float64, rounded to the nearest byte (halves up), images by Pillow;
both then cropped as opensora/datasets/utils.py does.  The source is drawn by a formula.
"""

import numpy as np
import torch
from PIL import Image

WIDTH, HEIGHT = 11, 7
CASES = [(5, 3, True), (3, 5, True), (17, 13, True), (11, 7, True), (4, 6, False), (3, 14, False)]


def source():
    n = np.arange(WIDTH * HEIGHT * 3, dtype=np.uint32)
    return ((n * np.uint32(2654435761)) >> np.uint32(24)).astype(np.uint8).reshape(HEIGHT, WIDTH, 3)


def whole(width, height, covers):
    down, across = height / HEIGHT, width / WIDTH
    if not covers:
        return width, height
    return (round(WIDTH * down), height) if down > across else (width, round(HEIGHT * across))


def frame(rgb, width, height, covers):
    w, h = whole(width, height, covers)
    x = torch.from_numpy(rgb).permute(2, 0, 1)[None].to(torch.float64)
    x = torch.nn.functional.interpolate(x, size=(h, w), mode="bilinear", align_corners=False)
    top, left = int(round(h - height) / 2.0), int(round(w - width) / 2.0)
    x = x[0, :, top:top + height, left:left + width].permute(1, 2, 0).numpy()
    return np.floor(x + .5).astype(np.uint8)


def image(rgb, width, height, covers):
    w, h = whole(width, height, covers)
    x = np.array(Image.fromarray(rgb).resize((w, h), Image.BICUBIC))
    top, left = int(round((h - height) / 2.0)), int(round((w - width) / 2.0))
    return x[top:top + height, left:left + width]


def array(x):
    text, line = [], "   "
    for value in x.reshape(-1):
        if len(line) > 92:
            text.append(line)
            line = "   "
        line += f" {value},"
    return "\n".join(text + [line])


def main():
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Made by make_resize_reference.py. */")
    print(f"enum {{ SOURCE_WIDTH = {WIDTH}, SOURCE_HEIGHT = {HEIGHT} }};\n")
    print("/* clang-format off */")
    table = []
    for i, (width, height, covers) in enumerate(CASES):
        for name, run in (("frame", frame), ("image", image)):
            print(f"static const uint8_t {name}_{i}[] = {{\n"
                  f"{array(run(source(), width, height, covers))}\n}};")
        table.append(f"    {{{{{width}, {height}, {str(covers).lower()}}}, frame_{i}, image_{i}}},")
    print("/* clang-format on */\n")
    print("static const struct {\n    struct picture_size size;\n"
          "    const uint8_t *frame, *image;\n} resized[] = {")
    print("\n".join(table) + "\n};")


main()
