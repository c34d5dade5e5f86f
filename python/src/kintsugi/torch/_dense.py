"""Dense parameters on the PS: one model for all trainers, and no update of it is lost or applied twice."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._arrays import Rows
from .._checks import instance, number
from .._client import Client
from .._errors import Error
from .._specs import FTRL, SGD, Adam, Optimizer, Zeros
from .._steps import steps_of
from .._tables import Table
from ._inputs import client_of, rate_given
from ._layer import Rate, rate_of

DIM = 256
"""Floats of a row: each parameter is cut into rows of so many, and shares none with another."""

START_SECONDS = 60.0
"""A trainer waits so long for the one that writes the first values, and then writes them itself."""

_LOOK_SECONDS = 0.05


class SharedOptimizer(torch.optim.Optimizer):
    """The dense parameters of a model are in a table of the job, and its optimizer applies the gradients.

    With batches of a `RangeDataset` they are in the same push as those of the rows, so they are applied
    exactly once, whoever is killed. The first `forward` after a `step` pulls the parameters, and sees what
    other trainers did. A parameter without a gradient stays as it is, with its state.

    `model`: all its parameters that need gradients are taken, float32. Every trainer begins with the same
    values: call `torch.manual_seed` before the model is made. `name`: of the table; `NAME-first` and
    `NAME-ready` say who writes the first values. `optimizer`: default Adam(); not FTRL. `grad_scale`: factor
    of gradients; 1/n makes n trainers together take steps of the size of one. `lr`: the learning rate in
    place of the table's, which schedulers change in `param_groups`, or what gives it at each `step`.

    >>> opt = kintsugi.torch.SharedOptimizer(client, "dense", model, kintsugi.Adam(lr=1e-3))

    @raises Error TABLE_EXISTS (others began with other values, or with another optimizer), BAD_ARGUMENT.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        *,
        grad_scale: float = 1.0,
        lr: Rate = None,
        pool: str = "embedding",
    ) -> None:
        self.client = client_of(client)
        self.grad_scale = number(grad_scale, "grad_scale")
        lr = rate_given(lr)
        instance(model, nn.Module, "model", "nn.Linear(8, 1)")
        parameters = [each for each in model.parameters() if each.requires_grad and each.numel() > 0]
        if not parameters or any(each.dtype != torch.float32 for each in parameters):
            raise Error("BAD_ARGUMENT", "a model needs parameters, and all of them float32")
        if isinstance(optimizer, FTRL):
            raise Error("BAD_ARGUMENT", "FTRL is for values that begin with zero, as those of a model do not")
        counts = [-(-each.numel() // DIM) for each in parameters]
        self._keys = [
            np.arange(count, dtype=np.uint64) | np.uint64(number << 32) for number, count in enumerate(counts)
        ]
        self._all_keys = np.concatenate(self._keys)
        self._counts = counts
        initial = np.concatenate([_rows_of(each) for each in parameters])
        # The seed stands for the first values: a trainer that begins with other ones is refused.
        spec: dict[str, Any] = {
            "optimizer": optimizer or Adam(),
            "initializer": Zeros(),
            "seed": zlib.crc32(initial.tobytes()) >> 1,
            "pool": pool,
        }
        self.table = self._started(name, spec, initial)
        self._rate = lr if callable(lr) else None
        rate = rate_of(lr)
        own = float(getattr(self.table.optimizer, "lr"))  # noqa: B009
        super().__init__([{"params": parameters}], {"lr": own if rate is None else rate})
        for each in parameters:
            # torch.distributed.checkpoint steps optimizers without state, with gradients of zero.
            self.state[each]["step"] = torch.zeros(())
        self._current = False
        model.register_forward_pre_hook(lambda *_: self._before_forward())

    # ---- the first values

    def _started(self, name: str, spec: dict[str, Any], initial: Rows) -> Table:
        """The table, with the first values of some trainer. @raises Error TABLE_EXISTS."""
        ready = self._ready(name)
        # A trainer claims the table before it creates it. This order of looks is safe beside one that does.
        if ready is None and self._seed_of(name) is not None and self._seed_of(f"{name}-first") is None:
            text = f"table {name!r} has no parameters of a SharedOptimizer, or those of an earlier version"
            raise Error("TABLE_EXISTS", f"{text}: choose another name")
        if ready is None:
            if self._claim(f"{name}-first"):
                ready = self._write(name, 0, spec, initial)
            else:
                end = time.monotonic() + START_SECONDS
                while ready is None and time.monotonic() < end:
                    # With other values than those of the first trainer there is nothing to wait for.
                    self.client.create_table(name, DIM, **spec)
                    time.sleep(_LOOK_SECONDS)
                    ready = self._ready(name)
        if ready is None:
            # The first trainer has ended. If it lives after all, it writes to another table than this one.
            ready = self._write(name, int(np.random.default_rng().integers(1, 1 << 31)), spec, initial)
        return self.client.create_table(_named(name, ready), DIM, **spec)

    def _ready(self, name: str) -> int | None:
        """The number of the table that has the first values; None: none has."""
        return self._seed_of(f"{name}-ready")

    def _seed_of(self, name: str) -> int | None:
        """The seed of a table; None: there is none of this name."""
        try:
            return self.client.table(name).seed
        except Error as error:
            if error.code != "UNKNOWN_TABLE":
                raise
            return None

    def _claim(self, name: str, number: int | None = None) -> bool:
        """Creates a table without rows, which only one trainer can; whether this one has."""
        seed = int(np.random.default_rng().integers(1, 1 << 31)) if number is None else number
        try:
            self.client.create_table(name, 1, optimizer=SGD(lr=0.0), initializer=Zeros(), seed=seed)
        except Error as error:
            if error.code != "TABLE_EXISTS":
                raise
            return False
        return True

    def _write(self, name: str, number: int, spec: dict[str, Any], initial: Rows) -> int:
        """Writes the first values into a table of their own, and says which table all trainers take."""
        table = self.client.create_table(_named(name, number), DIM, **spec)
        whole = table.pull(self._all_keys, state=True)
        table.assign(self._all_keys, np.concatenate([initial, whole[:, DIM:]], axis=1)).result()
        if self._claim(f"{name}-ready", number):
            return number
        ready = self._ready(name)
        assert ready is not None
        return ready

    # ---- steps

    def _before_forward(self) -> None:
        step = steps_of(self.client).current
        if step is not None:
            step.expect(self.table, self._all_keys)
        if not self._current:
            self.refresh()

    def refresh(self) -> None:
        """Has the parameters of the model be those of the job now. @raises Error, as `Client.pull`."""
        steps = steps_of(self.client)
        if steps.current is not None:
            steps.current.push_now()
        steps.settle()
        rows = torch.from_numpy(self.table.pull(self._all_keys))
        with torch.no_grad():
            for parameter, part in zip(self._parameters, rows.split(self._counts), strict=True):
                parameter.copy_(part.reshape(-1)[: parameter.numel()].view_as(parameter))
        self._current = True

    @property
    def _parameters(self) -> list[Tensor]:
        return [each for group in self.param_groups for each in group["params"]]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Hands the gradients over: to the push of the current batch, or to one of their own.

        `closure`: computes the loss and calls `backward`; its result is returned.

        @raises Error BAD_ARGUMENT (a second step in a batch), and as `Client.push`.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        keys, rows = [], []
        for parameter, own in zip(self._parameters, self._keys, strict=True):
            if parameter.grad is not None:
                keys.append(own)
                rows.append(_rows_of(parameter.grad))
                self.state[parameter]["step"] += 1
        if keys:
            gradients = np.concatenate(rows) * np.float32(self.grad_scale)
            self._push([(self.table, np.concatenate(keys), gradients)])
        self._current = False
        return loss

    def _push(self, requests: list[tuple[Table, Any, Rows]]) -> None:
        rate = rate_of(self._rate) if self._rate is not None else float(self.param_groups[0]["lr"])
        rates = [None if rate == getattr(self.table.optimizer, "lr") else rate]  # noqa: B009
        steps = steps_of(self.client)
        if steps.current is None:
            steps.push(requests, rates)
        else:
            steps.current.add_stepped(requests, rates)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """The group of the model. @raises Error BAD_ARGUMENT for another one: its rows are in no table."""
        if self.param_groups:
            raise Error("BAD_ARGUMENT", "a SharedOptimizer has one group: make another one for another model")
        super().add_param_group(param_group)


def _named(name: str, number: int) -> str:
    return name if number == 0 else f"{name}-{number}"


def _rows_of(part: Tensor) -> Rows:
    """Rows of a parameter, or of its gradient, x DIM; the rest of the last one is zero."""
    values = part.detach().cpu().to(torch.float32).numpy().reshape(-1)
    rows = np.zeros((-(-len(values) // DIM), DIM), np.float32)
    rows.reshape(-1)[: len(values)] = values
    return rows
