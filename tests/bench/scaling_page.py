# SPDX-License-Identifier: Apache-2.0
"""The tables and the picture of doc/scaling.md, from doc/scaling.csv and published.csv: see scaling.py."""
import csv
import math
import os

HERE = os.path.dirname(os.path.abspath(__file__))
COLUMNS = ["what", "machine", "links", "ranks", "hosts", "shares", "best", "memory_gib", "seconds", "recompute_seconds",
           "exposed_seconds", "comm_seconds"]
FLAT, OWN, WHOLE = "zero auto", "400 Gb/s a GPU", "zero 0"
WAYS = [WHOLE, "zero 1", "zero 2", FLAT, "zero 1 in hosts", "zero 2 in hosts", "zero auto in hosts"]
COLOURS = ["#0072b2", "#009e73", "#d55e00"]


def published():
    with open(os.path.join(HERE, "published.csv")) as f:
        return list(csv.DictReader(f))


def read(path):
    with open(path) as f:
        return {(r["what"], r["links"], int(r["ranks"]), r["shares"]): r for r in csv.DictReader(f)}


def said(seconds):
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def table(head, lines):
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for line in lines:
        print("| " + " | ".join(line) + " |")
    print()


def best(rows, what, links, ranks):
    return next(r for k, r in rows.items() if k[:3] == (what, links, ranks) and r["best"] == "1")


def curve(rows, what, way=None):
    """Ranks and seconds of the best way, or of one."""
    found = [r for k, r in rows.items() if k[:2] == (what, OWN)]
    return sorted((int(r["ranks"]), float(r["seconds"])) for r in found
                  if (r["shares"] == way if way else r["best"] == "1"))


def models(rows):
    return [w for w in dict.fromkeys(k[0] for k in rows) if (w, OWN, 4096, FLAT) in rows]


def runs(rows):
    """Rows of published.csv beside plans: run, few, many, and the rate among many over that among few,
    published and predicted."""
    first = {}
    for r in published():
        few = first.setdefault(r["run"], r)
        if r is few:
            continue
        at = [next(s for k, s in rows.items() if k[0] == r["run"] and k[2] == int(p["ranks"]) and k[3] == FLAT)
              for p in (few, r)]
        yield (r["run"], few["ranks"], r["ranks"], float(r["tokens_s_gpu"]) / float(few["tokens_s_gpu"]),
               float(at[0]["seconds"]) / float(at[1]["seconds"]), r["source"])


def print_models(rows):
    def cell(what, ranks, first):
        r = best(rows, what, OWN, ranks)
        return f"{said(float(r['seconds']))}, {100 * first / float(r['seconds']):.1f} %, {r['shares']}"
    names = models(rows)
    table(["GPUs", *names], [[f"{n:,}", *(cell(w, n, curve(rows, w)[0][1]) for w in names)]
                             for n, _ in curve(rows, names[0])])


def print_ways(rows):
    worlds = [8, 64, 512, 4096]

    def cell(key):
        return f"{said(float(rows[key]['seconds']))}, {rows[key]['memory_gib']} GiB" if key in rows else "-"
    table(["model", "shares", *(f"{n:,}" for n in worlds)],
          [[w, way, *(cell((w, OWN, n, way)) for n in worlds)] for w in models(rows) for way in WAYS])


def print_runs(rows):
    lines = [(*r[:3], f"{100 * r[3]:.1f} %", f"{100 * r[4]:.1f} %", f"{100 * (r[4] / r[3] - 1):+.1f} %", r[5])
             for r in runs(rows)]
    table(["run", "few", "many", "published", "predicted", "error", "source"], lines)
    errors = [abs(r[4] / r[3] - 1) for r in runs(rows)]
    table(["rows", "within 1 %", "within 2 %", "within 5 %", "if links cost nothing, within 2 %"],
          [[str(n) for n in (len(errors), *(sum(e <= far for e in errors) for far in (.01, .02, .05)),
                             sum(abs(1 / r[3] - 1) <= .02 for r in runs(rows)))]])


