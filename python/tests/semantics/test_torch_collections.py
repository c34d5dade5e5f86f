"""Collections and bags against those of PyTorch and TorchRec: results, and rows after steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import kintsugi
from kintsugi import Error

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from torch import Tensor, nn

import kintsugi.torch as kt

KEYS = 12
LR = 0.5
pytestmark = pytest.mark.filterwarnings("default")
"""Warnings of other packages are no failures here."""


def name() -> str:
    return f"t{uuid4().hex}"


def options() -> dict[str, Any]:
    return {"optimizer": kintsugi.SGD(lr=LR), "initializer": kintsugi.Uniform(-1, 1)}


def rows_of(table: kintsugi.Table) -> Tensor:
    return torch.from_numpy(table.pull(np.arange(KEYS)).copy())


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-5, atol=1e-6)


def loss_of(result: Tensor) -> Tensor:
    weights = torch.arange(1, result.numel() + 1, dtype=torch.float32).view(result.shape)
    loss: Tensor = (torch.sin(weights) * result * (1 + result)).sum()
    return loss


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("grid", [False, True])
def test_bags(client: kintsugi.Client, mode: Any, grid: bool) -> None:
    layer = kt.KintsugiEmbeddingBag(client, name(), 3, mode=mode, fused=True, **options())
    # The last row of theirs stands for the missing key.
    weight = torch.cat([rows_of(layer.table), torch.zeros(1, 3)])
    theirs = nn.EmbeddingBag(KEYS + 1, 3, mode=mode, padding_idx=KEYS, _weight=weight)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=LR)
    keys = torch.tensor([5, -1, 5, 7, -1, -1, 2, 5])
    offsets = None if grid else torch.tensor([0, 3, 3, 4, 6])
    keys = keys.view(4, 2) if grid else keys
    for _ in range(3):
        ours, other = layer(keys, offsets), theirs(torch.where(keys == -1, KEYS, keys), offsets)
        close(ours, other)
        loss_of(ours).backward()
        optimizer.zero_grad()
        loss_of(other).backward()
        optimizer.step()
        client.flush()
        close(rows_of(layer.table), theirs.weight[:KEYS])


@pytest.mark.parametrize("make", [kt.KintsugiEmbedding, kt.KintsugiEmbeddingBag])
@pytest.mark.parametrize(
    "given",
    [
        {"max_norm": 1.0}, {"norm_type": 1.0}, {"scale_grad_by_freq": True}, {"padding_idx": 0},
        {"sparse": True}, {"num_embeddings": 10}, {"device": "cpu"}, {"dtype": torch.float16},
        {"pooling": "sum"}, {"init_fn": nn.init.zeros_}, {"data_type": "FP16"},
        {"weight_init_max": 1.0}, {"weight_init_min": 0.0}, {"_weight": torch.zeros(1, 3)},
    ],
    ids=lambda given: next(iter(given)),
)  # fmt: skip
def test_what_layers_of_torch_have_and_these_do_not_is_an_error_with_a_sentence(
    client: kintsugi.Client, make: Any, given: dict[str, Any]
) -> None:
    with pytest.raises(Error, match=f"{make.__name__} has no {next(iter(given))}: .{{20}}") as error:
        make(client, name(), 3, **given)
    assert error.value.code == "BAD_ARGUMENT"
    with pytest.raises(TypeError, match="unexpected keyword argument 'rows'"):
        make(client, name(), 3, rows=3)
    assert "rows" not in [table.name for table in client.tables()]


def test_a_layer_without_dim_is_of_a_table_that_exists(client: kintsugi.Client) -> None:
    made = client.create_table(name(), 3, seed=5, **options())
    assert kt.KintsugiEmbedding(client, made.name).table.optimizer == kintsugi.SGD(lr=LR)
    bags = kt.EmbeddingBagCollection(client, [kt.EmbeddingBagConfig(made.name, feature_names=["a"])])
    close(bags({"a": torch.tensor([[3]])})["a"], rows_of(made)[3:4])
    with pytest.raises(Error, match="no table"):
        kt.KintsugiEmbeddingBag(client, name())
    with pytest.raises(Error, match="without dim it is taken as it is"):
        kt.KintsugiEmbedding(client, made.name, optimizer=kintsugi.Adam())


def test_configurations_have_the_names_of_torchrec(client: kintsugi.Client) -> None:
    for kind in (kt.EmbeddingBagConfig, kt.EmbeddingConfig):
        config = kind(name="items", embedding_dim=3, feature_names=["a", "b"])
        assert config == kind("items", 3, ["a", "b"])
        assert (config.embedding_dim, config.feature_names) == (3, ["a", "b"])
        assert kind("items", 3).feature_names == ["items"]
        for wrong in ({"dim": 4}, {"features": ["a"]}):
            with pytest.raises(Error, match="two names of one thing, and differ"):
                kind(name="items", embedding_dim=3, feature_names=["a", "b"], **wrong)
        with pytest.raises(Error, match="has no num_embeddings: there is no number of rows"):
            kind(name="items", embedding_dim=3, num_embeddings=10)
        make: Any = kind
        for given, sentence in {
            "pooling": 'it is mode="sum", "mean" or "max" here',
            "init_fn": "first values are those of initializer=",
            "data_type": "rows are float32 on the PS",
        }.items():
            with pytest.raises(Error, match=f"has no {given}: {sentence}"):
                make(name="items", embedding_dim=3, **{given: "any"})
    twice = kt.EmbeddingBagConfig("items", 3, ["a", "a"])
    with pytest.raises(Error, match="has a feature twice"):
        kt.EmbeddingBagCollection(client, [twice])


def test_weighted_features_and_numbers_of_bags_that_differ(client: kintsugi.Client) -> None:
    one, two = name(), name()
    configs = [
        kt.EmbeddingBagConfig(one, 3, ["a", "b"], **options()),
        kt.EmbeddingBagConfig(two, 2, ["c"], **options()),
    ]
    bags = kt.EmbeddingBagCollection(client, configs, is_weighted=True, fused=True)
    assert bags.is_weighted()
    theirs = {
        table.name: nn.EmbeddingBag(KEYS, table.dim, mode="sum", _weight=rows_of(table))
        for table in bags.tables
    }
    optimizer = torch.optim.SGD([bag.weight for bag in theirs.values()], lr=LR)
    given = {
        "a": (torch.tensor([1, 2, 1]), torch.tensor([0, 2]), torch.tensor([0.5, -1.0, 2.0])),
        "b": (torch.tensor([2, 1, 3, 1]), torch.tensor([0, 0, 3]), torch.tensor([1.0, 2.0, 0.0, 0.25])),
        "c": (torch.tensor([7]), torch.tensor([0]), torch.tensor([3.0], dtype=torch.float64)),
    }
    learnt = {feature: weights.clone().requires_grad_() for feature, (_, _, weights) in given.items()}
    for _ in range(2):
        ours = bags({f: (keys, offsets, learnt[f]) for f, (keys, offsets, _) in given.items()})
        weights = {f: each.detach().float().requires_grad_() for f, each in learnt.items()}
        other = {f: theirs[one if f != "c" else two](k, o, weights[f]) for f, (k, o, _) in given.items()}
        for feature in "abc":
            close(ours[feature], other[feature])
        sum((loss_of(ours[feature]) for feature in "abc"), torch.zeros(())).backward()
        optimizer.zero_grad()
        sum((loss_of(other[feature]) for feature in "abc"), torch.zeros(())).backward()
        optimizer.step()
        client.flush()
        for table in bags.tables:
            close(rows_of(table), theirs[table.name].weight)
        for feature, each in learnt.items():
            assert each.grad is not None
            assert weights[feature].grad is not None
            close(each.grad.float(), weights[feature].grad)
            each.grad = None
    with pytest.raises(Error, match="has no weights, and the collection is_weighted"):
        bags({**given, "a": given["a"][:2]})
    plain = kt.EmbeddingBagCollection(client, configs)
    with pytest.raises(Error, match="has weights: say is_weighted=True"):
        plain(given)
    means = kt.EmbeddingBagConfig(one, 3, mode="mean", **options())
    with pytest.raises(Error, match='weights need the mode "sum"'):
        kt.EmbeddingBagCollection(client, [means], is_weighted=True)


class Both:
    """A collection of TorchRec and one of ours with the same rows, and two features in two tables."""

    def __init__(self, client: kintsugi.Client, weighted: bool = False, sequences: bool = False) -> None:
        torchrec: Any = pytest.importorskip("torchrec", reason="LEFT OUT: torchrec is not installed")
        self.client = client
        tables = [(name(), 4, ["a", "b"]), (name(), 4 if sequences else 6, ["b", "c"])]
        their_kind, our_kind = (
            (torchrec.EmbeddingConfig, kt.EmbeddingConfig) if sequences
            else (torchrec.EmbeddingBagConfig, kt.EmbeddingBagConfig)
        )  # fmt: skip
        named: list[dict[str, Any]] = [
            {"name": n, "embedding_dim": dim, "feature_names": features} for n, dim, features in tables
        ]
        configs = [our_kind(**each, **options()) for each in named]
        their_configs = [their_kind(**each, num_embeddings=KEYS) for each in named]
        self.ours: Any
        if sequences:
            self.ours = kt.EmbeddingCollection(client, configs, need_indices=True, fused=True)  # type: ignore[arg-type]
            self.theirs = torchrec.EmbeddingCollection(tables=their_configs, need_indices=True)
            layers = self.theirs.embeddings
        else:
            self.ours = kt.EmbeddingBagCollection(client, configs, is_weighted=weighted, fused=True)  # type: ignore[arg-type]
            self.theirs = torchrec.EmbeddingBagCollection(tables=their_configs, is_weighted=weighted)
            layers = self.theirs.embedding_bags
        self.weights = {n: layers[n].weight for n, _, _ in tables}
        with torch.no_grad():
            for table in self.ours.tables:
                self.weights[table.name].copy_(rows_of(table))
        self.optimizer = torch.optim.SGD(self.theirs.parameters(), lr=LR)

    def step(self, features: Any) -> tuple[Any, Any]:
        results = self.ours(features), self.theirs(features)
        self.optimizer.zero_grad()
        for result in results:
            parts = (
                [result.values()]
                if hasattr(result, "length_per_key")
                else [r.values() for r in result.values()]
            )
            sum((loss_of(part) for part in parts), torch.zeros(())).backward()
        self.optimizer.step()
        self.client.flush()
        for table in self.ours.tables:
            close(rows_of(table), self.weights[table.name])
        return results


def jagged(weights: Any = None, **others: Any) -> Any:
    torchrec: Any = pytest.importorskip("torchrec", reason="LEFT OUT: torchrec is not installed")
    return torchrec.KeyedJaggedTensor(
        keys=["a", "b", "c"],
        values=torch.tensor([1, 2, 1, 3, 3, 1, 0, 11]),
        weights=weights,
        lengths=torch.tensor([2, 1, 0, 1, 2, 2]),
        **others,
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_a_feature_in_two_tables_as_in_torchrec(client: kintsugi.Client, weighted: bool) -> None:
    both = Both(client, weighted)
    weights = torch.tensor([0.5, 2, -1, 1, 3, 0, 1, 0.25])
    for _ in range(2):
        # Without is_weighted both leave weights alone.
        ours, theirs = both.step(jagged(weights))
        table = both.ours.tables
        assert ours.keys() == theirs.keys() == ["a", f"b@{table[0].name}", f"b@{table[1].name}", "c"]
        assert ours.length_per_key() == theirs.length_per_key()
        close(ours.values(), theirs.values())


def test_sequences_as_in_torchrec(client: kintsugi.Client) -> None:
    both = Both(client, sequences=True)
    for _ in range(2):
        ours, theirs = both.step(jagged())
        assert list(ours) == list(theirs)
        for feature, other in theirs.items():
            close(ours[feature].values(), other.values())
            assert (ours[feature].lengths() == other.lengths()).all()
            assert (ours[feature].offsets() == other.offsets()).all()
            assert (ours[feature].weights() == other.weights()).all()
    rows = both.ours({"a": torch.tensor([[1, -1]]), "b": torch.tensor([2]), "c": torch.tensor([])[:0].long()})
    close(rows["a"], torch.stack([rows_of(both.ours.tables[0])[1], torch.zeros(4)])[None])
    assert rows["c"].shape == (0, 4)
    with pytest.raises(Error, match="it has no bags"):
        both.ours({**dict.fromkeys("ab", torch.tensor([1])), "c": (torch.tensor([1]), torch.tensor([0]))})


def test_a_variable_batch_per_feature_as_in_torchrec(client: kintsugi.Client) -> None:
    torchrec: Any = pytest.importorskip("torchrec", reason="LEFT OUT: torchrec is not installed")
    both = Both(client)
    features = torchrec.KeyedJaggedTensor(
        keys=["a", "b", "c"],
        values=torch.tensor([1, 2, 1, 3, 3, 1]),
        lengths=torch.tensor([2, 1, 0, 2, 0, 1]),
        stride_per_key_per_rank=[[2], [1], [3]],
        inverse_indices=(["a", "b", "c"], torch.tensor([[0, 1, 1, 0], [0, 0, 0, 0], [2, 1, 0, 0]])),
    )
    for _ in range(2):
        ours, theirs = both.step(features)
        close(ours.values(), theirs.values())


@pytest.mark.parametrize("sequences", [False, True])
def test_a_state_dict_goes_to_torchrec_and_back(client: kintsugi.Client, sequences: bool) -> None:
    both = Both(client, sequences=sequences)
    ours, theirs = (nn.ModuleDict({"sparse": each}) for each in (both.ours, both.theirs))
    keys = {table.name: range(KEYS) for table in both.ours.tables}
    state = {f"sparse.{name}": rows for name, rows in kt.torchrec_state_dict(both.ours, keys).items()}
    assert list(state) == list(theirs.state_dict())
    for name, rows in theirs.state_dict().items():
        close(state[name], rows)
    theirs.load_state_dict({name: rows + 1 for name, rows in state.items()})
    ours.load_state_dict(theirs.state_dict())
    for table in both.ours.tables:
        close(rows_of(table), both.weights[table.name])
        prefix = both.ours.state_prefix
        close(rows_of(table), state[f"sparse.{prefix}.{table.name}.weight"] + 1)


TAGS = [
    {"c": 1, "tags": ["a", "b"], "w": [2, 0.5]},
    {"c": 0, "tags": [], "w": []},
    {"c": 1, "tags": ["a"], "w": [1]},
]


@pytest.mark.parametrize("tensors", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_values_of_a_schema(client: kintsugi.Client, tmp_path: Path, tensors: bool, weighted: bool) -> None:
    file = tmp_path / "tags.jsonl"
    file.write_text("".join(f"{json.dumps(each)}\n" for each in TAGS))
    column = {"column": "tags", "multi": True, **({"weights": "w"} if weighted else {})}
    schema = {"label": "c", "dense": [], "sparse": [column]}
    (batch,) = kintsugi.read_batches([str(file)], schema=schema, batch=8, tensors=tensors)
    values = batch.sparse["tags"]
    assert isinstance(values, kintsugi.Values)
    config = kt.EmbeddingBagConfig(name(), 3, ["tags"], **options())
    bags = kt.EmbeddingBagCollection(client, [config], is_weighted=weighted)
    result = bags({"tags": values})["tags"]
    assert result.shape == (3, 3)
    keys = torch.as_tensor(values.keys)
    offsets = torch.as_tensor(values.offsets)[:-1]
    parts = (torch.as_tensor(values.weights),) if weighted else ()
    close(result, bags({"tags": (keys, offsets, *parts)})["tags"])
    rows = kt.EmbeddingCollection(client, [kt.EmbeddingConfig(config.name, features=["tags"])])
    close(rows({"tags": values})["tags"], rows({"tags": keys})["tags"])
    if tensors:
        for layer in (bags, rows):
            plain: Any = kt.to_embedding_bag(layer, keys={config.name: keys})
            close(plain({"tags": values})["tags"], layer({"tags": values})["tags"])
    if weighted:
        plain_bags = kt.EmbeddingBagCollection(client, [config])
        with pytest.raises(Error, match="say is_weighted=True"):
            plain_bags({"tags": values})
    wrong = values._replace(offsets=values.offsets[:-1])
    with pytest.raises(Error, match="must end with"):
        bags({"tags": wrong})


WIDTHS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("first", WIDTHS)
def test_features_of_a_table_have_keys_of_any_widths(client: kintsugi.Client, first: str) -> None:
    features = ["a", "b"]
    bags = kt.EmbeddingBagCollection(client, [kt.EmbeddingBagConfig(name(), 3, features, **options())])
    rows = kt.EmbeddingCollection(client, [kt.EmbeddingConfig(bags.tables[0].name, features=features)])
    keys = torch.tensor([[1, 2], [3, 1]])
    for second in WIDTHS:
        given = {"a": keys.to(getattr(torch, first)), "b": keys.to(getattr(torch, second))}
        for layer in (bags, rows):
            results = layer(given)
            close(results["a"], results["b"])
    large = np.array([[2**63 + 5, 2**64 - 2]], np.uint64)
    signed = torch.from_numpy(large.view(np.int64))
    results = rows({"a": torch.from_numpy(large), "b": signed})
    close(results["a"], results["b"])
    close(results["a"][0], torch.from_numpy(bags.tables[0].pull(large[0])))


def test_names_with_the_sign_of_tables(client: kintsugi.Client) -> None:
    tables = [name(), name()]
    with pytest.raises(Error, match=f"two results would be called 'a@{tables[0]}'"):
        kt.EmbeddingBagCollection(
            client,
            [
                kt.EmbeddingBagConfig(tables[0], 2, ["a"]),
                kt.EmbeddingBagConfig(tables[1], 2, ["a", f"a@{tables[0]}"]),
            ],
        )
    torchrec: Any = pytest.importorskip("torchrec", reason="LEFT OUT: torchrec is not installed")
    collection = kt.EmbeddingBagCollection(
        client,
        [kt.EmbeddingBagConfig(tables[0], 2, ["user"]), kt.EmbeddingBagConfig(tables[1], 2, ["user@home"])],
    )
    features = torchrec.KeyedJaggedTensor(
        keys=["user", "user@home"],
        values=torch.tensor([1, 2, 3, 4]),
        lengths=torch.tensor([1, 1, 1, 1]),
        stride_per_key_per_rank=[[2], [2]],
        inverse_indices=(["user", "user@home"], torch.tensor([[0, 1, 0], [1, 1, 0]])),
    )
    found = collection(features)["user@home"]
    close(found, torch.from_numpy(collection.tables[1].pull([4, 4, 3])))
