"""`clip_grad_norm_`: over dense parameters and rows together, and never silently without the rows."""

from __future__ import annotations

import math
from typing import Any

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import KINDS, Net, Pair, keys_of, loss_of

import kintsugi.torch as kt


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("norm_type", [2.0, math.inf])
def test_a_clip_has_both(client: kintsugi.Client, kind: str, norm_type: float) -> None:
    pair = Pair(client, kind)
    nets = [Net(pair.layer), Net(pair.torch)]
    sparse = [pair.rows(), pair.torch.optimizer]
    dense = [torch.optim.SGD(net.top.parameters(), lr=0.1) for net in nets]
    for step in range(3):
        norms = []
        for net, *optimizers in zip(nets, sparse, dense, strict=True):
            for optimizer in optimizers:
                optimizer.zero_grad()
            (net(keys_of(step, 1, 1, -1)) - 3).square().sum().backward()
            clip = kt.clip_grad_norm_ if net is nets[0] else torch.nn.utils.clip_grad_norm_
            norms.append(clip(net.parameters(), 0.5, norm_type))
            for optimizer in optimizers:
                optimizer.step()
        torch.testing.assert_close(*norms)
        assert norms[0] > 0.5
    pair.check()
    torch.testing.assert_close(nets[0].top.weight, nets[1].top.weight)


def test_the_clip_of_torch_takes_rows_of_the_optimizer(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    net = Net(pair.layer)
    net(keys_of(1, 2)).sum().backward()
    every = [*net.parameters(), *(each for group in rows.param_groups for each in group["params"])]
    ours = torch.nn.utils.clip_grad_norm_(every, 1e9)
    torch.testing.assert_close(ours, kt.clip_grad_norm_(net.parameters(), 1e9))


@pytest.mark.parametrize("ours", [True, False])
def test_a_clip_has_rows_that_were_frozen_since(client: kintsugi.Client, ours: bool) -> None:
    pair = Pair(client)
    rows = pair.rows()
    for model in (pair.layer, pair.torch):
        loss_of(model(keys_of(1, 2))).backward()
        model.requires_grad_(False)
    clip = kt.clip_grad_norm_ if ours else torch.nn.utils.clip_grad_norm_
    norm = clip(pair.layer.parameters(), 0.1)
    torch.testing.assert_close(norm, torch.nn.utils.clip_grad_norm_(pair.torch.parameters(), 0.1))
    rows.step()
    pair.torch.optimizer.step()
    pair.check()


def test_a_clip_of_torch_in_two_parts_has_rows(client: kintsugi.Client) -> None:
    clip: Any = getattr(torch.nn.utils, "clip_grads_with_norm_", None)
    if clip is None:
        pytest.skip("LEFT OUT: this PyTorch has no clip in two parts")
    pair = Pair(client)
    rows = pair.rows()
    for model in (pair.layer, pair.torch):
        loss_of(model(keys_of(1, 2))).backward()
        clip(model.parameters(), 1.0, torch.tensor(7.0))
    rows.step()
    pair.torch.optimizer.step()
    pair.check()


def test_a_clip_of_fused_layers_is_an_error(client: kintsugi.Client) -> None:
    net = Net(Pair(client, fused=True).layer)
    net(keys_of(1, 2)).sum().backward()
    for clip in (torch.nn.utils.clip_grad_norm_, kt.clip_grad_norm_):
        with pytest.raises(kintsugi.Error, match=r"BAD_ARGUMENT.*RowOptimizer"):
            clip(net.parameters(), 1.0)
