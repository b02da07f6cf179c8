#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes torch_qat.h: a small net of convolutions and linear layers with PyTorch's fake quantization
(observers of torch.ao, learnable scales, fake quantizers of torchao), trained in float32.

usage: make_torch_qat.py >torch_qat.h
"""
import textwrap

import torch
import torchao
from torch.ao.quantization import (FakeQuantize, MinMaxObserver, MovingAverageMinMaxObserver,
                                   PerChannelMinMaxObserver)
from torchao.quantization.granularity import PerAxis
from torchao.quantization.qat import IntxFakeQuantizeConfig, IntxFakeQuantizer
from torchao.quantization.quant_primitives import (MappingType, _fake_quantize_affine,
                                                   choose_qparams_affine)

STEPS, BATCH, SIDE, CHANNELS, INNER, WIDTH, OUTPUTS = 4, 6, 4, 2, 3, 5, 4
F = torch.nn.functional
of_torchao = IntxFakeQuantizer(IntxFakeQuantizeConfig(torch.int8, PerAxis(0)))


def rows(name, values):
    text = ", ".join(f"{float(x):.9g}" for x in values.detach().flatten())
    print(f"static const double torch_{name}[] = {{")
    print(textwrap.fill(text, 99, initial_indent="    ", subsequent_indent="    ") + "};")


def of_weight(w, whole=False):
    """By the least and the largest element of now, as an observer that forgets."""
    if whole:
        observer = MinMaxObserver(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
        observer(w)
        scale, zero = observer.calculate_qparams()
        return torch.fake_quantize_per_tensor_affine(w, scale, zero.int(), -128, 127)
    observer = PerChannelMinMaxObserver(dtype=torch.qint8, qscheme=torch.per_channel_symmetric)
    observer(w)
    scale, zero = observer.calculate_qparams()
    return torch.fake_quantize_per_channel_affine(w, scale, zero.int(), 0, -128, 127)


class Average(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fake = FakeQuantize(MovingAverageMinMaxObserver, -128, 127, dtype=torch.qint8,
                                 qscheme=torch.per_tensor_affine)

    def forward(self, x):
        return self.fake(x)

    def state(self):
        o = self.fake.activation_post_process
        return torch.stack([o.min_val, o.max_val])


class Learned(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.start = None
        self.change = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):
        if self.start is None:
            self.start = (x.detach().abs().max() / 127).reshape(1)
        return torch._fake_quantize_learnable_per_tensor_affine(
            x, self.start + self.change, torch.zeros(1), -128, 127, 1.0)

    def state(self):
        return torch.cat([self.start, self.change])


class Dynamic(torch.nn.Module):
    """As torchao's Int8DynamicActivationInt8Weight rounds tokens; pictures have a scale for each
    sample.  The gradient is that of PyTorch's fake quantization: torchao's own has one through the
    scale, to the largest element."""

    def __init__(self, width):
        super().__init__()

    def forward(self, x):
        block = (1, *x.shape[1:])
        scale, zero = choose_qparams_affine(
            x.detach(), MappingType.SYMMETRIC, block, torch.int8, -127, 127, eps=1e-5,
            scale_dtype=torch.float32, zero_point_dtype=torch.int32)
        rounded = torch.fake_quantize_per_channel_affine(
            x, scale.flatten(), zero.flatten(), 0, -127, 127)
        assert torch.equal(
            rounded, _fake_quantize_affine(x, block, scale, zero, torch.int8, -127, 127))
        return rounded

    def state(self):
        return torch.zeros(0)


class Net(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.conv = torch.nn.Conv2d(CHANNELS, INNER, 3, padding=1)
        self.up = torch.nn.ConvTranspose2d(INNER, CHANNELS, 2, stride=2)
        self.fc1 = torch.nn.Linear(CHANNELS, WIDTH)
        self.fc2 = torch.nn.Linear(WIDTH, OUTPUTS, bias=False)
        self.ranges = torch.nn.ModuleDict(
            {n: kind(0) for n in ("conv", "up", "fc1", "fc2")})

    def weight(self, name):
        w = getattr(self, name).weight
        rounded = of_weight(w, name == "up")
        if w.ndim == 2:
            assert torch.equal(rounded, of_torchao(w))
        return rounded

    def forward(self, x):
        r = self.ranges
        h = F.conv2d(r["conv"](x), self.weight("conv"), self.conv.bias, padding=1).relu()
        h = F.conv_transpose2d(r["up"](h), self.weight("up"), self.up.bias, stride=2)
        h = h.mean((2, 3))
        h = F.linear(r["fc1"](h), self.weight("fc1"), self.fc1.bias).tanh()
        return F.linear(r["fc2"](h), self.weight("fc2"))


torch.manual_seed(5)
x = 2 * torch.randn(STEPS, BATCH, CHANNELS, SIDE, SIDE) + 1
target = torch.randn(STEPS, BATCH, OUTPUTS)
start = {k: v for k, v in Net(Dynamic).state_dict().items()
         if k.endswith(("weight", "bias")) and not k.startswith("ranges")}
print("/* SPDX-License-Identifier: Apache-2.0 */")
print(f"/* Made by make_torch_qat.py with PyTorch {torch.__version__} and torchao "
      f"{torchao.__version__}. */")
print("/* clang-format off */")
print(f"enum {{ TORCH_STEPS = {STEPS}, TORCH_BATCH = {BATCH}, TORCH_SIDE = {SIDE}, "
      f"TORCH_CHANNELS = {CHANNELS},")
print(f"       TORCH_INNER = {INNER}, TORCH_WIDTH = {WIDTH}, TORCH_OUTPUTS = {OUTPUTS} }};")
rows("x", x.permute(0, 1, 3, 4, 2))
rows("target", target)


def channels_last(key, value):
    return value.permute(0, 2, 3, 1) if value.ndim == 4 else value


for key, value in start.items():
    rows("start_" + key.replace(".", "_"), channels_last(key, value))
for kind in Average, Learned, Dynamic:
    name = kind.__name__.lower()
    net = Net(kind)
    net.load_state_dict(start, strict=False)
    # The largest element of a row is code 127.5: its last bit says whether it has a gradient.
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = ((net(x[step]) - target[step]) ** 2).mean()
        loss.backward()
        losses.append(float(loss.detach()))
        if step == 0:
            for key, value in net.named_parameters():
                if not key.startswith("ranges"):
                    rows(f"{name}_d_" + key.replace(".", "_"), channels_last(key, value.grad))
        optimizer.step()
    rows(f"{name}_loss", torch.tensor(losses))
    for key, value in net.state_dict().items():
        if key in start:
            rows(f"{name}_" + key.replace(".", "_"), channels_last(key, value))
    if kind is not Dynamic:
        rows(f"{name}_ranges", torch.stack([r.state() for r in net.ranges.values()]))
