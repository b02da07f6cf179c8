#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Frames a second of processor time of one thread, as Open-Sora 1.2 reads videos, and by decord.

    pip install av decord numpy torch
    python3 peer_video.py FOLDER/large.mp4

PyAV decodes the whole file to RGB and torch resizes float32 frames; decord resizes by itself.
"""

import sys
import time

import av
import decord
import numpy as np
import torch

SIZES = [(256, 144), (426, 240), (640, 360), (854, 480), (1280, 720)]


def pyav(path):
    with av.open(path) as f:
        f.streams.video[0].thread_type = "NONE"
        f.streams.video[0].codec_context.thread_count = 1
        for frame in f.decode(video=0):
            yield frame.to_ndarray(format="rgb24")


def resized(path, width, height):
    n = 0
    for rgb in pyav(path):
        x = torch.from_numpy(rgb).permute(2, 0, 1)[None].to(torch.float32) / 255
        torch.nn.functional.interpolate(x, size=(height, width), mode="bilinear",
                                        align_corners=False)
        n += 1
    return n


def by_decord(path, width, height):
    reader = decord.VideoReader(path, width=width, height=height, num_threads=1)
    for i in range(len(reader)):
        reader[i].asnumpy()
    return len(reader)


def windows(path, clips):
    reader = decord.VideoReader(path, width=256, height=144, num_threads=1)
    frames = len(reader)
    for i in range(clips):
        first = i * 7919 % (frames - 17)
        reader.get_batch(np.arange(first, first + 17)).asnumpy()


def timed(call, *arguments):
    begin = time.process_time()
    n = call(*arguments)
    return n, time.process_time() - begin


def main():
    path = sys.argv[1]
    torch.set_num_threads(1)
    n, took = timed(lambda: sum(1 for _ in pyav(path)))
    print(f"PyAV {av.__version__}, to RGB alone: {n / took:.1f} frames/s")
    for width, height in SIZES:
        n, took = timed(resized, path, width, height)
        m, other = timed(by_decord, path, width, height)
        print(f"  {width:5} x {height:<5} PyAV + torch {n / took:8.1f}, decord "
              f"{m / other:8.1f} frames/s")
    _, took = timed(windows, path, 12)
    print(f"  clips of 17 frames, 256 x 144, from anywhere: decord {12 / took:.1f} clips/s")


main()
