"""Copies, averages and pickles of models, workers that are spawned, and torch.compile."""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import warnings
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import kintsugi
from kintsugi import Error

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import Net, Pair
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset

import kintsugi.torch as kt

KEYS = torch.tensor([1, 2, 2, 3])
pytestmark = pytest.mark.filterwarnings("default")
"""Warnings of other packages are no failures here."""


def embedding(client: kintsugi.Client, **options: Any) -> kt.KintsugiEmbedding:
    return kt.KintsugiEmbedding(
        client, f"t-{uuid4()}", 4, optimizer=kintsugi.SGD(lr=1.0), fused=True, **options
    )


def model(client: kintsugi.Client) -> nn.Sequential:
    return nn.Sequential(embedding(client), nn.Linear(4, 1))


def layers(client: kintsugi.Client) -> list[tuple[nn.Module, Any]]:
    configs = [kt.EmbeddingBagConfig(f"t-{uuid4()}", 4, ["a", "b"])]
    offsets = torch.tensor([0, 3])
    return [
        (embedding(client), KEYS),
        (kt.KintsugiEmbeddingBag(client, f"t-{uuid4()}", 4, mode="max", fused=True), KEYS.view(2, 2)),
        (
            kt.EmbeddingBagCollection(client, configs, fused=True),
            {"a": (KEYS, offsets), "b": KEYS.view(2, 2)},
        ),
        (kt.EmbeddingCollection(client, [kt.EmbeddingConfig(f"t-{uuid4()}", 4)]), None),
    ]


def values(result: Any) -> list[Any]:
    each = [result] if isinstance(result, Tensor) else list(result.values())
    return [part.tolist() for part in each]


def test_a_copy_is_frozen_and_shows_the_rows_as_they_are(client: kintsugi.Client) -> None:
    for layer, given in layers(client):
        given = {layer.features[0]: KEYS} if given is None else given
        twin = copy.deepcopy(layer)
        assert type(twin) is type(layer)
        before = twin(given)
        assert values(before) == values(layer(given))
        assert not any(
            part.requires_grad for part in ([before] if isinstance(before, Tensor) else before.values())
        )
        assert not any(parameter.requires_grad for parameter in twin.parameters())
        assert all(parameter.requires_grad for parameter in layer.parameters())
        if isinstance(layer, kt.EmbeddingCollection):
            continue
        result = layer(given)
        sum(
            (part.sum() for part in ([result] if isinstance(result, Tensor) else result.values())),
            torch.zeros(()),
        ).backward()
        assert values(twin(given)) == values(layer(given)) != values(before)
        # A copy learns when it is told to: both are of one table.
        twin.requires_grad_()
        result = twin(given)
        assert (result if isinstance(result, Tensor) else result["a"]).requires_grad


