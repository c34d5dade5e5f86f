"""`save` and `load` keep models, optimizers, schedulers and scalers: what goes on is equal to the bit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import kintsugi
from kintsugi import Error

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import DIM, Net, keys_of
from torch import nn
from torch.optim import lr_scheduler as schedules

import kintsugi.torch as kt


class Run:
    """A model in training, with everything that PyTorch has between `backward` and `step`."""

    def __init__(self, client: kintsugi.Client, table: str) -> None:
        self.client = client
        layer = kt.KintsugiEmbedding(client, table, DIM, optimizer=kintsugi.Adam(lr=0.1))
        self.model = nn.ModuleDict({"net": Net(layer), "drop": nn.Dropout(0.5)})
        self.net: Any = self.model["net"]
        self.optimizers: list[torch.optim.Optimizer] = [
            kt.RowOptimizer(layer),
            torch.optim.Adam(self.net.top.parameters(), lr=0.1, amsgrad=True),
        ]
        self.schedulers: list[Any] = [
            schedules.OneCycleLR(self.optimizers[0], 0.3, total_steps=20, cycle_momentum=False),
            schedules.ReduceLROnPlateau(self.optimizers[1], patience=0),
        ]
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)

    @property
    def parts(self) -> dict[str, Any]:
        return {"optimizers": self.optimizers, "schedulers": self.schedulers, "scaler": self.scaler}

    def train(self, steps: range) -> list[float]:
        losses = []
        for step in steps:
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            loss = self.model["drop"](self.net(keys_of(0, 1 + step % 3, 5))).square().mean()
            self.scaler.scale(loss * (float("inf") if step % 4 == 1 else 1)).backward()
            for optimizer in self.optimizers:
                self.scaler.step(optimizer)
            self.scaler.update()
            with warnings.catch_warnings():
                # The scaler has skipped a step.
                warnings.simplefilter("ignore")
                self.schedulers[0].step()
            self.schedulers[1].step(loss.item())
            losses.append(loss.item())
        return losses

    def ends(self) -> dict[str, Any]:
        self.client.flush()
        states = [each.state_dict() for each in (*self.optimizers, *self.schedulers, self.scaler)]
        return {
            "rows": self.net.rows.table.pull(range(6), state=True).tolist(),
            "top": self.net.top.weight.tolist(),
            "states": str(states),
        }


def test_everything_goes_on_with_the_same_bits(client: kintsugi.Client) -> None:
    name = f"m-{uuid4()}"
    one = Run(client, f"t-{uuid4()}")
    torch.manual_seed(3)
    one.train(range(5))
    kt.save(client, one.model, **one.parts, name=name, checkpoint=False)
    kept = one.net.rows.table.pull(range(6), state=True).copy()
    expected = one.train(range(5, 12)), one.ends()
    one.net.rows.table.assign(range(6), kept).result()
    two = Run(client, one.net.rows.table.name)
    assert kt.load(client, two.model, **two.parts, name=name) == 1
    assert (two.train(range(5, 12)), two.ends()) == expected
    # A part of what was kept is enough, such as for a test.
    assert kt.load(client, Run(client, one.net.rows.table.name).model, name=name) == 1


SCHEDULES: list[Callable[[Any], Any]] = [
    lambda opt: schedules.StepLR(opt, 2),
    lambda opt: schedules.MultiStepLR(opt, [2, 4]),
    lambda opt: schedules.LambdaLR(opt, lambda n: 1 / (n + 1)),
    lambda opt: schedules.ExponentialLR(opt, 0.9),
    lambda opt: schedules.CosineAnnealingWarmRestarts(opt, 3),
    lambda opt: schedules.CyclicLR(opt, 0.01, 0.1, 2, cycle_momentum=False),
    lambda opt: schedules.SequentialLR(
        opt, [schedules.ConstantLR(opt), schedules.CosineAnnealingLR(opt, 4)], [2]
    ),
    lambda opt: schedules.ChainedScheduler([schedules.LinearLR(opt), schedules.PolynomialLR(opt)]),
]


@pytest.mark.parametrize("number", range(len(SCHEDULES)))
def test_schedulers(client: kintsugi.Client, number: int) -> None:
    name = f"m-{uuid4()}"
    model = nn.Linear(1, 1)

    def made() -> tuple[torch.optim.Optimizer, Any]:
        opt = torch.optim.SGD(model.parameters(), lr=0.5)
        return opt, SCHEDULES[number](opt)

    def rates(opt: torch.optim.Optimizer, schedule: Any) -> list[float]:
        found = []
        for _ in range(3):
            opt.step()
            schedule.step()
            found.append(opt.param_groups[0]["lr"])
        return found

    opt, schedule = made()
    rates(opt, schedule)
    kt.save(client, model, opt, schedulers=[schedule], name=name, checkpoint=False)
    expected = rates(opt, schedule)
    opt, schedule = made()
    kt.load(client, model, opt, schedulers=[schedule], name=name)
    assert rates(opt, schedule) == expected


def test_what_does_not_fit_is_an_error_and_changes_nothing(client: kintsugi.Client) -> None:
    name = f"m-{uuid4()}"
    run = Run(client, f"t-{uuid4()}")
    run.train(range(2))
    odd: Any
    for part, odd, match in (
        ("optimizers", [run.net], "each of optimizers must be an object such as torch.optim.Adam"),
        ("optimizers", run.optimizers[1], "optimizers must be a list"),
        ("optimizers", [torch.optim.Adam], "not the class Adam"),
        ("schedulers", run.optimizers, "each of schedulers must be an object such as"),
        ("schedulers", [None], "each of schedulers"),
        ("scaler", run.optimizers[0], "scaler must be an object such as torch.amp.GradScaler"),
        ("data", [1], "data must be an object such as kintsugi.RangeDataset"),
        ("opt", run.model, "opt must be an object such as torch.optim.Adam"),
    ):
        with pytest.raises(Error, match=match) as raised:
            kt.save(client, run.model, **{part: odd}, name=name, checkpoint=False)
        assert raised.value.code == "BAD_ARGUMENT"
    with pytest.raises(Error, match="opt and optimizers"):
        kt.save(client, run.model, run.optimizers[0], optimizers=run.optimizers, name=name)
    # A schedule with an object of another package would be written, and could not be read.
    schedule = schedules.LambdaLR(run.optimizers[1], Halved())
    with pytest.raises(Error, match="holds objects that load does not read"):
        kt.save(client, run.model, schedulers=[schedule], name=name, checkpoint=False)
    assert kt.load(client, run.model, name=name) is None
    kt.save(client, run.model, optimizers=run.optimizers, name=name, checkpoint=False)
    before = run.ends()
    for part, odd, match in (
        ("optimizers", run.optimizers[::-1], "RowOptimizer, Adam, and not Adam, RowOptimizer"),
        ("optimizers", run.optimizers[:1], "RowOptimizer, Adam, and not RowOptimizer"),
        ("schedulers", run.schedulers, "has no schedulers"),
        ("scaler", run.scaler, "has no scaler"),
        ("scaler", 1, "scaler must be an object"),
    ):
        with pytest.raises(Error, match=match) as raised:
            kt.load(client, nn.Linear(1, 1), **{part: odd}, name=name)
        assert raised.value.code == "BAD_ARGUMENT"
    other = kt.RowOptimizer(kt.KintsugiEmbedding(client, f"t-{uuid4()}", DIM))
    with pytest.raises(Error, match=r"is of tables \['t-.*'\], and this one of \['t-"):
        other.load_state_dict(run.optimizers[0].state_dict())
    assert run.ends() == before


class Halved:
    def __init__(self) -> None:
        self.calls = np.random.default_rng(1)

    def __call__(self, number: int) -> float:
        return 0.5**number
