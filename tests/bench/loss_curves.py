#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the losses of runs with and without a mode of fewer bytes, one panel per model.

usage: loss_curves.py DIRECTORY >FILE.svg

Losses are on a logarithmic axis.  The directory holds logs that bench-fp8.sh kept (LOGS=DIRECTORY), MODEL-SEED-OPTION-VALUE.json; the
first seed of each model is drawn.  A point is the mean loss of WINDOW steps.
"""
import glob
import json
import math
import os
import sys

WINDOW = 50
WIDTH, HEIGHT, LEFT, TOP, GAP = 360, 260, 60, 40, 90
STEPS = (5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
TITLES = {"lm": "GPT-2, 3 layers of width 128", "stdit": "STDiT3, width 128, one clip"}
COLORS = {
    "bf16": "#aaaaaa",
    "--matmul fp8": "#d55e00",
    "--state bf16": "#56b4e9",
    "--state 8bit": "#0072b2",
    "--activations 8bit": "#009e73",
}


def read(path):
    """The mean losses of successive windows."""
    with open(path) as f:
        losses = [r["loss"] for r in map(json.loads, f) if "step" in r and "loss" in r]
    return [sum(losses[i:i + WINDOW]) / WINDOW for i in range(0, len(losses) - WINDOW + 1, WINDOW)]


def runs(directory):
    """{model: {mode: losses}} of the smallest seed."""
    found = {}
    for path in sorted(glob.glob(os.path.join(directory, "*.json"))):
        model, seed, option, value = os.path.basename(path)[:-5].split("-", 3)
        mode = "bf16" if (option, value) == ("matmul", "bf16") else f"--{option} {value}"
        if mode in COLORS:
            found.setdefault(model, {}).setdefault(mode, (int(seed), read(path)))
    return {model: {m: losses for m, (_, losses) in modes.items()} for model, modes in found.items()}


def text(x, y, content, anchor="middle", size=12):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{content}</text>'


def ticks(low, high):
    """Round numbers between two losses: 1, 2 and 5 times powers of ten if the range is wide."""
    if high > 4 * low:
        every = [d * 10.0 ** k for k in range(-4, 3) for d in (1, 2, 5)]
        return [value for value in every if low < value < high]
    step = next(s for s in STEPS if (high - low) / s >= 4)
    return [k * step for k in range(int(low / step) + 1, int(high / step) + 1)]


def panel(model, modes, left):
    # The first windows fall so fast that they would hide the differences of the others.
    shown = [value for losses in modes.values() for value in losses[2:]]
    low, high = min(shown), max(shown)
    low, high = low / (high / low) ** 0.05, high * (high / low) ** 0.05
    n = max(map(len, modes.values()))

    def place(i, value):
        share = math.log(high / min(value, high)) / math.log(high / low)
        return left + WIDTH * (i + 1) / n, TOP + HEIGHT * share

    out = [f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#888"/>',
           text(left + WIDTH / 2, TOP - 14, TITLES.get(model, model), size=14)]
    for value in ticks(low, high):
        y = place(0, value)[1]
        out.append(f'<path d="M{left} {y:.1f}h{WIDTH}" stroke="#ddd"/>')
        out.append(text(left - 6, y + 4, f"{value:g}", "end"))
    for i in range(0, n + 1, max(1, n // 4)):
        out.append(text(left + WIDTH * i / n, TOP + HEIGHT + 18, i * WINDOW))
    for mode, losses in sorted(modes.items(), key=lambda m: m[0] != "bf16"):
        points = " ".join("%.1f,%.1f" % place(i, v) for i, v in enumerate(losses) if v <= high)
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[mode]}" '
                   f'stroke-width="{3 if mode == "bf16" else 1.2}"/>')
    return out


def legend(modes):
    out, x, y = [], LEFT, TOP + HEIGHT + 48
    for mode in [m for m in COLORS if m in modes]:
        out.append(f'<path d="M{x} {y - 4}h22" stroke="{COLORS[mode]}" stroke-width="2"/>')
        out.append(text(x + 28, y, mode, "start"))
        x += 40 + 7 * len(mode)
    return out


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    models = runs(sys.argv[1])
    if not models:
        sys.exit(f"{sys.argv[1]}: no logs of bench-fp8.sh")
    width, height = LEFT + len(models) * (WIDTH + GAP) - GAP + 20, TOP + HEIGHT + 66
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
          f'font-family="sans-serif"><rect width="{width}" height="{height}" fill="#fff"/>')
    for k, (model, modes) in enumerate(models.items()):
        print("\n".join(panel(model, modes, LEFT + k * (WIDTH + GAP))))
    print("\n".join(legend({m for modes in models.values() for m in modes})))
    print(text(width / 2, TOP + HEIGHT + 32, f"step (means of {WINDOW} steps)"))
    print("</svg>")


if __name__ == "__main__":
    main()
