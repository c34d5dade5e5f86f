"""The built-in models once more, in PyTorch, to compare AUCs with (bench.ts, test/movielens/auc.test.ts).

Nothing here is taken from the project: samples are read by json, rows are those of
torch.nn.functional.embedding_bag, gradients those of autograd, optimizers those of torch.optim. What is the
same are the definitions of the models, their hyperparameters, the distributions of initial values, and the
order of the samples. Random numbers differ, unless --initial has the initial values of the other side.

    reference.py --schema S --train A --test B --model deepfm --epochs 2 --seeds 1 2 3

and --items COLUMN ... for two-towers, --gates COLUMN COLUMN for finalmlp. With --group N each N samples of
the test file are one query, and the AUC is that within queries. Prints one line of JSON:
{"aucs": [of each seed], "losses": [of each batch, with the last seed]}. Of a schema it knows dense columns
with log1p or as they are, and sparse columns with one value or with a mean of several.
"""

import argparse
import gzip
import json
import math
import os

import numpy as np
import torch
from torch.nn import functional

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
        rows = [
            [ids.setdefault((self.space, value), len(ids)) for value in self.values(each)] for each in samples
        ]
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

    def batches(self, size):
        for begin in range(0, len(self.labels), size):
            end = min(begin + size, len(self.labels))
            bags = [
                (ids[offsets[begin] : offsets[end]], offsets[begin:end] - offsets[begin])
                for ids, offsets in self.columns
            ]
            yield self.labels[begin:end], self.dense[begin:end], bags


class Parameters(dict):
    """Dense parameters by name, and how they begin: He before a ReLU, Xavier before the logit."""

    def matrix(self, name, inputs, outputs):
        limit = math.sqrt(6 / (inputs + outputs if outputs == 1 else inputs))
        self[name] = torch.empty(inputs, outputs).uniform_(-limit, limit).requires_grad_()
        return self[name]

    def zeros(self, name, count):
        self[name] = torch.zeros(count, requires_grad=True)
        return self[name]

    def layer(self, name, inputs, outputs):
        return self.matrix(f"{name}.weight", inputs, outputs), self.zeros(f"{name}.bias", outputs)


class Mlp:
    def __init__(self, parameters, name, inputs, widths, relu_at_end=False):
        sizes = [inputs, *widths]
        self.layers = [
            parameters.layer(f"{name}.{index}", sizes[index], width) for index, width in enumerate(widths)
        ]
        self.relu_at_end = relu_at_end

    def __call__(self, x):
        for index, (weight, bias) in enumerate(self.layers):
            x = x @ weight + bias
            if self.relu_at_end or index < len(self.layers) - 1:
                x = functional.relu(x)
        return x


