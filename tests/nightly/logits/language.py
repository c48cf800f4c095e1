"""What GPT-2, BERT and RoBERTa give by the formulas of their papers, as Hugging
Face's models compute them, for weights and tokens drawn by a formula.

Written with torch's simplest modules alone, in float64, and with none of our
code: parts have Hugging Face's names.  tests/torch/logits_test.cc reads the
files (drawn.py says what is in them, and tells the options) and draws the same
numbers.  Wants Debian's python3-torch.
"""

import math

import numpy as np
import torch
from logits.drawn import OPTIONS, SAMPLES, uniforms, write_all
from torch.nn import Embedding, LayerNorm, Linear, Module, ModuleDict, ModuleList

MLP = 4  # inner width of a block's second half
LORA_ALPHA = 16


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


class Conv1d(Module):
    """A linear map whose weight is [inputs, outputs], as GPT-2 has it."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = torch.nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Lora(Linear):
    """A linear map with an adapter beside it, as Hugging Face's PEFT."""

    def __init__(self, width, rank):
        super().__init__(width, width)
        self.lora_A = Linear(width, rank, bias=False)
        self.lora_B = Linear(rank, width, bias=False)

    def forward(self, x):
        scale = LORA_ALPHA / self.lora_A.out_features
        return super().forward(x) + scale * self.lora_B(self.lora_A(x))


