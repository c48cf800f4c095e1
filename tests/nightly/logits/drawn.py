"""What the scripts that write expected logits share: numbers drawn by a
formula, the two files, and the options.

  --golden FOLDER  small models, logits only: what tests/golden/logits holds
  --full FOLDER    the real sizes, with their weights as safetensors beside

tests/torch/logits_test.cc reads what they write, and draws the same numbers.  A
file of logits is text: `model NAME`, `set KEY NUMBER` for sizes that are not
the model's own, `shape ...`, `classes N`, and a line `logits ...` a sample.
What stands in the file's name behind a dot is no part of the model's:
resnet18.pruned.
"""

import json
import struct
from pathlib import Path

import numpy as np
import torch

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


def write_logits(folder, name, sizes, shape, classes, logits):
    """logits: [samples, ...]."""
    lines = [f"model {name.split('.')[0]}"]
    lines += [f"set {key} {value}" for key, value in sizes.items()]
    lines += ["shape " + " ".join(map(str, shape)), f"classes {classes}"]
    lines += ["logits " + " ".join(f"{value:.7g}" for value in row.tolist())
              for row in logits.flatten(1)]
    (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    print(name, "logits up to", float(logits.abs().max()))


def fill(model):
    state = model.state_dict()
    for word, name in enumerate(sorted(state)):
        if not name.endswith("num_batches_tracked"):
            state[name] = draw(name, tuple(state[name].shape), word)
    model.load_state_dict(state)
    return model.eval()


OPTIONS = {"golden": Path, "full": Path}


def write_all(run, golden, full, logits_of):
    """Writes what is asked for of `golden` or `full`: lists of (name, sizes,
    shape, classes, what makes the model).  logits_of(model, shape)."""
    folder = run.golden or run.full
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for name, sizes, shape, classes, make in golden if run.golden else full:
        model = fill(make())
        if run.full:
            write_safetensors(folder / f"{name}.safetensors",
                              model.state_dict())
        with torch.no_grad():
            logits = logits_of(model, shape)
        write_logits(folder, name, {} if run.full else sizes, shape, classes,
                     logits)
