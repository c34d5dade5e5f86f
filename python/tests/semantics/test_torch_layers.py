"""A layer used twice, two layers on one table, a collection beside them: one step of each row."""

from __future__ import annotations

from typing import Any

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import DIM, KINDS, Pair, keys_of, loss_of

import kintsugi.torch as kt


@pytest.mark.parametrize("kind", KINDS)
def test_every_way_to_a_row_is_one_step(client: kintsugi.Client, kind: str) -> None:
    pair = Pair(client, kind)
    name = pair.layer.table.name
    bag = kt.KintsugiEmbeddingBag(client, name, DIM, mode="sum", optimizer=KINDS[kind].ours)
    config = kt.EmbeddingBagConfig(name, DIM, ["a", "b"], optimizer=KINDS[kind].ours)
    collection = kt.EmbeddingBagCollection(client, [config])
    rows = kt.RowOptimizer([pair.layer, bag, collection])
    for step in range(3):
        rows.zero_grad()
        pair.torch.optimizer.zero_grad()
        first, second, bags = keys_of(1, 2, step + 2), keys_of(2, 3, 2), keys_of(1, 3, -1, 5).view(2, 2)
        both = collection({"a": bags, "b": (first, keys_of(0, 2))})
        ours = [pair.layer(first), pair.layer(second), bag(bags), both["a"], both["b"]]
        at = pair.torch
        split = torch.stack([at(first)[:2].sum(0), at(first)[2]])
        theirs = [at(first), at(second), at(bags).sum(1), at(bags).sum(1), split]
        for each in (ours, theirs):
            sum(loss_of(part, number) for number, part in enumerate(each)).backward()
        rows.step()
        at.optimizer.step()
    pair.check()


def test_two_tables_are_one_push(client: kintsugi.Client) -> None:
    pairs = [Pair(client), Pair(client, "adagrad")]
    model = torch.nn.ModuleList([pair.layer for pair in pairs])
    rows = kt.RowOptimizer(model)
    assert len(rows.param_groups) == 2
    for pair in pairs:
        pair.backward(keys_of(1, 2))
        pair.torch.optimizer.step()
    number = len(client._connection._unsettled)
    rows.step()
    assert len(client._connection._unsettled) == number + 1
    for pair in pairs:
        pair.check()


def test_two_optimizers_on_one_table_see_each_other(client: kintsugi.Client) -> None:
    pair = Pair(client)
    other = kt.KintsugiEmbedding(client, pair.layer.table.name, DIM, optimizer=KINDS["adam"].ours)
    optimizers = [kt.RowOptimizer(pair.layer), kt.RowOptimizer(other)]
    for step in range(4):
        for layer, optimizer in zip((pair.layer, other), optimizers, strict=True):
            keys = keys_of(1, step)
            for each, opt in ((layer, optimizer), (pair.torch, pair.torch.optimizer)):
                loss_of(each(keys), step).backward()
                opt.step()
                opt.zero_grad()
    pair.check()


def test_bad_models_are_errors(client: kintsugi.Client) -> None:
    fused = Pair(client, fused=True).layer
    models: list[Any] = [torch.nn.Linear(1, 1), [], fused]
    for given in models:
        with pytest.raises(kintsugi.Error, match="layers of one client, not of 0"):
            kt.RowOptimizer(given)
    with pytest.raises(kintsugi.Error, match="must be a number"):
        kt.RowOptimizer(Pair(client, lr=lambda: 0.5).layer)


def test_a_look_up_of_all_keys_after_others(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    for layer, optimizer in ((pair.layer, rows), (pair.torch, pair.torch.optimizer)):
        with torch.no_grad():
            layer(keys_of(5, 7))
            layer(keys_of(1, 6))
        loss_of(layer(keys_of(1, 5, 6, 7))).backward()
        optimizer.step()
    pair.check()
