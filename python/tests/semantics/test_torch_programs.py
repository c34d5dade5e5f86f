"""Random programs of look-ups, layers, micro-batches, scalers, clips and freezes, here and in PyTorch alone.

`pytest tests/semantics/test_torch_programs.py --programs 10000` runs so many; every change runs 200.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import DIM, KEYS, KINDS, Rows, keys_of, loss_of
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import kintsugi.torch as kt

OF_A_JOB = 1500
"""So many programs share a job: each has two tables, and a job has a limit of them."""

LAYERS = 3
"""Two layers of one table, and one of another."""


@dataclass(frozen=True)
class Look:
    """A look-up of a layer."""

    layer: int
    keys: tuple[int, ...]
    bag: bool
    way: str
    """plain, no_grad, or checkpoint."""


@dataclass(frozen=True)
class Round:
    """A step, and everything before it."""

    micro: tuple[tuple[Look, ...], ...]
    zero: str
    """before or after the first forward, or never; "zeros": by set_to_none=False."""
    frozen: frozenset[int]
    overflow: bool
    clip: float | None
    lr: float
    steps: int
    end: str
    """optimizer or closure."""


looks = st.builds(
    Look,
    st.integers(0, LAYERS - 1),
    st.lists(st.integers(-1, KEYS - 1), min_size=1, max_size=6).map(tuple),
    st.booleans(),
    st.sampled_from(["plain", "plain", "no_grad", "checkpoint"]),
)
rounds = st.builds(
    Round,
    st.lists(st.lists(looks, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple),
    st.sampled_from(["before", "before", "between", "never", "before, zeros", "between, zeros"]),
    st.frozensets(st.integers(0, LAYERS - 1), max_size=1),
    st.booleans(),
    st.sampled_from([None, 0.5]),
    st.sampled_from([0.1, 0.01]),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from(["optimizer", "closure"]),
)
programs = st.tuples(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(sorted(KINDS)),
    st.booleans(),
    st.lists(rounds, min_size=1, max_size=4),
)


class Side:
    """Layers, an optimizer of all rows and what clips them: ours, or those of PyTorch."""

    def __init__(self, layers: list[Any], optimizers: list[Any], rows: Any, scaled: bool) -> None:
        self.layers = layers
        self.optimizers = optimizers
        self.rows = rows
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, enabled=scaled)

    def zero(self, by: str) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none="zeros" not in by)

    def loss(self, micro: tuple[Look, ...], frozen: frozenset[int]) -> Tensor:
        total = torch.zeros((), requires_grad=True)
        for number, look in enumerate(micro):
            keys = keys_of(*look.keys)

            def looked(total: Tensor, look: Look = look, keys: Tensor = keys, number: int = number) -> Tensor:
                rows = self.layers[look.layer](keys)
                rows = rows.detach() if look.layer in frozen else rows
                return total + loss_of(rows.sum(0) if look.bag else rows, number)

            if look.way == "no_grad":
                with torch.no_grad():
                    looked(total)
            elif look.way == "checkpoint":
                total = checkpoint(looked, total, use_reentrant=False)
            else:
                total = looked(total)
        return total

    def round(self, given: Round) -> None:
        if "before" in given.zero:
            self.zero(given.zero)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = given.lr
        for number, micro in enumerate(given.micro):
            loss = self.loss(micro, given.frozen)
            if "between" in given.zero and number == 0:
                self.zero(given.zero)
            factor = float("inf") if given.overflow and number == 0 and self.scaler.is_enabled() else 1.0
            self.scaler.scale(loss * factor).backward()
        with_gradients = [
            optimizer
            for optimizer in self.optimizers
            if any(each.grad is not None for group in optimizer.param_groups for each in group["params"])
        ]
        for optimizer in with_gradients:
            if self.scaler.is_enabled():
                self.scaler.unscale_(optimizer)
        for layer in self.layers:
            if isinstance(layer, Looked):
                layer.is_of_step = layer.is_of_step or layer.is_looked_up
        if given.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.rows(), given.clip)
        for _ in range(given.steps if not self.scaler.is_enabled() else 1):
            for optimizer in with_gradients:
                if self.scaler.is_enabled():
                    self.scaler.step(optimizer)
                elif given.end == "closure":
                    optimizer.step(lambda: None)
                else:
                    optimizer.step()
        if self.scaler.is_enabled() and with_gradients:
            self.scaler.update()


def run(client: kintsugi.Client, program: tuple[str, str, bool, list[Round]]) -> None:
    *kinds, scaled, given = program
    tables = [client.create_table(f"t-{uuid4()}", DIM, optimizer=KINDS[kind].ours) for kind in kinds]
    references = [Looked(table, KINDS[kind]) for table, kind in zip(tables, kinds, strict=True)]
    names = [0, 0, 1]
    layers = [
        kt.KintsugiEmbedding(client, tables[at].name, DIM, optimizer=KINDS[kinds[at]].ours) for at in names
    ]
    rows = kt.RowOptimizer(layers)
    ours = Side(layers, [rows], lambda: [each["params"][0] for each in rows.param_groups], scaled)
    theirs = Side(
        [references[at] for at in names],
        # A scaler skips the step of all rows, so they have one optimizer.
        [Both(references)],
        lambda: [row for reference in references for row in reference.rows],
        scaled,
    )
    for round_ in given:
        for layer in range(LAYERS):
            layers[layer].requires_grad_(layer not in round_.frozen)
        ours.round(round_)
        theirs.round(round_)
        for reference in references:
            reference.check(client, atol=2e-6)


class Looked(Rows):
    """Rows of PyTorch. Zeros in place of gradients are those of rows of a step."""

    is_looked_up = False
    is_of_step = False
    """True once a gradient was looked at after the first look-up of the step."""

    def forward(self, keys: Tensor) -> Tensor:
        self.is_looked_up = True
        return super().forward(keys)


class Both(torch.optim.Optimizer):
    """The optimizers of two tables as one."""

    def __init__(self, references: list[Looked]) -> None:
        self.references = references
        super().__init__([row for each in references for row in each.rows], {"lr": 0.0})
        self.parts = [each.optimizer for each in references]

    def step(self, closure: Any = None) -> Any:
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = self.param_groups[0]["lr"]
            part.step()
        for each in self.references:
            each.is_looked_up = each.is_of_step = False
        return closure() if closure else None

    def zero_grad(self, set_to_none: bool = True) -> None:
        for each, part in zip(self.references, self.parts, strict=True):
            part.zero_grad(set_to_none or not each.is_of_step)


@pytest.fixture
def count(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--programs"))


def test_programs_give_the_rows_and_states_of_torch(client: kintsugi.Client, count: int) -> None:
    torch.set_num_threads(1)
    run_all(client, min(count, OF_A_JOB))
    for first in range(OF_A_JOB, count, OF_A_JOB):
        with (
            kintsugi.start_local_cluster(ps=3, code="2+1") as cluster,
            kintsugi.connect(cluster.address, timeout=60) as another,
        ):
            run_all(another, min(count - first, OF_A_JOB))


def run_all(client: kintsugi.Client, count: int) -> None:
    @settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        derandomize=count <= 200,
    )  # fmt: skip
    @given(programs)
    def each(program: tuple[str, str, bool, list[Round]]) -> None:
        run(client, program)

    each()
