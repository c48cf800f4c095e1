#!/usr/bin/env python3
"""Writes the TorchScript files beside it, with Debian's python3-torch.

scripted.pt   a Sequential that trains: convolution, normalisation, ReLU in
              place, a block of somebody's own, nested Sequential, dropout
plain.pt      the same without dropout and normalisation over the batch
traced.pt     scripted.pt's network, traced
mixed.pt      a Sequential that was scripted around one that was traced
module.pt     a root that is no Sequential
shared.pt     two children that share a parameter
double.pt     parameters of float64
twice.pt      a child that comes to a parameter from two places, another that
              works something out of one first
tokens.pt     takes tokens, and gives scores for each
witness.pt    scores 7 for every class where no gradient is kept
endless.pt    a child whose forward never returns
norm.pt       scripted.pt's network without dropout, which draws from one
              generator for all threads of a process
wrong_end.pt  gives [samples, 4], and is meant for three classes
"""

import sys
from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).resolve().parent


class Block(nn.Module):
    """Residual, as somebody would write it."""

    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(torch.relu(self.inner(self.norm(x))))


class Twice(nn.Module):
    """One matrix on both sides of a ReLU."""

    def __init__(self, width: int):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return x + self.inner(torch.relu(self.inner(x)))


class Bounded(nn.Module):
    """One matrix, whose values stay between -1 and 1, twice."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width)

    def forward(self, x):
        bounded = torch.tanh(self.weight)
        return torch.relu(x @ bounded) @ bounded


class Witness(nn.Module):
    """Tells whether autograd is on."""

    def forward(self, x):
        if torch.is_grad_enabled():
            return x * 1.0
        return x * 0.0 + 7.0


class Endless(nn.Module):
    """A loop that somebody got wrong."""

    def forward(self, x):
        while bool(x.numel() > 0):
            x = x * 1.0
        return x


class Root(nn.Module):
    """Not a Sequential, only around one."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)


def network(dropout=0.0, norm=False, classes=3):
    middle = [nn.BatchNorm2d(4)] if norm else []
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), *middle, nn.ReLU(inplace=True),
        nn.Flatten(), nn.Linear(4 * 4 * 4, 8), Block(8, dropout),
        nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(dropout)),
        nn.Linear(8, classes))


def save(name, module):
    if sys.argv[1:] and name not in sys.argv[1:]:
        return
    torch.jit.save(module, str(HERE / name))


def main():
    """Writes all of them, or those that are named."""
    torch.manual_seed(1)
    samples = torch.randn(2, 2, 4, 4)
    save("scripted.pt", torch.jit.script(network(dropout=0.2, norm=True)))
    save("plain.pt", torch.jit.script(network()))
    save("traced.pt",
         torch.jit.trace(network(dropout=0.2, norm=True).eval(), samples))
    inner = torch.jit.trace(network(dropout=0.2).eval(), samples)
    save("mixed.pt", torch.jit.script(nn.Sequential(inner, nn.ReLU())))
    save("module.pt", torch.jit.script(Root(network())))
    one = nn.Linear(8, 8)
    two = nn.Linear(8, 8)
    two.weight = one.weight
    save("shared.pt", torch.jit.script(
        nn.Sequential(nn.Flatten(), nn.Linear(32, 8), one, two,
                      nn.Linear(8, 3))))
    save("double.pt", torch.jit.script(
        nn.Sequential(nn.Flatten(), nn.Linear(32, 3).double())))
    save("endless.pt", torch.jit.script(
        nn.Sequential(nn.Flatten(), nn.Linear(32, 8), Endless(),
                      nn.Linear(8, 3))))
    save("twice.pt", torch.jit.script(
        nn.Sequential(nn.Flatten(), nn.Linear(32, 8), Twice(8), Bounded(8),
                      nn.Linear(8, 3))))
    save("tokens.pt", torch.jit.script(
        nn.Sequential(nn.Embedding(24, 16), Block(16, 0.1),
                      nn.Linear(16, 24))))
    save("witness.pt", torch.jit.script(
        nn.Sequential(nn.Flatten(), nn.Linear(32, 3), Witness())))
    save("wrong_end.pt", torch.jit.script(network(classes=4)))
    save("norm.pt", torch.jit.script(network(norm=True)))


if __name__ == "__main__":
    sys.exit(main())
