"""Layers on one table that are trained in several ways: one step of each row, or an error."""

from __future__ import annotations

from typing import Any

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import numpy as np
import torch
from reference import Pair, keys_of, loss_of

import kintsugi.torch as kt

FIRST, SECOND = (1, 2), (1, 3)


def another(client: kintsugi.Client, pair: Pair, *, fused: bool = False) -> kt.KintsugiEmbedding:
    return kt.KintsugiEmbedding(client, pair.layer.table.name, fused=fused)


def states(pair: Pair) -> list[list[float]]:
    pair.client.flush()
    rows: list[list[float]] = pair.layer.table.pull([1, 2, 3], state=True).tolist()
    return rows


def test_gradients_of_two_row_optimizers_are_an_error_at_step(client: kintsugi.Client) -> None:
    pair = Pair(client)
    other = another(client, pair)
    first, second = pair.rows(), kt.RowOptimizer(other)
    before = states(pair)
    for _ in range(2):
        (loss_of(pair.layer(keys_of(*FIRST))) + loss_of(other(keys_of(*SECOND)))).backward()
        with pytest.raises(kintsugi.Error, match="has gradients in two steps"):
            first.step()
        with pytest.raises(kintsugi.Error, match="has gradients in two steps"):
            second.step()
        assert states(pair) == before
        for each in (first, second):
            each.zero_grad()
    # With the gradients of one of them it goes on.
    (loss_of(pair.layer(keys_of(*FIRST))) + loss_of(other(keys_of(*SECOND)))).backward()
    second.zero_grad()
    first.step()
    loss_of(pair.torch(keys_of(*FIRST))).backward()
    pair.torch.optimizer.step()
    pair.check()


def test_a_row_optimizer_that_is_made_after_backward_has_its_gradients(client: kintsugi.Client) -> None:
    pair = Pair(client, policy=kintsugi.Policy(counter=3), count_duplicates=True)
    before = pair.rows()
    both: list[Any] = [pair.layer, pair.torch]
    for layer in both:
        loss_of(layer(keys_of(2, 1, 1, 1))).backward()
    rows = pair.rows()
    with pytest.raises(kintsugi.Error, match="that was made later has the gradients"):
        before.step()
    for layer in both:
        loss_of(layer(keys_of(2, 3, 1, 2))).backward()
    rows.step()
    client.flush()
    counts = pair.layer.table.pull([1, 2, 3], state=True)[:, -1].copy().view(np.uint32)
    assert counts.tolist() == [4, 3, 1]


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_gradients_before_a_second_row_optimizer_are_stepped(client: kintsugi.Client, kind: str) -> None:
    pair = Pair(client, kind)
    rows = pair.rows()
    for step in range(3):
        pair.backward(keys_of(*FIRST))
        rows = pair.rows()
        if step == 1:
            pair.backward(keys_of(*SECOND))
        rows.step()
        pair.torch.optimizer.step()
        if step == 0:
            # Gradients that nobody drops go on.
            rows = pair.rows()
            rows.step()
            pair.torch.optimizer.step()
        rows.zero_grad()
        pair.torch.optimizer.zero_grad()
    pair.check()


def test_a_row_optimizer_that_is_made_between_look_up_and_backward(client: kintsugi.Client) -> None:
    pair = Pair(client)
    before = pair.rows()
    loss = loss_of(pair.layer(keys_of(*FIRST)))
    rows = pair.rows()
    assert before.rows is not rows.rows
    # As many rows as those of the loss, and others.
    pair.layer(keys_of(*SECOND))
    loss.backward()
    rows.step()
    loss_of(pair.torch(keys_of(*FIRST))).backward()
    pair.torch.optimizer.step()
    pair.check()


def test_gradients_of_two_layers_are_not_parted(client: kintsugi.Client) -> None:
    pair = Pair(client)
    other = another(client, pair)
    rows = kt.RowOptimizer([pair.layer, other])
    (loss_of(pair.layer(keys_of(*FIRST))) + loss_of(other(keys_of(*SECOND)))).backward()
    with pytest.raises(kintsugi.Error, match="has gradients of other layers, too"):
        kt.RowOptimizer(other)
    rows.step()
    for keys in (FIRST, SECOND):
        loss_of(pair.torch(keys_of(*keys))).backward()
    pair.torch.optimizer.step()
    pair.check()
    rows.zero_grad()
    kt.RowOptimizer(other)


