#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Solves small recompute problems to proof, as the measure of the planner.

usage: solve.py TEST_OPTIMA [OUT.json [NAME ...]]

TEST_OPTIMA is the program tests/plan/test_optima: with --list it names the graphs, with
--write NAME FILE it writes one as a graph file, with --plan NAME BYTES it tells the planner's seconds.
The solver is asked for anything at least a thousandth of a second better than the planner (all
seconds of these graphs are whole thousandths but those of the feeds); if that is infeasible, the
planner's plan is optimal.  OUT.json gets, for each graph, the keep-all peak and
for budgets of 80, 60, 45 and 40 % of it the least seconds of a step, or null where no schedule fits.
Graphs that are in OUT.json already and are not named again stay as they are.  Exits with 77 where
scipy is missing.

The program solved is that of Checkmate (Jain et al., MLSys 2020).  In stage t base op t runs for the
first time; before it any ops that can run again may do so, once each and in program order.

    R[t, i]  op i runs in stage t                     R[t, t] = 1
    S[t, i]  the output of op i is there when stage t begins
    F[t, i, k]  the output of op i is freed after op k has run in stage t
    U[t, k]  bytes alive while op k runs in stage t

Bytes are counted as the planner's simulation counts them: the reads, the writes and the workspace of
the running op and whatever else is there, persistent storages left out.  That is the load of a plan,
a lower bound of the peak that its addresses reach; the planner is asked to keep its placed peak under
the same budget, so it has the harder problem.  Every op has one output, nothing is changed in place.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

try:
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_matrix
except ImportError:
    sys.exit(77)

SHARES = (80, 60, 45, 40)
UNIT = 512
LIMIT = float(os.environ.get("ORACLE_SECONDS", "60"))  # of a solve; what is not proved is left out


