"""Schedulers of PyTorch on the `param_groups` of a RowOptimizer."""

from __future__ import annotations

import copy
import time
from typing import Any
from uuid import uuid4

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import KINDS, Pair, keys_of, loss_of

import kintsugi.torch as kt

lr_scheduler = torch.optim.lr_scheduler
SCHEDULERS: dict[str, Any] = {
    "lambda": lambda opt: lr_scheduler.LambdaLR(opt, lambda n: n / 3),
    "step": lambda opt: lr_scheduler.StepLR(opt, 2),
    "cosine": lambda opt: lr_scheduler.CosineAnnealingLR(opt, 5),
    "sequence": lambda opt: lr_scheduler.SequentialLR(
        opt, [lr_scheduler.LinearLR(opt), lr_scheduler.ExponentialLR(opt, 0.5)], [2]
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_rows_follow(client: kintsugi.Client, kind: str, scheduler: str) -> None:
    pair = Pair(client, kind)
    rows = pair.rows()
    layers: list[Any] = [pair.layer, pair.torch]
    optimizers: list[Any] = [rows, pair.torch.optimizer]
    schedules = [SCHEDULERS[scheduler](each) for each in optimizers]
    for step in range(5):
        for layer, optimizer, schedule in zip(layers, optimizers, schedules, strict=True):
            optimizer.zero_grad()
            loss_of(layer(keys_of(step, 1)), step).backward()
            optimizer.step()
            schedule.step()
    pair.check()


def test_a_plateau_and_the_state(client: kintsugi.Client) -> None:
    pair = Pair(client, "adagrad")
    rows = pair.rows()
    plateau = lr_scheduler.ReduceLROnPlateau(rows, factor=0.5, patience=0)
    for _ in range(3):
        plateau.step(1.0)
    assert rows.param_groups[0]["lr"] == 0.025
    saved = rows.state_dict()
    other = pair.rows()
    other.load_state_dict(saved)
    assert other.param_groups[0]["lr"] == 0.025
    assert isinstance(other, torch.optim.Optimizer)


def test_the_lr_of_ftrl_cannot_change(client: kintsugi.Client) -> None:
    layer = kt.KintsugiEmbedding(
        client, f"t-{uuid4()}", 2, optimizer=kintsugi.FTRL(), initializer=kintsugi.Zeros()
    )
    rows = kt.RowOptimizer(layer)
    layer(keys_of(1)).sum().backward()
    rows.step()
    rows.param_groups[0]["lr"] *= 0.5
    layer(keys_of(1)).sum().backward()
    before = layer.table.pull([1])
    with pytest.raises(kintsugi.Error, match=r"BAD_ARGUMENT.*FTRL"):
        rows.step()
    client.flush()
    assert (layer.table.pull([1]) == before).all()


@pytest.mark.parametrize("chosen", [False, True])
def test_a_rate_of_the_table_is_that_of_the_table_after_a_load(client: kintsugi.Client, chosen: bool) -> None:
    pair = Pair(client, "sgd")
    rows = pair.rows()
    if chosen:
        rows.param_groups[0]["lr"] = 0.3
    schedule = lr_scheduler.LambdaLR(rows, lambda _: 1.0)
    saved = copy.deepcopy([rows.state_dict(), schedule.state_dict()])
    pair.layer.table.set(lr=0.02)
    # Another program begins with the rate that the table has now.
    again = pair.rows()
    schedule = lr_scheduler.LambdaLR(again, lambda _: 1.0)
    again.load_state_dict(saved[0])
    schedule.load_state_dict(saved[1])
    pair.torch.optimizer.param_groups[0]["lr"] = 0.3 if chosen else 0.02
    for step in range(2):
        for layer, optimizer in ((pair.layer, again), (pair.torch, pair.torch.optimizer)):
            optimizer.zero_grad()
            loss_of(layer(keys_of(1, 2)), step).backward()
            optimizer.step()
        schedule.step()
    pair.check()
    # A state of a version that does not say it.
    for group in saved[0]["param_groups"]:
        del group["table_lr"]
    other = pair.rows()
    other.load_state_dict(saved[0])
    assert other.param_groups[0]["table_lr"] == pytest.approx(0.02)


def test_a_shared_optimizer_has_the_rate_of_the_table_after_a_load(client: kintsugi.Client) -> None:
    top = torch.nn.Linear(2, 1)
    name = f"t-{uuid4()}"
    opt = kt.SharedOptimizer(client, name, top, kintsugi.SGD(lr=0.1))
    saved = copy.deepcopy(opt.state_dict())
    opt.table.set(lr=0.02)
    again = kt.SharedOptimizer(client, name, top, kintsugi.SGD(lr=0.02))
    again.load_state_dict(saved)
    before = top.weight.detach().clone()
    top(torch.ones(1, 2)).sum().backward()
    again.step()
    torch.testing.assert_close(top.weight.detach(), before - 0.02)
    del saved["param_groups"][0]["table_lr"]
    again.load_state_dict(saved)
    assert again.param_groups[0]["table_lr"] == 0.1


def test_the_rate_that_another_program_has_set_is_there_at_the_begin(
    cluster: kintsugi.LocalCluster, client: kintsugi.Client
) -> None:
    name = f"t-{uuid4()}"
    early = kt.KintsugiEmbedding(
        client, name, 2, optimizer=kintsugi.SGD(lr=1.0), initializer=kintsugi.Zeros()
    )
    with kintsugi.connect(cluster.address, timeout=60) as other:
        other.table(name).set(lr=0.25)
    end = time.monotonic() + 30
    # The gateway of this program hears of it a moment later. What it says here goes to no table.
    while client._connection.ask({"op": "table", "name": name})["optimizer"]["lr"] != 0.25:
        assert time.monotonic() < end
        time.sleep(0.01)
    rows = kt.RowOptimizer(early)
    assert rows.param_groups[0]["lr"] == rows.param_groups[0]["table_lr"] == 0.25
    assert kt.KintsugiEmbedding(client, name).table.optimizer == kintsugi.SGD(lr=0.25)
    schedule = lr_scheduler.LambdaLR(rows, lambda _: 2.0)
    early(keys_of(1)).sum().backward()
    rows.step()
    schedule.step()
    assert (early(keys_of(1)) == -0.5).all()


def test_a_table_that_was_dropped_has_no_optimizer(
    cluster: kintsugi.LocalCluster, client: kintsugi.Client
) -> None:
    name = f"t-{uuid4()}"
    layer = kt.KintsugiEmbedding(client, name, 2)
    with kintsugi.connect(cluster.address, timeout=60) as other:
        other.table(name).drop()
        other.create_table(name, 2)
    # The gateway of this program knows the new table, too.
    client.create_table(name, 2)
    with pytest.raises(kintsugi.Error, match=r"was dropped.*make the layer anew") as raised:
        kt.RowOptimizer(layer)
    assert raised.value.code == "UNKNOWN_TABLE"
