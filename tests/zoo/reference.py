#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the programs of the zoo with the same models in PyTorch, in float64 on the CPU.

    pip install torch safetensors
    python3 reference.py FOLDER [PROGRAM]...
    python3 reference.py --write FOLDER [PROGRAM]...

FOLDER has the built programs (examples/zoo).  Each runs with --dump; from the first values and the
batches of that file the model below takes the same steps with PyTorch's optimizers.  Prints the
table of doc/zoo.md, all differences relative:
    loss       the largest of all steps
    norm       of the gradient, the largest of all steps
    gradient   L2 norm of the difference in the first step, of all parameters as one vector
    worst      that of a single parameter; one below 1e-3 of all is measured against that
    update     L2 norm of the difference of what all steps have added to parameters and buffers,
               but for those whose gradient is 0 (biases of keys): AdamW follows rounding there
Exits 1 if one is larger than 1e-6, 2e-5, 2e-6, 1e-5 and 1e-3, in this order: AdamW magnifies
rounding where the gradients of an element nearly cancel.

--write also writes tests/zoo/references/PROGRAM.txt, which tests/zoo/compare_dump.c reads, so that
"make check" compares without PyTorch.  It needs new ones where a program's model or data change.
"""

import math
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

STEPS = 3


def cosine(rate, total, warmup=0):
    def at(step):
        if step < warmup:
            return rate * (step + 1) / (warmup + 1)
        return rate * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2

    return at


def constant(rate):
    return lambda step: rate


# ---- layers: w is a dictionary of parameters -----------------------------------------------------


def linear(w, name, x):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def layer_norm(w, name, x):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-6)


def rms_norm(w, name, x):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w[name + ".weight"]


def attention(w, name, x, context, heads, bias=None):
    """Softmax over the keys, written out."""

    def split(y):
        return y.unflatten(-1, (heads, -1)).transpose(-2, -3)

    q = split(linear(w, name + ".q_proj", x))
    k = split(linear(w, name + ".k_proj", context))
    v = split(linear(w, name + ".v_proj", context))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias
    y = (scores.softmax(-1) @ v).transpose(-2, -3).flatten(-2)
    return linear(w, name + ".out_proj", y)


def mlp(w, name, x, activation):
    return linear(w, name + ".down_proj", activation(linear(w, name + ".up_proj", x)))


def conv(w, name, x, stride=1, pad=0):
    """x [N, C, ...]; the weight [out, kernel..., in] is as the library has it."""
    kernel = w[name + ".weight"].movedim(-1, 1)
    function = F.conv3d if kernel.ndim == 5 else F.conv2d
    return function(x, kernel, w.get(name + ".bias"), stride, pad)


# ---- models: the loss of a batch -----------------------------------------------------------------


def vit(w, x):
    picture = x["picture"].flatten(1, 3)  # [batch, side, side]
    tokens = picture.unfold(1, 4, 4).unfold(2, 4, 4).flatten(3).flatten(1, 2)
    h = linear(w, "patch", tokens)
    h = torch.cat([w["first"].expand(len(h), 1, -1), h], 1) + w["places"]
    for i in range(2):
        u = layer_norm(w, f"block.{i}.norm1", h)
        h = h + attention(w, f"block.{i}.attention", u, u, 4)
        u = layer_norm(w, f"block.{i}.norm2", h)
        h = h + mlp(w, f"block.{i}.mlp", u, lambda y: F.gelu(y, approximate="tanh"))
    return F.cross_entropy(linear(w, "head", layer_norm(w, "norm", h[:, 0])), x["shape"])


def t5(w, x):
    n = x["read"].shape[1]
    distance = (torch.arange(n)[None] - torch.arange(n)[:, None]).clamp(-8, 8) + 8
    hidden = torch.full((n, n), -math.inf, dtype=torch.float64).triu(1)

    def side(name, h, source):
        bias = w[name + ".bias.weight"][distance].permute(2, 0, 1)
        bias = bias if source is None else bias + hidden
        u = rms_norm(w, name + ".0.norm.0", h)
        h = h + attention(w, name + ".0.self", u, u, 4, bias)
        if source is not None:
            u = rms_norm(w, name + ".0.norm.2", h)
            h = h + attention(w, name + ".0.cross", u, source, 4)
        h = h + mlp(w, name + ".0.mlp", rms_norm(w, name + ".0.norm.1", h), F.relu)
        return rms_norm(w, name + ".norm", h)

    words = w["words.weight"]
    source = side("encoder", words[x["read"]], None)
    scores = linear(w, "head", side("decoder", words[x["written"]], source))
    return F.cross_entropy(scores.flatten(0, 1), x["next"].flatten())


def moe_layer(w, name, h):
    """h plus what two experts of each token make of it, and the balance of their load."""
    experts = w[name + ".up"].shape[0]
    room = len(h) * 2 * 5 // 4 // experts
    chance = linear(w, name + ".router", h).softmax(-1)
    gate, expert = chance.topk(2)
    gate = gate / gate.sum(-1, keepdim=True)
    out, taken = h, [0] * experts
    rows = [[] for _ in range(experts)]  # (token, which choice) that an expert has room for
    for choice in range(2):
        for token, e in enumerate(expert[:, choice].tolist()):
            if taken[e] < room:
                rows[e].append((token, choice))
            taken[e] += 1
    for e in range(experts):
        token, choice = (torch.tensor(v) for v in zip(*rows[e]))
        y = F.gelu(h[token] @ w[name + ".up"][e], approximate="tanh") @ w[name + ".down"][e]
        out = out.index_add(0, token, y * gate[token, choice][:, None])
    share = torch.tensor(taken, dtype=torch.float64) / (2 * len(h))
    return out, experts * (share * chance.mean(0)).sum()


def moe(w, x):
    h, loss = linear(w, "in", x["x"]), 0
    for i in range(2):
        h, balance = moe_layer(w, f"layer.{i}", h)
        loss = loss + 0.01 * balance
    return loss + F.mse_loss(linear(w, "out", h), x["y"])


def lstm(w, x):
    width = w["hidden.weight"].shape[1]
    h = c = torch.zeros(len(x["symbol"]), width, dtype=torch.float64)
    for symbol in x["symbol"].T:
        gates = w["symbol.weight"][symbol] + linear(w, "hidden", h)
        i, f, g, o = gates.chunk(4, -1)
        c = torch.sigmoid(f + 3) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return F.cross_entropy(linear(w, "head", h), x["marked"])


def ssm(w, x):
    h = w["symbol.weight"][x["symbol"]]
    u, gate = linear(w, "in", rms_norm(w, "norm", h)).chunk(2, -1)
    u = F.silu(u)
    dt = F.softplus(linear(w, "dt", u))
    b, c = linear(w, "bc", u).chunk(2, -1)
    a, state, y = -torch.exp(w["rate"]), 0, []
    for i in range(u.shape[1]):
        decay = torch.exp(dt[:, i, :, None] * a)
        state = decay * state + (dt[:, i] * u[:, i])[..., None] * b[:, i, None]
        y.append((state * c[:, i, None]).sum(-1))
    y = (torch.stack(y, 1) + u * w["skip"]) * F.silu(gate)
    return F.cross_entropy(linear(w, "head", h + linear(w, "out", y)).flatten(0, 1),
                           x["last"].flatten())


def ddpm(w, x):
    width = w["time.weight"].shape[1]
    f = [math.cos(i / 64 * 1.57) ** 2 for i in range(65)]
    left, product = [], 1
    for now, after in zip(f, f[1:]):
        product *= 1 - min(1 - after / now, 0.999)
        left.append(product)
    left = torch.tensor(left, dtype=torch.float64)[x["time"]][:, None]
    place = left.sqrt() * x["point"] + (1 - left).sqrt() * x["noise"]
    turns = 1000 ** (-torch.arange(width // 2, dtype=torch.float64) / (width // 2))
    angle = x["time"][:, None] * turns
    h = linear(w, "point", place) + linear(w, "time", torch.cat([angle.cos(), angle.sin()], -1))
    for i in range(12):
        h = h + linear(w, f"layer.{i}", F.silu(h))
    return F.mse_loss(linear(w, "out", F.silu(h)), x["noise"])


def gan_net(w, name, x):
    for i in range(3):
        x = F.leaky_relu(linear(w, f"{name}.{i}", x), 0.2)
    return linear(w, f"{name}.3", x)


def gan_critic(w, x):
    made = gan_net(w, "critic", gan_net(w, "generator", x["noise"]))
    return F.softplus(-gan_net(w, "critic", x["real"])).mean() + F.softplus(made).mean()


def gan_critic_r1(w, x):
    real = x["real"].clone().requires_grad_()
    (slope,) = torch.autograd.grad(gan_net(w, "critic", real).sum(), real, create_graph=True)
    return gan_critic(w, x) + slope.square().sum(1).mean() / 2


def gan_generator(w, x):
    return F.softplus(-gan_net(w, "critic", gan_net(w, "generator", x["noise"]))).mean()


def nearest(x):
    for axis in range(2, x.ndim):
        x = x.repeat_interleave(2, axis)
    return x


def unet(w, x, groups, activation, pool):
    """x [N, 1, ...]; the scores have their channels last.  Without a pool convolutions stride."""

    def layers(name, x, stride=1):
        for k in range(2):
            x = conv(w, f"{name}.conv.{k}", x, 1 if k else stride, 1)
            weight, bias = w[f"{name}.norm.{k}.weight"], w[f"{name}.norm.{k}.bias"]
            x = activation(F.group_norm(x, groups or x.shape[1], weight, bias, 1e-5))
        return x

    levels = sum(name.startswith("down") and name.endswith("conv.0.weight") for name in w)
    across = []
    for i in range(levels):
        x = pool(x, 2) if pool and i else x
        x = layers(f"down.{i}", x, 2 if i and not pool else 1)
        across.append(x)
    for i in reversed(range(levels - 1)):
        x = layers(f"up.{i}", torch.cat([across[i], nearest(x)], 1))
    return conv(w, "head", x).movedim(1, -1)


def unet2d(w, x):
    scores = unet(w, x["picture"].movedim(-1, 1), 4, F.silu, F.max_pool2d)
    return F.cross_entropy(scores.flatten(0, 2), x["class"].flatten())


def unet3d(w, x):
    score, body = unet(w, x["patch"].movedim(-1, 1), 0, F.leaky_relu, None), x["body"]
    p = torch.sigmoid(score)
    dice = 2 * (p * body).sum() / (p.sum() + body.sum() + 1)
    return F.binary_cross_entropy_with_logits(score, body) + 1 - dice


def resnet(w, x):
    """Batch norm updates its buffers, which are among w, in place."""

    def layer(name, x, stride=1):
        pad = w[name + ".conv.weight"].shape[1] // 2
        weight, bias, mean, var = (w[f"{name}.norm.{k}"]
                                   for k in ("weight", "bias", "running_mean", "running_var"))
        x = conv(w, name + ".conv", x, stride, pad)
        return F.batch_norm(x, mean, var, weight, bias, True, 0.1, 1e-5)

    h = F.relu(layer("stem", x["picture"].movedim(-1, 1)))
    blocks = sorted({tuple(int(n) for n in k.split(".")[1:3]) for k in w if k[:5] == "stage"})
    for s, i in blocks:
        name = f"stage.{s}.{i}"
        last = max(k for k in range(3) if f"{name}.{k}.conv.weight" in w)
        stride = 2 if s and not i else 1
        u = h
        for k in range(last + 1):
            u = layer(f"{name}.{k}", u, stride if k == last - 1 else 1)
            u = F.relu(u) if k < last else u
        h = layer(name + ".shortcut", h, stride) if name + ".shortcut.conv.weight" in w else h
        h = F.relu(h + u)
    return F.cross_entropy(linear(w, "head", h.mean((2, 3))), x["direction"])


def adamw(parameters, **settings):
    return torch.optim.AdamW(parameters, weight_decay=0, **settings)


def game(parameters):
    return adamw(parameters, betas=(0.5, 0.999))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1, momentum=0.9, weight_decay=5e-4)


# Of each program that trains: its model, optimizer, learning rate, and the norm to clip at.
MODELS = {
    "ddpm": [(ddpm, adamw, cosine(5e-3, 600), 0)],
    "gan": [(gan_critic, game, constant(1e-3), 0), (gan_generator, game, constant(1e-3), 0)],
    "gan --r1 1": [(gan_critic_r1, game, constant(1e-3), 0),
                   (gan_generator, game, constant(1e-3), 0)],
    "lstm": [(lstm, adamw, constant(1e-2), 1)],
    "moe": [(moe, adamw, constant(5e-3), 0)],
    "resnet": [(resnet, sgd, cosine(0.5, 50), 0)],
    "resnet --bottleneck": [(resnet, sgd, cosine(0.5, 50), 0)],
    "ssm": [(ssm, adamw, constant(5e-3), 1)],
    "t5": [(t5, adamw, constant(3e-3), 0)],
    "unet2d": [(unet2d, adamw, cosine(1e-2, 40), 0)],
    "unet3d": [(unet3d, adamw, cosine(5e-2, 40), 0)],
    "vit": [(vit, adamw, cosine(2e-3, 200, 10), 0)],
}

# ---- comparison ----------------------------------------------------------------------------------


def wide(x):
    """float64, and indices as PyTorch wants them."""
    return x.double() if x.is_floating_point() else x.long()


def strip(dump, prefix):
    return {k[len(prefix):]: wide(v) for k, v in dump.items() if k.startswith(prefix)}


def length(tensors):
    return math.sqrt(sum(float((t * t).sum()) for t in tensors))


SUMS = 8


def signs(n):
    """A sign for each element in each of the sums, as signs() of compare_dump.c draws them."""
    low = 0xFFFFFFFF
    h = torch.arange(n) * 0x9E3779B1 & low
    h = (h ^ h >> 15) * 0x85EBCA77 & low
    h = (h ^ h >> 13) >> 5
    return [(h >> k & 1) * 2.0 - 1.0 for k in range(SUMS)]


def line(kind, name, values):
    return f"{kind} {name} " + " ".join(f"{x:.17g}" for x in values)


def summary(kind, name, x):
    x = x.detach().double().flatten()
    return line(kind, name, [length([x])] + [float((x * s).sum()) for s in signs(len(x))])


class Program:
    def __init__(self, number, dump, weights, model):
        self.run, optimizer, self.rate, self.clip = model
        self.dump, self.number, self.weights = dump, number, weights
        self.inputs = strip(dump, f"{number}.in.")
        self.expected = strip(dump, f"{number}.grad.")
        self.trained = {k: weights[k] for k in self.expected}
        self.optimizer = optimizer(self.trained.values())
        self.loss = self.norm = self.gradient = self.worst = 0
        self.losses, self.norms, self.gradients = [], [], []

    def far(self, what, step, value):
        theirs = float(self.dump[f"{self.number}.{what}"][step])
        return abs(theirs - value) / abs(value)

    def judge_gradients(self, norm):
        off = {k: length([self.expected[k] - w.grad]) for k, w in self.trained.items()}
        self.gradient = math.hypot(*off.values()) / norm
        size = {k: length([w.grad]) for k, w in self.trained.items()}
        self.worst = max(off[k] / max(size[k], 1e-3 * norm) for k in size)
        self.moving = [k for k in size if size[k] > 1e-9 * norm]

    def step(self, i):
        self.optimizer.zero_grad()
        loss = self.run(self.weights, {k: v[i] for k, v in self.inputs.items()})
        loss.backward(inputs=list(self.trained.values()))
        norm = length(w.grad for w in self.trained.values())
        self.loss = max(self.loss, self.far("loss", i, loss.item()))
        self.norm = max(self.norm, self.far("norm", i, norm))
        self.losses.append(loss.item())
        self.norms.append(norm)
        if i == 0:
            self.judge_gradients(norm)
            self.gradients = [
                summary("gradient", f"{self.number}.grad.{k}", w.grad)
                for k, w in sorted(self.trained.items())
            ]
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.trained.values(), self.clip)
        self.optimizer.param_groups[0]["lr"] = self.rate(i)
        self.optimizer.step()


def write(name, programs, dump):
    """The lines that compare_dump.c reads."""
    folder = pathlib.Path(__file__).parent / "references"
    lines = [f"# {name}: three steps in fp64, by reference.py --write; see compare_dump.c"]
    for p in programs:
        lines += [line("loss", p.number, p.losses), line("norm", p.number, p.norms)]
    for k in sorted(k for k in dump if k.startswith("first.") or k[1:5] == ".in."):
        lines.append(summary("input", k, dump[k]))
    for p in programs:
        lines += p.gradients
    (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")


def compare(name, dump, writes):
    first, last = strip(dump, "first."), strip(dump, "last.")
    weights = {k: v.clone().requires_grad_("running" not in k) for k, v in first.items()}
    programs = [Program(i, dump, weights, m) for i, m in enumerate(MODELS[name])]
    for i in range(STEPS):
        for p in programs:
            p.step(i)
    if writes:
        write(name, programs, dump)
    trained = {k for p in programs for k in p.trained}
    moving = [k for p in programs for k in p.moving] + [k for k in first if k not in trained]
    moved = length(weights[k].detach() - first[k] for k in moving)
    update = length(weights[k].detach() - last[k] for k in moving) / moved
    row = [max(getattr(p, k) for p in programs) for k in ("loss", "norm", "gradient", "worst")]
    print(f"| `{name}` | " + " | ".join(f"{x:.1e}" for x in row + [update]) + " |", flush=True)
    bounds = (1e-6, 2e-5, 2e-6, 1e-5, 1e-3)
    return all(x <= bound for x, bound in zip(row + [update], bounds))


def main():
    writes = sys.argv[1] == "--write"
    folder, *names = sys.argv[1 + writes :]
    folder, names = pathlib.Path(folder), names or sorted(MODELS)
    good = True
    print("| program | loss | norm | gradient | worst | update |\n|---|---|---|---|---|---|")
    for name in names:
        with tempfile.TemporaryDirectory() as work:
            path = pathlib.Path(work) / "dump.safetensors"
            program, *options = name.split()
            command = [folder / program, *options, "--dump", path]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            good &= compare(name, load_file(path), writes and not options)
    sys.exit(not good)


if __name__ == "__main__":
    main()
