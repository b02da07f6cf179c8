# SPDX-License-Identifier: Apache-2.0
"""Writes a distributed checkpoint of PyTorch in safetensors, by three ranks, into this folder: rows,
columns, a tensor that all have, and one that leaves the last rank without elements.  Numbers are
counted up, so test_safetensors_index.c knows them.  Written with PyTorch 2.15."""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

RANKS = 3


def write(rank, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK=str(rank),
                      WORLD_SIZE=str(RANKS))
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (RANKS,))
    state = {
        "a.weight": distribute_tensor(torch.arange(35.0).reshape(7, 5), mesh, [Shard(0)]),
        "b.weight": distribute_tensor((torch.arange(24.0) / 8).reshape(4, 6).bfloat16(), mesh,
                                      [Shard(1)]),
        "c.bias": distribute_tensor(torch.arange(3.0), mesh, [Replicate()]),
        "d.weight": distribute_tensor(torch.arange(4.0), mesh, [Shard(0)]),
    }
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(path=folder, save_distributed=True))
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(write, (sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(__file__),),
             nprocs=RANKS)
