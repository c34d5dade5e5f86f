"""The built-in models once more, in PyTorch, to compare AUCs with (auc.test.ts).

Nothing here is taken from the project: samples are read by json, rows are those of torch.nn.functional.embedding_bag,
gradients those of autograd, optimizers those of torch.optim. What is the same are the definitions of the models, their
hyperparameters, the distributions of initial values, and the order of the samples. Random numbers differ.

    reference.py --schema S --train A --test B --model deepfm --epochs 2 --seeds 1 2 3

and --items COLUMN ... for two-towers, --gates COLUMN COLUMN for finalmlp. Prints one line of JSON: {"aucs": [of each seed]}. Of a schema it knows dense columns with log1p or as they are, and
sparse columns with one value or with a mean of several.
"""

import argparse
import gzip
import json
import math

import numpy as np
import torch
from torch.nn import functional

DIM, BATCH = 16, 256
BOTTOM, TOP = [64, DIM], [256, 64, 1]
CROSS_LAYERS = 3
GATE = 64
EMBEDDING_LIMIT = 0.05


class Column:
    """The values of a sparse column: those of sample b are ids[offsets[b]:offsets[b + 1]]."""

    def __init__(self, spec):
        spec = {"column": spec} if isinstance(spec, str) else spec
        self.field = spec["column"]
        self.space = ("table", spec["table"]) if "table" in spec else ("column", self.field)
        self.multi = spec.get("multi", False)
        self.limit = spec.get("limit", 100)

    def values(self, sample):
        value = sample.get(self.field)
        return list(value or [])[-self.limit :] if self.multi else [value]

    def read(self, samples, ids):
        rows = [[ids.setdefault((self.space, value), len(ids)) for value in self.values(each)] for each in samples]
        offsets = torch.tensor([0] + [len(row) for row in rows]).cumsum(0)
        return torch.tensor([value for row in rows for value in row], dtype=torch.long), offsets


class Samples:
    def __init__(self, path, schema, ids):
        with (gzip.open if path.endswith(".gz") else open)(path, "rt") as file:
            samples = [json.loads(line) for line in file]
        label = schema["label"]
        self.labels = torch.tensor([float(each[label]) for each in samples])
        dense = [self.numbers(spec, samples) for spec in schema.get("dense", [])] or [[1.0] * len(samples)]
        self.dense = torch.tensor(np.array(dense).T, dtype=torch.float32)
        self.columns = [Column(spec).read(samples, ids) for spec in schema["sparse"]]

    @staticmethod
    def numbers(spec, samples):
        if isinstance(spec, str):
            return [float(each[spec]) for each in samples]
        assert spec.get("transform") == "log1p", spec
        return [math.log1p(max(0.0, each[spec["column"]])) for each in samples]

    def batches(self):
        for begin in range(0, len(self.labels), BATCH):
            end = min(begin + BATCH, len(self.labels))
            bags = [
                (ids[offsets[begin] : offsets[end]], offsets[begin:end] - offsets[begin])
                for ids, offsets in self.columns
            ]
            yield self.labels[begin:end], self.dense[begin:end], bags


def matrix(inputs, outputs):
    """He before a ReLU, Xavier before the logit."""
    limit = math.sqrt(6 / (inputs + outputs if outputs == 1 else inputs))
    return torch.empty(inputs, outputs).uniform_(-limit, limit).requires_grad_()


class Mlp:
    def __init__(self, inputs, widths):
        sizes = [inputs, *widths]
        self.layers = [
            (matrix(a, b), torch.zeros(b, requires_grad=True)) for a, b in zip(sizes, widths, strict=False)
        ]

    def __call__(self, x, relu_at_end=False):
        for index, (weight, bias) in enumerate(self.layers):
            x = x @ weight + bias
            if relu_at_end or index < len(self.layers) - 1:
                x = functional.relu(x)
        return x

    def tensors(self):
        return [tensor for layer in self.layers for tensor in layer]


