"""Rows of one step: the distinct keys of each table that were looked up, one value each, and their gradients.

A table's rows are one parameter that grows with look-ups, so that whatever PyTorch does with parameters of an
optimizer between `backward` and `step` reaches them. Autograd does not know this parameter: each look-up is a
node of its own that adds its gradient by position, so a key that no gradient came for is told apart from one
whose gradient is zero.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .._arrays import Rows
from .._client import Client
from .._errors import Error
from .._steps import Counted, Request, steps_of
from .._tables import Table
from ._row_parameter import CHANGE, GRAD, RowParameter
from ._sightings import Occurrences, Sightings, pushed

Ints = npt.NDArray[np.int64]

MISSING = -1
"""The key that stands for none: its row is zero, no bag counts it, and nothing is pushed for it."""

MAX_STEP_BYTES = 1 << 30
"""Most bytes of rows of a table in a step. Beyond, rows without gradients are forgotten when no graph of
autograd has them; otherwise a look-up fails with LIMIT."""

_generations = itertools.count()

_ROWS: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}
"""Rows are these, whatever PyTorch's defaults are."""


class Owner(Protocol):
    """The rows of all tables in a step."""

    client: Client
    synchronous: bool
    """True when ranks average their gradients."""
    before_look: Callable[[], None] | None
    """Called before anybody looks at a gradient: ranks average them."""
    alive: weakref.WeakSet[Any]
    """Look-ups whose graph is there."""

    def dropped(self) -> None:
        """The gradients of a table are dropped."""