@pytest.mark.parametrize("order", ["first", "last"])
def test_fused_layers_beside_a_row_optimizer_are_an_error(client: kintsugi.Client, order: str) -> None:
    pair = Pair(client)
    rows = pair.rows()
    other = another(client, pair, fused=True)
    before = states(pair)
    layers = [pair.layer, other] if order == "first" else [other, pair.layer]
    looked = [loss_of(each(keys_of(*keys))) for each, keys in zip(layers, (FIRST, SECOND), strict=True)]
    with pytest.raises(kintsugi.Error, match="has layers with a RowOptimizer and fused ones"):
        torch.stack(looked).sum().backward()
    rows.zero_grad()
    assert states(pair) == before
    # Passes one after the other are a step of each.
    for layer, keys in zip(layers, (FIRST, SECOND), strict=True):
        loss_of(layer(keys_of(*keys))).backward()
        if layer is pair.layer:
            rows.step()
            rows.zero_grad()
        loss_of(pair.torch(keys_of(*keys))).backward()
        pair.torch.optimizer.step()
        pair.torch.optimizer.zero_grad()
    pair.check()


@pytest.mark.parametrize("order", ["looked up before", "looked up after"])
def test_two_passes_of_fused_layers_on_one_table_are_an_error(client: kintsugi.Client, order: str) -> None:
    pair = Pair(client, fused=True)
    other = another(client, pair, fused=True)
    dense = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(torch.nn.ModuleList([pair.layer, other, dense]).parameters(), lr=0.1)
    optimizer.zero_grad()
    before = states(pair)
    first = loss_of(pair.layer(keys_of(*FIRST)))
    if order == "looked up before":
        second = loss_of(other(keys_of(*SECOND)))
        first.backward()
        with pytest.raises(kintsugi.Error, match="to accumulate gradients use a RowOptimizer"):
            second.backward()
    else:
        first.backward()
        with pytest.raises(kintsugi.Error, match="to accumulate gradients use a RowOptimizer"):
            other(keys_of(*SECOND))
    assert states(pair) == before
    # With a step between they are two.
    for layer, keys in ((pair.layer, FIRST), (other, SECOND)):
        optimizer.zero_grad()
        loss_of(layer(keys_of(*keys))).backward()
        optimizer.step()
        loss_of(pair.torch(keys_of(*keys))).backward()
        pair.torch.optimizer.step()
        pair.torch.optimizer.zero_grad()
    pair.check()


def test_a_row_optimizer_and_a_step_of_a_thread_are_an_error(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    other = another(client, pair)
    before = states(pair)
    with pytest.raises(kintsugi.Error, match="has gradients in two steps"), kt.step(client):
        (loss_of(pair.layer(keys_of(*FIRST))) + loss_of(other(keys_of(*SECOND)))).backward()
    rows.zero_grad()
    assert states(pair) == before


def test_fused_gradients_after_a_step_in_a_batch_are_an_error(client: kintsugi.Client) -> None:
    pair = Pair(client)
    other = another(client, pair, fused=True)
    net = torch.nn.ModuleList([pair.layer, other])
    rows = kt.RowOptimizer(net)
    before = states(pair)

    def both(keys: torch.Tensor) -> torch.Tensor:
        return loss_of(net[0](keys)) + loss_of(net[1](keys))

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, keys: torch.Tensor) -> torch.Tensor:
            return both(keys)

    pipeline = kt.Pipeline(Model(), [rows], lambda loss, _: loss)
    with pytest.raises(kintsugi.Error, match="RowOptimizer and fused ones"):
        list(pipeline([(keys_of(*FIRST), torch.zeros(1))]))
    assert states(pair) == before


def test_tables_of_their_own_are_trained_in_their_own_ways(client: kintsugi.Client) -> None:
    stepped, fused = Pair(client), Pair(client, fused=True)
    rows = stepped.rows()
    for step in range(2):
        rows.zero_grad()
        for one, two in ((stepped.layer, fused.layer), (stepped.torch, fused.torch)):
            (loss_of(one(keys_of(1, step))) + loss_of(two(keys_of(1, step)))).backward()
        rows.step()
        for pair in (stepped, fused):
            pair.torch.optimizer.step()
            pair.torch.optimizer.zero_grad()
    stepped.check()
    fused.check()
