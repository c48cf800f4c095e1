"""What torchvision's models give for weights and images drawn by a formula, and
what plain modules of the sizes that `paceline model prune` leaves give.

drawn.py says what is in the files, and tells the options.  Wants Debian's
python3-torch and python3-torchvision.
"""

import numpy as np
import torch
import torchvision
from logits.drawn import OPTIONS, SAMPLES, uniforms, write_all
from torchvision.models.vgg import VGG, make_layers


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


def pruned_resnet18(sizes):
    """sizes: as model.sizes."""
    left = iter(sizes)

    def resized(old, into, out):
        return torch.nn.Conv2d(into, out, old.kernel_size, old.stride,
                               old.padding, bias=False)

    norm = torch.nn.BatchNorm2d
    model = torchvision.models.resnet18(num_classes=10)
    out = next(left)
    model.conv1, model.bn1 = resized(model.conv1, 3, out), norm(out)
    for group in (model.layer1, model.layer2, model.layer3, model.layer4):
        into = out
        if group is not model.layer1:
            out = next(left)
        for block in group:
            inside = next(left)
            block.conv1, block.bn1 = resized(block.conv1, into, inside), norm(inside)
            block.conv2, block.bn2 = resized(block.conv2, inside, out), norm(out)
            if block.downsample is not None:
                block.downsample = torch.nn.Sequential(
                    resized(block.downsample[0], into, out), norm(out))
            into = out
    model.fc = torch.nn.Linear(out, 10)
    return model


class PrunedAttention(torch.nn.Module):
    """Heads of `depth` numbers, whatever the width."""

    def __init__(self, width, heads, depth):
        super().__init__()
        self.heads, self.depth = heads, depth
        self.qkv = torch.nn.Linear(width, 3 * heads * depth)
        self.proj = torch.nn.Linear(heads * depth, width)

    def forward(self, x):
        queries, keys, values = (
            part.unflatten(-1, (self.heads, self.depth)).transpose(1, 2)
            for part in self.qkv(x).chunk(3, -1))
        scores = queries @ keys.transpose(-2, -1) / self.depth**0.5
        return self.proj((scores.softmax(-1) @ values).transpose(1, 2).flatten(2))


class PrunedVit(torch.nn.Module):
    """By timm's names, for images [1, 28, 28] in patches of 7.

    sizes: as model.sizes; depth: numbers of a head."""

    def __init__(self, sizes, depth):
        super().__init__()
        width, *blocks = sizes
        modules = torch.nn
        self.patch_embed = modules.ModuleDict(
            {"proj": modules.Conv2d(1, width, 7, 7)})
        self.cls_token = modules.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = modules.Parameter(torch.zeros(1, 17, width))
        self.blocks = modules.ModuleList(
            modules.ModuleDict({
                "norm1": modules.LayerNorm(width, 1e-6),
                "attn": PrunedAttention(width, heads, depth),
                "norm2": modules.LayerNorm(width, 1e-6),
                "mlp": modules.ModuleDict({
                    "fc1": modules.Linear(width, hidden),
                    "fc2": modules.Linear(hidden, width)})})
            for heads, hidden in zip(blocks[::2], blocks[1::2]))
        self.norm = modules.LayerNorm(width, 1e-6)
        self.head = modules.Linear(width, 10)

    def forward(self, images):
        x = self.patch_embed["proj"](images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1)
        x = x + self.pos_embed
        for block in self.blocks:
            x = x + block["attn"](block["norm1"](x))
            hidden = block["mlp"]["fc1"](block["norm2"](x))
            x = x + block["mlp"]["fc2"](torch.nn.functional.gelu(hidden))
        return self.head(self.norm(x[:, 0]))


VIT_SIZES = (20, 3, 50, 1, 128)
RESNET_SIZES = (5, 8, 3, 10, 16, 2, 30, 32, 4, 50, 60, 1)


def text(sizes):
    return " ".join(map(str, sizes))


GOLDEN = [
    ("vit.pruned",
     {"depth": 2, "width": 32, "heads": 4, "sizes": text(VIT_SIZES)},
     (1, 28, 28), 10, lambda: PrunedVit(VIT_SIZES, 8)),
    ("resnet18.pruned", {"width": 8, "sizes": text(RESNET_SIZES)}, (3, 40, 32),
     10, lambda: pruned_resnet18(RESNET_SIZES)),
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


def logits_of(model, shape):
    images = uniforms(12345, SAMPLES * int(np.prod(shape))) * 2 - 1
    return model(torch.from_numpy(
        images.reshape((SAMPLES, *shape)).astype(np.float32)))


def main(run):
    write_all(run, GOLDEN, FULL, logits_of)
