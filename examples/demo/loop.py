#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the picture of README.md, a loop: the clip that the demo's model samples, beside the memory of
a training step as it fills its budget, with that of the plan without a budget above it.

    loop.py DEMO-OUT LOOP.webp        DEMO-OUT: what "make demo" wrote; needs Pillow with WebP

Everything that is drawn is read: frames of the sample, and the two plans from timeline.html and
free.html."""
import glob
import json
import os
import sys

from PIL import Image, ImageDraw, ImageFont

SCALE = 2  # drawn larger, then reduced: smooth edges
WIDTH, HEIGHT = 880, 330
FRAMES, FPS = 48, 16  # of the loop; the sample has 13 frames at 8 a second, there and back
BACK, PANEL, INK, DIM, LIMIT = "#0d1420", "#151f2e", "#e8eef6", "#8b9bb0", "#ff6b5e"
KINDS = ["input", "activation", "temporary", "gradient", "parameter", "optimizer", "workspace", "recomputed"]
COLOURS = {"input": "#37c2b4", "activation": "#4fb86a", "temporary": "#e6c645", "gradient": "#a27be0",
           "parameter": "#3f7fd0", "optimizer": "#5b9bea", "workspace": "#8a6f63", "recomputed": "#ff9a3c"}
LEGEND = [("parameter", "weights"), ("optimizer", "state"), ("activation", "activations"),
          ("recomputed", "recomputed"), ("gradient", "gradients"), ("temporary", "temporaries")]
MIB = 1 << 20


def read_plan(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    return json.JSONDecoder().raw_decode(text, text.index("const D = ") + len("const D = "))[0]


def blocks_of(plan):
    """(begin, end, offset, bytes, colour) of every storage, in seconds and bytes."""
    times = [step[3] for step in plan["steps"]] + [plan["steps"][-1][4]]
    last = len(plan["steps"]) - 1
    placed = {i[0] for i in plan["instances"]}
    found, at = [], plan["process"]
    for number, (_, kind, size, persistent, *_) in enumerate(plan["storages"]):
        if persistent and number not in placed:
            found.append((times[0], times[-1], at, size, COLOURS[KINDS[kind]]))
            at += size
    base = plan["process"] + plan["persistent"]
    for number, first, until, offset in plan["instances"]:
        op, again = plan["steps"][first][:2]
        size = plan["ops"][op][3] if number < 0 else plan["storages"][number][2]
        kind = "workspace" if number < 0 else KINDS[plan["storages"][number][1]]
        if again and kind in ("activation", "temporary"):
            kind = "recomputed"
        found.append((times[first], times[min(until, last) + 1], base + offset, size, COLOURS[kind]))
    return found, times[-1]


def used(blocks, total, columns):
    """Bytes alive in each column of the picture: the largest there."""
    events = sorted([(b, size) for b, e, _, size, _ in blocks] + [(e, -size) for b, e, _, size, _ in blocks],
                    key=lambda event: (event[0], event[1]))
    most, alive, i = [0] * columns, 0, 0
    for c in range(columns):
        most[c] = alive
        while i < len(events) and events[i][0] < total * (c + 1) / columns:
            alive += events[i][1]
            most[c] = max(most[c], alive)
            i += 1
    return most


def font(size, bold=False):
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    try:
        return ImageFont.truetype(name, size * SCALE)
    except OSError:
        return ImageFont.load_default(size * SCALE)


def rounded(size, radius):
    mask = Image.new("L", (size[0] * 2, size[1] * 2), 0)
    ImageDraw.Draw(mask).rounded_rectangle((0, 0, size[0] * 2 - 1, size[1] * 2 - 1), 2 * radius, fill=255)
    return mask.resize(size, Image.LANCZOS)


class Chart:
    """The right half: all of it is drawn once, and a frame shows the left part of it in colour."""

    def __init__(self, plan, free, box):
        self.box = self.left, self.top, self.right, self.bottom = [v * SCALE for v in box]
        self.plan_blocks, self.seconds = blocks_of(plan)
        free_blocks, free_seconds = blocks_of(free)
        columns = (self.right - self.left) // SCALE
        self.free = used(free_blocks, free_seconds, columns)
        self.own = used(self.plan_blocks, self.seconds, columns)
        self.budget = plan["budget"]
        self.most = 1.12 * max(self.free)
        self.map = self.draw_map()

    def x(self, seconds):
        return self.left + (self.right - self.left) * seconds / self.seconds

    def y(self, size):
        return self.bottom - (self.bottom - self.top) * size / self.most

    def draw_map(self):
        picture = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE), PANEL)
        draw = ImageDraw.Draw(picture)
        for begin, end, offset, size, colour in self.plan_blocks:
            if self.x(end) - self.x(begin) >= 0.5:
                draw.rectangle((self.x(begin), self.y(offset + size), self.x(end), self.y(offset)), fill=colour)
        return picture

    def paint(self, frame, share):
        draw = ImageDraw.Draw(frame)
        x = int(self.left + share * (self.right - self.left))
        box = (self.left, self.top, self.right, self.bottom)
        dim = Image.blend(self.map, Image.new("RGB", self.map.size, PANEL), 0.80)
        frame.paste(dim.crop(box), box[:2])
        if x > self.left:
            frame.paste(self.map.crop((self.left, self.top, x, self.bottom)), box[:2])
        line = [(self.left + SCALE * c, self.y(v)) for c, v in enumerate(self.free)]
        draw.line(line, fill="#44546a", width=SCALE)
        draw.line(line[:max(2, int(share * len(line)))], fill=DIM, width=2 * SCALE)
        y = self.y(self.budget)
        for at in range(self.left, self.right, 10 * SCALE):
            draw.line((at, y, min(at + 6 * SCALE, self.right), y), fill=LIMIT, width=2 * SCALE)
        draw.line((x, self.top, x, self.bottom), fill=INK, width=SCALE)
        self.label(draw, self.free, "without a budget", DIM, -24)
        draw.text((self.left + 6 * SCALE, y - 4 * SCALE), f"--vram {self.budget / MIB:.0f}M", fill=LIMIT, font=font(12, True),
                  anchor="lb")

    def label(self, draw, values, text, colour, above):
        column = max(range(len(values)), key=lambda c: values[c])
        at = (self.left + SCALE * column, self.y(values[column]) + above * SCALE)
        draw.text(at, f"{text}: {max(values) / MIB:.1f} MiB", fill=colour, font=font(12), anchor="mt")


def still(chart, clip_box):
    """What all frames have in common."""
    frame = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE), BACK)
    draw = ImageDraw.Draw(frame)
    draw.text((20 * SCALE, 16 * SCALE), "sampled from the trained model", fill=INK, font=font(13, True))
    left = chart.left
    draw.text((left, 16 * SCALE), "memory of one training step", fill=INK, font=font(13, True))
    draw.rounded_rectangle((left - 10 * SCALE, 40 * SCALE, chart.right + 10 * SCALE, chart.bottom + 10 * SCALE),
                           8 * SCALE, fill=PANEL)
    x, y = left, chart.bottom + 22 * SCALE
    for kind, name in LEGEND:
        draw.rounded_rectangle((x, y, x + 10 * SCALE, y + 10 * SCALE), 2 * SCALE, fill=COLOURS[kind])
        draw.text((x + 13 * SCALE, y + 5 * SCALE), name, fill=DIM, font=font(10), anchor="lm")
        x += int(draw.textlength(name, font=font(10))) + 22 * SCALE
    draw.text((clip_box[0] * SCALE, y), "the same weights, bit for bit, as without a budget", fill=DIM, font=font(10))
    return frame


def main(out, picture):
    chart = Chart(read_plan(os.path.join(out, "timeline.html")), read_plan(os.path.join(out, "free.html")),
                  (436, 48, WIDTH - 20, 284))
    clip_box = (20, 40, 406, 294)
    size = tuple((clip_box[i + 2] - clip_box[i]) * SCALE for i in (0, 1))
    sample = [Image.open(p).convert("RGB") for p in sorted(glob.glob(os.path.join(out, "sample", "frame-*.png")))]
    if not sample:
        sys.exit(f"loop.py: no {out}/sample/frame-*.png: make demo writes them")
    clip = [p.resize(size, Image.BICUBIC) for p in sample + sample[-2:0:-1]]
    mask, base = rounded(size, 8 * SCALE), still(chart, clip_box)
    frames = []
    for i in range(FRAMES):
        frame = base.copy()
        frame.paste(clip[i * len(clip) // FRAMES], (clip_box[0] * SCALE, clip_box[1] * SCALE), mask)
        chart.paint(frame, (i + 1) / FRAMES)
        frames.append(frame.resize((WIDTH, HEIGHT), Image.LANCZOS))
    frames[0].save(picture, save_all=True, append_images=frames[1:], duration=1000 // FPS, loop=0, quality=78,
                   method=6)
    print(f"{picture}: {os.path.getsize(picture) / 1e3:.0f} kB, {FRAMES} frames")


if len(sys.argv) != 3:
    sys.exit(__doc__)
main(sys.argv[1], sys.argv[2])
