"""Layers on one table that are trained in several ways: one step of each row, or an error."""

from __future__ import annotations

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
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


def test_a_row_optimizer_that_is_made_after_backward_has_no_gradients(client: kintsugi.Client) -> None:
    pair = Pair(client)
    before = pair.rows()
    loss_of(pair.layer(keys_of(*FIRST))).backward()
    rows = pair.rows()
    loss_of(pair.layer(keys_of(*SECOND))).backward()
    with pytest.raises(kintsugi.Error, match="or one was made after backward"):
        rows.step()
    before.zero_grad()
    rows.step()
    loss_of(pair.torch(keys_of(*SECOND))).backward()
    pair.torch.optimizer.step()
    pair.check()


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
