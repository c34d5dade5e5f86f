"""Activation checkpointing: what is computed again sees the same rows, and is not counted twice."""

from __future__ import annotations

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import numpy as np
import torch
from reference import KINDS, Net, Pair, keys_of
from torch.utils.checkpoint import checkpoint

import kintsugi.torch as kt


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_rows_are_those_of_torch(client: kintsugi.Client, kind: str, use_reentrant: bool) -> None:
    pair = Pair(client, kind)
    rows = pair.rows()
    nets = [Net(pair.layer), Net(pair.torch)]
    for step in range(3):
        rows.zero_grad()
        pair.torch.optimizer.zero_grad()
        for net in nets:
            start = torch.zeros(3, requires_grad=True)
            total = start
            for micro in range(2):
                keys = keys_of(1, 1, micro + step)
                total = checkpoint(
                    lambda total, keys=keys, net=net: total + net(keys).square(),
                    total,
                    use_reentrant=use_reentrant,
                )
                if net is nets[0]:
                    # Another trainer: this step does not see it, and PyTorch has none.
                    pair.layer.table.push([11], np.zeros((1, 4))).result()
            total.sum().backward()
        rows.step()
        pair.torch.optimizer.step()
    client.flush()
    ours = torch.from_numpy(pair.layer.table.pull(np.arange(11), state=True))
    torch.testing.assert_close(ours, pair.torch.states()[:11], rtol=1e-5, atol=1e-6)


def test_recomputation_sees_the_rows_of_its_step(client: kintsugi.Client) -> None:
    pair = Pair(client, "sgd")
    rows = pair.rows()
    start = torch.zeros(1, requires_grad=True)
    before = pair.layer.table.pull([1])

    def squares(start: torch.Tensor) -> torch.Tensor:
        return pair.layer(keys_of(1)).square() + start

    loss = checkpoint(squares, start, use_reentrant=False).sum()
    pair.layer.table.push([1], np.full((1, 4), 3.0)).result()
    loss.backward()
    gradient = rows.param_groups[0]["params"][0].grad
    assert np.allclose(gradient.numpy(), 2 * before)


def test_fused_layers_in_reentrant_checkpoints_are_an_error(client: kintsugi.Client) -> None:
    layer = Pair(client, fused=True).layer
    start = torch.zeros(1, requires_grad=True)
    for reentrant in (False, True):
        loss = checkpoint(lambda start: layer(keys_of(1)) + start, start, use_reentrant=reentrant).sum()
        if not reentrant:
            loss.backward()
            continue
        with pytest.raises(kintsugi.Error, match="use_reentrant"):
            loss.backward()
    assert kt.RowOptimizer(Pair(client).layer).param_groups[0]["params"][0].shape == (0, 4)
