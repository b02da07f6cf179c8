#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference files of the test of sampling: Open-Sora 1.2's loop over Euler steps with frames
that are given, in float64, on the model of make_stdit_reference.py.

    pip install jax
    python3 make_stdit_sample_reference.py [DIRECTORY]

reads stdit_weights.safetensors there and writes stdit_sample.safetensors (for stdit-sample: noise and
edit_noise for --noise, y and mask for --text), stdit_sample_given.safetensors (latents, as vae-encode
writes them, for --reference) and stdit_sample_expected.safetensors (start, mask and latents, as
--latents has them).  The loop is written from the description of the scheduler: where the two differ
in form, as in when a frame gets its noise, this one follows that word by word.
"""

import json
import pathlib
import struct
import sys

import make_stdit_reference as model
import numpy as np
import tensor_file

CLIPS, FRAMES, HEIGHT, WIDTH = 2, 5, 5, 8  # latents of 17 frames of 64 x 40
GIVEN, STEPS, GUIDANCE = 10, 6, 3.0
# segment, reference, start in it, start in the clip, length, edit ratio
STRATEGY = [(0, 0, -5, 0, 2, 0.0), (0, 0, 1, 3, 1, 0.55), (0, 0, 8, -1, 1, 0.9)]
TIMES = 1000


def read(path):
    """The tensors of a safetensors file, as float64 or int32."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        first, end = (8 + size + at for at in entry["data_offsets"])
        blob = data[first:end]
        if entry["dtype"] == "BF16":
            bits = np.frombuffer(blob, "<u2").astype(np.uint32) << 16
            value = bits.view(np.float32).astype(np.float64)
        else:
            value = np.frombuffer(blob, "<f4").astype(np.float64)
        tensors[name] = value.reshape(entry["shape"])
    return tensors


def shift(t, height, width, frames):
    """The time of a clip of that size, of 0 .. 1000, which rounding must not pass."""
    ratio = np.sqrt(height * width / 512**2) * np.sqrt(frames // 17 * 5)
    u = t / TIMES
    return min(TIMES, TIMES * ratio * u / (1 + (ratio - 1) * u))


def place(z, given):
    """Puts the given frames into the noise; 1 in the mask is a frame that is drawn."""
    mask = np.ones((CLIPS, FRAMES))
    for _, _, source, target, length, edit in STRATEGY:
        source = source + GIVEN if source < 0 else source
        target = target + FRAMES if target < 0 else target
        length = min(length, FRAMES - target, GIVEN - source)
        z[:, :, target : target + length] = given[:, source : source + length]
        mask[:, target : target + length] = edit
    return z, mask


def velocity(weights, null, text, z, t, x_mask):
    """Both halves of the guidance: each caption, then the null caption under the same text mask."""

    def run(y):
        f = {
            "t": np.full(CLIPS, t),
            "fps": np.full(CLIPS, 24.0),
            "y": y,
            "mask": text["mask"],
            "height": np.full(CLIPS, 8.0 * HEIGHT),
            "width": np.full(CLIPS, 8.0 * WIDTH),
            "x_mask": x_mask,
        }
        return np.asarray(model.stdit(weights, f, z))[:, : model.CHANNELS]

    caption, empty = run(text["y"]), run(np.broadcast_to(null, text["y"].shape))
    return empty + GUIDANCE * (caption - empty)


def sample(weights, null, text, z, mask, noise):
    times = [shift((1 - i / STEPS) * TIMES, 8 * HEIGHT, 8 * WIDTH, 17) for i in range(STEPS)]
    has_noise = mask == 1
    for i, t in enumerate(times):
        before = z.copy()
        noised = (1 - t / TIMES) * before + t / TIMES * noise
        drawn = mask * TIMES >= t
        fresh = drawn & ~has_noise
        z = np.where(fresh[:, None, :, None, None], noised, before)
        has_noise = drawn
        v = velocity(weights, null, text, z, t, drawn)
        step = (t - (times[i + 1] if i + 1 < STEPS else 0)) / TIMES
        z = np.where(drawn[:, None, :, None, None], z + v * step, before)
    return z


def main():
    directory = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    weights = read(directory / "stdit_weights.safetensors")
    null = weights["y_embedder.y_embedding"]
    model.BATCH, model.FRAMES, model.HEIGHT, model.WIDTH = CLIPS, FRAMES, HEIGHT, WIDTH
    rng = np.random.default_rng(2)
    latent = (CLIPS, model.CHANNELS, FRAMES, HEIGHT, WIDTH)
    text = model.make_features(rng)  # of which y and mask are used
    draw = lambda shape: rng.standard_normal(shape).astype(np.float32).astype(np.float64)
    noise, edit_noise = draw(latent), draw(latent)
    given = draw((GIVEN, model.CHANNELS, HEIGHT, WIDTH))
    start, mask = place(noise.copy(), given.swapaxes(0, 1))
    out = sample(weights, null, text, start.copy(), mask, edit_noise)
    one = lambda value: np.array([value], np.int32)
    tensor_file.write(
        directory / "stdit_sample.safetensors",
        {"noise": noise, "edit_noise": edit_noise, "y": text["y"], "mask": text["mask"]},
    )
    tensor_file.write(
        directory / "stdit_sample_given.safetensors",
        {
            "latents": given,
            "frames": one(34),
            "height": one(8 * HEIGHT),
            "width": one(8 * WIDTH),
            "chunk": one(17),
            "fps": np.array([24.0]),
        },
    )
    tensor_file.write(
        directory / "stdit_sample_expected.safetensors",
        {"start": start, "mask": mask, "latents": out},
    )
    print(f"mean of latents {out.mean():.9f}, of their squares {(out**2).mean():.9f}")


if __name__ == "__main__":
    main()
