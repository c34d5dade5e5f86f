"""Rows of some keys as leaves of autograd, from the pull to the push of their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from .._arrays import Keys, Rows
from .._client import Client
from .._errors import Error
from .._futures import Future
from .._steps import Step, steps_of
from .._tables import Table

Rate = float | Callable[[], float] | None
"""A learning rate, or what gives it whenever gradients are handed over; None: that of the table."""


def rate_of(given: Rate) -> float | None:
    """What it is now."""
    return float(given()) if callable(given) else given


MISSING = -1
"""The key that stands for none: its row is zero, no bag counts it, and nothing is pushed for it."""


@dataclass
class Places:
    """Where the rows of a table go: `inverse[i]` is the row of the i-th key among the unique ones."""

    table: Table
    unique: npt.NDArray[np.int64]
    inverse: Tensor
    missing: int | None
    """Which of the unique keys is `MISSING`."""
    starts: Tensor
    """Where the keys of each row would begin, if keys were in the order of their rows."""


@dataclass
class Leaf:
    """Rows of a table, unique keys x dim, float32, and how keys find them."""

    rows: Tensor
    inverse: Tensor
    missing: int | None
    starts: Tensor | None = None
    """As in `Places`; None: `inverse` is only a part of the keys of the rows."""

    def gathered(self) -> Tensor:
        """The rows of the keys, keys x dim."""
        if self.starts is None or not self.rows.requires_grad or self.rows.device.type != "cpu":
            return F.embedding(self.inverse, self.rows, padding_idx=self.missing)
        # Those of a row in their own order, so that sums are the same on every machine.
        places = (self.inverse.numpy() << 32) | np.arange(len(self.inverse))
        places.sort()
        order = torch.from_numpy(places & 0xFFFFFFFF)
        gathered: Tensor = _Gathered.apply(self.rows, self.inverse, order, self.starts)
        return gathered


class _Gathered(torch.autograd.Function):
    """As `embedding`. The gradient of a row is a sum over the keys that have it, which is a bag of them: in
    a fifth of the time that PyTorch takes for the gradient of `embedding`.
    """  # noqa: D205

    @staticmethod
    def forward(ctx: Any, rows: Tensor, inverse: Tensor, order: Tensor, starts: Tensor) -> Tensor:
        ctx.save_for_backward(order, starts)
        return F.embedding(inverse, rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        order, starts = ctx.saved_tensors
        return F.embedding_bag(order, gradient.contiguous(), starts, mode="sum"), None, None, None


def places_of(table: Table, keys: Tensor) -> Places:
    """Unique keys of a tensor with one dimension. @raises Error KEY_TYPE."""
    if keys.is_floating_point() or keys.is_complex() or keys.dtype == torch.bool:
        raise Error("KEY_TYPE", f"keys must be integers, not {keys.dtype}")
    given = keys.detach().to("cpu", torch.int64)
    ordered = np.sort(given.numpy())
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    unique = ordered[starts]
    # Two sorts and a search take a third of the time of `torch.unique`.
    inverse = torch.searchsorted(torch.from_numpy(unique), given)
    at = int(np.searchsorted(unique, MISSING))
    missing = at if at < len(unique) and unique[at] == MISSING else None
    return Places(table, unique, inverse.to(keys.device), missing, torch.from_numpy(starts))


class Lookup:
    """A pull of several tables that is under way."""

    def __init__(self, client: Client, places: Sequence[Places], *, settle: bool = True) -> None:
        """`settle`: the rows are those after every push that a module of this client has begun."""
        self._client = client
        self._places = places
        if settle:
            steps_of(client).settle()
        requests = [(place.table, place.unique) for place in places]
        self._pulled: Future[list[Rows]] = client.pull_async(requests)

    def leaves(self, grad_scale: float, devices: Sequence[torch.device], lr: Rate = None) -> list[Leaf]:
        """The rows, one leaf per table. Their gradients go where those of the current step go.

        @raises Error as `Client.pull` does.
        """
        leaves: list[Leaf] = []
        step = steps_of(self._client).current
        for place, rows, device in zip(self._places, self._pulled.result(), devices, strict=True):
            leaf = torch.from_numpy(rows).to(device)
            if torch.is_grad_enabled():
                leaf.requires_grad_()
                keys = place.unique.view(np.uint64)
                leaf.register_post_accumulate_grad_hook(
                    _handover(self._client, step, place.table, keys, grad_scale, lr)
                )
            leaves.append(Leaf(leaf, place.inverse, place.missing, place.starts))
        return leaves


def _handover(
    client: Client, step: Step | None, table: Table, keys: Keys, grad_scale: float, lr: Rate
) -> Callable[[Tensor], None]:
    """What takes the gradient of a leaf as soon as it is complete."""

    def take(leaf: Tensor) -> None:
        gradient = leaf.grad
        leaf.grad = None
        assert gradient is not None
        if grad_scale != 1.0:
            gradient = gradient * grad_scale
        rows: Rows = gradient.detach().cpu().numpy()
        if step is None:
            steps_of(client).push(table, keys, rows, rate_of(lr))
        else:
            step.add(table, keys, rows, rate_of(lr))

    return take


class Begun:
    """Pulls that were begun for inputs of a `forward` to come: each is for the very object that it gets."""

    def __init__(self) -> None:
        self._lookups: dict[int, tuple[object, Lookup]] = {}

    def put(self, given: object, lookup: Lookup) -> None:
        """Keeps it, and `given`, until it is taken."""
        self._lookups[id(given)] = given, lookup

    def take(self, given: object) -> Lookup | None:
        """What was begun for this object."""
        found = self._lookups.pop(id(given), None)
        return None if found is None else found[1]

    def clear(self) -> None:
        """No `forward` will ask for them."""
        self._lookups.clear()