class Graph:
    """A graph file; op i makes output i."""

    def __init__(self, path):
        self.seconds, self.size, self.scratch, self.again = [], [], [], []
        self.reads, storages, writer = [], [], {}
        for line in open(path, encoding="utf-8"):
            words = line.split("  # ")[0].split()
            if words[0] == "storage":
                storages.append(int(words[2]) // UNIT)
            elif words[0] == "op":
                self._op(words, storages, writer)
        self.n = len(self.reads)
        self.users = [[] for _ in range(self.n)]
        for k in range(self.n):
            for i in self.reads[k]:
                self.users[i].append(k)
        self.need = [0] * self.n  # the last stage in which output i can be of use
        for i in reversed(range(self.n)):
            self.need[i] = max([i] + [self.need[k] if self.again[k] else k for k in self.users[i]])

    def _op(self, words, storages, writer):
        reads, writes = words.index("reads"), words.index("writes")
        made = [int(w) for w in words[writes + 1:]]
        assert len(made) == 1 and made[0] not in writer, "an op must make one storage of its own"
        self.reads.append([writer[int(w)] for w in words[reads + 1:writes]])
        writer[made[0]] = len(self.reads) - 1
        self.size.append(storages[made[0]])
        self.scratch.append(int(words[3]) // UNIT)
        self.seconds.append(round(float(words[7]) * 1e6))
        self.again.append("rerun" in words[8:reads])

    def keep_all(self):
        """The peak of a step without recompute."""
        last = [max([i] + self.users[i]) for i in range(self.n)]
        return max(self.scratch[k] + sum(self.size[i] for i in range(k + 1) if last[i] >= k)
                   for k in range(self.n))


class Program:
    """A mixed integer program, row by row."""

    def __init__(self):
        self.cost, self.low, self.high, self.integer = [], [], [], []
        self.data, self.row, self.column, self.least, self.most = [], [], [], [], []

    def variable(self, low, high, integer, cost=0.0):
        self.cost.append(cost)
        self.low.append(low)
        self.high.append(high)
        self.integer.append(integer)
        return len(self.cost) - 1

    def add(self, terms, least, most):
        """least <= sum of factor * variable <= most; a variable may be a constant (None, value)."""
        for factor, x in terms:
            if isinstance(x, tuple):
                least, most = least - factor * x[1], most - factor * x[1]
            elif factor:
                self.data.append(factor)
                self.row.append(len(self.least))
                self.column.append(x)
        self.least.append(least)
        self.most.append(most)

    def solve(self):
        matrix = csr_matrix((self.data, (self.row, self.column)),
                            shape=(len(self.least), len(self.cost)))
        return milp(np.array(self.cost), integrality=np.array(self.integer),
                    bounds=Bounds(self.low, self.high),
                    constraints=LinearConstraint(matrix, self.least, self.most),
                    options={"time_limit": LIMIT, "mip_rel_gap": 1e-6})


def constant(value):
    return (None, value)


def build(g, budget):
    p = Program()
    n = g.n
    R, S = {}, {}
    for t in range(n):
        for i in range(t):
            live = t <= g.need[i]
            if live and g.again[i]:
                R[t, i] = p.variable(0, 1, 1, g.seconds[i])
                S[t, i] = p.variable(0, 1, 1)
            else:
                R[t, i], S[t, i] = constant(0), constant(int(live))
        R[t, t], S[t, t] = constant(1), constant(0)
    for t in range(n):
        runs = [i for i in range(t + 1) if i == t or not isinstance(R[t, i], tuple)]
        for k in runs:
            if k < t:
                p.add([(1, R[t, k]), (1, S[t, k])], -np.inf, 1)
            for i in g.reads[k]:
                p.add([(1, R[t, k]), (-1, R[t, i]), (-1, S[t, i])], -np.inf, 0)
        for i in range(t):
            if not isinstance(S[t, i], tuple):
                p.add([(1, S[t, i]), (-1, S[t - 1, i]), (-1, R[t - 1, i])], -np.inf, 0)
        add_memory(g, p, R, S, t, runs, budget)
    return p


def add_memory(g, p, R, S, t, runs, budget):
    alive = None
    freed = []
    for k in runs:
        now = p.variable(0, budget, 0)
        if alive is None:
            terms = [(g.size[i], S[t, i]) for i in range(t)] + [(-1, now)]
        else:
            terms = [(1, alive), (-1, now)] + freed
        p.add(terms + [(g.size[k], R[t, k])], 0, 0)
        if g.scratch[k]:
            p.add([(1, now), (g.scratch[k], R[t, k])], -np.inf, budget)
        alive, freed = now, []
        for i in g.reads[k] + [k]:
            kept = S.get((t + 1, i), constant(0))
            if kept == constant(1):
                continue
            f = p.variable(0, 1, 0)
            p.add([(1, f), (-1, R[t, k])], -np.inf, 0)
            p.add([(1, f), (1, kept)], -np.inf, 1)
            for j in g.users[i]:
                if j > k and j in runs:
                    p.add([(1, f), (1, R[t, j])], -np.inf, 1)
            freed.append((-g.size[i], f))


def optimum(g, budget, known):
    """Least seconds, None when nothing fits, or False when it was not proved in time."""
    p = build(g, budget)
    if known is not None:
        again = round(known * 1e6) - sum(g.seconds)
        p.add([(c, x) for x, c in enumerate(p.cost)], 0, again - 900)
    result = p.solve()
    if result.status == 2:
        return known
    if result.status != 0:
        return False
    return (sum(g.seconds) + round(result.fun)) / 1e6


def planned(test, name, budget):
    out = subprocess.run([test, "--plan", name, str(budget)], check=True, capture_output=True,
                         text=True).stdout
    return None if out.startswith("none") else float(out)


def solve_graph(test, name):
    with tempfile.NamedTemporaryFile(suffix=".graph") as file:
        subprocess.run([test, "--write", name, file.name], check=True)
        g = Graph(file.name)
    peak = g.keep_all()
    entry = {"ops": g.n, "keep_all": peak * UNIT, "seconds": sum(g.seconds) / 1e6, "budgets": []}
    feasible = True
    for share in SHARES:
        start, units = time.time(), peak * share // 100
        known = planned(test, name, units * UNIT)
        best = optimum(g, units, known) if feasible else None
        feasible = best is not None
        if best is not False:
            entry["budgets"].append({"share": share, "bytes": units * UNIT, "seconds": best})
        print(f"{name}: {g.n} ops, {share} %: {best}, planned {known} ({time.time() - start:.1f} s)", flush=True)
    return entry


def save(path, optima):
    lines = ["  %s: %s" % (json.dumps(k), json.dumps(v)) for k, v in sorted(optima.items())]
    with open(path, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    test = sys.argv[1]
    path = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(__file__),
                                                             "optima.json")
    listed = subprocess.run([test, "--list"], check=True, capture_output=True, text=True)
    optima = json.load(open(path, encoding="utf-8")) if os.path.exists(path) else {}
    for name in sys.argv[3:] or listed.stdout.split():
        if name not in optima or sys.argv[3:]:
            optima[name] = solve_graph(test, name)
            save(path, optima)


main()