def print_causes(rows):
    what, ranks = models(rows)[0], [8, 64, 128]
    names = [n for n in dict.fromkeys(k[1] for k in rows if k[0] == what)]
    lines = []
    for links in names:
        lines.append([links, "zero 1", *(said(float(rows[what, links, n, "zero 1"]["exposed_seconds"])) for n in ranks)])
        if links.startswith("a gather"):
            continue
        ours = [best(rows, what, links, n) for n in ranks]
        lines.append([links, "the fastest", *(f"{said(float(r['exposed_seconds']))}, {r['shares']}" for r in ours)])
    table(["links", "shares", *(f"{n} GPUs" for n in ranks)], lines)


def slowest(times, n):
    """The mean of the slowest of n draws, each of the times as likely."""
    k = len(times)
    return sum(t * ((i / k)**n - ((i - 1) / k)**n) for i, t in enumerate(sorted(times), 1))


def print_draws(rows):
    steps = [(k[0].split(", ")[1], float(r["seconds"])) for k, r in rows.items() if k[1] == "none"]
    times = [t for _, t in steps]
    table([*(s for s, _ in steps), "mean", *(f"slowest of {n}" for n in (2, 8, 64))],
          [[*map(said, times), *(said(slowest(times, n)) for n in (1, 2, 8, 64))]])


def print_tables(path):
    rows = read(path)
    for part in (print_models, print_ways, print_runs, print_causes, print_draws):
        part(rows)


def text(x, y, words, size=12, anchor="middle", fill="#000"):
    print(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{fill}">{words}</text>')


class Panel:
    """A box of a picture with its two scales."""

    def __init__(self, left, title, x, y):
        self.left, self.x, self.y = left, x, y
        print(f'<rect x="{left}" y="40" width="360" height="260" fill="none" stroke="#888"/>')
        text(left + 180, 26, title, 14)

    def at(self, x, y):
        across, up = (x - self.x[0]) / (self.x[1] - self.x[0]), (y - self.y[0]) / (self.y[1] - self.y[0])
        return self.left + 360 * across, 300 - 260 * up

    def tick_x(self, x, words):
        text(self.at(x, 0)[0], 318, words)

    def tick_y(self, y):
        at = self.at(self.x[0], y)[1]
        print(f'<path d="M{self.left} {at:.1f}h360" stroke="#ddd"/>')
        text(self.left - 6, at + 4, f"{y} %", anchor="end")

    def line(self, points, colour, more=""):
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in (self.at(*p) for p in points))
        print(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{more}/>')


def draw_models(rows):
    p = Panel(60, "Speed against 8 GPUs, predicted", (3, 12), (0, 105))
    for y in range(0, 101, 20):
        p.tick_y(y)
    for n in range(3, 13):
        p.tick_x(n, 2**n)
    text(240, 338, "GPUs")
    for i, what in enumerate(models(rows)):
        first = curve(rows, what)[0][1]
        for way, dashes in ((None, ""), (FLAT, ' stroke-dasharray="5 4"')):
            p.line([(math.log2(n), 100 * first / s) for n, s in curve(rows, what, way)], COLOURS[i], dashes)
        text(72, 228 + 18 * i, what, anchor="start", fill=COLOURS[i])
    text(72, 282, "dashed: shares over all GPUs", anchor="start")


def draw_runs(rows):
    low, high = 85, 105
    p = Panel(490, "Speed of many GPUs against few", (low, high), (low, high))
    for n in range(low, high + 1, 5):
        p.tick_y(n)
        p.tick_x(n, f"{n} %")
    outside = sum(not low <= 100 * r[3] <= high for r in runs(rows))
    text(670, 338, f"across: published, up: predicted, dashed: 5 % off, not drawn: {outside}")
    p.line([(low, low), (high, high)], "#888")
    p.line([(low / .95, low), (high, .95 * high)], "#888", ' stroke-dasharray="5 4"')
    p.line([(low, 1.05 * low), (high / 1.05, high)], "#888", ' stroke-dasharray="5 4"')
    for run, _, _, told, predicted, _ in runs(rows):
        x, y = p.at(100 * told, 100 * predicted)
        if low <= 100 * told <= high:
            print(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{COLOURS[run.endswith("A100") * 2]}"/>')
    text(502, 60, "H100, H200", anchor="start", fill=COLOURS[0])
    text(502, 78, "A100", anchor="start", fill=COLOURS[2])


def print_svg(path):
    rows = read(path)
    print('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 890 350" font-family="sans-serif">'
          '<rect width="890" height="350" fill="#fff"/>')
    draw_models(rows)
    draw_runs(rows)
    print("</svg>")
