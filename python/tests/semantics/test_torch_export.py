"""Plain modules with the rows of some keys: the same results, here and in exporters that are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import kintsugi
from kintsugi import Error

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import Pair, keys_of
from torch import Tensor, nn

import kintsugi.torch as kt

pytestmark = pytest.mark.filterwarnings("default")
"""Warnings of other packages are no failures here."""
ROWS = [2**62 + 1, -5, 0, 7, 9, 10, 11, 40]
GIVEN = torch.tensor([[7, -5, -1], [2**62 + 1, 7, 7], [-1, -1, -1], [40, 0, 11]])


def name() -> str:
    return f"t{uuid4().hex}"


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 100])
def test_every_key_is_found(client: kintsugi.Client, count: int) -> None:
    layer = kt.KintsugiEmbedding(client, name(), 3)
    keys = np.random.default_rng(count).choice(1000, count, replace=False) - 500
    keys = keys[keys != -1]
    if len(keys) == 0:
        return
    plain = kt.to_embedding_bag(layer, keys=keys)
    asked = torch.arange(-600, 600)
    known = torch.isin(asked, torch.from_numpy(keys))
    found = plain(asked)
    assert (found[~known] == 0).all()
    assert (found[known].detach().numpy() == layer.table.pull(asked[known].numpy())).all()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(client: kintsugi.Client, mode: Any) -> None:
    layer = kt.KintsugiEmbeddingBag(client, name(), 3, mode=mode, initializer=kintsugi.Uniform(-1, 1))
    plain = kt.to_embedding_bag(layer, keys=ROWS)
    torch.testing.assert_close(plain(GIVEN), layer(GIVEN))
    flat, offsets = GIVEN.reshape(-1), torch.tensor([0, 4, 4, 9])
    torch.testing.assert_close(plain(flat, offsets), layer(flat, offsets))
    # Keys that were not asked for are missing there.
    unknown = torch.where(GIVEN == 7, 8, GIVEN)
    torch.testing.assert_close(plain(unknown), layer(torch.where(GIVEN == 7, -1, GIVEN)))
    if mode == "sum":
        weights = torch.randn(GIVEN.shape)
        torch.testing.assert_close(plain(GIVEN, None, weights), layer(GIVEN, None, weights))


@pytest.mark.parametrize("mode", ["mean", "max"])
def test_weights_need_a_sum(client: kintsugi.Client, mode: Any) -> None:
    plain = kt.to_embedding_bag(kt.KintsugiEmbeddingBag(client, name(), 3, mode=mode), keys=ROWS)
    flat = GIVEN.reshape(-1), torch.tensor([0, 3, 6, 9]), torch.ones(12)
    for keys, offsets, weights in ((GIVEN, None, torch.ones(GIVEN.shape)), flat):
        with pytest.raises(NotImplementedError, match="weights"):
            plain(keys, offsets, weights)


def test_weights_fit_their_keys(client: kintsugi.Client) -> None:
    plain = kt.to_embedding_bag(kt.KintsugiEmbeddingBag(client, name(), 3, mode="sum"), keys=ROWS)
    for weights in (torch.ones(3), torch.ones(4, 1)):
        with pytest.raises(ValueError, match="shape"):
            plain(GIVEN, None, weights)


@pytest.mark.parametrize("mode", ["sum", "mean", "max", "rows"])
@pytest.mark.parametrize("flat", [False, True])
def test_missing_keys_stay_zero_in_training(client: kintsugi.Client, mode: Any, flat: bool) -> None:
    options: dict[str, Any] = {"initializer": kintsugi.Constant(1.0)}
    if mode == "rows":
        plain = kt.to_embedding_bag(kt.KintsugiEmbedding(client, name(), 2, **options), keys=[1, 2])
    else:
        layer = kt.KintsugiEmbeddingBag(client, name(), 2, mode=mode, **options)
        plain = kt.to_embedding_bag(layer, keys=[1, 2])
    weight: Any = plain.weight
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)

    def given(*bags: list[int]) -> tuple[Tensor, ...]:
        keys = torch.tensor(bags)
        return (keys.reshape(-1), torch.arange(len(bags)) * 2) if flat and mode != "rows" else (keys,)

    bags = ([1, -1], [77, 2], [-1, -1], [-1, 78])
    for _ in range(3):
        optimizer.zero_grad()
        plain(*given(*bags)).sum().backward()
        assert (weight.grad[-1] == 0).all()
        assert (weight.grad[:-1] != 0).all()
        optimizer.step()
    assert (plain(*given([-1, -1], [78, -1])) == 0).all()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_no_bag_has_the_last_row(client: kintsugi.Client, mode: Any) -> None:
    plain: Any = kt.to_embedding_bag(kt.KintsugiEmbeddingBag(client, name(), 2, mode=mode), keys=[1, 2])
    nn.init.constant_(plain.weight, 3.0)
    for keys in ([-1], [77, 1, -1]):
        results = [plain(torch.tensor([keys])), plain(torch.tensor(keys), torch.tensor([0]))]
        torch.testing.assert_close(*results)
        assert (results[0] == (0.0 if keys == [-1] else 3.0)).all()


def collection(client: kintsugi.Client) -> tuple[kt.EmbeddingBagCollection, dict[str, list[int]]]:
    one, two = name(), name()
    configs = [
        kt.EmbeddingBagConfig(one, 3, ["a", "b"], mode="mean"),
        kt.EmbeddingBagConfig(two, 2, ["b"]),
    ]
    layer = kt.EmbeddingBagCollection(client, configs)
    return layer, {one: ROWS, two: [7, -5]}


def test_collections_and_the_names_of_torchrec(client: kintsugi.Client) -> None:
    layer, keys = collection(client)
    plain = kt.to_embedding_bag(layer, keys=keys)
    given = {"a": GIVEN, "b": (torch.tensor([7, -5, 7]), torch.tensor([0, 1]))}
    ours, theirs = plain(given), layer(given)
    assert list(ours) == list(theirs) == layer.embedding_names()
    for feature, result in theirs.items():
        torch.testing.assert_close(ours[feature], result)
    rows = {table: range(10) for table in keys}
    state = kt.torchrec_state_dict(layer, rows)
    assert list(state) == [f"embedding_bags.{table}.weight" for table in keys]
    assert (
        state[f"embedding_bags.{layer.tables[0].name}.weight"].numpy() == layer.tables[0].pull(range(10))
    ).all()
    first = layer.tables[0].name
    sequences = kt.EmbeddingCollection(client, [kt.EmbeddingConfig(first, features=["a"])])
    plain = kt.to_embedding_bag(sequences, keys={layer.tables[0].name: ROWS})
    torch.testing.assert_close(plain({"a": GIVEN})["a"], sequences({"a": GIVEN})["a"])
    assert list(kt.torchrec_state_dict(sequences, {first: [0]})) == [f"embeddings.{first}.weight"]
    with pytest.raises(Error, match="layer must be an object such as"):
        kt.torchrec_state_dict(kt.KintsugiEmbedding(client, name(), 3), [1])
    odd: Any
    for odd in (ROWS, {}, {"x": ROWS}, None):
        with pytest.raises(Error, match="keys must be a mapping with a list of keys for each of"):
            kt.to_embedding_bag(layer, keys=odd)
    with pytest.raises(Error, match="needs at least one key"):
        kt.to_embedding_bag(kt.KintsugiEmbedding(client, name(), 3), keys=[-1])
    for odd in (nn.Linear(1, 1), kt.KintsugiEmbedding):
        with pytest.raises(Error, match="layer must be an object such as"):
            kt.to_embedding_bag(odd, keys=ROWS)


class Model(nn.Module):
    def __init__(self, rows: nn.Module, dim: int) -> None:
        super().__init__()
        self.rows = rows
        self.top = nn.Linear(dim, 1)

    def forward(self, keys: Tensor) -> Tensor:
        result: Tensor = self.top(self.rows(keys))
        return result


def models(client: kintsugi.Client) -> list[tuple[nn.Module, Tensor]]:
    """Plain models, and what the layers give."""
    found = []
    for mode in ("sum", "mean", "max"):
        layer = kt.KintsugiEmbeddingBag(client, name(), 3, mode=mode)
        live = Model(layer, 3)
        expected = live(GIVEN).detach()
        live.rows = kt.to_embedding_bag(layer, keys=ROWS)
        found.append((live.eval(), expected))
    rows = kt.KintsugiEmbedding(client, name(), 3)
    live = Model(rows, 3)
    expected = live(GIVEN).detach()
    live.rows = kt.to_embedding_bag(rows, keys=ROWS)
    return [*found, (live.eval(), expected)]


def test_torch_export(client: kintsugi.Client, tmp_path: Path) -> None:
    for i, (plain, expected) in enumerate(models(client)):
        batch = torch.export.Dim("batch", min=1, max=4096)
        program = torch.export.export(plain, (GIVEN,), dynamic_shapes=({0: batch},))
        path = tmp_path / f"{i}.pt2"
        torch.export.save(program, path)
        again = torch.export.load(path).module()
        torch.testing.assert_close(again(GIVEN), expected)
        torch.testing.assert_close(again(GIVEN[1:]), expected[1:])


def test_onnx(client: kintsugi.Client, tmp_path: Path) -> None:
    runtime: Any = pytest.importorskip("onnxruntime", reason="LEFT OUT: onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="LEFT OUT: onnxscript is not installed")
    for i, (plain, expected) in enumerate(models(client)):
        path = str(tmp_path / f"{i}.onnx")
        batch = torch.export.Dim("batch", min=1, max=4096)
        torch.onnx.export(plain, (GIVEN,), path, dynamo=True, dynamic_shapes=({0: batch},), verbose=False)
        session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (given,) = session.get_inputs()
        for keys, wanted in ((GIVEN, expected), (GIVEN[1:], expected[1:])):
            (result,) = session.run(None, {given.name: keys.numpy()})
            np.testing.assert_allclose(result, wanted.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_aotinductor(client: kintsugi.Client, tmp_path: Path) -> None:
    layer = kt.KintsugiEmbeddingBag(client, name(), 3, mode="mean", initializer=kintsugi.Uniform(-1, 1))
    plain = kt.to_embedding_bag(layer, keys=ROWS)
    inductor: Any = torch._inductor
    with torch.no_grad():
        exported = torch.export.export(plain, (GIVEN,))
        path = inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "plain.pt2"))
        torch.testing.assert_close(inductor.aoti_load_package(path)(GIVEN), layer(GIVEN))


def test_make_fx_is_an_error(client: kintsugi.Client) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    layer = Pair(client).layer
    with pytest.raises(kintsugi.Error, match="make_fx would keep the rows of these keys for all others"):
        make_fx(layer)(keys_of(1, 2))
    traced = make_fx(kt.to_embedding_bag(layer, keys=range(5)))(keys_of(1, 2))
    assert torch.equal(traced(keys_of(4, 0)), layer(keys_of(4, 0)))