class TableRows:
    """Rows of one table in a step. `keys`: int64, in the order in which look-ups named them."""

    def __init__(self, owner: Owner, table: Table) -> None:
        self._owner = owner
        self.table = table
        self.parameter = RowParameter(torch.empty(0, table.dim, **_ROWS))
        self.parameter.before_look = self._look
        self.parameter.on_given = self._given
        self.lr: float | None = None
        """Learning rate of the layers, for steps without an optimizer object."""
        self.rated = False
        self.generation = 0
        """Another one whenever positions change their keys; no two objects have the same."""
        self.stale = False
        """True when rows have changed at the job: the next look-up begins a step."""
        self._version = 0
        """Version of the parameter: it rises when a program writes values into it."""
        self.summed = False
        """Whether a gradient has come since a program has dropped them."""
        self.layers: weakref.WeakSet[Any] = weakref.WeakSet()
        """Layers that have given gradients."""
        self._carried: tuple[Ints, Tensor, Counted] | None = None
        """Gradients of the step before that nobody has dropped: PyTorch would go on adding to them."""
        self._clear()

    def _clear(self) -> None:
        self.keys: Ints = np.empty(0, np.int64)
        self.touched: npt.NDArray[np.bool_] = np.empty(0, np.bool_)
        """Whether a gradient has come for the key."""
        self.known: npt.NDArray[np.bool_] = np.empty(0, np.bool_)
        """Whether the value of the key is here; otherwise only other ranks have looked it up."""
        self._sorted: Ints = self.keys
        self._at: Ints = self.keys
        """Positions of the sorted keys."""
        self.seen = Sightings()
        self._plain = False
        """True when these are 0, 1, 2 and so on."""
        self._buffer = torch.empty(0, self.table.dim, **_ROWS)
        self.generation = next(_generations)
        self._set(0, None)

    def _look(self) -> None:
        if self._owner.before_look is not None:
            self._owner.before_look()
        elif not self.stale:
            self.merge()

    def _check_values(self) -> None:
        version, self._version = self._version, self.parameter._version
        if version != self._version or self.parameter.is_written:
            self.parameter.hold(self._buffer[: len(self.keys)], first=True)
            self.stale = True
            text = f"values were written into the rows of {self.table.name!r}. They are lost: {CHANGE}"
            raise Error("BAD_ARGUMENT", text)

    def _given(self, gradient: Tensor | None) -> None:
        """A program sets the gradient, keys x dim: those of all keys where there was none, or drops it."""
        if gradient is None:
            self._dropped()
            self._owner.dropped()
            return
        self.summed = True
        if self.touched.any():
            self.touched |= (gradient.detach() != 0).any(1).cpu().numpy()
        else:
            self.touched[:] = True

    @property
    def gradient(self) -> Tensor | None:
        """The gradient as it is, also while look-ups wait for other ranks."""
        found: Tensor | None = GRAD.__get__(self.parameter)
        return found

    @gradient.setter
    def gradient(self, given: Tensor | None) -> None:
        GRAD.__set__(self.parameter, given)

    def _set(self, count: int, gradient: Tensor | None) -> None:
        self.gradient = None
        self.parameter.hold(self._buffer[:count], first=count == 0)
        if gradient is not None:
            more = count - len(gradient)
            if more > 0:
                gradient = torch.cat([gradient, gradient.new_zeros(more, self.table.dim)])
            self.gradient = gradient

    def _touch(self) -> None:
        """A program may have written a gradient of a key that had none, in place."""
        gradient = self.gradient
        if gradient is None or self.touched.all():
            return
        at = np.flatnonzero(~self.touched)
        self.touched[at] = (gradient.detach()[torch.from_numpy(at)] != 0).any(1).numpy()

    @property
    def is_fresh(self) -> bool:
        """Whether gradients have come that no step has taken."""
        return self.summed and not self.stale and self.gradient is not None and bool(self.touched.any())

    # ---- keys

    def _find(self, unique: Ints) -> Ints:
        """Positions of sorted keys; -1: not there."""
        if len(self._sorted) == 0:
            return np.full(len(unique), -1, np.int64)
        if len(unique) == len(self._sorted) and np.array_equal(unique, self._sorted):
            return self._at
        place = np.searchsorted(self._sorted, unique)
        place[place == len(self._sorted)] = 0
        return np.where(self._sorted[place] == unique, self._at[place], -1)

    def renew(self) -> None:
        """Begins a step if the one before has ended. @raises Error BAD_ARGUMENT: values were written."""
        self._check_values()
        if not self.stale:
            return
        self.stale = False
        gradient = self.gradient
        self._touch()
        if gradient is not None and self.touched.any():
            seen = self.seen.of(self.touched)
            self._carried = self.keys[self.touched], gradient[torch.from_numpy(self.touched)], seen
        self._clear()

    def unknown(self, unique: Ints) -> Ints:
        """Keys that have no value in this step, of sorted ones."""
        self.renew()
        self._make_room(len(unique))
        if len(self.keys) == 0:
            return unique
        at = self._find(unique)
        missing = at < 0
        if not self.known.all():
            missing |= ~self.known[at]
        return unique[missing]

    def _append(self, keys: Ints, rows: Rows | None) -> None:
        """Takes new keys with their values, len(keys) x dim; None: the values are not known."""
        before = len(self.keys)
        count = before + len(keys)
        self._check(count)
        if before == 0 and rows is not None:
            # Most steps have one look-up of a table: its keys are sorted, and its rows stay where they are.
            self._buffer = torch.from_numpy(rows)
            self.keys = self._sorted = keys
            self._at = np.arange(count)
            self._plain = True
            self.touched = np.zeros(count, np.bool_)
            self.known = np.ones(count, np.bool_)
            self._set(count, self.gradient)
            return
        self._plain = False
        if count > len(self._buffer):
            bigger = torch.empty(max(2 * len(self._buffer), count), self.table.dim, **_ROWS)
            bigger[:before] = self._buffer[:before]
            self._buffer = bigger
        self._buffer[before:count] = float("nan") if rows is None else torch.from_numpy(rows)
        self.keys = np.concatenate([self.keys, keys])
        self.touched = np.concatenate([self.touched, np.zeros(len(keys), np.bool_)])
        self.known = np.concatenate([self.known, np.full(len(keys), rows is not None)])
        self._at = np.argsort(self.keys, kind="stable")
        self._sorted = self.keys[self._at]
        self._set(count, self.gradient)

    def _append_new(self, keys: Ints, at: Ints, rows: Rows | None) -> Ints:
        """Takes those of some keys that are new (`at` < 0), as `_append`. Returns the positions of all."""
        new = at < 0
        at = at.copy()
        at[new] = np.arange(len(self.keys), len(self.keys) + int(new.sum()))
        self._append(keys[new], rows)
        return at

    def _check(self, count: int) -> None:
        if 4 * count * self.table.dim <= MAX_STEP_BYTES:
            return
        text = f"{count} rows of {self.table.name!r} are too many in a step (maxStepBytes = {MAX_STEP_BYTES})"
        raise Error("LIMIT", text + ": step() ends one, and look-ups under no_grad() in eval() are in none")

    def take(self, unique: Ints, wanted: Ints, got: Rows, register: bool) -> tuple[Rows, Ints]:
        """Values of sorted keys, and their positions, with what was pulled for `wanted` of them.

        `register`: keys that are new become a part of the step; otherwise they have no positions.
        """
        self.renew()
        if register and len(self.keys) == 0:
            values = _of(wanted, got, unique)
            self._append(unique, values)
            return values, self._at
        at = self._find(unique)
        new = at < 0
        if not new.any() and self.known.all():
            return self._buffer.numpy()[at], at
        if register:
            at = self._append_new(unique, at, _of(wanted, got, unique[new]))
            unknown = at[~self.known[at]]
            if len(unknown) > 0:
                self._buffer.numpy()[unknown] = _of(wanted, got, self.keys[unknown])
                self.known[unknown] = True
                self.parameter.found(unknown)
            return self._buffer.numpy()[at], at
        found = ~new
        found[found] = self.known[at[found]]
        values = np.empty((len(unique), self.table.dim), np.float32)
        values[found] = self._buffer.numpy()[at[found]]
        values[~found] = _of(wanted, got, unique[~found])
        return values, at

    def _make_room(self, more: int) -> None:
        """Forgets rows that nothing needs when they become too many."""
        if 4 * (len(self.keys) + more) * self.table.dim <= MAX_STEP_BYTES or self._owner.alive:
            return
        if self.gradient is None:
            self._clear()

    def place(self, unique: Ints) -> Ints:
        """Positions of sorted keys. What has no value yet is pulled. @raises Error."""
        wanted = self.unknown(unique)
        if len(wanted) > 0:
            steps_of(self._owner.client).settle()
        got = self.table.pull(wanted) if len(wanted) > 0 else np.empty((0, self.table.dim), np.float32)
        return self.take(unique, wanted, got, register=True)[1]

    # ---- gradients

    def add(
        self,
        unique: Ints,
        at: Ints,
        generation: int,
        missing: int | None,
        gradient: Tensor,
        seen: Occurrences | None = None,
    ) -> None:
        """Adds the gradient of a look-up, len(unique) x dim, on the CPU. `seen`: if its layer counts."""
        self.renew()
        if generation != self.generation:
            at = self.place(unique)
        self.merge()
        if missing is not None:
            gradient[missing] = 0
        self._add(at, gradient)
        self.seen.add(at, None if seen is None else seen.within(self.seen))
        self.touched[at if len(at) < len(self.keys) else slice(None)] = True
        if missing is not None:
            self.touched[at[missing]] = False

    def _add(self, at: Ints, gradient: Tensor) -> None:
        self.summed = True
        sum_ = self.gradient
        count = len(self.keys)
        if (
            sum_ is None
            and len(at) == count
            and ((self._plain and at is self._at) or (at == np.arange(count)).all())
        ):
            self.gradient = gradient
            return
        if sum_ is None:
            sum_ = torch.zeros(count, self.table.dim, **_ROWS)
            self.gradient = sum_
        sum_.index_add_(0, torch.from_numpy(at), gradient)

    def put(self, keys: Ints, gradient: Tensor, counts: Counted = None) -> None:
        """Has the gradient and counts be these, of sorted keys that may not be known here."""
        at = self._find(keys)
        if (at < 0).any():
            at = self._append_new(keys, at, None)
        self.gradient = None
        self.touched[:] = False
        self.seen = Sightings()
        self._add(at, gradient)
        self.seen.add(at, counts)
        self.touched[at] = True

    def merge(self) -> None:
        """Gradients that nobody has dropped go on, as those of PyTorch do."""
        if self._carried is None:
            return
        if self._owner.synchronous:
            text = "gradients of the step before are still there: call zero_grad() of the RowOptimizer"
            raise Error("BAD_ARGUMENT", text)
        (keys, gradient, counts), self._carried = self._carried, None
        order = np.argsort(keys)
        at = self.place(keys[order])
        self._add(at, gradient[torch.from_numpy(order)])
        self.seen.add(at, None if counts is None else counts[order])
        self.touched[at] = True

    def take_over(self, other: TableRows) -> None:
        """Has the gradients of these rows of the table, which begin a step here. @raises Error."""
        self.layers.update(other.layers)
        keys, gradient, counts = other.gradients()
        if len(keys) > 0:
            self._carried = keys, gradient, counts
            self.merge()

    def forget_values(self) -> None:
        """A child after a fork: values lie in memory that the parent uses again, so they are pulled again."""
        self.known[:] = False
        self._buffer = torch.full((len(self.keys), self.table.dim), float("nan"), **_ROWS)
        gradient = self.gradient
        self.parameter.forget()
        self._set(len(self.keys), gradient)

    def zero(self, set_to_none: bool) -> None:
        """Drops gradients, or has those of this step be zero: those of the step before are none any more."""
        if set_to_none or self.stale:
            self.gradient = None
            self._dropped()
            return
        self.summed = False
        self._carried = None
        self.seen = Sightings()
        if self.gradient is not None:
            self.gradient.zero_()

    def _dropped(self) -> None:
        self.summed = False
        self._carried = None
        self.seen = Sightings()
        self.touched[:] = False

    def gradients(self) -> tuple[Ints, Tensor, Counted]:
        """Keys that have gradients, each once, these gradients, len(keys) x dim, and counts of the keys.

        A count is 0 where no look-up has counted the key; None: that holds for all.
        """
        self._check_values()
        if not self.stale:
            self.merge()
        gradient = self.gradient
        self._touch()
        if gradient is None or not self.touched.any():
            return np.empty(0, np.int64), torch.empty(0, self.table.dim, **_ROWS), None
        gradient = gradient.detach()
        counts = self.seen.of(self.touched)
        if self.touched.all():
            return self.keys, gradient, counts
        return self.keys[self.touched], gradient[torch.from_numpy(self.touched)], counts

    def request(self, *, kept: bool = False) -> Request | None:
        """Keys that have gradients, each once, and these gradients; None: there are none.

        `kept`: they are pushed later, so they share no memory with `.grad`, which a program may change.
        """
        keys, gradient, counts = self.gradients()
        if len(keys) == 0:
            return None
        # Gradients of a part of the keys are a copy already.
        if kept and len(keys) == len(self.keys):
            gradient = gradient.clone()
        return Request(self.table, keys.view(np.uint64), gradient.numpy(), pushed(counts))


def _of(keys: Ints, rows: Rows, asked: Ints) -> Rows:
    """Rows of some of sorted keys."""
    if len(asked) == len(keys):
        return rows
    at = np.searchsorted(keys, asked)
    assert len(asked) == 0 or (at[-1] < len(keys) and np.array_equal(keys[at], asked))
    return rows[at]
