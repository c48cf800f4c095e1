"""What GPT-2, BERT and RoBERTa give by the formulas of their papers, as Hugging
Face's models compute them, for weights and tokens drawn by a formula.

Written with torch's matrix products alone, in float64, and with none of our
code: a state is a dictionary with Hugging Face's names of the parameters.
tests/torch/logits_test.cc reads the files (drawn.py says what is in them, and
tells the options) and draws the same numbers.  Wants Debian's python3-torch.
"""

import math

import numpy as np
import torch
from logits.drawn import (OPTIONS, SAMPLES, draw, uniforms, write_all,
                          write_logits, write_safetensors)

MLP = 4  # inner width of a block's second half
LORA_ALPHA = 16


def linear_names(name, inputs, outputs):
    return {name + ".weight": (outputs, inputs), name + ".bias": (outputs,)}


def conv1d_names(name, inputs, outputs):
    return {name + ".weight": (inputs, outputs), name + ".bias": (outputs,)}


def norm_names(name, width):
    return {name + ".weight": (width,), name + ".bias": (width,)}


def norm(state, name, x, epsilon):
    x = x - x.mean(-1, keepdim=True)
    x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon)
    return x * state[name + ".weight"] + state[name + ".bias"]


def linear(state, name, x):
    y = x @ state[name + ".weight"].T + state[name + ".bias"]
    if name + ".lora_A.weight" not in state:
        return y
    # As Hugging Face's PEFT.
    first = state[name + ".lora_A.weight"]
    second = state[name + ".lora_B.weight"]
    return y + LORA_ALPHA / first.shape[0] * (x @ first.T @ second.T)


def conv1d(state, name, x):
    return x @ state[name + ".weight"] + state[name + ".bias"]