class Dlrm:
    """Naumov et al., 2019."""

    extra = 0

    def __init__(self, parameters, flags, dense, columns):
        self.bottom = Mlp(parameters, "bottom", dense, flags.bottom, relu_at_end=True)
        self.top = Mlp(parameters, "top", flags.dim + columns * (columns + 1) // 2, flags.top)

    def logits(self, dense, vectors, weights):
        x = self.bottom(dense)
        together = torch.cat([x[:, None], vectors], dim=1)
        i, j = torch.tril_indices(together.shape[1], together.shape[1], offset=-1)
        products = (together @ together.transpose(1, 2))[:, i, j]
        return self.top(torch.cat([x, products], dim=1))[:, 0]


class WideAndDeep:
    """Cheng et al., 2016."""

    extra = 1

    def __init__(self, parameters, flags, dense, columns):
        self.wide = parameters.matrix("wide.weight", dense, 1)
        self.deep = Mlp(parameters, "top", dense + columns * flags.dim, flags.top)

    def logits(self, dense, vectors, weights):
        deep = self.deep(torch.cat([dense, vectors.flatten(1)], dim=1))
        return (deep + dense @ self.wide)[:, 0] + weights.sum(1)


class DeepFm(WideAndDeep):
    """Guo et al., 2017: the pairs of a factorization machine, in linear time."""

    def logits(self, dense, vectors, weights):
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        return super().logits(dense, vectors, weights) + pairs


class DcnV2:
    """Wang et al., 2021, stacked."""

    extra = 0

    def __init__(self, parameters, flags, dense, columns):
        width = dense + columns * flags.dim
        self.cross = [parameters.layer(f"cross.{index}", width, width) for index in range(CROSS_LAYERS)]
        self.deep = Mlp(parameters, "top", width, flags.top)

    def logits(self, dense, vectors, weights):
        x = first = torch.cat([dense, vectors.flatten(1)], dim=1)
        for weight, bias in self.cross:
            x = first * (x @ weight + bias) + x
        return self.deep(x)[:, 0]


class FinalMlp:
    """Mao et al., 2023: two streams, whose inputs pass gates, and one bilinear form for each head."""

    extra = 0

    def __init__(self, parameters, flags, dense, columns):
        width, out = dense + columns * flags.dim, flags.top[-2]
        self.heads, self.part = flags.heads, out // flags.heads
        self.streams = []
        for name, context in zip(("stream1", "stream2"), flags.contexts, strict=True):
            gate = (
                Mlp(parameters, f"{name}.gate", len(context) * flags.dim, [GATE, width])
                if context
                else parameters.zeros(f"{name}.gate.bias", width)
            )
            mlp = Mlp(parameters, name, width, flags.top[:-1], relu_at_end=True)
            linear = parameters.matrix(f"{name}.fusion.weight", out, 1)
            self.streams.append((context, gate, mlp, linear))
        self.bilinear = parameters.matrix("fusion.product.weight", out * self.part, 1)
        self.bias = parameters.zeros("fusion.bias", 1)

    def logits(self, dense, vectors, weights):
        x = torch.cat([dense, vectors.flatten(1)], dim=1)
        total, results = self.bias, []
        for context, gate, mlp, linear in self.streams:
            opened = gate(vectors[:, context].flatten(1)) if context else gate
            results.append(mlp(x * 2 * torch.sigmoid(opened)))
            total = total + (results[-1] @ linear)[:, 0]
        first, second = (each.unflatten(1, (self.heads, self.part)) for each in results)
        matrices = self.bilinear.view(self.heads, self.part, self.part)
        return total + torch.einsum("bhi,hij,bhj->b", first, matrices, second)


class TwoTowers:
    """Retrieval with a softmax over the items of the batch (Yi et al., 2019, without their correction)."""

    extra = 0

    def __init__(self, parameters, flags, dense, columns):
        self.items = flags.item_places
        self.others = [column for column in range(columns) if column not in self.items]
        self.query = Mlp(parameters, "query", dense + len(self.others) * flags.dim, flags.bottom)
        self.item = Mlp(parameters, "item", len(self.items) * flags.dim, flags.bottom)

    def towers(self, dense, vectors):
        query = self.query(torch.cat([dense, vectors[:, self.others].flatten(1)], dim=1))
        return query, self.item(vectors[:, self.items].flatten(1))

    def logits(self, dense, vectors, weights):
        query, item = self.towers(dense, vectors)
        return (query * item).sum(1)

    def loss(self, labels, dense, vectors, weights):
        query, item = self.towers(dense, vectors)
        losses = functional.cross_entropy(query @ item.T, torch.arange(len(labels)), reduction="none")
        return (losses * labels).sum() / labels.sum().clamp(min=1e-30)


MODELS = {
    "dlrm": Dlrm,
    "wide-and-deep": WideAndDeep,
    "deepfm": DeepFm,
    "dcnv2": DcnV2,
    "finalmlp": FinalMlp,
    "two-towers": TwoTowers,
}


class Reference:
    def __init__(self, flags, dense, columns, rows):
        self.dense = Parameters()
        self.model = MODELS[flags.model](self.dense, flags, dense, columns)
        width = flags.dim + self.model.extra
        self.rows = torch.empty(rows, width).uniform_(-EMBEDDING_LIMIT, EMBEDDING_LIMIT).requires_grad_()
        self.optimizers = [
            torch.optim.Adagrad([self.rows], lr=flags.lr),
            torch.optim.Adam(self.dense.values(), lr=flags.dense_lr),
        ]

    def begin_with(self, folder, samples):
        """Takes the initial values of the other side, and checks that it has a row where this one has one.

        `places.u32`: for each value of each column of the samples, in order, the number of its row there.
        `values.f32`: the rows, and then the tensors that `tensors.json` names.
        """
        places = torch.from_numpy(np.fromfile(os.path.join(folder, "places.u32"), "<u4").astype(np.int64))
        ids = torch.cat([column for each in samples for column, _ in each.columns])
        count = len(self.rows)
        assert len(ids) == len(places), f"{len(places)} values on the other side, {len(ids)} here"
        place_of, id_of = torch.full((count,), -1), torch.full((count,), -1)
        place_of[ids], id_of[places] = places, ids
        assert torch.equal(place_of[ids], places) and torch.equal(id_of[places], ids), "rows are shared"
        values = np.fromfile(os.path.join(folder, "values.f32"), "<f4")
        with open(os.path.join(folder, "tensors.json")) as file:
            tensors = json.load(file)
        assert {name: list(shape) for name, shape in tensors} == {
            name: list(tensor.shape) for name, tensor in self.dense.items()
        }, f"the other side has {tensors}"
        at = count * self.rows.shape[1]
        with torch.no_grad():
            self.rows.copy_(torch.from_numpy(values[:at]).view(self.rows.shape)[place_of])
            for name, shape in tensors:
                size = math.prod(shape)
                self.dense[name].copy_(torch.from_numpy(values[at : at + size]).view(shape))
                at += size
        assert at == len(values)

    def inputs(self, dense, bags):
        """The model's inputs: numbers, the embeddings of each column, and the weights of values."""
        pooled = torch.stack(
            [functional.embedding_bag(ids, self.rows, at, mode="mean", sparse=True) for ids, at in bags],
            dim=1,
        )
        extra = self.model.extra
        return dense, pooled[:, :, extra:], pooled[:, :, 0] if extra else None

    def loss(self, labels, dense, bags):
        inputs = self.inputs(dense, bags)
        if isinstance(self.model, TwoTowers):
            return self.model.loss(labels, *inputs)
        return functional.binary_cross_entropy_with_logits(self.model.logits(*inputs), labels)

    def logits(self, dense, bags):
        return self.model.logits(*self.inputs(dense, bags))

    def step(self, labels, dense, bags):
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss = self.loss(labels, dense, bags)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return float(loss.detach())


def auc(labels, scores):
    """The share of pairs of a positive and a negative sample that are in order; a tie is half a pair."""
    order = np.argsort(scores, kind="stable")
    _, first, counts = np.unique(scores[order], return_index=True, return_counts=True)
    ranks = np.empty(len(scores))
    ranks[order] = np.repeat(first + (counts + 1) / 2, counts)
    positive = labels == 1
    count = positive.sum()
    return (ranks[positive].sum() - count * (count + 1) / 2) / (count * (len(labels) - count))


def auc_within(labels, scores, group):
    """The same of pairs within groups of so many consecutive samples."""
    labels, scores = labels.reshape(-1, group), scores.reshape(-1, group)
    pairs = (labels[:, :, None] == 1) & (labels[:, None, :] == 0)
    above = np.sign(scores[:, :, None] - scores[:, None, :]) / 2 + 0.5
    return above[pairs].mean()


def widths(text):
    return [int(each) for each in text.split("-")]


def main():
    parser = argparse.ArgumentParser()
    for name in ("schema", "train", "test"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--model", required=True, choices=MODELS)
    parser.add_argument("--items", nargs="+", default=[])
    parser.add_argument("--gates", nargs=2, default=[])
    parser.add_argument("--heads", type=int, default=1)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--bottom", type=widths)
    parser.add_argument("--top", type=widths, default=[256, 64, 1])
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--dense-lr", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--initial")
    parser.add_argument("--group", type=int)
    flags = parser.parse_args()
    flags.bottom = flags.bottom or [64, flags.dim]
    with open(flags.schema) as file:
        schema = json.load(file)
    torch.set_num_threads(1)
    ids = {}
    train, test = Samples(flags.train, schema, ids), Samples(flags.test, schema, ids)
    fields = [Column(spec).field for spec in schema["sparse"]]
    flags.item_places = [index for index, field in enumerate(fields) if field in flags.items]
    flags.contexts = [[fields.index(field)] for field in flags.gates] or [[], []]
    aucs, losses = [], []
    for seed in flags.seeds:
        torch.manual_seed(seed)
        model = Reference(flags, train.dense.shape[1], len(train.columns), len(ids))
        if flags.initial:
            model.begin_with(flags.initial, [train, test])
        losses = [model.step(*batch) for _ in range(flags.epochs) for batch in train.batches(flags.batch)]
        with torch.no_grad():
            scores = torch.cat([model.logits(dense, bags) for _, dense, bags in test.batches(flags.batch)])
        labels, scores = test.labels.numpy(), scores.numpy()
        value = auc_within(labels, scores, flags.group) if flags.group else auc(labels, scores)
        aucs.append(round(float(value), 5))
    print(json.dumps({"aucs": aucs, "losses": losses}))


main()
