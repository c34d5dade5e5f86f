"""`torch.amp.GradScaler`: gradients are unscaled, and a step that overflowed changes nothing."""

from __future__ import annotations

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
from typing import Any

import torch
from reference import KINDS, Net, Pair, keys_of, loss_of

import kintsugi.torch as kt


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_torch_with_overflows(client: kintsugi.Client, kind: str) -> None:
    pair = Pair(client, kind)
    rows = pair.rows()
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=2) for _ in range(2)]
    skipped = 0
    optimizers: list[Any] = [rows, pair.torch.optimizer]
    layers: list[Any] = [pair.layer, pair.torch]
    for step in range(6):
        factor = float("inf") if step in (1, 4) else 1.0
        for layer, optimizer, scaler in zip(layers, optimizers, scalers, strict=True):
            optimizer.zero_grad()
            for micro in range(2):
                loss = loss_of(layer(keys_of(step, 1, micro)), micro) * factor
                scaler.scale(loss).backward()
            before = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            skipped += scaler.get_scale() < before
    assert skipped == 4
    pair.check()


def test_autocast_and_a_clip_between(client: kintsugi.Client) -> None:
    pair = Pair(client)
    nets = [Net(pair.layer), Net(pair.torch)]
    sparse: list[Any] = [pair.rows(), pair.torch.optimizer]
    dense = [torch.optim.SGD(net.top.parameters(), lr=0.1) for net in nets]
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**10) for _ in nets]
    for step in range(4):
        norms = []
        for net, first, second, scaler in zip(nets, sparse, dense, scalers, strict=True):
            with torch.autocast("cpu", torch.bfloat16):
                loss = net(keys_of(step, 1, 2)).square().sum() * 100
            scaler.scale(loss).backward()
            scaler.unscale_(first)
            scaler.unscale_(second)
            clip = kt.clip_grad_norm_ if net is nets[0] else torch.nn.utils.clip_grad_norm_
            norms.append(clip(net.parameters(), 0.5))
            for optimizer in (first, second):
                scaler.step(optimizer)
                optimizer.zero_grad()
            scaler.update()
        torch.testing.assert_close(*norms)
    pair.check()