def attend(queries, keys, values, allowed, heads):
    """[n, t, w] each; allowed: bool, broadcasts to [n, heads, t, t]."""
    n, t, w = queries.shape
    def parts(x):
        return x.reshape(n, t, heads, w // heads).transpose(1, 2)
    scores = parts(queries) @ parts(keys).transpose(2, 3)
    scores = scores / math.sqrt(w // heads)
    scores = scores.masked_fill(~allowed, -math.inf)
    mixed = torch.softmax(scores, -1) @ parts(values)
    return mixed.transpose(1, 2).reshape(n, t, w)


class Gpt:
    def __init__(self, depth, width, heads, positions, vocabulary, classes):
        self.depth, self.heads = depth, heads
        self.names = {"transformer.wte.weight": (vocabulary, width),
                      "transformer.wpe.weight": (positions, width)}
        for i in range(depth):
            block = f"transformer.h.{i}."
            self.names |= norm_names(block + "ln_1", width)
            self.names |= conv1d_names(block + "attn.c_attn", width, 3 * width)
            self.names |= conv1d_names(block + "attn.c_proj", width, width)
            self.names |= norm_names(block + "ln_2", width)
            self.names |= conv1d_names(block + "mlp.c_fc", width, MLP * width)
            self.names |= conv1d_names(block + "mlp.c_proj", MLP * width, width)
        self.names |= norm_names("transformer.ln_f", width)

    def __call__(self, state, tokens):
        t = tokens.shape[1]
        x = state["transformer.wte.weight"][tokens]
        x = x + state["transformer.wpe.weight"][:t]
        earlier = torch.ones(t, t, dtype=torch.bool).tril()
        for i in range(self.depth):
            block = f"transformer.h.{i}."
            h = norm(state, block + "ln_1", x, 1e-5)
            h = conv1d(state, block + "attn.c_attn", h)
            h = attend(*h.chunk(3, -1), earlier, self.heads)
            x = x + conv1d(state, block + "attn.c_proj", h)
            h = norm(state, block + "ln_2", x, 1e-5)
            h = conv1d(state, block + "mlp.c_fc", h)
            inner = math.sqrt(2 / math.pi) * (h + 0.044715 * h ** 3)
            h = 0.5 * h * (1 + torch.tanh(inner))
            x = x + conv1d(state, block + "mlp.c_proj", h)
        x = norm(state, "transformer.ln_f", x, 1e-5)
        return x @ state["transformer.wte.weight"].T


class Bert:
    family, padding, types, epsilon = "bert", 0, 2, 1e-12

    def __init__(self, depth, width, heads, positions, vocabulary, classes):
        self.depth, self.heads = depth, heads
        prefix = self.family + ".embeddings."
        self.names = {
            prefix + "word_embeddings.weight": (vocabulary, width),
            prefix + "position_embeddings.weight": (positions, width),
            prefix + "token_type_embeddings.weight": (self.types, width)}
        self.names |= norm_names(prefix + "LayerNorm", width)
        for i in range(depth):
            block = f"{self.family}.encoder.layer.{i}."
            for part in ("self.query", "self.key", "self.value",
                         "output.dense"):
                self.names |= linear_names(block + "attention." + part, width,
                                           width)
            self.names |= norm_names(block + "attention.output.LayerNorm",
                                     width)
            self.names |= linear_names(block + "intermediate.dense", width,
                                       MLP * width)
            self.names |= linear_names(block + "output.dense", MLP * width,
                                       width)
            self.names |= norm_names(block + "output.LayerNorm", width)
        self.names |= self.head_names(width, classes)

    def head_names(self, width, classes):
        return (linear_names("bert.pooler.dense", width, width)
                | linear_names("classifier", width, classes))

    def head(self, state, x):
        x = torch.tanh(linear(state, "bert.pooler.dense", x))
        return linear(state, "classifier", x)

    def positions(self, real):
        return torch.arange(real.shape[1]).expand_as(real)

    def __call__(self, state, tokens):
        prefix = self.family + ".embeddings."
        real = tokens != self.padding
        x = (state[prefix + "word_embeddings.weight"][tokens]
             + state[prefix + "position_embeddings.weight"][
                 self.positions(real)]
             + state[prefix + "token_type_embeddings.weight"][0])
        x = norm(state, prefix + "LayerNorm", x, self.epsilon)
        allowed = real[:, None, None, :]
        for i in range(self.depth):
            block = f"{self.family}.encoder.layer.{i}."
            parts = [linear(state, block + "attention.self." + part, x)
                     for part in ("query", "key", "value")]
            h = attend(*parts, allowed, self.heads)
            h = linear(state, block + "attention.output.dense", h)
            x = norm(state, block + "attention.output.LayerNorm", x + h,
                     self.epsilon)
            h = linear(state, block + "intermediate.dense", x)
            h = 0.5 * h * (1 + torch.erf(h / math.sqrt(2)))
            h = linear(state, block + "output.dense", h)
            x = norm(state, block + "output.LayerNorm", x + h, self.epsilon)
        return self.head(state, x[:, 0])


class LoraBert(Bert):
    """With adapters beside the maps to queries and values."""

    def __init__(self, depth, width, rank, **others):
        super().__init__(depth, width, **others)
        for i in range(depth):
            for part in ("query", "value"):
                name = f"bert.encoder.layer.{i}.attention.self.{part}.lora_"
                self.names |= {name + "A.weight": (rank, width),
                               name + "B.weight": (width, rank)}


class Roberta(Bert):
    family, padding, types, epsilon = "roberta", 1, 1, 1e-5

    def head_names(self, width, classes):
        return (linear_names("classifier.dense", width, width)
                | linear_names("classifier.out_proj", width, classes))

    def head(self, state, x):
        x = torch.tanh(linear(state, "classifier.dense", x))
        return linear(state, "classifier.out_proj", x)

    def positions(self, real):
        """Counted from behind the padding token's own number."""
        return real.long().cumsum(1) * real + self.padding


SMALL = dict(depth=2, width=16, heads=4, positions=12)
GOLDEN = [
    ("gpt", Gpt, 8, SMALL | dict(vocabulary=12), 12),
    ("bert", Bert, 8, SMALL | dict(vocabulary=20), 3),
    ("bert.lora", LoraBert, 8, SMALL | dict(vocabulary=20, rank=3), 3),
    ("roberta", Roberta, 8, SMALL | dict(vocabulary=20), 3),
]
BASE = dict(depth=12, width=768, heads=12)
FULL = [
    ("gpt2", Gpt, 64, BASE | dict(positions=1024, vocabulary=50257), 50257),
    ("bert_base", Bert, 64, BASE | dict(positions=512, vocabulary=30522), 2),
    ("roberta_base", Roberta, 64,
     BASE | dict(positions=514, vocabulary=50265), 2),
]


def tokens_of(model, block, vocabulary):
    """Any tokens; the second sample of a classifier ends with padding."""
    drawn = uniforms(12345, SAMPLES * block) * vocabulary
    tokens = torch.from_numpy(drawn.astype(np.int64)).reshape(SAMPLES, block)
    if isinstance(model, Bert):
        tokens[1, block - block // 4:] = model.padding
    return tokens


def write(folder, full, entry):
    name, kind, block, sizes, classes = entry
    model = kind(classes=classes, **sizes)
    state = {each: draw(each, shape, word)
             for word, (each, shape) in enumerate(sorted(model.names.items()))}
    tokens = tokens_of(model, block, sizes["vocabulary"])
    with torch.no_grad():
        logits = model({key: value.double() for key, value in state.items()},
                       tokens)
    if full and logits.dim() == 3:
        logits = logits[:, -1:]  # of the last token: the rest would be large
    write_logits(folder, name, {} if full else sizes, [block], classes, logits)
    if full:
        write_safetensors(folder / f"{name}.safetensors", state)


def main(run):
    write_all(run, write, GOLDEN, FULL)
