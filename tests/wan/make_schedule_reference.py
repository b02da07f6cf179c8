#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints schedule_reference.h: diffusers' schedulers of Wan on a small flow.

    pip install torch diffusers
    python3 make_schedule_reference.py >schedule_reference.h

A row of wan_samples is a whole run: solver (0 UniPC, 1 UniPC on the noise levels of the original
code, 2 Euler), steps, shift, the sum of (i + 1) t over the timesteps, and what becomes of the sample
START with the prediction v = (sin(2 x + i) + x) / 2 in step i.  The schedulers compute in float32.
A row of wan_times is: shift, steps, and that sum for UniPC.
"""

import torch
from diffusers import FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler

START = [-1.5, -0.25, 0.5, 1.75]


def unipc(shift, n, original):
    s = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True,
                                flow_shift=shift)
    s.set_timesteps(n)
    if original:
        base = torch.tensor([0.999 * (1 - i / n) for i in range(n)], dtype=torch.float64)
        sigmas = shift * base / (1 + (shift - 1) * base)
        s.sigmas = torch.cat([sigmas, torch.zeros(1, dtype=torch.float64)]).float()
        s.timesteps = (sigmas * 1000).long()
    return s


def euler(shift, n):
    s = FlowMatchEulerDiscreteScheduler(shift=shift)
    s.set_timesteps(n)
    return s


def run(scheduler):
    x, total = torch.tensor(START, dtype=torch.float32).reshape(1, 1, 4), 0.0
    for i, t in enumerate(scheduler.timesteps):
        v = ((2 * x.double() + i).sin() + x.double()) / 2
        x = scheduler.step(v.float(), t, x, return_dict=False)[0]
        total += (i + 1) * float(t)
    return total, x.flatten()


print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/* Made by make_schedule_reference.py. */")
print("static const double wan_samples[][8] = {")
for kind in range(3):
    for shift in (3.0, 5.0, 12.0):
        for n in (1, 4, 20, 50):
            total, x = run(euler(shift, n) if kind == 2 else unipc(shift, n, kind == 1))
            text = ", ".join(f"{float(v):.9g}" for v in x)
            print(f"    {{{kind}, {n}, {shift:g}, {total:.9g}, {text}}},")
print("};")
print("static const long long wan_times[][3] = {")
for shift in (1, 3, 5, 12):
    for n in list(range(1, 61)) + [100, 333, 1000]:
        times = unipc(float(shift), n, False).timesteps
        print(f"    {{{shift}, {n}, {sum((i + 1) * int(t) for i, t in enumerate(times))}}},")
print("};")
