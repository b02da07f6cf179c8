#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints schedule_reference.h: diffusers' schedulers of CogVideoX, in float64.

    pip install torch diffusers
    python3 make_schedule_reference.py >schedule_reference.h

Each row is one step: shift, solver (0 DDIM, 1 DPM), steps, number, timestep, and what the next
sample takes of the one before, of the clean one, of the clean one of the step before, and of noise.
Found by handing unit vectors to the formulas of step(); their limits, where they give 0 / 0, are
left out.

schedule_files are scheduler_config.json files, most of them short of keys; the rows of
schedule_file_steps are as above, with the number of the file in place of shift and solver; the test
writes the thousand numbers of BETAS.
schedule_times has spacing, steps_offset, steps, the number of timesteps, and a sum over them.
"""

import json
import math

import torch
from diffusers import CogVideoXDDIMScheduler, CogVideoXDPMScheduler

SETTINGS = dict(beta_schedule="scaled_linear", prediction_type="v_prediction",
                rescale_betas_zero_snr=True, timestep_spacing="trailing", set_alpha_to_one=True)


V = dict(prediction_type="v_prediction")
CLASSES = {"CogVideoXDDIMScheduler": CogVideoXDDIMScheduler,
           "CogVideoXDPMScheduler": CogVideoXDPMScheduler}
FILES = [
    ("CogVideoXDDIMScheduler", dict(V)),
    ("CogVideoXDPMScheduler", dict(V)),
    ("CogVideoXDPMScheduler", dict(V, timestep_spacing="linspace", set_alpha_to_one=False)),
    ("CogVideoXDDIMScheduler", dict(V, timestep_spacing="linspace", snr_shift_scale=1.0)),
    ("CogVideoXDPMScheduler", dict(V, steps_offset=1, rescale_betas_zero_snr=True)),
    ("CogVideoXDDIMScheduler", dict(V, steps_offset=1, set_alpha_to_one=False,
                                    beta_schedule="linear", beta_start=0.0001, beta_end=0.02)),
    ("CogVideoXDPMScheduler", dict(V, beta_schedule="squaredcos_cap_v2",
                                   timestep_spacing="trailing")),
    ("CogVideoXDDIMScheduler", dict(V, trained_betas=[(1 + t % 7) / 1000 for t in range(1000)])),
    ("CogVideoXDPMScheduler", dict(V, num_train_timesteps=1000, beta_start=0.00085, beta_end=0.012,
                                   beta_schedule="scaled_linear", clip_sample=False,
                                   clip_sample_range=1.0, sample_max_value=1.0, steps_offset=0,
                                   set_alpha_to_one=True, snr_shift_scale=1.0, trained_betas=None,
                                   rescale_betas_zero_snr=True, timestep_spacing="trailing")),
]


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


def row_of(scheduler, solve, n, i):
    times = [int(t) for t in scheduler.timesteps]
    row = solve(scheduler, n, times, i)
    return times[i], row if all(map(math.isfinite, row)) else None


print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/* Made by make_schedule_reference.py. */")
print("static const double schedule_reference[][9] = {")
for shift in (1.0, 3.0):
    for kind, (make, solve) in enumerate(((CogVideoXDDIMScheduler, ddim),
                                          (CogVideoXDPMScheduler, dpm))):
        for n in (50, 30, 7):
            scheduler = make(snr_shift_scale=shift, **SETTINGS)
            scheduler.set_timesteps(n)
            for i in sorted({0, 1, 2, n // 2, n - 2, n - 1}):
                t, row = row_of(scheduler, solve, n, i)
                if row:
                    text = ", ".join(f"{x:.12g}" for x in row)
                    print(f"    {{{shift:g}, {kind}, {n}, {i}, {t}, {text}}},")
print("};")

print("static const char *const schedule_files[] = {")
for name, settings in FILES:
    short = dict(settings, _class_name=name)
    if short.get("trained_betas"):
        short["trained_betas"] = "BETAS"
    lines = [f'"{key}": {json.dumps(value)}' for key, value in short.items()]
    for i, line in enumerate(lines):
        text = ("{" if not i else "") + line + ("," if i < len(lines) - 1 else "}")
        print('    "' + text.replace('"', '\\"') + ('"' if i < len(lines) - 1 else '",'))
print("};")
print("static const double schedule_file_steps[][8] = {")
for number, (name, settings) in enumerate(FILES):
    scheduler = CLASSES[name](**settings)
    solve = ddim if "DDIM" in name else dpm
    for n in (20, 7):
        scheduler.set_timesteps(n)
        for i in (0, 1, n // 2, n - 1):
            t, row = row_of(scheduler, solve, n, i)
            if row:
                text = ", ".join(f"{x:.9g}" for x in row)
                print(f"    {{{number}, {n}, {i}, {t}, {text}}},")
print("};")
print("static const long long schedule_times[][5] = {")
for kind, spacing in enumerate(("leading", "linspace", "trailing")):
    for offset in (0, 1) if not kind else (0,):
        for n in range(1, 101):
            scheduler = CogVideoXDDIMScheduler(timestep_spacing=spacing, steps_offset=offset)
            scheduler.set_timesteps(n)
            times = [int(t) for t in scheduler.timesteps]
            total = sum((i + 1) * t for i, t in enumerate(times))
            print(f"    {{{kind}, {offset}, {n}, {len(times)}, {total}}},")
print("};")
