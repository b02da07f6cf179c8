# SPDX-License-Identifier: Apache-2.0
"""Where a step's time goes by unit, and the least that each unit needs: one row of a table from a
graph file and a plan file, without a GPU.  bench-floor.sh runs it.

    floor.py GRAPH PLAN --machine FILE [--alone TIMES] [--measured MS] [--name ROW]
    floor.py GRAPH... --time TIMES          on a GPU: times the products by PyTorch
    floor.py GRAPH... --print-products      kind, m, n and k of each

A cell has the milliseconds of a unit's ops by the machine file (an op that it does not list has the
seconds of the graph file), and in brackets their floor: products at the times of --alone, which are
those of NVIDIA's library by themselves, else at the rate of one large product; convolutions and
attention at that rate; all others, and ops with more bytes than arithmetic, at the rate of memory.
"small" are ops that move less than a launch takes; they have no floor."""
import argparse
import collections
import json
import math
import statistics

UNITS = "products", "convolutions", "attention", "elements", "update", "small"


class Op:
    def __init__(self, line, sizes):
        head, _, name = line.partition("  # ")
        word = head.split()
        at, to = word.index("reads"), word.index("writes")
        self.phase, self.flops, self.bytes, self.key = word[1], float(word[4]), float(word[5]), word[6]
        self.seconds = float(word[7])
        self.reads = [sizes[int(s)] for s in word[at + 1:to]]
        self.writes = [sizes[int(s)] for s in word[to + 1:]]
        self.kind = name.split(" in ")[0].strip()

    def unit(self, machine):
        if self.bytes / machine["bandwidth"] < machine["overhead"] / 4 and self.flops / machine[
                "flops"] < machine["overhead"] / 4:
            return "small"
        if self.phase == "update":
            return "update"
        for unit, words in (("attention", ("attention",)), ("convolutions", ("conv",)),
                            ("products", ("linear", "matmul"))):
            if any(w in self.kind for w in words):
                return unit
        return "elements"

    def product(self, widths=()):
        """(kind, m, n, k) of a linear layer of bf16 or its gradients, or None.  An operand may be a
        part of a larger storage, so sizes can be ambiguous: then a width of `widths` decides."""
        kind = self.kind.removesuffix("_gelu")
        if kind not in ("linear", "linear_dx", "linear_dw") or len(self.reads) < 2:
            return None
        first, second, result = self.reads[0] / 2, self.reads[1] / 2, self.writes[0] / 2
        rows, weight, other = (first, result, second) if kind == "linear_dw" else (first, second, result)
        near = 0.03 if kind != self.kind else 1e-3  # GELU's arithmetic is in flops
        fits = lambda w: abs(2 * math.sqrt(rows * other * w) / self.flops - 1) < near
        if kind == "linear_dw" and not fits(weight) and fits(weight / 2):
            weight /= 2  # fp32
        m = math.sqrt(rows * other / weight) if fits(weight) else self.flops / 2 / weight
        m = max(1, round(m))
        a, b = rows / m, other / m
        if abs(a * b / weight - 1) > near:
            a, b = (a, weight / a) if {a, weight / a} & set(widths) else (weight / b, b)
        n, k = (round(b), round(a)) if kind == "linear" else (round(a), round(b))
        return (kind, m, n, k) if abs(2 * m * n * k / self.flops - 1) < 0.05 else None


def products(ops):
    """The shape of each op that is one."""
    widths = collections.Counter(w for o in ops if (s := o.product()) for w in s[2:])
    common = [w for w, _ in widths.most_common(3)]
    return [o.product(common) for o in ops]


def read_graph(path):
    sizes, ops, micro = [], [], 1
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("storage "):
                sizes.append(int(line.split("  # ")[0].split()[2]))
            elif line.startswith("op "):
                ops.append(Op(line, sizes))
            elif line.startswith("micro "):
                micro = int(line.split()[1])
    return ops, micro


class Plan:
    def __init__(self, path):
        self.steps, self.copies, self.value, tiers = [], [], {}, []
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                word = line.split("  # ")[0].split()
                if "copies" in self.value and word[0] in ("run", "again", "host") and len(word) == 2:
                    self.steps.append((word[0], int(word[1])))
                elif word[0] in ("device", "host", "nvme", "workspace") and len(word) > 2:
                    tiers.append(word[0])
                elif word[0] == "copy":
                    side = "out" if tiers[int(word[1])] == "device" else "in"
                    self.copies.append((side, float(word[6]) - float(word[5])))
                elif len(word) == 2:
                    self.value.setdefault(word[0], word[1])

    def busy(self, side):
        return sum(seconds for s, seconds in self.copies if s == side)


