"""Dense parameters on the PS: one model for all trainers, and no update of it is lost or applied twice."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._client import Client
from .._errors import Error
from .._specs import Adam, Optimizer, Zeros
from .._steps import steps_of
from ._lookup import Rate, rate_of

DIM = 256
"""Floats of a row: parameters are cut into rows of so many."""


class SharedOptimizer:
    """In place of an optimizer of PyTorch: the dense parameters of a model are in a table of the job.

    The table has what is added to the values that the parameters begin with, and its optimizer applies the
    gradients. With batches of a `RangeDataset` they are in the same push as those of the rows, so they are
    applied exactly once, whoever is killed. The first `forward` after a `step` pulls the parameters, and sees
    what other trainers did.

    `model`: all its parameters that need gradients are taken, float32. Every trainer begins with the same
    values: call `torch.manual_seed` before the model is made. `name`: of the table. `grad_scale`: factor of
    gradients; 1/n makes n trainers together take steps of the size of one. `lr`: the learning rate of a step
    in place of the table's, or what gives it at each `step`.

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
        self.client = client
        self.grad_scale = grad_scale
        self.lr = lr
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        if not self._parameters or any(each.dtype != torch.float32 for each in self._parameters):
            raise Error("BAD_ARGUMENT", "a model needs parameters, and all of them float32")
        self._sizes = [each.numel() for each in self._parameters]
        self._rows = -(-sum(self._sizes) // DIM)
        self._keys = np.arange(self._rows, dtype=np.uint64)
        self._initial = self._flat(self._parameters)
        # Who begins with other values means another table.
        seed = zlib.crc32(self._initial.numpy().tobytes()) >> 1
        self.table = client.create_table(
            name, DIM, optimizer=optimizer or Adam(), initializer=Zeros(), seed=seed, pool=pool
        )
        self._current = False
        model.register_forward_pre_hook(lambda *_: None if self._current else self.refresh())

    def _flat(self, parts: list[Any]) -> Tensor:
        """Rows x DIM of all parameters, or of their gradients; what is missing is zero."""
        flat = torch.zeros(self._rows, DIM)
        for place, part in zip(self._split(flat), parts, strict=True):
            if part is not None:
                place.copy_(part.detach().reshape(-1))
        return flat

    def _split(self, flat: Tensor) -> tuple[Tensor, ...]:
        return flat.view(-1)[: sum(self._sizes)].split(self._sizes)

    def refresh(self) -> None:
        """Has the parameters of the model be those of the job now. @raises Error, as `Client.pull`."""
        steps_of(self.client).settle()
        flat = self._initial + torch.from_numpy(self.table.pull(self._keys))
        with torch.no_grad():
            for parameter, values in zip(self._parameters, self._split(flat), strict=True):
                parameter.copy_(values.view_as(parameter))
        self._current = True

    def step(self) -> None:
        """Hands the gradients over: to the push of the current batch, or to one of their own."""
        gradients = self._flat([each.grad for each in self._parameters])
        rows = (gradients * self.grad_scale if self.grad_scale != 1.0 else gradients).numpy()
        steps = steps_of(self.client)
        if steps.current is None:
            steps.push(self.table, self._keys, rows, rate_of(self.lr))
        else:
            steps.current.add(self.table, self._keys, rows, rate_of(self.lr))
        self._current = False

    def zero_grad(self) -> None:
        """Forgets the gradients of all parameters."""
        for parameter in self._parameters:
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Empty: everything is in the job, and in its checkpoints."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes what `state_dict` gave: nothing."""
