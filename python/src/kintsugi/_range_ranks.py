"""Ranks of a process group that train the batches of a leased range together: the first one has the lease."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ._arrays import Keys
from ._dataset import Dataset, FollowedLease, Lease, kept
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
            self._channel.meanwhile = None if lease is None else kept(lease)
            told = self._channel.objects("the next range", given)[0]
            if isinstance(told, tuple):
                raise Error(*told[:2])
            if told == "end":
                return None
            if told != "wait":
                return lease or FollowedLease(dataset, **told)

    def agreed(self, lease: Any, place: str, act: Callable[[], T]) -> T | None:
        """Does something on all ranks; its result, or None where the lease is lost, which all know then.

        `place`: where they are, for errors. A result that has `index`, `samples` and `last` is a batch, which
        has the same ones on all ranks.

        @raises Error: that of this rank, or of another one; BAD_ARGUMENT: ranks have read other batches.
        """
        result: T | None = None
        error: Exception | None = None
        try:
            result = act()
        except Exception as raised:
            error = raised
        self._channel.meanwhile = kept(lease)
        try:
            told = self._channel.objects(
                f"{place} of range {lease.number}", (*_seen(result, error), lease.lost)
            )
        except Error:
            if error is not None:
                raise error from None
            raise
        lease.lost = bool(told[0][-1])
        failed = [(rank, *each) for rank, (each, *_) in enumerate(told) if each is not None]
        batches = [batch for _, batch, _ in told]
        # The first rank may know alone that the lease is lost; it has read no batch then.
        if not failed and not lease.lost and any(batch != batches[0] for batch in batches):
            lease.give_back()
            lease.lost = True
            read = ", ".join(f"rank {rank} {batch}" for rank, batch in enumerate(batches))
            text = f"ranks have read different batches: {read}: all ranks need the same files"
            raise Error("BAD_ARGUMENT", text)
        if not failed:
            return result
        rank, code, text, batch = failed[0]
        text = f"rank {rank}: {text}"
        if error is None or code != "BAD_DATA":
            with contextlib.suppress(Error):
                if code == "BAD_DATA":
                    lease.fail(batch or 0, text, code)
                else:
                    lease.give_back()
        # The range is nobody's here any more.
        lease.lost = True
        raise Error(code, text) if error is None else error

    def joined(
        self, place: str, left: Sequence[tuple[Table, Keys]], find: Callable[[str], Table]
    ) -> list[tuple[Table, Keys]]:
        """Keys of tables that any rank has, each once."""
        every: dict[str, list[Keys]] = {}
        mine = [(table.name, keys) for table, keys in left]
        for rank in self._channel.objects(place, mine):
            for name, keys in rank:
                every.setdefault(name, []).append(keys)
        return [(find(name), np.unique(np.concatenate(keys))) for name, keys in sorted(every.items())]


def _seen(result: Any, error: Exception | None) -> tuple[_Failure | None, str]:
    """The error of an act for other ranks, and the batch that it has read."""
    if error is not None or result is None:
        return _said(error), "no batch"
    last = ", the last of its range" if result.last else ""
    return None, f"batch {result.index} of {result.samples} samples{last}"


_Failure = tuple[str, str, int | None]
"""The code and the text of an error, and the batch that could not be read."""


def _said(error: Exception | None) -> _Failure | None:
    """An error, for other ranks."""
    if error is None:
        return None
    if isinstance(error, Error):
        return error.code, str(error.args[0]), error.batch
    return "UNREACHABLE", f"it has failed: {type(error).__name__}: {error}", None


_TOLD = ("number", "epoch", "file", "begin", "end", "done", "begun", "lease_ms")