def row(o):
    with open(o.machine, encoding="utf-8") as f:
        machine = json.load(f)
    alone = {}
    if o.alone:
        with open(o.alone, encoding="utf-8") as f:
            alone = json.load(f)
    ops, micro = read_graph(o.graphs[0])
    plan, shapes = Plan(o.graphs[1]), products(ops)
    body = int(plan.value["body"])
    spent, floor = collections.Counter(), collections.Counter()
    again = hosted = 0.0
    for at, (how, index) in enumerate(plan.steps):
        op = ops[index]
        runs = micro if at < body else 1
        if how == "host":
            hosted += 1.25 * 2 * sum(op.writes) / machine["host_update"]
            continue
        seconds, unit = machine["costs"].get(op.key, op.seconds), op.unit(machine)
        spent[unit] += runs * seconds
        again += runs * seconds if how == "again" else 0
        if how == "run" and unit != "small":
            least = max(op.bytes / machine["bandwidth"], op.flops / machine["flops"])
            if unit == "products" and shapes[index]:
                least = alone.get(" ".join(map(str, shapes[index])), least)
            floor[unit] += runs * least
    step = o.measured / 1e3 if o.measured else float(plan.value["seconds"])
    busy = {"link out": plan.busy("out"), "link in": plan.busy("in"), "host": hosted}
    bound = max(floor, key=floor.get)
    wait = float(plan.value["exposed_seconds"])
    if wait > 0.05 * step:
        bound = max(busy, key=busy.get)
    cells = [o.name or o.graphs[0], f"{1e3 * step:.1f}{'' if o.measured else ' (predicted)'}"]
    cells += [f"{1e3 * spent[u]:.1f} ({1e3 * floor[u]:.1f})" if u != "small" else f"{1e3 * spent[u]:.1f}"
              for u in UNITS]
    cells += [f"{1e3 * again:.1f}", f"{1e3 * wait:.1f}",
              ", ".join(f"{1e3 * t:.0f}" for t in busy.values()) if sum(busy.values()) else "-",
              f"{1e3 * sum(floor.values()):.1f}", f"{sum(floor.values()) / step:.2f}", bound]
    if o.head:
        print("| row | step, ms | " + " | ".join(UNITS) +
              " | recompute | waiting | link out, in, host busy | floor | of the step | bound by |")
        print("|---" * (len(cells)) + "|")
    print("| " + " | ".join(cells) + " |", flush=True)


def shapes_of(graphs):
    return {s: None for g in graphs for s in products(read_graph(g)[0]) if s}


def time_products(o):
    """Times of the products of the graphs, alone: the median of rounds of ten over operands that do
    not stay in the caches."""
    import torch
    gpu = torch.cuda.is_available()
    dev = "cuda" if gpu else "cpu"
    if gpu:
        torch.backends.cuda.preferred_blas_library("cublaslt")
    times = {}
    for kind, m, n, k in shapes_of(o.graphs):
        sets = max(1, min(8, int(4e8 / (2 * (m * k + n * k + m * n))))) if gpu else 1
        def new(*shape):
            return [torch.randn(*shape, device=dev, dtype=torch.bfloat16) for _ in range(sets)]
        x, w, dy = new(m, k), new(n, k), new(m, n)
        b = torch.randn(n, device=dev, dtype=torch.bfloat16)
        run = {"linear": lambda i: torch.nn.functional.linear(x[i], w[i], b),
               "linear_dx": lambda i: dy[i] @ w[i],
               "linear_dw": lambda i: dy[i].t() @ x[i]}[kind]
        rounds = []
        for turn in range(6 if gpu else 1):
            if gpu:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                for i in range(10):
                    run(i % sets)
                end.record()
                torch.cuda.synchronize()
                if turn:
                    rounds.append(begin.elapsed_time(end) / 1e4)
            else:
                run(0)
                rounds.append(1.0)
        times[f"{kind} {m} {n} {k}"] = statistics.median(rounds)
        with open(o.time, "w", encoding="utf-8") as f:
            json.dump(times, f, indent=1)
    for shape, seconds in times.items():
        m, n, k = map(int, shape.split()[1:])
        print(f"{shape:32} {1e6 * seconds:9.1f} us {2e-12 * m * n * k / seconds:6.0f} TFLOP/s")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    p.add_argument("graphs", nargs="+")
    p.add_argument("--machine")
    p.add_argument("--alone")
    p.add_argument("--measured", type=float)
    p.add_argument("--name")
    p.add_argument("--head", action="store_true", help="print the head of the table first")
    p.add_argument("--time")
    p.add_argument("--print-products", action="store_true")
    o = p.parse_args()
    if o.print_products:
        for shape in shapes_of(o.graphs):
            print(*shape)
    elif o.time:
        time_products(o)
    else:
        row(o)


main()
