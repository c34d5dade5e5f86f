"""Layers that follow a schedule of PyTorch, against PyTorch's own."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import numpy as np
import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from torch import Tensor, nn

import kintsugi.torch as kt

ROWS = 40
STEPS = 8


class Bags(nn.Module):
    def __init__(self, bag: nn.Module) -> None:
        super().__init__()
        self.bag = bag
        self.top = nn.Linear(6, 1)

    def forward(self, keys: Tensor) -> Tensor:
        result: Tensor = self.top(self.bag(keys))
        return result


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(5)
    for _ in range(STEPS):
        yield (
            torch.randint(0, ROWS, (16, 3), generator=generator),
            torch.randn(16, 1, generator=generator),
        )


def test_rows_follow_the_schedule_of_the_dense_optimizer(client: kintsugi.Client) -> None:
    layer = kt.KintsugiEmbeddingBag(client, f"t-{uuid4()}", 6, optimizer=kintsugi.Adagrad(lr=5.0))
    other = nn.EmbeddingBag(ROWS, 6)
    other.weight.data = torch.from_numpy(layer.table.pull(np.arange(ROWS)))
    ours, theirs = Bags(layer), Bags(other)
    theirs.top.load_state_dict(ours.top.state_dict())
    # A warm-up that begins at zero, as the usual ones do.
    optimizers = [torch.optim.Adagrad(each.parameters(), lr=0.2) for each in (ours, theirs)]
    schedules = [torch.optim.lr_scheduler.LambdaLR(each, lambda t: t / STEPS) for each in optimizers]
    pipeline = kt.Pipeline(
        ours,
        optimizers[0],
        nn.functional.mse_loss,
        deterministic=True,
        lr=lambda: float(optimizers[0].param_groups[0]["lr"]),
    )
    for loss, (keys, target) in zip(pipeline(batches()), list(batches()), strict=True):
        expected = nn.functional.mse_loss(theirs(keys), target)
        optimizers[1].zero_grad()
        expected.backward()
        optimizers[1].step()
        for schedule in schedules:
            schedule.step()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-6)
    rows = torch.from_numpy(layer.table.pull(np.arange(ROWS)))
    torch.testing.assert_close(rows, other.weight.detach(), rtol=1e-4, atol=1e-6)


def test_a_layer_keeps_the_rate_of_its_own(client: kintsugi.Client) -> None:
    layer = kt.KintsugiEmbedding(
        client,
        f"t-{uuid4()}",
        2,
        optimizer=kintsugi.SGD(lr=1.0),
        initializer=kintsugi.Zeros(),
        lr=0.5,
        fused=True,
    )
    kt.Pipeline(nn.Sequential(layer), None, nn.functional.mse_loss, lr=0.25)
    assert layer.lr == 0.5
    layer(torch.tensor([1, 2])).sum().backward()
    client.flush()
    assert (layer.table.pull(np.array([1, 2])) == -0.5).all()


def test_a_shared_optimizer_has_a_rate(client: kintsugi.Client) -> None:
    model = nn.Linear(2, 1)
    before = model.weight.detach().clone()
    opt = kt.SharedOptimizer(client, f"t-{uuid4()}", model, kintsugi.SGD(lr=1.0), lr=lambda: 0.5)
    model(torch.ones(1, 2)).sum().backward()
    opt.step()
    opt.refresh()
    torch.testing.assert_close(model.weight.detach(), before - 0.5)


def test_each_pipeline_has_its_own_rate(client: kintsugi.Client) -> None:
    layer = kt.KintsugiEmbedding(
        client, f"t-{uuid4()}", 2, optimizer=kintsugi.SGD(lr=1.0), initializer=kintsugi.Zeros()
    )
    first, second, third = (
        kt.Pipeline(nn.Sequential(layer), None, lambda rows, _: rows.sum(), lr=lr)
        for lr in (0.5, lambda: 0.25, None)
    )
    for pipeline, expected in ((first, -0.5), (second, -0.75), (first, -1.25), (third, -2.25)):
        list(pipeline([(torch.tensor([1]), torch.zeros(1))]))
        assert (layer.table.pull([1]) == expected).all()
    assert kt.RowOptimizer(layer).param_groups[0]["lr"] == 1.0