class FinalMlp:
    """Mao et al., AAAI 2023: two streams, whose inputs pass gates, and the sum of one bilinear form for each head."""

    def __init__(self, width, contexts, heads=1):
        self.contexts, self.heads = contexts, heads
        self.streams = [Mlp(width, TOP[:-1]) for _ in contexts]
        self.gates = [
            Mlp(len(context) * DIM, [GATE, width]) if context else torch.zeros(width, requires_grad=True)
            for context in contexts
        ]
        out = TOP[-2]
        self.linear = [matrix(out, 1) for _ in contexts]
        self.bias = torch.zeros(1, requires_grad=True)
        self.bilinear = matrix(out * out // heads, 1)

    def tensors(self):
        gates = [tensor for gate in self.gates for tensor in (gate.tensors() if isinstance(gate, Mlp) else [gate])]
        streams = [tensor for stream in self.streams for tensor in stream.tensors()]
        return [*gates, *streams, *self.linear, self.bias, self.bilinear]

    def __call__(self, x, vectors):
        first, second = (
            stream(x * 2 * torch.sigmoid(gate(vectors[:, context].flatten(1)) if context else gate), relu_at_end=True)
            for stream, gate, context in zip(self.streams, self.gates, self.contexts, strict=True)
        )
        part = TOP[-2] // self.heads
        pairs = torch.einsum(
            "bhi,hij,bhj->b",
            first.unflatten(1, (self.heads, part)),
            self.bilinear.view(self.heads, part, part),
            second.unflatten(1, (self.heads, part)),
        )
        return (first @ self.linear[0] + second @ self.linear[1] + self.bias)[:, 0] + pairs


class Reference:
    def __init__(self, name, dense, columns, rows, items, gates):
        self.name = name
        self.items = items
        self.others = [column for column in range(columns) if column not in items]
        self.extra = 1 if name in ("wide-and-deep", "deepfm") else 0
        self.rows = torch.empty(rows, DIM + self.extra).uniform_(-EMBEDDING_LIMIT, EMBEDDING_LIMIT).requires_grad_()
        width = dense + columns * DIM
        self.cross, self.tensors = [], []
        if name == "dlrm":
            self.bottom = Mlp(dense, BOTTOM)
            self.top = Mlp(DIM + columns * (columns + 1) // 2, TOP)
            self.tensors += self.bottom.tensors()
        elif name == "two-towers":
            self.query = Mlp(dense + len(self.others) * DIM, BOTTOM)
            self.item = Mlp(len(items) * DIM, BOTTOM)
            self.tensors += self.query.tensors() + self.item.tensors()
        elif name == "finalmlp":
            self.final = FinalMlp(width, gates)
            self.tensors += self.final.tensors()
        else:
            self.top = Mlp(width, TOP)
        if name == "dcnv2":
            self.cross = [(matrix(width, width), torch.zeros(width, requires_grad=True)) for _ in range(CROSS_LAYERS)]
            self.tensors += [tensor for layer in self.cross for tensor in layer]
        if self.extra:
            self.wide = matrix(dense, 1)
            self.tensors.append(self.wide)
        if name not in ("two-towers", "finalmlp"):
            self.tensors += self.top.tensors()
        self.optimizers = [torch.optim.Adagrad([self.rows], lr=0.05), torch.optim.Adam(self.tensors, lr=1e-3)]

    def pooled(self, bags):
        return torch.stack(
            [functional.embedding_bag(ids, self.rows, at, mode="mean", sparse=True) for ids, at in bags], dim=1
        )

    def towers(self, dense, bags):
        pooled = self.pooled(bags)
        query = self.query(torch.cat([dense, pooled[:, self.others].flatten(1)], dim=1))
        return query, self.item(pooled[:, self.items].flatten(1))

    def loss(self, labels, dense, bags):
        if self.name != "two-towers":
            return functional.binary_cross_entropy_with_logits(self.logits(dense, bags), labels)
        query, item = self.towers(dense, bags)
        losses = functional.cross_entropy(query @ item.T, torch.arange(len(labels)), reduction="none")
        return (losses * labels).sum() / labels.sum().clamp(min=1e-30)

    def logits(self, dense, bags):
        if self.name == "two-towers":
            query, item = self.towers(dense, bags)
            return (query * item).sum(1)
        pooled = self.pooled(bags)
        vectors = pooled[:, :, self.extra :]
        if self.name == "dlrm":
            x = self.bottom(dense, relu_at_end=True)
            together = torch.cat([x[:, None], vectors], dim=1)
            i, j = torch.tril_indices(together.shape[1], together.shape[1], offset=-1)
            products = (together @ together.transpose(1, 2))[:, i, j]
            return self.top(torch.cat([x, products], dim=1))[:, 0]
        x = first = torch.cat([dense, vectors.flatten(1)], dim=1)
        if self.name == "finalmlp":
            return self.final(x, vectors)
        for weight, bias in self.cross:
            x = first * (x @ weight + bias) + x
        result = self.top(x)[:, 0]
        if self.extra:
            result = result + (dense @ self.wide)[:, 0] + pooled[:, :, 0].sum(1)
        if self.name == "deepfm":
            result = result + (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        return result

    def step(self, labels, dense, bags):
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self.loss(labels, dense, bags).backward()
        for optimizer in self.optimizers:
            optimizer.step()


def auc(labels, scores):
    """The share of pairs of a positive and a negative sample that are in order; a tie is half a pair."""
    order = np.argsort(scores, kind="stable")
    _, first, counts = np.unique(scores[order], return_index=True, return_counts=True)
    ranks = np.empty(len(scores))
    ranks[order] = np.repeat(first + (counts + 1) / 2, counts)
    positive = labels == 1
    count = positive.sum()
    return (ranks[positive].sum() - count * (count + 1) / 2) / (count * (len(labels) - count))


def main():
    parser = argparse.ArgumentParser()
    for name in ("schema", "train", "test", "model"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--items", nargs="+", default=[])
    parser.add_argument("--gates", nargs=2, default=[])
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    flags = parser.parse_args()
    with open(flags.schema) as file:
        schema = json.load(file)
    torch.set_num_threads(1)
    ids = {}
    train, test = Samples(flags.train, schema, ids), Samples(flags.test, schema, ids)
    fields = [Column(spec).field for spec in schema["sparse"]]
    items = [index for index, field in enumerate(fields) if field in flags.items]
    gates = [[fields.index(field)] for field in flags.gates] or [[], []]
    aucs = []
    for seed in flags.seeds:
        torch.manual_seed(seed)
        model = Reference(flags.model, train.dense.shape[1], len(train.columns), len(ids), items, gates)
        for _ in range(flags.epochs):
            for batch in train.batches():
                model.step(*batch)
        with torch.no_grad():
            scores = torch.cat([model.logits(dense, bags) for _, dense, bags in test.batches()])
        aucs.append(round(float(auc(test.labels.numpy(), scores.numpy())), 5))
    print(json.dumps({"aucs": aucs}))


main()
