#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What trains on which card, and what a step takes there: predicted by plans alone, without a GPU,
and beside it the steps of measured.csv.

    cards.py [--only WORD] CARD... >cards.csv       run where the trainers were built
    cards.py --table cards.csv                      the tables of doc/cards.md
    cards.py --check cards.csv KEY...               plans these rows again; KEY is MODEL:CARD:VRAM:HOST,
                                                    of the model the beginning of its name

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
WAN = {
    "_class_name": "WanTransformer3DModel", "num_attention_heads": 24, "attention_head_dim": 128, "in_channels": 48,
    "out_channels": 48, "num_layers": 30, "ffn_dim": 14336, "freq_dim": 256, "text_dim": 4096, "patch_size": [1, 2, 2],
    "added_kv_proj_dim": None, "cross_attn_norm": True, "eps": 1e-6, "image_dim": None, "pos_embed_seq_len": None,
    "qk_norm": "rms_norm_across_heads", "rope_max_seq_len": 1024}
HALF = "--dtype bf16 --grad-dtype bf16"
STDIT = f"stdit-train --model XL/2 --ema-decay 0 --sample-steps 0 {HALF}"
COGVIDEOX = f"cogvideo-train --model DIR --random --data random --lora-rank 128 {HALF}"
LM = f"lm-train --data random {HALF}"
MODELS = {
    "CogVideoX 5B, 49 x 480 x 720, adapters": COGVIDEOX,
    "CogVideoX 5B, the same in NF4": f"{COGVIDEOX} --frozen nf4",
    "Wan 2.2 5B, 121 x 480 x 832, adapters": "wan-train --model DIR/wan --random --data random --size 832x480 --frames 121 "
                                             f"--first-frame 0.5 --lora-rank 32 {HALF}",
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
COLUMNS = ["model", "card", "vram", "host_gib", "seconds", "compute_seconds", "device_gib", "smallest_gib",
           "measured_seconds", "measured_on"]
MEASURED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "measured.csv")
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


def read(path):
    """The rows of a CSV by model, card, budget and GiB of the host."""
    with open(path) as f:
        return {(r["model"], r["card"], r["vram"], int(r["host_gib"])): r for r in csv.DictReader(f)}


def rows_of(model, cards, directory):
    """The rows of a model, as COLUMNS; budgets that were measured are planned, too."""
    measured = {k: (r["seconds"], r["date"]) for k, r in read(MEASURED).items()}
    done = set()
    for card, vram in [(c, "auto") for c in cards] + [b for b in BUDGETS if b[0] in cards]:
        for host in HOSTS:
            row = plan(MODELS[model], card, vram, host, directory)
            key = (model, card, vram, host)
            done.add(key)
            if row:
                yield [*key, *(f"{v:.4g}" for v in row), *measured.get(key, ("", ""))]
                if row[0] < 1.01 * row[1] and (card, vram) != (BUDGETS[0][0], "auto"):
                    break
    for key in measured:
        if key[0] == model and key[1] in cards and key not in done:
            row = plan(MODELS[model], *key[1:], directory)
            yield [*key, *(f"{v:.4g}" for v in row), *measured[key]]


def write_config(directory):
    os.mkdir(os.path.join(directory, "wan"))
    for path, config in (("config.json", COGVIDEO), ("wan/config.json", WAN)):
        with open(os.path.join(directory, path), "w") as f:
            json.dump(config, f)


def write(cards, only):
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(COLUMNS)
    with tempfile.TemporaryDirectory() as directory:
        write_config(directory)
        for model in MODELS:
            for row in rows_of(model, cards, directory) if only in model else ():
                out.writerow(row)
                sys.stdout.flush()


def check(path, keys):
    rows = read(path)
    with tempfile.TemporaryDirectory() as directory:
        write_config(directory)
        for key in keys:
            model, card, vram, host = key.split(":")
            model = next(m for m in MODELS if m.startswith(model))
            now = plan(MODELS[model], card, vram, int(host), directory)
            then = rows[model, card, vram, int(host)]
            for name, value in zip(COLUMNS[4:], now or [0] * 4):
                if abs(value - float(then[name])) > 0.02 * abs(value):
                    sys.exit(f"cards.py: {key}: {name} is {value:.4g} and was {then[name]}: make {path} again")
            print(f"{key}: {said(now[0])}")


def said(seconds):
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def cell(rows, *key):
    """The fastest step, marked where it needs host memory; in bold as measured, if it was."""
    found = [rows[key + (host,)] for host in HOSTS if key + (host,) in rows]
    if not found:
        return "-"
    best = min(found, key=lambda r: float(r["seconds"]))
    seconds = said(float(best["measured_seconds"] or best["seconds"]))
    return (f"**{seconds}**" if best["measured_seconds"] else seconds) + (" *" if int(best["host_gib"]) else "")


def table(head, lines):
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for line in lines:
        print("| " + " | ".join(line) + " |")
    print()


def budget(row):
    host = f" + {row['host_gib']}G" if int(row["host_gib"]) else ""
    return ("the whole card" if row["vram"] == "auto" else row["vram"]) + host


def print_tables(path):
    rows = read(path)
    models = list(dict.fromkeys(k[0] for k in rows))
    cards = [c for c in CARDS if any(k[1] == c for k in rows)]
    table(["model", *cards], [[m, *(cell(rows, m, c, "auto") for c in cards)] for m in models])
    card = BUDGETS[0][0]
    budgets = [b for c, b in BUDGETS]
    smallest = [[f"{rows[m, card, 'auto', h]['smallest_gib']} GiB" if (m, card, "auto", h) in rows else "-"
                 for h in HOSTS] for m in models]
    table(["model", "smallest, alone", "smallest, with the host", *budgets],
          [[m, *s, *(cell(rows, m, card, b) for b in budgets)] for m, s in zip(models, smallest)])
    table(["model", "card", "budget", "predicted", "measured", "error", "date"],
          [[k[0], k[1], budget(r), said(float(r["seconds"])), said(float(r["measured_seconds"])),
            f"{100 * float(r['seconds']) / float(r['measured_seconds']) - 100:+.0f} %", r["measured_on"]]
           for k, r in rows.items() if r["measured_seconds"]])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--table", metavar="CSV")
    p.add_argument("--check", metavar="CSV")
    p.add_argument("--only", default="", help="models with this in their name")
    p.add_argument("card", nargs="*", default=CARDS)
    o = p.parse_args()
    if o.table:
        print_tables(o.table)
    elif o.check:
        check(o.check, o.card)
    else:
        write(o.card, o.only)


if __name__ == "__main__":
    main()
