#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints schedule_reference.h: diffusers' schedulers of CogVideoX, in float64.

    pip install torch diffusers
    python3 make_schedule_reference.py >schedule_reference.h

Each row is one step: shift, solver (0 DDIM, 1 DPM), steps, number, timestep, and what the next
sample takes of the one before, of the clean one, of the clean one of the step before, and of noise.
Found by handing unit vectors to the formulas of step(); their limits, where they give 0 / 0, are
left out.
"""

import math

import torch
from diffusers import CogVideoXDDIMScheduler, CogVideoXDPMScheduler

SETTINGS = dict(beta_schedule="scaled_linear", prediction_type="v_prediction",
                rescale_betas_zero_snr=True, timestep_spacing="trailing", set_alpha_to_one=True)


def previous(scheduler, t, n):
    p = t - 1000 // n
    return p, scheduler.alphas_cumprod[p] if p >= 0 else scheduler.final_alpha_cumprod.double()


def ddim(scheduler, n, times, i):
    a = scheduler.alphas_cumprod[times[i]]
    _, b = previous(scheduler, times[i], n)
    keep = ((1 - b) / (1 - a)) ** 0.5
    return float(keep), float(b ** 0.5 - a ** 0.5 * keep), 0.0, 0.0


def dpm(scheduler, n, times, i):
    a = scheduler.alphas_cumprod[times[i]]
    back = scheduler.alphas_cumprod[times[i - 1]] if i else None
    p, b = previous(scheduler, times[i], n)
    h, r, _, _ = scheduler.get_variables(a, b, back)
    m = [float(x) for x in scheduler.get_mult(h, r, a, b, back)]
    noise = float((1 - b) ** 0.5 * (1 - (-2 * h).exp()) ** 0.5)
    if back is None or p < 0:
        return m[0], -m[1], 0.0, noise
    return m[0], -m[1] * m[2], m[1] * m[3], noise


print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/* Made by make_schedule_reference.py. */")
print("static const double schedule_reference[][9] = {")
for shift in (1.0, 3.0):
    for kind, (make, solve) in enumerate(((CogVideoXDDIMScheduler, ddim),
                                          (CogVideoXDPMScheduler, dpm))):
        for n in (50, 30, 7):
            scheduler = make(snr_shift_scale=shift, **SETTINGS)
            scheduler.set_timesteps(n)
            times = [int(t) for t in scheduler.timesteps]
            for i in sorted({0, 1, 2, n // 2, n - 2, n - 1}):
                row = solve(scheduler, n, times, i)
                if all(map(math.isfinite, row)):
                    text = ", ".join(f"{x:.12g}" for x in row)
                    print(f"    {{{shift:g}, {kind}, {n}, {i}, {times[i]}, {text}}},")
print("};")
