#!/usr/bin/env python3
"""One process of PyTorch's DDP over Gloo, for ddp_beside.py.

  ddp_member.py INDEX MEMBERS HOST_OF_THE_FIRST MODEL

Trains on 32 random samples a step.  Answers a line with a number of steps with
the seconds that one of them took.
"""

import datetime
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PORT = 29478
BATCH = 32
PIXELS, CLASSES = 28, 10


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(),
        nn.Linear(64, CLASSES))


def mlp():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(PIXELS * PIXELS, 2048), nn.ReLU(),
        nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, CLASSES))


class Vit(nn.Module):
    """As deploy/jobs/vit-small.yaml has it, without dropout."""

    def __init__(self, depth=4, width=64, heads=4, patch=7):
        super().__init__()
        self.embed = nn.Conv2d(1, width, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        tokens = (PIXELS // patch) ** 2 + 1
        self.position = nn.Parameter(0.02 * torch.randn(1, tokens, width))
        self.blocks = nn.Sequential(*(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu",
                                       batch_first=True, norm_first=True)
            for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, pictures):
        patches = self.embed(pictures).flatten(2).transpose(1, 2)
        token = self.token.expand(len(pictures), -1, -1)
        tokens = torch.cat([token, patches], 1) + self.position
        return self.head(self.norm(self.blocks(tokens)[:, 0]))


MODELS = {"lenet": lenet, "mlp": mlp, "vit": Vit}


def main():
    index, members, host = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://{host}:{PORT}", rank=index,
        world_size=members, timeout=datetime.timedelta(seconds=600))
    torch.manual_seed(1)
    model = DistributedDataParallel(MODELS[sys.argv[4]]())
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    pictures = torch.randn(BATCH, 1, PIXELS, PIXELS)
    labels = torch.randint(0, CLASSES, (BATCH,))
    print("here", flush=True)
    for line in sys.stdin:
        steps = int(line)
        dist.barrier()
        begin = time.monotonic()
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pictures), labels).backward()
            optimizer.step()
        print((time.monotonic() - begin) / steps, flush=True)


if __name__ == "__main__":
    main()
