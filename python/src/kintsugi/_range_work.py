"""A batch of a leased range, from the loop that gets it to its push."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ._dataset import FollowedLease, Lease, kept
from ._steps import Request, Step, parted, steps_of

if TYPE_CHECKING:
    from ._arrays import Keys
    from ._client import Client
    from ._futures import PushFuture
    from ._range_ranks import RangeRanks
    from ._tables import Table

Named = list[tuple["Table", "Keys"]]
"""Keys of the tables that the push of a batch names."""


class Trainer(Protocol):
    """A RangeDataset, as its batches see it."""

    client: Client
    ranks: RangeRanks | None
    audit: Table | None
    on_batch: Callable[[int], None] | None

    def unstepped(self, left: Sequence[tuple[Table, Keys]]) -> list[tuple[Table, Keys]]:
        """Tables that name keys without a change, and these keys."""

    def ended(self, lease: Lease, index: int, named: Named) -> None:
        """A batch of a range was trained here."""

    def finish(self, lease: Lease) -> None:
        """Ends a range."""


@dataclass
class Work:
    """A batch that is being trained. `begin` and `settle` around what is done with it."""

    dataset: Trainer
    lease: Lease
    index: int
    batch: Any
    samples: int
    key: int
    """Key of the batch in the table of audits."""
    last: bool
    """True for the last batch of its range."""

    def __post_init__(self) -> None:
        ranks = self.dataset.ranks
        self.step = Step(
            push_now=self._push_now,
            members=None if ranks is None else ranks.members,
            # A batch that ranks cannot divide is given to each as it is.
            alike=ranks is not None and self.samples % ranks.world != 0,
            meanwhile=None if ranks is None else kept(self.lease),
        )
        self._pushed: PushFuture | None = None

    @contextmanager
    def current(self) -> Iterator[None]:
        """Within this, lookups of modules belong to this batch."""
        with steps_of(self.dataset.client).of_batch(self.step):
            yield

    def push(self) -> PushFuture | None:
        """Pushes its gradients, once; None: it was durable before, or is somebody else's now.

        What an optimizer has left out, such as a step that overflowed, is named without a change: the keys of
        a batch, and so the numbers of its pushes, are those of its samples, whoever trains it.
        """
        if self.step.closed:
            return self._pushed
        requests, rates = self.step.requests(), self.step.rates()
        unnamed = self.step.unnamed()
        if self.dataset.ranks is not None:
            place = f"the push of batch {self.index} of range {self.lease.number}"
            unnamed = self.dataset.ranks.joined(place, unnamed, self.dataset.client.table)
        lease = self.lease
        if isinstance(lease, FollowedLease):
            # The first rank pushes what all of them have.
            self._end([])
            return None
        for table, keys in self.dataset.unstepped(unnamed):
            requests.append(Request(table, keys, np.zeros((len(keys), 1), np.float32)))
            rates.append(None)
        audit = self.dataset.audit
        if audit is not None:
            keys, counted = np.array([self.key], np.uint64), np.array([[1, self.samples]], np.float32)
            requests.append(Request(audit, keys, counted))
            rates.append(None)
        named = [(each.table, each.keys) for each in requests]
        self._end(named)
        if lease.lost:
            return None
        if self.index < lease.done:
            # Computed again only because the dense parameters of this process have not seen it.
            lease.skip(named, self.samples)
            return None
        given, counts = parted(requests)
        self._pushed = lease.push(given, self.samples, lr=rates, counts=counts)
        return self._pushed

    def _end(self, named: Named) -> None:
        self.step.closed = True
        self.dataset.ended(self.lease, self.index, named)
        if self.dataset.on_batch is not None:
            self.dataset.on_batch(self.samples)

    def leave(self) -> None:
        """The loop is left in this batch: it is pushed if optimizers or `backward` have stepped all of it."""
        if self.step.is_stepped:
            self._push_now()

    def _push_now(self) -> None:
        """Pushes before the end of the batch, for a look-up that is to see it. @raises Error."""
        wait(self.push())

    def finish(self) -> None:
        """Ends its range, if this is the last batch of it: returns when all of them are durable.

        @raises Error: what a push of it raised.
        """
        if self.last:
            self.dataset.finish(self.lease)


def wait(pushed: PushFuture | None) -> None:
    """Waits until a push is durable; None: there is none. @raises Error."""
    if pushed is not None:
        pushed.result()


def after(work: Work, works: Iterator[Work]) -> Work | None:
    """Pushes a batch, and reads the next one of its range meanwhile. @raises Error."""
    pushed = work.push()
    try:
        return None if work.last else next(works, None)
    finally:
        wait(pushed)
