#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes torch_batch_norm.h: a small net with batch norms, trained and run by PyTorch in float64.

usage: make_torch_batch_norm.py >torch_batch_norm.h
"""
import textwrap

import torch

STEPS, BATCH, PLACES, INPUTS, INNER, OUTPUTS = 4, 6, 2, 3, 5, 4


def rows(name, values):
    text = ", ".join(f"{float(x):.9g}" for x in values.flatten())
    print(f"static const double torch_{name}[] = {{")
    print(textwrap.fill(text, 99, initial_indent="    ", subsequent_indent="    ") + "};")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(INPUTS, INNER, bias=False)
        self.bn1 = torch.nn.BatchNorm1d(INNER)
        self.fc2 = torch.nn.Linear(INNER, OUTPUTS)
        self.bn2 = torch.nn.BatchNorm1d(OUTPUTS, affine=False, momentum=0.3, eps=1e-3)

    def forward(self, x):
        h = self.bn1(self.fc1(x).flatten(0, 1)).relu()
        return self.bn2(self.fc2(h)).reshape(x.shape[0], PLACES, OUTPUTS)


torch.manual_seed(3)
torch.set_default_dtype(torch.float64)
x = (2 * torch.randn(STEPS, BATCH, PLACES, INPUTS) + 1).float().double()
target = torch.randn(STEPS, BATCH, PLACES, OUTPUTS).float().double()
start = {k: (v + 0.3 * torch.randn_like(v)).float().double()
         for k, v in Net().state_dict().items() if v.is_floating_point() and "running" not in k}
print("/* SPDX-License-Identifier: Apache-2.0 */")
print(f"/* Made by make_torch_batch_norm.py with PyTorch {torch.__version__}. */")
print("/* clang-format off */")
print(f"enum {{ TORCH_STEPS = {STEPS}, TORCH_BATCH = {BATCH}, TORCH_PLACES = {PLACES}, "
      f"TORCH_INPUTS = {INPUTS},")
print(f"       TORCH_INNER = {INNER}, TORCH_OUTPUTS = {OUTPUTS} }};")
rows("x", x)
rows("target", target)
for key, value in start.items():
    rows("start_" + key.replace(".", "_"), value)
for n_micro in 1, 2:
    net = Net()
    net.load_state_dict(start, strict=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0
        for xs, ts in zip(x[step].chunk(n_micro), target[step].chunk(n_micro)):
            loss = ((net(xs) - ts) ** 2).mean() / n_micro
            loss.backward()
            total += float(loss.detach())
        losses.append(total)
        optimizer.step()
    rows(f"{n_micro}_loss", torch.tensor(losses))
    for key, value in net.state_dict().items():
        if value.is_floating_point():
            rows(f"{n_micro}_" + key.replace(".", "_"), value)
    net.eval()
    rows(f"{n_micro}_eval", net(x[0]).detach())
