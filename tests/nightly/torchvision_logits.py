#!/usr/bin/env python3
"""What torchvision's models give for weights and images drawn by a formula.

    torchvision_logits.py --golden FOLDER   small ones, logits only: what
                                            tests/golden/logits holds
    torchvision_logits.py --full FOLDER     the real sizes, with their weights
                                            as safetensors beside the logits

tests/torch/logits_test.cc reads both, and draws the same numbers.  A file of
logits is text: `model NAME`, `set KEY NUMBER` for sizes that are not the
model's own, `shape ...`, `classes N`, and a line `logits ...` a sample.
Wants Debian's python3-torch and python3-torchvision.
"""

import argparse
import json
import struct
import sys
from pathlib import Path

import numpy as np
import torch
import torchvision
from torchvision.models.vgg import VGG, make_layers

SAMPLES = 2
GAMMA = np.uint64(0x9E3779B97F4A7C15)


def uniforms(word, count):
    """As SplitMix64(MixSeed({word})) of core/base/random.h: in [0, 1)."""
    with np.errstate(over="ignore"):
        seed = np.uint64(0x5061636C696E65) ^ np.uint64(word)
        state = mix(seed + GAMMA)
        steps = np.arange(1, count + 1, dtype=np.uint64)
        return (mix(state + steps * GAMMA) >> np.uint64(40)) * 2.0**-24


def mix(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def draw(name, shape, word):
    """Values that keep activations of a deep network near 1."""
    u = uniforms(word, int(np.prod(shape)))
    if len(shape) == 1 and name.endswith((".weight", ".running_var")):
        u = 0.5 + u
    elif len(shape) in (1, 3):
        u = 0.2 * (u - 0.5)
    else:
        u = (2 * u - 1) * np.sqrt(3 * shape[0] / np.prod(shape))
    return torch.from_numpy(u.reshape(shape).astype(np.float32))


def fill(model):
    state = model.state_dict()
    for word, name in enumerate(sorted(state)):
        if not name.endswith("num_batches_tracked"):
            state[name] = draw(name, tuple(state[name].shape), word)
    model.load_state_dict(state)
    return model.eval()


def small_vgg(width):
    cut = {64: width, 128: 2 * width, 256: 4 * width, 512: 8 * width, "M": "M"}
    plan = [64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"]
    model = VGG(make_layers([cut[step] for step in plan]), num_classes=10)
    linear = torch.nn.Linear
    model.classifier[0] = linear(8 * width * 49, 64 * width)
    model.classifier[3] = linear(64 * width, 64 * width)
    model.classifier[6] = linear(64 * width, 10)
    return model


def small_vit():
    return torchvision.models.VisionTransformer(
        image_size=32, patch_size=16, num_layers=2, num_heads=4, hidden_dim=32,
        mlp_dim=128, num_classes=10)


GOLDEN = [
    ("resnet18", {}, (3, 40, 32), 10,
     lambda: torchvision.models.resnet18(num_classes=10)),
    ("resnet50", {}, (3, 32, 32), 10,
     lambda: torchvision.models.resnet50(num_classes=10)),
    ("vgg11", {"width": 8}, (3, 64, 32), 10, lambda: small_vgg(8)),
    ("vit_b_16", {"depth": 2, "width": 32, "heads": 4}, (3, 32, 32), 10,
     small_vit),
]
FULL = [(name, {}, (3, 224, 224), 1000, getattr(torchvision.models, name))
        for name in ("vit_b_16", "resnet18", "resnet50", "vgg11", "vgg16")]


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, tensor in tensors.items():
        dtype = {torch.float32: "F32", torch.int64: "I64"}[tensor.dtype]
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": dtype, "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.contiguous().numpy().tobytes())


def write(folder, with_weights, entry):
    name, sizes, shape, classes, make = entry
    model = fill(make())
    images = uniforms(12345, SAMPLES * int(np.prod(shape))) * 2 - 1
    images = torch.from_numpy(
        images.reshape((SAMPLES, *shape)).astype(np.float32))
    with torch.no_grad():
        logits = model(images)
    lines = [f"model {name}"]
    lines += [f"set {key} {value}" for key, value in sizes.items()]
    lines += ["shape " + " ".join(map(str, shape)), f"classes {classes}"]
    lines += ["logits " + " ".join(f"{value:.7g}" for value in row.tolist())
              for row in logits]
    (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    if with_weights:
        write_safetensors(folder / f"{name}.safetensors", model.state_dict())
    print(name, "logits up to", float(logits.abs().max()))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--golden", type=Path)
    group.add_argument("--full", type=Path)
    arguments = parser.parse_args()
    folder = arguments.golden or arguments.full
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for entry in GOLDEN if arguments.golden else FULL:
        write(folder, arguments.full is not None, entry)


if __name__ == "__main__":
    sys.exit(main())
