"""Loops over data that are left, and begun again: each batch is trained once, as by one iterator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import CONTENT, KEYS, LINES, Net, Pair, loss_of, opened
from torch import Tensor, nn

import kintsugi.torch as kt


@pytest.fixture
def client(cluster: kintsugi.LocalCluster) -> Iterator[kintsugi.Client]:
    """A client works on one data set."""
    with kintsugi.connect(cluster.address, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "train.tsv"
    path.write_text(CONTENT)
    return path


def taken(data: Any, count: int, way: str) -> Iterator[Any]:
    """At most so many batches, after which the loop is left."""
    if way == "zip":
        yield from (batch for _, batch in zip(range(count), data, strict=False))
    elif way == "islice":
        yield from itertools.islice(data, count)
    else:
        for number, batch in enumerate(data, 1):
            yield batch
            if number == count:
                break


@pytest.mark.parametrize("way", ["zip", "islice", "break"])
@pytest.mark.parametrize("kind", ["rows", "fused", "pipeline"])
def test_loops_that_are_left_train_each_batch_once(
    client: kintsugi.Client, file: Path, way: str, kind: str
) -> None:
    """As loops over one iterator of PyTorch."""
    pair = Pair(client, fused=kind == "fused")
    nets = [Net(pair.layer), Net(pair.torch)]
    rows = None if kind == "fused" else pair.rows()
    dense = [torch.optim.SGD(net.top.parameters(), lr=0.1) for net in nets]
    ours = [each for each in (rows, dense[0]) if each is not None]
    theirs = [pair.torch.optimizer, dense[1]]
    data = opened(client, file, epochs=2)
    its = iter(list(kintsugi.read_batches([file], batch=10, sparse=[1, 2], keys="integer")) * 2)
    finished: list[int] = []
    data.on_range["test"] = lambda: finished.append(1)
    pipe = kt.Pipeline(nets[0], ours, lambda out, _: out.square().mean())

    def train(net: nn.Module, optimizers: list[Any], keys: Tensor) -> None:
        for each in optimizers:
            each.zero_grad()
        net(keys).square().mean().backward()
        for each in optimizers:
            each.step()

    trained = []
    # The third loop is left in the last batch of the first epoch.
    for count in (2, 1, 3, 1, 99):
        if kind == "pipeline":
            trained.append(sum(1 for _ in taken(pipe(data), count, way)))
        else:
            trained.append(0)
            for keys, _ in taken(data, count, way):
                train(nets[0], ours, keys)
                trained[-1] += 1
    assert trained == [2, 1, 3, 1, 5]
    assert len(finished) == 2
    assert data.report() == {"samples": 2 * LINES, "trained": 2 * LINES, "lost": 0, "duplicated": 0}
    if kind == "pipeline":
        # The rows miss updates that are on their way.
        return
    for batch in its:
        train(nets[1], theirs, torch.from_numpy(batch.sparse & 0xFFFFFFFF))
    pair.check()
    torch.testing.assert_close(nets[0].top.weight, nets[1].top.weight)


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_second_loop_gives_nothing_without_a_second_epoch(
    client: kintsugi.Client, file: Path, epochs: int
) -> None:
    data = opened(client, file, epochs=epochs)
    assert [sum(len(label) for _, label in data) for _ in range(2)] == [epochs * LINES, 0]


def listed(batches: list[Any]) -> Iterator[Any]:
    return iter(batches)


def generated(batches: list[Any]) -> Iterator[Any]:
    yield from batches


@pytest.mark.parametrize("make", [listed, generated])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_pipeline_goes_on_with_an_iterator(client: kintsugi.Client, make: Any, prefetch: int) -> None:
    pair = Pair(client, "sgd")
    pipe = kt.Pipeline(pair.layer, pair.rows(), loss_of, prefetch=prefetch)
    batches = [(torch.tensor([key, key]), number) for number, key in enumerate(range(KEYS))]
    ours, theirs = make(batches), make(batches)
    other = make([(torch.tensor([KEYS + number]), 0) for number in range(4)])
    trained = []
    for count in (1, 2, 3, 99):
        trained.append(sum(1 for _ in taken(pipe(ours), count, "break")))
        for keys, number in taken(theirs, count, "break"):
            pair.torch.optimizer.zero_grad()
            loss_of(pair.torch(keys), number).backward()
            pair.torch.optimizer.step()
        # Another one that is left, and has no keys of these.
        if make is generated:
            sum(1 for _ in taken(pipe(other), 1, "break"))
    assert trained == [1, 2, 3, KEYS - 6]
    pair.check()
    # An iterable that is no iterator begins anew.
    for _ in range(2):
        assert [float(loss) for loss in taken(pipe(batches), 1, "break")]
    assert sum(1 for _ in pipe(batches)) == KEYS


def test_a_batch_that_was_given_and_not_trained_comes_again(client: kintsugi.Client, file: Path) -> None:
    pair = Pair(client)
    rows = pair.rows()
    data = opened(client, file)
    first = [next(iter(data))[0] for _ in range(2)]
    seen = []
    for way in ("break", "an error", "to the end"):
        for number, (keys, _) in enumerate(data):
            seen.append(keys)
            if number == 2 and way != "to the end":
                break
            rows.zero_grad()
            loss_of(pair.layer(keys)).backward()
            rows.step()
    numbers = [next(n for n, one in enumerate(seen) if torch.equal(one, each)) for each in [*first, *seen]]
    assert numbers == [0, 0, 0, 1, 2, 2, 4, 5, 5, 7]
    assert data.report() == {"samples": LINES, "trained": LINES, "lost": 0, "duplicated": 0}


def test_batches_of_a_trainer_that_is_gone_come_once(
    cluster: kintsugi.LocalCluster, client: kintsugi.Client, file: Path
) -> None:
    run = f"r-{uuid4()}"
    pair = Pair(client)
    rows = pair.rows()

    def loop(data: kintsugi.RangeDataset, layer: nn.Module, rows: kt.RowOptimizer, count: int) -> list[Any]:
        seen = []
        for keys, _ in taken(data, count, "break"):
            rows.zero_grad()
            loss_of(layer(keys)).backward()
            rows.step()
            seen.append(keys.tolist())
        return seen

    with kintsugi.connect(cluster.address, timeout=60) as other:
        layer = kt.KintsugiEmbedding(other, pair.layer.table.name)
        theirs = loop(opened(other, file, run=run), layer, kt.RowOptimizer(layer), 3)
    data = opened(client, file, run=run)
    # The first two and then the third are given for dense parameters alone.
    ours = loop(data, pair.layer, rows, 2) + loop(data, pair.layer, rows, 2) + loop(data, pair.layer, rows, 9)
    assert ours[:3] == theirs
    assert len(ours) == LINES // 10
    assert data.report() == {"samples": LINES, "trained": LINES, "lost": 0, "duplicated": 0}
