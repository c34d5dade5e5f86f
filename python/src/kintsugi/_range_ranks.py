"""Ranks of a process group that train the batches of a leased range together: the first one has the lease."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ._arrays import Keys
from ._dataset import Dataset, FollowedLease, Lease
from ._errors import Error
from ._tables import Table

T = TypeVar("T")

_WAIT_PARTS = 4
"""Ranks meet so often within the time that they wait for each other, also while there is no range."""


class RangeRanks:
    """A process group. Every method is called by all ranks, or they wait until their time is over."""

    def __init__(self, group: Any, seconds: float) -> None:
        """`group`: of `torch.distributed`. @raises Error BAD_ARGUMENT: this process is not in it."""
        from .torch._ddp import Channel

        self._channel = Channel(group, seconds)
        self.members = self._channel.members
        """Ranks of the default group."""
        self.rank = self._channel.rank
        self.world = self._channel.world
        self._seconds = seconds

    def lease(self, dataset: Dataset) -> Lease | None:
        """The next range, which the first rank acquires; None: there is none left. @raises Error."""
        while True:
            given: Any = None
            lease: Lease | None = None
            if self.rank == 0:
                try:
                    lease = dataset.acquire(self._seconds / _WAIT_PARTS)
                    given = "end" if lease is None else {name: getattr(lease, name) for name in _TOLD}
                except TimeoutError:
                    given = "wait"
                except Error as error:
                    given = _said(error)
            told = self._channel.objects(given)[0]
            if isinstance(told, tuple):
                raise Error(*told)
            if told == "end":
                return None
            if told != "wait":
                return lease or FollowedLease(dataset, **told)

    def agreed(self, lease: Any, act: Callable[[], T]) -> T | None:
        """Does something on all ranks; its result, or None where the lease is lost, which all know then.

        @raises Error: that of this rank, or of another one.
        """
        result: T | None = None
        error: Exception | None = None
        try:
            result = act()
        except Exception as raised:
            error = raised
        told = self._channel.objects((_said(error), lease.lost))
        lease.lost = bool(told[0][1])
        failed = [(rank, each) for rank, (each, _) in enumerate(told) if each is not None]
        if not failed:
            return result
        rank, (code, text) = failed[0]
        text = f"rank {rank}: {text}"
        if error is None or code != "BAD_DATA":
            with contextlib.suppress(Error):
                if code == "BAD_DATA":
                    lease.fail(getattr(result, "index", 0), text, code)
                else:
                    lease.give_back()
        # The range is nobody's here any more.
        lease.lost = True
        raise Error(code, text) if error is None else error

    def joined(
        self, left: Sequence[tuple[Table, Keys]], find: Callable[[str], Table]
    ) -> list[tuple[Table, Keys]]:
        """Keys of tables that any rank has, each once."""
        every: dict[str, list[Keys]] = {}
        for rank in self._channel.objects([(table.name, keys) for table, keys in left]):
            for name, keys in rank:
                every.setdefault(name, []).append(keys)
        return [(find(name), np.unique(np.concatenate(keys))) for name, keys in sorted(every.items())]


def _said(error: Exception | None) -> tuple[str, str] | None:
    """The code and the text of an error, for other ranks."""
    if error is None:
        return None
    if isinstance(error, Error):
        return error.code, str(error.args[0])
    return "UNREACHABLE", f"it has failed: {type(error).__name__}: {error}"


_TOLD = ("number", "epoch", "file", "begin", "end", "done", "begun", "lease_ms")
