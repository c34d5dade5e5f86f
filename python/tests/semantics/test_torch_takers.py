"""Gradients that nobody takes are an error; a loop without an optimizer object has `kintsugi.torch.step`."""

from __future__ import annotations

import gc
import threading
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import DIM, KINDS, Pair, keys_of, loss_of

import kintsugi.torch as kt


def test_a_backward_without_a_row_optimizer_is_an_error(client: kintsugi.Client) -> None:
    pair = Pair(client)
    before = pair.layer.table.pull([1], state=True)
    for _ in range(2):
        with pytest.raises(kintsugi.Error, match=r"nobody takes the gradients of table .*RowOptimizer"):
            pair.layer(keys_of(1)).sum().backward()
        # An optimizer that is not there any more takes nothing, too.
        kt.RowOptimizer(pair.layer)
        gc.collect()
    assert (pair.layer.table.pull([1], state=True) == before).all()
    # Made after the look-up.
    rows_of = pair.layer(keys_of(1, 2))
    rows = pair.rows()
    loss_of(rows_of).backward()
    loss_of(pair.torch(keys_of(1, 2))).backward()
    rows.step()
    pair.torch.optimizer.step()
    pair.check()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fused", [False, True])
def test_a_step_is_one_push(client: kintsugi.Client, kind: str, fused: bool) -> None:
    pair = Pair(client, kind, fused=fused)
    for step in range(3):
        with kt.step(client):
            for micro in range(2):
                pair.backward(keys_of(1, micro + step), micro)
        pair.torch.optimizer.step()
        pair.torch.optimizer.zero_grad()
    pair.check()


def test_steps_do_not_nest_and_drop_what_fails(client: kintsugi.Client) -> None:
    pair = Pair(client)
    with kt.step(client), pytest.raises(kintsugi.Error, match="none nests"), kt.step(client):
        pass

    def fails() -> None:
        with kt.step(client):
            loss_of(pair.layer(keys_of(1))).backward()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    pair.check()
    scaler = torch.amp.GradScaler("cpu")
    kt.KintsugiEmbedding(client, f"t-{uuid4()}", DIM, fused=True)
    with kt.step(client), pytest.raises(kintsugi.Error, match="GradScaler"):
        scaler.scale(loss_of(pair.layer(keys_of(1)))).backward()
    pair.check()


def test_a_step_is_of_its_thread(client: kintsugi.Client) -> None:
    pair, other = Pair(client, "sgd"), Pair(client, "sgd", fused=True)

    def elsewhere() -> None:
        loss_of(other.layer(keys_of(1))).backward()
        client.flush()

    with kt.step(client):
        loss_of(pair.layer(keys_of(1))).backward()
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        loss_of(other.torch(keys_of(1))).backward()
        other.torch.optimizer.step()
        other.check()
        pair.check()
    loss_of(pair.torch(keys_of(1))).backward()
    pair.torch.optimizer.step()
    pair.check()


def test_a_step_that_leaves_gradients_with_a_row_optimizer_is_an_error(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    with pytest.raises(kintsugi.Error, match=r"its RowOptimizer has .* call its step\(\)"), kt.step(client):
        loss_of(pair.layer(keys_of(1))).backward()
    pair.check()
    with kt.step(client):
        rows.step()
        rows.zero_grad()
    # Dropped, or skipped because of an overflow.
    with kt.step(client):
        loss_of(pair.layer(keys_of(1))).backward()
        rows.zero_grad()
    scaler = torch.amp.GradScaler("cpu")
    with kt.step(client):
        scaler.scale(loss_of(pair.layer(keys_of(1))) * float("inf")).backward()
        scaler.step(rows)
        scaler.update()
    del rows
    gc.collect()
    with kt.step(client):
        loss_of(pair.layer(keys_of(1))).backward()
    for _ in range(2):
        pair.torch.optimizer.zero_grad()
        loss_of(pair.torch(keys_of(1))).backward()
        pair.torch.optimizer.step()
    pair.check()


def test_a_pipeline_without_the_row_optimizer_of_its_layers_is_an_error(client: kintsugi.Client) -> None:
    pair = Pair(client)
    data = [(keys_of(1), torch.zeros(1))]
    pipeline = kt.Pipeline(pair.layer, None, lambda rows, _: loss_of(rows))
    rows = pair.rows()
    with pytest.raises(kintsugi.Error, match="a RowOptimizer that is not in opt"):
        kt.Pipeline(pair.layer, None, lambda rows, _: loss_of(rows))
    with pytest.raises(kintsugi.Error, match="a RowOptimizer that is not in opt"):
        list(pipeline(data))
    pair.check()
    wrapped: Any = SimpleNamespace(optimizer=rows, step=rows.step, zero_grad=rows.zero_grad)
    list(kt.Pipeline(pair.layer, [wrapped], lambda rows, _: loss_of(rows))(data))
    loss_of(pair.torch(keys_of(1))).backward()
    pair.torch.optimizer.step()
    pair.torch.optimizer.zero_grad()
    rows.zero_grad()
    pair.check()
    del wrapped
    # Nobody has the gradients of a layer that is frozen.
    kt.Pipeline(pair.layer.requires_grad_(False), None, lambda rows, _: loss_of(rows))
    pair.layer.requires_grad_(True)
    del rows
    list(pipeline(data))
    loss_of(pair.torch(keys_of(1))).backward()
    pair.torch.optimizer.step()
    pair.check()