def test_an_averaged_model_averages_dense_parameters_and_shows_rows(client: kintsugi.Client) -> None:
    live = nn.Sequential(nn.Sequential(embedding(client)), nn.Linear(4, 1))
    # The warning is at the line of the program.
    with pytest.warns(UserWarning, match="AveragedModel averages dense parameters, and no rows") as seen:
        averaged = AveragedModel(live, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    assert [each.filename for each in seen] == [__file__]
    optimizer = torch.optim.SGD(live[1].parameters(), lr=0.1)
    expected = None
    for _ in range(3):
        optimizer.zero_grad()
        live(KEYS).sum().backward()
        optimizer.step()
        averaged.update_parameters(live)
        weight = live[1].weight.detach().clone()
        expected = weight if expected is None else 0.5 * expected + 0.5 * weight
        torch.testing.assert_close(averaged.module[1].weight, expected)
    assert averaged.module[0](KEYS).tolist() == live[0](KEYS).tolist()
    with pytest.raises(
        Error, match="rows have no average: a copy of a layer shows them as they are"
    ) as error:
        AveragedModel(live[0][0])
    assert error.value.code == "BAD_ARGUMENT"
    # Rows that nobody trains here have no average, and neither do copies that are no average.
    live[0].requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AveragedModel(live)
        copy.deepcopy(live.requires_grad_())
        AveragedModel(live[1])


def test_a_pickle_reconnects(cluster: kintsugi.LocalCluster) -> None:
    with kintsugi.connect(cluster.address, timeout=60) as client:
        live = model(client)
        live[0].requires_grad_(False)
        buffer = io.BytesIO()
        torch.save(live, buffer)
        content = pickle.dumps((client, live[0].table, live))
        expected = live(KEYS).tolist()
        same, table, again = pickle.loads(content)
        # In a program that has the client it is the same one.
        assert same is client
        assert table is live[0].table
        assert again(KEYS).tolist() == expected
        assert not again[0].anchor.requires_grad
        name = live[0].table.name
    buffer.seek(0)
    for read in (lambda: torch.load(buffer, weights_only=False), lambda: pickle.loads(content)[2]):
        found = read()  # type: ignore[no-untyped-call]
        with found[0].client as other:
            assert other is not client
            assert (found[0].table.name, found[0].table.dim) == (name, 4)
            assert found(KEYS).tolist() == expected
            found[0].requires_grad_(True)
            found(KEYS).sum().backward()
            other.flush()
            assert found(KEYS).tolist() != expected
            expected = found(KEYS).tolist()


def test_a_pickle_of_one_of_two_clients(cluster: kintsugi.LocalCluster, client: kintsugi.Client) -> None:
    with kintsugi.connect(cluster.address, timeout=60) as other:
        layers = [embedding(each) for each in (client, other)]
        for layer in layers:
            assert pickle.loads(pickle.dumps(layer)).client is layer.client
        for layer in layers[::-1]:
            assert pickle.loads(pickle.dumps(layer.client)) is layer.client


def test_a_pickle_of_a_version_before_types(client: kintsugi.Client) -> None:
    live: Any = embedding(client)
    state = live.__getstate__()
    del state["dtype"]
    found: Any = kt.KintsugiEmbedding.__new__(kt.KintsugiEmbedding)
    found.__setstate__(state)
    assert found.anchor.dtype == torch.float32
    given = torch.arange(4).view(2, 2)
    assert found(given).tolist() == live(given).tolist()


class Rows(Dataset[Any]):
    """Holds a client and a table, as a data set that looks features up does."""

    def __init__(self, client: kintsugi.Client, table: kintsugi.Table) -> None:
        self.client = client
        self.table = table

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return self.table.pull([index])[0].copy(), self.client.id, self.client.gateway_pid or 0


@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_workers_that_hold_a_client(client: kintsugi.Client, start: str) -> None:
    table = client.create_table(f"t-{uuid4()}", 4)
    loader = DataLoader(Rows(client, table), batch_size=2, num_workers=2, multiprocessing_context=start)
    rows, ids, pids = (torch.cat(parts) for parts in zip(*loader, strict=True))
    assert (rows.numpy() == table.pull(np.arange(6))).all()
    # Each is a client of its own, at the gateway of this process.
    assert client.id not in ids.tolist()
    assert len(set(ids.tolist())) == 2
    assert set(pids.tolist()) == {0}


def test_compile_breaks_the_graph_at_most(client: kintsugi.Client) -> None:
    live = model(client)
    compiled = torch.compile(live, backend="eager")
    for keys in (KEYS, KEYS.repeat(2), KEYS):
        before = live[0].table.pull(KEYS.numpy()).copy()
        torch.testing.assert_close(compiled(keys), live(keys))
        compiled(keys).sum().backward()
        client.flush()
        assert (live[0].table.pull(KEYS.numpy()) != before).any()
    for layer, given in layers(client)[1:3]:
        result = torch.compile(layer, backend="eager")(given)
        assert values(result) == values(layer(given))


@pytest.mark.parametrize("kind", ["rows", "model", "shared", "fused"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_step_that_is_compiled(client: kintsugi.Client, kind: str, backend: str) -> None:
    pair = Pair(client, fused=kind == "fused")
    nets = [Net(pair.layer), Net(pair.torch)]
    if kind != "shared":
        # Optimizers of the model have the parameter that stands for the rows.
        trained = nets[0] if kind == "model" else nets[0].top
        dense: torch.optim.Optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    else:
        dense = kt.SharedOptimizer(client, f"t-{uuid4()}", nets[0], kintsugi.SGD(lr=0.1))
    ours = [dense] if kind == "fused" else [pair.rows(), dense]
    theirs = [pair.torch.optimizer, torch.optim.SGD(nets[1].top.parameters(), lr=0.1)]

    def train(net: nn.Module, optimizers: list[Any], keys: Tensor) -> Tensor:
        for each in optimizers:
            each.zero_grad()
        loss: Tensor = net(keys).square().sum()
        loss.backward()
        for each in optimizers:
            each.step()
        return loss.detach()

    torch.compiler.reset()
    compiled = torch.compile(train, backend=backend)
    for step in range(3):
        keys = torch.tensor([step, 1, 1, 5])
        torch.testing.assert_close(compiled(nets[0], ours, keys), train(nets[1], theirs, keys))
    pair.check()
    torch.testing.assert_close(nets[0].top.weight, nets[1].top.weight)


def test_a_row_optimizer_of_a_copy_says_that_it_is_frozen(client: kintsugi.Client) -> None:
    live = nn.Sequential(kt.KintsugiEmbedding(client, f"t-{uuid4()}", 4), nn.Linear(4, 1))
    copied = copy.deepcopy(live)
    with pytest.warns(UserWarning, match="is a copy, and copies are frozen") as seen:
        kt.RowOptimizer(copied)
    assert [each.filename for each in seen] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kt.RowOptimizer(copied.requires_grad_())
        kt.RowOptimizer(live.requires_grad_(False))


def test_a_layer_in_a_child_after_a_fork_has_rows_of_its_own(client: kintsugi.Client) -> None:
    assert client.shared
    layer = kt.KintsugiEmbedding(client, f"t-{uuid4()}", 4)
    other = client.create_table(f"t-{uuid4()}", 4, initializer=kintsugi.Constant(777.0))
    rows, keys = kt.RowOptimizer(layer), torch.arange(20)
    before = layer(keys).detach()
    told = [os.pipe(), os.pipe()]
    child = os.fork()
    if child == 0:
        try:
            os.read(told[0][0], 1)
            with torch.no_grad():
                seen = [layer(keys[:5]), layer(keys), rows.param_groups[0]["params"][0].data]
            good = [torch.equal(each, before[: len(each)]) for each in seen]
            os.write(told[1][1], str(good).encode())
            client.close()
        finally:
            os._exit(0)
    # The memory of the rows is that of others from now on.
    del rows
    gc.collect()
    kept = [other.pull(np.arange(20)) for _ in range(50)]
    os.write(told[0][1], b"x")
    assert os.read(told[1][0], 100) == b"[True, True, True]"
    os.waitpid(child, 0)
    for each in (*told[0], *told[1]):
        os.close(each)
    assert all((each == 777).all() for each in kept)
