"""Rows of all tables in the steps of one RowOptimizer, or of one `kintsugi.torch.step`."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from threading import RLock, get_ident
from typing import Any

from .._client import Client
from .._errors import Error
from .._steps import Step, steps_of
from .._tables import Table
from ._rows import Ints, TableRows


class StepRows:
    """Rows of all tables in the steps of one RowOptimizer, or of one `kintsugi.torch.step`."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.tables: dict[str, TableRows] = {}
        self.lock = RLock()
        self.synchronous = False
        """True when ranks average their gradients."""
        self.before_look: Callable[[], None] | None = None
        """Called before anybody looks at a gradient: ranks average them."""
        self.before_add: Callable[[], None] | None = None
        """Called before a gradient is added; may refuse it."""
        self.alive: weakref.WeakSet[Any] = weakref.WeakSet()
        """Look-ups whose graph is there."""
        self.origin: Step | None = None
        """The batch of a RangeDataset that the gradients come from."""
        self.on_dropped: Callable[[], None] | None = None
        """Told when no gradient is left, or all are zero: a step may begin anew."""
        self.thread = get_ident()
        self.owner: weakref.ref[Any] | None = None
        """The RowOptimizer; None: this is of `kintsugi.torch.step`."""
        _every.add(self)

    @property
    def is_left(self) -> bool:
        """Whether nobody has the RowOptimizer any more."""
        return self.owner is not None and self.owner() is None

    def has_waiting(self, name: str) -> bool:
        """Whether gradients of this table have come that no step has taken. Those of layers that nobody has
        any more, as their optimizer, are gone: in PyTorch a parameter takes its gradient along.
        """  # noqa: D205
        rows = self.tables.get(name)
        return rows is not None and rows.is_fresh and not (self.is_left and not rows.layers)

    @property
    def is_finite(self) -> bool:
        """Whether no gradient has overflowed."""
        gradients = [rows.gradient for rows in self.tables.values()]
        return all(bool(each.isfinite().all()) for each in gradients if each is not None)

    def of(self, table: Table) -> TableRows:
        """The rows of a table."""
        rows = self.tables.get(table.name)
        if rows is None:
            rows = self.tables.setdefault(table.name, TableRows(self, table))
        return rows

    def unknown(self, table: Table, unique: Ints) -> Ints:
        """Keys of a table that have no value in this step, of sorted ones."""
        with self.lock:
            return self.of(table).unknown(unique)

    def refuse_others(self, names: Iterable[str]) -> None:
        """@raises Error BAD_ARGUMENT: gradients of these tables wait in another step: one would be two."""
        name = waiting(self.client, names, besides=self)
        if name is not None:
            text = f"table {name!r} has gradients in two steps: its layers have several RowOptimizers. Make "
            text += "one for all layers of a table, or call zero_grad() of the one that does not step"
            raise Error("BAD_ARGUMENT", text)

    def zero(self, set_to_none: bool = True, tables: Iterable[Table] | None = None) -> None:
        """Drops the gradients of tables, or has them be zero; None: of all.

        The push of a batch names the keys of its samples and no others, so in a batch they are dropped.
        """
        with self.lock:
            current = steps_of(self.client).current
            of_batch = self.origin is not None or (current is not None and current.rows is None)
            for rows in self.tables.values() if tables is None else map(self.of, tables):
                rows.zero(set_to_none or of_batch)
            self.dropped()

    def dropped(self) -> None:
        """The gradients of a table are dropped. The step begins anew when no table has any."""
        if not any(rows.summed for rows in self.tables.values()):
            self.origin = None
            if self.on_dropped is not None:
                self.on_dropped()

    def forked(self) -> None:
        """In a child after a fork."""
        self.lock = RLock()
        for rows in self.tables.values():
            rows.forget_values()

    def end(self) -> None:
        """Ends a step: rows change at the job, so look-ups pull them again."""
        for rows in self.tables.values():
            rows.stale = True
        rows_changed(self.client, list(self.tables), here=True)


_every: weakref.WeakSet[StepRows] = weakref.WeakSet()


def waiting(client: Client, names: Iterable[str], besides: StepRows | None = None) -> str | None:
    """Names one of these tables whose gradients wait for a step of this thread; None: there is none.

    @raises Error BAD_ARGUMENT: they are of a RowOptimizer that nobody has any more.
    """
    if _waiting(client, names, besides) is None:
        return None
    gc.collect()  # what nobody has any more, but for cycles, waits for no step
    found = _waiting(client, names, besides)
    if found is not None and found[1].is_left:
        text = f"table {found[0]!r} has gradients of a RowOptimizer that nobody has any more: make another "
        raise Error("BAD_ARGUMENT", text + "one, which has them, or call zero_grad() of the model")
    return None if found is None else found[0]


def _waiting(client: Client, names: Iterable[str], besides: StepRows | None) -> tuple[str, StepRows] | None:
    names = list(names)
    for each in list(_every):
        if each is not besides and each.client is client and each.thread == get_ident():
            found = next((name for name in names if each.has_waiting(name)), None)
            # A GradScaler leaves gradients that are not finite without a step.
            if found is not None and (each.is_finite or not each.is_left):
                return found, each
    return None


def rows_changed(client: Client, names: Sequence[str], *, here: bool = False) -> None:
    """Rows of these tables change at the job: look-ups, `here` those of this thread, pull them again."""
    for each in list(_every):
        if each.client is client and (not here or each.thread == get_ident()):
            for name in names:
                if name in each.tables:
                    each.tables[name].stale = True


def _after_fork() -> None:
    for each in list(_every):
        each.forked()


os.register_at_fork(after_in_child=_after_fork)
