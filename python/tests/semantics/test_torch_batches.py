"""Batches of a `RangeDataset`: what a RowOptimizer steps is in the push of its batch, and only there."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import CONTENT, DROPS, KEYS, KINDS, LINES, Pair, loss_of, opened
from torch import Tensor, nn

import kintsugi.torch as kt
from kintsugi._dataset import Lease


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pipeline", [False, True])
def test_a_batch_is_a_step(client: kintsugi.Client, file: Path, kind: str, pipeline: bool) -> None:
    pair = Pair(client, kind)
    rows = pair.rows()
    data = opened(client, file)
    number = 0

    def theirs(keys: Tensor) -> None:
        nonlocal number
        pair.torch.optimizer.zero_grad()
        loss_of(pair.torch(keys)).backward()
        torch.nn.utils.clip_grad_norm_(pair.torch.parameters(), 1.0)
        if number != 2:
            pair.torch.optimizer.step()
        number += 1

    seen: list[Tensor] = []

    def before_step() -> None:
        kt.clip_grad_norm_(pair.layer.parameters(), 1.0)
        if len(seen) == 2:
            rows.zero_grad()
        seen.append(torch.empty(0))

    if pipeline:
        pipe = kt.Pipeline(
            pair.layer, [rows], lambda out, _: loss_of(out), deterministic=True, before_step=before_step
        )
        for _ in pipe(data):
            pass
        for first in range(0, LINES, 10):
            theirs(torch.tensor([[n % KEYS, n * n % KEYS] for n in range(first, first + 10)]))
    else:
        for keys, _ in data:
            rows.zero_grad()
            loss_of(pair.layer(keys)).backward()
            before_step()
            rows.step()
            theirs(keys)
    pair.check()
    assert data.report() == {"samples": LINES, "trained": LINES, "lost": 0, "duplicated": 0}


def test_a_look_up_after_the_step_sees_it(client: kintsugi.Client, file: Path) -> None:
    pair = Pair(client)
    rows = pair.rows()
    data = opened(client, file)
    for keys, _ in data:
        for layer, optimizer in ((pair.layer, rows), (pair.torch, pair.torch.optimizer)):
            optimizer.zero_grad()
            loss_of(layer(keys)).backward()
            optimizer.step()
        with torch.no_grad():
            torch.testing.assert_close(pair.layer(keys), pair.torch(keys), rtol=1e-5, atol=1e-6)
    pair.check()
    assert data.report()["duplicated"] == 0


@pytest.mark.parametrize("fused", [False, True])
def test_a_load_and_an_export_after_the_step_see_it(client: kintsugi.Client, file: Path, fused: bool) -> None:
    pair = Pair(client, fused=fused)
    optimizers = [pair.torch.optimizer] if fused else [pair.rows(), pair.torch.optimizer]
    loaded = torch.arange(4.0).view(1, 4)
    for number, (keys, _) in enumerate(opened(client, file)):
        for optimizer in optimizers:
            optimizer.zero_grad()
        pair.backward(keys)
        for optimizer in optimizers:
            optimizer.step()
        if number % 2 == 0:
            plain = kt.to_embedding_bag(pair.layer, keys=range(KEYS))
            given = torch.arange(KEYS)
            torch.testing.assert_close(plain(given), pair.torch(given), rtol=1e-5, atol=1e-6)
        # The row of key 0.
        pair.layer.load_state_dict({"weight": loaded + number})
        with torch.no_grad():
            pair.torch.rows[0].copy_((loaded + number)[0])
    pair.check()


@pytest.mark.parametrize("taker", ["a batch", "kintsugi.torch.step"])
@pytest.mark.parametrize("way", ["zeroed", "halved", "of the group"])
def test_what_changes_a_gradient_after_the_step_changes_no_row(
    client: kintsugi.Client, file: Path, taker: str, way: str
) -> None:
    pair = Pair(client)
    rows = pair.rows()

    def train(layer: nn.Module, optimizer: torch.optim.Optimizer, keys: Tensor) -> None:
        optimizer.zero_grad()
        loss_of(layer(keys)).backward()
        optimizer.step()
        groups = optimizer.param_groups if way == "of the group" else [{"params": layer.parameters()}]
        for each in [each for group in groups for each in group["params"] if each.grad is not None]:
            each.grad.mul_(0.5 if way == "halved" else 0.0)

    if taker == "a batch":
        for keys, _ in opened(client, file):
            train(pair.layer, rows, keys)
            train(pair.torch, pair.torch.optimizer, keys)
    else:
        for keys in (torch.arange(3), torch.arange(2, 6)):
            with kt.step(client):
                train(pair.layer, rows, keys)
            train(pair.torch, pair.torch.optimizer, keys)
    pair.check()


def test_a_look_up_after_a_step_whose_push_is_at_an_end(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    keys = torch.arange(3)
    with kt.step(client):
        loss_of(pair.layer(keys)).backward()
        rows.step()
        uses: list[Callable[[], object]] = [
            lambda: pair.layer(keys),
            lambda: kt.to_embedding_bag(pair.layer, keys=keys),
            lambda: pair.layer.load_state_dict({"weight": torch.ones(2, 4)}),
        ]
        for use in uses:
            with pytest.raises(kintsugi.Error, match=r"is pushed at the end of kintsugi\.torch\.step"):
                use()
    loss_of(pair.torch(keys)).backward()
    pair.torch.optimizer.step()
    pair.check()


def names_of_pushes(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """The keys of each push of a batch from now on."""
    named: list[set[int]] = []
    push = Lease.push

    def noted(self: Lease, requests: Any, samples: int, **rest: Any) -> Any:
        keys = [keys for table, keys, _ in requests if not table.name.endswith("-audit")]
        named.append(set(np.concatenate(keys).tolist()))
        return push(self, requests, samples, **rest)

    monkeypatch.setattr(Lease, "push", noted)
    return named


def test_a_batch_names_its_keys_whether_they_have_a_step_or_not(
    cluster: kintsugi.LocalCluster, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = names_of_pushes(monkeypatch)
    results = []
    for steps in (True, False):
        client = kintsugi.connect(cluster.address, timeout=60)
        pair = Pair(client)
        model = nn.ModuleList([pair.layer, nn.Linear(4, 1)])
        rows = pair.rows()
        dense = kt.SharedOptimizer(client, f"t-{uuid4()}", model, kintsugi.SGD(lr=0.1))
        named.clear()
        for keys, _ in opened(client, file):
            dense.before_forward()
            rows.zero_grad()
            dense.zero_grad()
            model[1](pair.layer(keys)).sum().backward()
            if steps:
                rows.step()
                dense.step()
        results.append(list(named))
        if not steps:
            pair.check()
        client.close()
    assert results[0] == results[1]


@pytest.mark.parametrize("drop", DROPS)
@pytest.mark.parametrize("skipped", [False, True])
def test_gradients_that_are_dropped_are_of_no_batch(
    client: kintsugi.Client, file: Path, monkeypatch: pytest.MonkeyPatch, drop: str, skipped: bool
) -> None:
    """A push names the keys of its samples, so that it has the same numbers when it is done again."""
    pair = Pair(client)
    rows = pair.rows()
    named = names_of_pushes(monkeypatch)
    expected = []
    for number, (keys, _) in enumerate(opened(client, file)):
        expected.append(set(keys.reshape(-1).tolist()))
        DROPS[drop](pair, rows)
        pair.torch.optimizer.zero_grad()
        pair.backward(keys)
        if not skipped or number % 2 == 0:
            rows.step()
            pair.torch.optimizer.step()
    assert named == expected
    pair.check()


def test_what_a_batch_cannot_be_is_an_error(client: kintsugi.Client, file: Path) -> None:
    layer = Pair(client).layer
    rows = kt.RowOptimizer(layer)
    batches = iter(opened(client, file))
    loss_of(layer(next(batches)[0])).backward()
    rows.step()
    with pytest.raises(kintsugi.Error, match="a second step in one push"):
        rows.step()
    # Gradients that nobody has dropped would be in the push of another batch.
    loss = loss_of(layer(next(batches)[0]))
    with pytest.raises(kintsugi.Error, match="two batches of a data set in one step"):
        loss.backward()


def test_pipelines_say_what_does_not_fit(client: kintsugi.Client) -> None:
    pair = Pair(client)
    with pytest.raises(kintsugi.Error, match="before_step needs a RowOptimizer"):
        kt.Pipeline(pair.layer, None, loss_of, before_step=lambda: None)
    with pytest.raises(kintsugi.Error, match="lr is for layers without"):
        kt.Pipeline(pair.layer, pair.rows(), loss_of, lr=0.1)


@pytest.mark.parametrize("way", ["a part", "forward", "parameters"])
def test_a_batch_has_the_dense_parameters_of_the_step_before(
    client: kintsugi.Client, file: Path, way: str
) -> None:
    torch.manual_seed(3)
    ours = nn.Sequential(nn.Linear(2, 1))
    theirs = copy.deepcopy(ours)
    opt = kt.SharedOptimizer(client, f"m-{uuid4()}", ours, kintsugi.SGD(lr=1e-3))
    other = torch.optim.SGD(theirs.parameters(), lr=1e-3)
    for keys, _ in opened(client, file):
        models: list[Any] = [(ours, opt), (theirs, other)]
        for model, optimizer in models:
            optimizer.zero_grad()
            if way == "a part":
                out = model[0](keys.float())
            elif way == "forward":
                out = model.forward(keys.float())
            else:
                out = nn.functional.linear(keys.float(), *model.parameters())
            out.square().mean().backward()
            optimizer.step()
    for mine, each in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), each.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("by", ["break", "an error"])
def test_a_step_before_the_end_of_a_loop_is_pushed(client: kintsugi.Client, file: Path, by: str) -> None:
    pair = Pair(client)
    rows = pair.rows()
    data = opened(client, file)

    def train() -> None:
        for number, (keys, _) in enumerate(data):
            for layer, optimizer in ((pair.layer, rows), (pair.torch, pair.torch.optimizer)):
                optimizer.zero_grad()
                loss_of(layer(keys)).backward()
                optimizer.step()
            if number == 1 and by == "break":
                break
            if number == 1:
                raise ZeroDivisionError

    if by == "break":
        train()
    else:
        with pytest.raises(ZeroDivisionError):
            train()
    pair.check()
    for keys, _ in data:
        rows.zero_grad()
        loss_of(pair.layer(keys)).backward()
        rows.step()
    assert data.report() == {"samples": LINES, "trained": LINES, "lost": 0, "duplicated": 0}


def test_a_part_of_a_step_before_the_end_of_a_loop_is_not_pushed(client: kintsugi.Client, file: Path) -> None:
    pair, other = Pair(client), Pair(client)
    optimizers = [pair.rows(), other.rows()]
    data = opened(client, file)
    for number in range(2):
        for keys, _ in data:
            (loss_of(pair.layer(keys)) + loss_of(other.layer(keys))).backward()
            optimizers[0].step()
            if number == 0:
                break
            optimizers[1].step()
            for each in optimizers:
                each.zero_grad()
        for each in optimizers:
            each.zero_grad()
        if number == 0:
            pair.check()
    assert data.report() == {"samples": LINES, "trained": LINES, "lost": 0, "duplicated": 0}


@pytest.mark.parametrize("whole", [True, False])
def test_fused_gradients_before_the_end_of_a_loop_are_pushed(
    client: kintsugi.Client, file: Path, whole: bool
) -> None:
    pair, other = Pair(client, fused=True), Pair(client, fused=True)
    data = opened(client, file)
    for keys, _ in data:
        loss_of(pair.layer(keys)).backward()
        left = loss_of(other.layer(keys))
        if whole:
            left.backward()
        break
    if whole:
        for each in (pair, other):
            loss_of(each.torch(keys)).backward()
            each.torch.optimizer.step()
    pair.check()
    other.check()
    for keys, _ in data:
        (loss_of(pair.layer(keys)) + loss_of(other.layer(keys))).backward()
    assert data.report() == {"samples": LINES, "trained": LINES, "lost": 0, "duplicated": 0}


@pytest.mark.parametrize("way", ["rows", "fused", "step", "shared"])
def test_a_batch_that_another_thread_trains_is_an_error(
    client: kintsugi.Client, file: Path, way: str
) -> None:
    pair = Pair(client, fused=way == "fused")
    model = nn.ModuleList([pair.layer, nn.Linear(4, 1)])
    rows = pair.rows() if way == "rows" else None
    shared = kt.SharedOptimizer(client, f"m-{uuid4()}", model, kintsugi.SGD(lr=0.1))
    before = model[1].weight.detach().clone()
    data = opened(client, file)
    failures: list[str] = []

    def train(keys: Tensor) -> None:
        try:
            if way == "step":
                with kt.step(client):
                    loss_of(pair.layer(keys)).backward()
            elif way == "shared":
                model[1](torch.ones(1, 4)).sum().backward()
                shared.step()
            else:
                loss_of(pair.layer(keys)).backward()
                if rows is not None:
                    rows.step()
        except kintsugi.Error as error:
            failures.append(str(error))

    for keys, _ in data:
        thread = threading.Thread(target=train, args=(keys,))
        thread.start()
        thread.join()
        break
    assert len(failures) == 1
    assert "is trained in another thread than that which takes it" in failures[0]
    pair.check()
    assert torch.equal(model[1].weight, before)


def test_a_data_set_has_several_saves(client: kintsugi.Client, file: Path) -> None:
    names = [f"m-{uuid4()}" for _ in range(2)]
    models = [nn.Linear(1, 1) for _ in names]
    data = opened(client, file)
    for name, model in zip([*names, names[0]], [*models, models[1]], strict=True):
        kt.save(client, model, data=data, every=1, name=name, checkpoint=False)
    for _ in data:
        pass
    found = [nn.Linear(1, 1) for _ in names]
    # The last one of a name counts.
    assert [kt.load(client, model, name=name) for model, name in zip(found, names, strict=True)] == [1, 1]
    assert [model.weight.item() for model in found] == [models[1].weight.item()] * 2
