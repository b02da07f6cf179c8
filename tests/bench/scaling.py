#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The study of steps on 8 to 4,096 GPUs: planned by `ckpt plan --world`, without a GPU, and beside it
the published rates of published.csv.

    scaling.py [--only WORD] >scaling.csv           run where the programs were built
    scaling.py --table scaling.csv                  the tables of doc/scaling.md
    scaling.py --svg scaling.csv                    its picture
    scaling.py --check scaling.csv KEY...           plans these rows again; KEY is WHAT:LINKS:RANKS,
                                                    of what and links the beginning of their names

A row is the step of a rank for one way to share; `best` is 1 for the fastest way that fits."""
import argparse
import concurrent.futures
import csv
import json
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import cards
import scaling_page

HALF = cards.HALF
LLAMA = "lm-train --data random --model llama3.1-8B --length 8192 --batch 2 --dtype bf16"
STDIT = f"{cards.STDIT} --latent"
MODELS = {
    "STDiT XL/2": f"{STDIT} 15x46x80",
    "CogVideoX 5B": f"cogvideo-train --model DIR/cogvideo --random --data random {HALF}",
    "Qwen 2.5 7B": f"lm-train --data random --model qwen2.5-7B --length 8192 --batch 1 {HALF}",
}
WORLDS = [8, 64, 512, 4096]
# MPT as LLM-Foundry's files give it: width, layers, heads.
MPT = {"125M": (768, 12, 12), "350M": (1024, 24, 16), "760M": (1536, 24, 12), "1B": (2048, 24, 16),
       "3B": (2560, 32, 20), "7B": (4096, 32, 32), "13B": (5120, 40, 40)}


def mpt(size, batch, grad):
    return f"lm-train --data random --model DIR/mpt-{size} --length 2048 --batch {batch} --dtype bf16 --grad-dtype {grad}"


# Runs of published.csv: what is planned for them, on which machine, in which memory.
RUNS = {
    "Llama 3.1 8B, eager, H100": (LLAMA, "h100-80", "92G"),
    "Llama 3.1 8B, compiled, H100": (LLAMA, "h100-80", "92G"),
    "Llama 3.1 8B, 8-bit products, H100": (f"{LLAMA} --matmul fp8", "h100-80", "92G"),
    "Llama 3.1 8B, 8-bit products, H200": (f"{LLAMA} --matmul fp8", "h200-141", "auto"),
    **{f"MPT {s}, H100": (mpt(s, b, "fp32"), "h100-80", "auto") for s, b in (("13B", 2), ("1B", 20), ("760M", 24))},
    **{f"MPT {s}, A100": (mpt(s, b, "bf16"), "a100-40", "auto") for s, b in (
        ("13B", 16), ("7B", 18), ("3B", 6), ("1B", 10), ("760M", 12), ("350M", 18), ("125M", 26))},
}
# A collective for each of 970 tensors and 100 buckets of gradients has the latency of 1,070 / 128 of ours.
TENSORS = 1070 / 128
HOP = {"link_overhead": 8e-5, "link_host_latency": 4e-6, "link_net_latency": 1.5e-5}
SLOW = {**HOP, "link_net_latency": 1e-4}
# Links beside those of the machine files, which are the first two.
LINKS = {
    "400 Gb/s a GPU": {},
    "200 Gb/s a GPU": {},
    "25 Gb/s a GPU": {"link_net": 3.1e9},
    "a gather for each tensor": {k: v * TENSORS for k, v in HOP.items()},
    "a gather for each tensor, 100 us a hop": {k: v * TENSORS for k, v in SLOW.items()},
}
CAUSES = [8, 64, 128]
# Sizes of clips that ranks draw: 144p, 240p, 360p and 480p of 51 frames.
SIZES = {"144p": "15x18x32", "240p": "15x30x53", "360p": "15x46x80", "480p": "15x60x106"}
COLUMNS = scaling_page.COLUMNS
UNITS = {"KiB": 2**-20, "MiB": 2**-10, "GiB": 1, "TiB": 2**10, "us": 1e-6, "ms": 1e-3, "s": 1}
VALUE = r" +([\d.]+) (\w+)"
STEP = re.compile(r" +(\d+) +(\d+)  (zero \w+(?: in hosts)?|nothing)" + VALUE * 5)


def write_configs(directory):
    os.makedirs(f"{directory}/cogvideo")
    cards.write_config(f"{directory}/cogvideo")
    for size, (width, layers, heads) in MPT.items():
        with open(f"{directory}/mpt-{size}", "w") as f:
            json.dump({"model_type": "gpt2", "n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": 2048,
                       "n_ctx": 2048, "vocab_size": 50368, "activation_function": "gelu_new",
                       "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}, f)


def run(words):
    out = subprocess.run(words, capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"scaling.py: {' '.join(words)}: {out.stderr.strip()}")
    return out.stdout


class Graphs:
    """The graph of each command, recorded once."""

    def __init__(self, directory):
        self.directory, self.paths = directory, {}
        write_configs(directory)
        for name, links in LINKS.items():
            with open(self.links(name), "w") as f:
                json.dump({"format": "libckpt-links 1", **links}, f)

    def path(self, command, machine):
        key = (command, machine)
        if key not in self.paths:
            path = f"{self.directory}/graph{len(self.paths)}"
            run(("./" + command.replace("DIR", self.directory)).split() + [
                "--ranks", "2", "--plan-only", "--machine", machine, "--vram", "none", "--graph-out", path])
            self.paths[key] = path
        return self.paths[key]

    def links(self, name):
        return f"{self.directory}/links-{list(LINKS).index(name)}.json"


def steps(out):
    """Ranks, hosts, shares and COLUMNS' figures of the lines of a table."""
    for m in filter(None, map(STEP.match, out.splitlines())):
        values = [float(v) * UNITS[u] for v, u in zip(m.groups()[3::2], m.groups()[4::2])]
        yield int(m[1]), int(m[2]), m[3], [f"{v:.4g}" for v in values]