class GptBlock(Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = LayerNorm(width), LayerNorm(width)
        self.attn = ModuleDict({"c_attn": Conv1d(width, 3 * width),
                                "c_proj": Conv1d(width, width)})
        self.mlp = ModuleDict({"c_fc": Conv1d(width, MLP * width),
                               "c_proj": Conv1d(MLP * width, width)})

    def forward(self, x, earlier):
        h = self.attn["c_attn"](self.ln_1(x))
        h = attend(*h.chunk(3, -1), earlier, self.heads)
        x = x + self.attn["c_proj"](h)
        h = self.mlp["c_fc"](self.ln_2(x))
        inner = math.sqrt(2 / math.pi) * (h + 0.044715 * h ** 3)
        return x + self.mlp["c_proj"](0.5 * h * (1 + torch.tanh(inner)))


class Gpt(Module):
    def __init__(self, depth, width, heads, positions, vocabulary, **_):
        super().__init__()
        self.vocabulary = vocabulary
        self.transformer = ModuleDict({
            "wte": Embedding(vocabulary, width),
            "wpe": Embedding(positions, width),
            "h": ModuleList(GptBlock(width, heads) for _ in range(depth)),
            "ln_f": LayerNorm(width)})

    def forward(self, tokens):
        t = tokens.shape[1]
        parts = self.transformer
        x = parts["wte"](tokens) + parts["wpe"].weight[:t]
        earlier = torch.ones(t, t, dtype=torch.bool).tril()
        for block in parts["h"]:
            x = block(x, earlier)
        return parts["ln_f"](x) @ parts["wte"].weight.T


class BertLayer(Module):
    """rank: of the adapters of queries and values, if any."""

    def __init__(self, width, heads, epsilon, rank):
        super().__init__()
        self.heads = heads
        adapted = [Lora(width, rank) if rank else Linear(width, width)
                   for _ in range(2)]
        self.attention = ModuleDict({
            "self": ModuleDict({"query": adapted[0], "value": adapted[1],
                                "key": Linear(width, width)}),
            "output": ModuleDict({"dense": Linear(width, width),
                                  "LayerNorm": LayerNorm(width, epsilon)})})
        self.intermediate = ModuleDict({"dense": Linear(width, MLP * width)})
        self.output = ModuleDict({"dense": Linear(MLP * width, width),
                                  "LayerNorm": LayerNorm(width, epsilon)})

    def forward(self, x, allowed):
        own, out = self.attention["self"], self.attention["output"]
        h = attend(own["query"](x), own["key"](x), own["value"](x), allowed,
                   self.heads)
        x = out["LayerNorm"](x + out["dense"](h))
        h = self.intermediate["dense"](x)
        h = 0.5 * h * (1 + torch.erf(h / math.sqrt(2)))
        return self.output["LayerNorm"](x + self.output["dense"](h))


class Bert(Module):
    family, padding, types, epsilon = "bert", 0, 2, 1e-12

    def __init__(self, depth, width, heads, positions, vocabulary, classes,
                 rank=0):
        super().__init__()
        self.vocabulary = vocabulary
        self.body = ModuleDict({
            "embeddings": ModuleDict({
                "word_embeddings": Embedding(vocabulary, width),
                "position_embeddings": Embedding(positions, width),
                "token_type_embeddings": Embedding(self.types, width),
                "LayerNorm": LayerNorm(width, self.epsilon)}),
            "encoder": ModuleDict({"layer": ModuleList(
                BertLayer(width, heads, self.epsilon, rank)
                for _ in range(depth))})})
        self.add_head(width, classes)
        # By the name that its weights begin with.
        self._modules[self.family] = self._modules.pop("body")

    def add_head(self, width, classes):
        self.body["pooler"] = ModuleDict({"dense": Linear(width, width)})
        self.classifier = Linear(width, classes)

    def head(self, x):
        x = torch.tanh(getattr(self, self.family)["pooler"]["dense"](x))
        return self.classifier(x)

    def positions(self, real):
        return torch.arange(real.shape[1]).expand_as(real)

    def forward(self, tokens):
        body = getattr(self, self.family)
        parts = body["embeddings"]
        real = tokens != self.padding
        x = (parts["word_embeddings"](tokens)
             + parts["position_embeddings"](self.positions(real))
             + parts["token_type_embeddings"].weight[0])
        x = parts["LayerNorm"](x)
        for layer in body["encoder"]["layer"]:
            x = layer(x, real[:, None, None, :])
        return self.head(x[:, 0])


class Roberta(Bert):
    family, padding, types, epsilon = "roberta", 1, 1, 1e-5

    def add_head(self, width, classes):
        self.classifier = ModuleDict({"dense": Linear(width, width),
                                      "out_proj": Linear(width, classes)})

    def head(self, x):
        x = torch.tanh(self.classifier["dense"](x))
        return self.classifier["out_proj"](x)

    def positions(self, real):
        """Counted from behind the padding token's own number."""
        return real.long().cumsum(1) * real + self.padding


def model_of(name, kind, block, sizes, classes):
    return (name, sizes, [block], classes,
            lambda: kind(classes=classes, **sizes))


SMALL = dict(depth=2, width=16, heads=4, positions=12)
GOLDEN = [
    model_of("gpt", Gpt, 8, SMALL | dict(vocabulary=12), 12),
    model_of("bert", Bert, 8, SMALL | dict(vocabulary=20), 3),
    model_of("bert.lora", Bert, 8, SMALL | dict(vocabulary=20, rank=3), 3),
    model_of("roberta", Roberta, 8, SMALL | dict(vocabulary=20), 3),
]
BASE = dict(depth=12, width=768, heads=12)
FULL = [
    model_of("gpt2", Gpt, 64, BASE | dict(positions=1024, vocabulary=50257),
             50257),
    model_of("bert_base", Bert, 64,
             BASE | dict(positions=512, vocabulary=30522), 2),
    model_of("roberta_base", Roberta, 64,
             BASE | dict(positions=514, vocabulary=50265), 2),
]


def logits_of(model, block):
    """For any tokens; the second sample of a classifier ends with padding."""
    drawn = uniforms(12345, SAMPLES * block) * model.vocabulary
    tokens = torch.from_numpy(drawn.astype(np.int64)).reshape(SAMPLES, block)
    if isinstance(model, Bert):
        tokens[1, block - block // 4:] = model.padding
    return model.double()(tokens)


def main(run):
    def of_shape(model, shape):
        logits = logits_of(model, shape[0])
        # Of the last token at real sizes: the rest would be large.
        return logits[:, -1:] if run.full and logits.dim() == 3 else logits
    write_all(run, GOLDEN, FULL, of_shape)
