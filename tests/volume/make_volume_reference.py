# SPDX-License-Identifier: Apache-2.0
"""Makes reference.mhd, reference_label.mhd, reference_weights.safetensors and
reference.safetensors, which test_volume_train.sh compares --dump of volume-train with: run in this
directory.  The model is PyTorch's, in float64; the loss is DiceCELoss of MONAI 1.6.
"""

import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
from monai.losses import DiceCELoss

sys.path.insert(0, "..")
import tensor_file  # noqa: E402

SIDE, CLASSES, WIDTH = 8, 4, 4  # no voxel has class 3
draw = np.random.default_rng(1)
image = np.where(draw.random([SIDE] * 3) < 0.2, 0, draw.integers(-500, 500, [SIDE] * 3))
label = draw.integers(0, CLASSES - 1, [SIDE] * 3)


def put(name, values):
    with open(name + ".mhd", "w") as f:
        f.write(f"DimSize = {SIDE} {SIDE} {SIDE}\nElementType = MET_SHORT\n")
        f.write(f"ElementDataFile = {name}.raw\n")
    values.astype("<i2").tofile(name + ".raw")


put("reference", image)
put("reference_label", label)
with open("reference.csv", "w") as f:
    f.write("image,label\nreference.mhd,reference_label.mhd\n")

shapes = {
    "down.0.conv.0": (WIDTH, 1), "down.0.conv.1": (WIDTH, WIDTH),
    "down.1.conv.0": (2 * WIDTH, WIDTH), "down.1.conv.1": (2 * WIDTH, 2 * WIDTH),
    "up.0.conv.0": (WIDTH, 3 * WIDTH), "up.0.conv.1": (WIDTH, WIDTH),
}
w = {"head.weight": draw.normal(0, 0.3, (CLASSES, WIDTH, 1, 1, 1)),
     "head.bias": draw.normal(0, 0.3, CLASSES)}
for name, (out, channels) in shapes.items():
    norm = name.replace("conv", "norm")
    w[name + ".weight"] = draw.normal(0, 0.2, (out, channels, 3, 3, 3))
    w[norm + ".weight"] = draw.normal(1, 0.1, out)
    w[norm + ".bias"] = draw.normal(0, 0.1, out)
w = {k: v.astype(np.float32) for k, v in w.items()}
tensor_file.write("reference_weights.safetensors", w)
w = {k: torch.tensor(v, dtype=torch.float64, requires_grad=True) for k, v in w.items()}


def layers(name, x, stride):
    for k in range(2):
        x = F.conv3d(x, w[f"{name}.conv.{k}.weight"], stride=1 if k else stride, padding=1)
        norm = f"{name}.norm.{k}"
        x = F.instance_norm(x, weight=w[norm + ".weight"], bias=w[norm + ".bias"], eps=1e-5)
        x = F.leaky_relu(x, 0.01)
    return x


inside = image[image != 0]
x = np.where(image != 0, (image - inside.mean()) / inside.std(), 0)
x = torch.tensor(x, dtype=torch.float64)[None, None]
high = layers("down.0", x, 1)
low = layers("down.1", high, 2)
x = layers("up.0", torch.cat([high, F.interpolate(low, scale_factor=2)], 1), 1)
scores = F.conv3d(x, w["head.weight"], w["head.bias"])
loss = DiceCELoss(include_background=False, to_onehot_y=True, softmax=True)
value = loss(scores, torch.tensor(label)[None, None])
value.backward()


def last(x):  # channels last, as the library has them
    return np.moveaxis(x, 1, -1) if x.ndim > 2 else x


expected = {"loss": value.item(), "pred": last(scores.detach().numpy())}
expected |= {"grad." + k: last(v.grad.numpy()) for k, v in w.items()}
tensor_file.write("reference.safetensors", expected)