def plan(graphs, what, links, ranks):
    """The ways to share among so many ranks that fit, each as COLUMNS; with most ranks also the best
    way among fewer."""
    command, machine, vram = RUNS[what] if what in RUNS else (MODELS[what], "h100-80", "auto")
    words = ["./ckpt", "plan", "--graph", graphs.path(command, machine), "--machine", machine, "--vram", vram]
    curve, ways = run(words + ["--world", str(ranks), "--link-file", graphs.links(links)]).split("ways to share")
    best = re.search(r"^best for \d+ ranks: (.*)", ways, re.M)
    for n, hosts, shares, values in steps(curve) if ranks == WORLDS[-1] else ():
        if n >= WORLDS[0] and (what, links, n) not in set(jobs()):
            yield [what, machine, links, n, hosts, shares, 1, *values]
    for n, hosts, shares, values in steps(ways):
        yield [what, machine, links, n, hosts, shares, int(bool(best) and best[1] == shares), *values]


def draw(graphs):
    """The steps of one rank alone on clips of each size."""
    for size, latent in SIZES.items():
        words = ["./ckpt", "plan", "--graph", graphs.path(f"{STDIT} {latent}", "h100-80"), "--machine", "h100-80"]
        out = run(words + ["--vram", "auto", "--world", "1"])
        yield [f"STDiT XL/2, {size}", "h100-80", "none", 1, 1, "nothing", 1, *next(steps(out))[3]]


def jobs():
    for what in MODELS:
        yield from ((what, "400 Gb/s a GPU", n) for n in WORLDS)
    for links in (n for n in LINKS if n != "200 Gb/s a GPU"):
        yield from (("STDiT XL/2", links, n) for n in CAUSES if links != "400 Gb/s a GPU" or n not in WORLDS)
    for r in scaling_page.published():
        yield r["run"], "400 Gb/s a GPU" if "A100" not in r["run"] else "200 Gb/s a GPU", int(r["ranks"])


def write(only):
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(COLUMNS)
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(3) as pool:
        graphs = Graphs(directory)
        todo = [j for j in jobs() if only in j[0]]
        for what in dict.fromkeys(j[0] for j in todo):
            graphs.path(*(RUNS[what][:2] if what in RUNS else (MODELS[what], "h100-80")))
        for rows in pool.map(lambda j: list(plan(graphs, *j)), todo):
            out.writerows(rows)
            sys.stdout.flush()
        if only in "STDiT XL/2":
            out.writerows(draw(graphs))


def check(path, keys):
    rows = scaling_page.read(path)
    with tempfile.TemporaryDirectory() as directory:
        graphs = Graphs(directory)
        for key in keys:
            what, links, ranks = key.split(":")
            what = next(w for w in [*MODELS, *RUNS] if w.startswith(what))
            links = next(n for n in LINKS if n.startswith(links))
            for row in plan(graphs, what, links, int(ranks)):
                now = dict(zip(COLUMNS, row))
                then = rows[what, links, int(ranks), now["shares"]]
                for name in ("memory_gib", "seconds", "exposed_seconds"):
                    if abs(float(now[name]) - float(then[name])) > 0.02 * abs(float(now[name])):
                        sys.exit(f"scaling.py: {key}, {now['shares']}: {name} is {now[name]} and was {then[name]}: "
                                 f"make {path} again")
            print(f"{key}: planned again")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--table", metavar="CSV")
    p.add_argument("--svg", metavar="CSV")
    p.add_argument("--check", metavar="CSV")
    p.add_argument("--only", default="", help="what has this in its name")
    p.add_argument("key", nargs="*")
    o = p.parse_args()
    if o.table:
        scaling_page.print_tables(o.table)
    elif o.svg:
        scaling_page.print_svg(o.svg)
    elif o.check:
        check(o.check, o.key)
    else:
        write(o.only)


main()
