#!/usr/bin/env python3
"""What torchvision's models give for weights and images drawn by a formula.

    torchvision_logits.py --golden FOLDER   small ones, logits only: what
                                            tests/golden/logits holds
    torchvision_logits.py --full FOLDER     the real sizes, with their weights
                                            as safetensors beside the logits

drawn_logits.py says what is in the files.  Wants Debian's python3-torch and
python3-torchvision.
"""

import sys

import numpy as np
import torch
import torchvision
from drawn_logits import (SAMPLES, draw, run, uniforms, write_logits,
                          write_safetensors)
from torchvision.models.vgg import VGG, make_layers


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


def write(folder, with_weights, entry):
    name, sizes, shape, classes, make = entry
    model = fill(make())
    images = uniforms(12345, SAMPLES * int(np.prod(shape))) * 2 - 1
    images = torch.from_numpy(
        images.reshape((SAMPLES, *shape)).astype(np.float32))
    with torch.no_grad():
        logits = model(images)
    write_logits(folder, name, sizes, shape, classes, logits)
    if with_weights:
        write_safetensors(folder / f"{name}.safetensors", model.state_dict())


if __name__ == "__main__":
    sys.exit(run(__doc__, write, GOLDEN, FULL))
