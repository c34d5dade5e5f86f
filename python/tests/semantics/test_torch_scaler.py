"""`torch.amp.GradScaler`: gradients are unscaled, and a step that overflowed changes nothing."""

from __future__ import annotations

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
from collections.abc import Iterator
from typing import Any

import torch
from reference import KINDS, Net, Pair, keys_of, loss_of

import kintsugi.torch as kt
from kintsugi.torch import _watch


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


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A program in which nothing has asked for scaled losses yet: it has no fused layer."""
    scale = _watch.SCALER.scale
    monkeypatch.setattr(_watch.SCALER, "scale", getattr(scale, "__wrapped__", scale))
    _watch.watch_loops.cache_clear()
    yield
    _watch.watch_loops.cache_clear()


@pytest.mark.usefixtures("unwatched")
@pytest.mark.parametrize("way", ["step", "pipeline"])
def test_a_step_without_a_row_optimizer_knows_scaled_gradients(client: kintsugi.Client, way: str) -> None:
    pair = Pair(client)
    scaler = torch.amp.GradScaler("cpu")
    if way == "step":
        with pytest.raises(kintsugi.Error, match="GradScaler"), kt.step(client):
            scaler.scale(loss_of(pair.layer(keys_of(1)))).backward()
    else:
        pipeline = kt.Pipeline(pair.layer, None, lambda rows, _: scaler.scale(loss_of(rows)))
        with pytest.raises(kintsugi.Error, match="GradScaler"):
            list(pipeline([(keys_of(1), torch.zeros(1))]))
    pair.check()


@pytest.mark.parametrize("frozen", [False, True])
def test_a_pipeline_knows_scaled_gradients(client: kintsugi.Client, frozen: bool) -> None:
    pair = Pair(client)
    nets = [Net(pair.layer), Net(pair.torch)]
    dense = [torch.optim.SGD(net.top.parameters(), lr=0.1) for net in nets]
    rows = pair.rows()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    pair.layer.requires_grad_(not frozen)
    data = [(keys_of(1, 2), torch.zeros(2))]

    def loss_fn(out: Any, _: Any) -> Any:
        return scaler.scale(out.square().sum()) * 1

    pipeline = kt.Pipeline(nets[0], [rows, dense[0]], loss_fn)
    with pytest.raises(kintsugi.Error, match="a Pipeline steps its optimizers without it"):
        list(pipeline(data))
    pair.check()
    torch.testing.assert_close(nets[0].top.weight, nets[1].top.weight)
    if frozen:
        return

    def unscale() -> None:
        scaler.unscale_(rows)
        scaler.unscale_(dense[0])

    list(kt.Pipeline(nets[0], [rows, dense[0]], loss_fn, before_step=unscale)(data))
    nets[1](keys_of(1, 2)).square().sum().backward()
    pair.torch.optimizer.step()
    dense[1].step()
    pair.check()
    torch.testing.assert_close(nets[0].top.weight, nets[1].top.weight)
