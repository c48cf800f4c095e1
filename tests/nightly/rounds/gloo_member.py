#!/usr/bin/env python3
"""One process that computes with PyTorch over Gloo, beside ours:

  gloo_member.py INDEX MEMBERS HOST_OF_THE_FIRST [MODEL]

Without a model it reduces gradients, for round_speed.py.  It answers each line
with one: `reduce BYTES` and `again` with `ready`, `go NS` (of the monotonic
clock) with `done NS CPU_SECONDS`.

With one it trains by DDP on 32 random samples a step, for ddp_beside.py.  It
answers a line with a number of steps with the seconds that one of them took.
"""

import datetime
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

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


def reduce_gradients(members):
    gradient = None
    for line in sys.stdin:
        words = line.split()
        if words[0] == "reduce":
            gradient = torch.empty(int(words[1]) // 4)
        if words[0] in ("reduce", "again"):
            gradient.fill_(dist.get_rank() + 1)
            print("ready", flush=True)
        elif words[0] == "go":
            cpu = time.process_time()
            wait = (int(words[1])
                    - time.clock_gettime_ns(time.CLOCK_MONOTONIC)) / 1e9
            if wait > 0:
                time.sleep(wait)
            dist.all_reduce(gradient)
            end = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            total = members * (members + 1) // 2
            assert gradient[0] == total and gradient[-1] == total
            print(f"done {end} {time.process_time() - cpu}", flush=True)


def train(name):
    torch.manual_seed(1)
    model = DistributedDataParallel(MODELS[name]())
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    pictures = torch.randn(BATCH, 1, PIXELS, PIXELS)
    labels = torch.randint(0, CLASSES, (BATCH,))
    for line in sys.stdin:
        steps = int(line)
        dist.barrier()
        begin = time.monotonic()
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pictures), labels).backward()
            optimizer.step()
        print((time.monotonic() - begin) / steps, flush=True)


def main():
    index, members, host, *model = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://{host}:{29478 if model else 29477}",
        rank=int(index), world_size=int(members),
        timeout=datetime.timedelta(seconds=600))
    print("here", flush=True)
    if model:
        train(model[0])
    else:
        reduce_gradients(int(members))


if __name__ == "__main__":
    main()
