#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What trains on which card, and what a step takes there, as predicted: from plans alone, no GPU.

    cards.py [--only WORD] CARD... >cards.csv       run where the trainers were built
    cards.py --table cards.csv                      two tables in Markdown

A row has the step of a model on a card with a budget, without host memory and, where that is not
all compute, with 64 GiB of it."""
import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile

COGVIDEO = {
    "_class_name": "CogVideoXTransformer3DModel", "num_attention_heads": 48, "attention_head_dim": 64,
    "in_channels": 16, "out_channels": 16, "num_layers": 42, "text_embed_dim": 4096, "time_embed_dim": 512,
    "max_text_seq_length": 226, "patch_size": 2, "sample_width": 90, "sample_height": 60, "sample_frames": 49,
    "temporal_compression_ratio": 4, "flip_sin_to_cos": True, "freq_shift": 0, "norm_elementwise_affine": True,
    "norm_eps": 1e-5, "activation_fn": "gelu-approximate", "timestep_activation_fn": "silu",
    "use_rotary_positional_embeddings": True}
HALF = "--dtype bf16 --grad-dtype bf16"
STDIT = f"stdit-train --model XL/2 --ema-decay 0 --sample-steps 0 {HALF}"
COGVIDEOX = f"cogvideo-train --model DIR --random --data random --lora-rank 128 {HALF}"
LM = f"lm-train --data random {HALF}"
MODELS = {
    "CogVideoX 5B, 49 x 480 x 720, adapters": COGVIDEOX,
    "CogVideoX 5B, the same in NF4": f"{COGVIDEOX} --frozen nf4",
    "STDiT XL/2, 51 x 360 x 640, all weights": f"{STDIT} --latent 15x46x80",
    "STDiT XL/2, 51 x 720 x 1280, all weights": f"{STDIT} --latent 15x90x160",
    "Open-Sora's autoencoder, 17 x 256 x 256": "vae-train --model v1.2 --ema-decay 0 --random 17x256x256 --dtype bf16",
    "Llama 3.1 8B, 8,192 tokens, adapters": f"{LM} --model llama3.1-8B --length 8192 --batch 1 --lora-rank 16",
    "Llama 3.1 8B, the same in NF4": f"{LM} --model llama3.1-8B --length 8192 --batch 1 --lora-rank 16 --frozen nf4",
    "Qwen 2.5 7B, 8,192 tokens, all weights": f"{LM} --model qwen2.5-7B --length 8192 --batch 1",
    "Qwen 2.5 1.5B, 8,192 tokens, all weights": f"{LM} --model qwen2.5-1.5B --length 8192 --batch 1",
    "GPT-2 124M, 64 x 1,024 tokens, all weights": f"{LM} --model gpt2-124M --vocabulary 50304 --length 1024 --batch 64",
}
CARDS = ["rtx5080", "rtx3090", "rtx4090", "rtx5090", "a6000", "l40s", "pro6000",
         "a100-40", "a100-80", "h100-80", "h200-141", "b200"]
HOSTS = [0, 64]
BUDGETS = [("rtx4090", b) for b in ("20G", "16G", "12G", "10G", "8G", "6G")]
COLUMNS = ["model", "card", "vram", "host_gib", "seconds", "compute_seconds", "device_gib", "smallest_gib"]
SIZES = {"KiB": 2**-20, "MiB": 2**-10, "GiB": 1}
TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1}


def plan(command, card, vram, host, directory):
    """Seconds of a step and of its compute, GiB of the device and of the smallest budget; None where
    no plan fits."""
    words = ("./" + command.replace("DIR", directory)).split()
    words += ["--plan-only", "--machine", card, "--vram", vram, "--host", f"{host}G"]
    out = subprocess.run(words, capture_output=True, text=True)
    if out.returncode:
        if "no plan fits" not in out.stderr:
            sys.exit(f"cards.py: {' '.join(words)}: {out.stderr.strip()}")
        return None
    step = re.search(r"predicted step +([\d.]+) (us|ms|s) +(?:([\d.]+) (us|ms|s) of it compute)?", out.stdout)
    used = re.search(r"device, total +([\d.]+) (.iB)", out.stdout)
    least = re.search(r"smallest possible ([\d.]+) (.iB)", out.stdout)
    sizes = [float(m[1]) * SIZES[m[2]] if m else 0 for m in (used, least)]
    seconds = float(step[1]) * TIMES[step[2]]
    return seconds, float(step[3]) * TIMES[step[4]] if step[3] else seconds, *sizes


def write(cards, only):
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(COLUMNS)
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "config.json"), "w") as f:
            json.dump(COGVIDEO, f)
        for model, command in MODELS.items():
            if only not in model:
                continue
            for card, vram in [(c, "auto") for c in cards] + [b for b in BUDGETS if b[0] in cards]:
                for host in HOSTS:
                    row = plan(command, card, vram, host, directory)
                    if row:
                        out.writerow([model, card, vram, host, *(f"{v:.4g}" for v in row)])
                        sys.stdout.flush()
                        if row[0] < 1.01 * row[1] and (card, vram) != (BUDGETS[0][0], "auto"):
                            break


def said(seconds):
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def cell(rows, *key):
    """The fastest step, marked where it needs host memory."""
    steps = [(float(rows[key + (host,)]["seconds"]), host) for host in HOSTS if key + (host,) in rows]
    return said(min(steps)[0]) + (" *" if min(steps)[1] else "") if steps else "-"


def table(head, models, cells):
    print("| model | " + " | ".join(head) + " |\n" + "|---" * (len(head) + 1) + "|")
    for model in models:
        print(f"| {model} | " + " | ".join(cells(model)) + " |")
    print()


def print_tables(path):
    with open(path) as f:
        read = list(csv.DictReader(f))
    rows = {(r["model"], r["card"], r["vram"], int(r["host_gib"])): r for r in read}
    models = list(dict.fromkeys(r["model"] for r in read))
    cards = [c for c in CARDS if any(r["card"] == c for r in read)]
    table(cards, models, lambda m: [cell(rows, m, c, "auto") for c in cards])
    budgets = list(dict.fromkeys(r["vram"] for r in read if r["vram"] != "auto"))
    card = BUDGETS[0][0]
    table(["smallest, alone", "smallest, with the host"] + budgets, models,
          lambda m: [f"{rows[m, card, 'auto', h]['smallest_gib']} GiB" if (m, card, "auto", h) in rows else "-" for h in HOSTS]
          + [cell(rows, m, card, b) for b in budgets])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--table", metavar="CSV")
    p.add_argument("--only", default="", help="models with this in their name")
    p.add_argument("card", nargs="*", default=CARDS)
    o = p.parse_args()
    if o.table:
        print_tables(o.table)
    else:
        write(o.card, o.only)


main()
