# SPDX-License-Identifier: Apache-2.0
"""Makes windows.safetensors, which test_volume_windows compares with: sliding_window_inference of
MONAI 1.6 in float64, of a predictor that knows where in its window a voxel stands.  Class c of
place p of P places of x is x (1 + p / P) (c + 1).  Run in this directory.
"""

import sys

import numpy as np
import torch
from monai.inferers import sliding_window_inference

sys.path.insert(0, "..")
import tensor_file  # noqa: E402

CLASSES = 2
image = np.random.default_rng(2).integers(-9, 10, (7, 10, 5)).astype(np.float64)


def predict(x):
    places = x[0, 0].numel()
    ramp = 1 + torch.arange(places, dtype=x.dtype).reshape(x.shape[2:]) / places
    return torch.cat([x * ramp * (c + 1) for c in range(CLASSES)], 1)


out = {"image": image}
for mode in ("constant", "gaussian"):
    for overlap in (0, 0.25, 0.75):
        for name, roi in (("inside", (4, 3, 2)), ("beyond", (4, 13, 8)), ("one", (7, 10, 5))):
            y = sliding_window_inference(torch.tensor(image)[None, None], roi, 3, predict, overlap,
                                         mode)
            out[f"{mode}.{overlap}.{name}"] = np.moveaxis(y[0].numpy(), 0, -1)
tensor_file.write("windows.safetensors", out)
