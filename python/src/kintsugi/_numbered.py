"""Steps with numbers: one that is sent again, after whatever ended, is applied once.

The numbers are those that batches of leased ranges have (`_dataset.py`): a data set without files, whose
ranges are `every` steps long. Shards know the numbers of a range, whoever sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

import numpy.typing as npt

from ._arrays import Keys, keys_of
from ._checks import entries, integer
from ._dataset import Dataset, Lease
from ._errors import Error
from ._extras import Counts, Rate, Scores, each_of
from ._tables import Table, Tables


class NumberedSteps:
    """Pushes of one program at a time, each under the number of its step. `Client.steps` gives it."""

    def __init__(self, tables: Tables, name: str, every: int) -> None:
        spec = {"name": name, "files": [["steps", 0]], "batch": 1, "epochs": 1, "seed": 0}
        spec |= {"shuffle": False, "follow": True, "rangeBytes": every}
        self.name = name
        self.every = every
        self._tables = tables
        self._dataset = Dataset(tables, spec)
        self._lock = Lock()
        self._lease: Lease | None = None
        self._at = 0
        """Steps of the range that the lease has had."""
        self._keys: list[list[tuple[Table, Keys]]] = []
        """Keys of the steps of the range: who takes its numbers again needs them."""
        self._next: int | None = None

    @property
    def next(self) -> int:
        """The step to go on from: those before it are durable. Up to `every` - 1 from it on may be, too.

        @raises Error CLOSED, UNREACHABLE, UNRECOVERABLE.
        """
        with self._lock:
            return self._range().begin if self._next is None else self._next

    def push(
        self,
        requests: Sequence[tuple[Table | str, npt.ArrayLike, npt.ArrayLike]],
        *,
        step: int,
        lr: Rate = None,
        counts: Counts = None,
        scores: Scores = None,
    ) -> None:
        """Applies the gradients of a step, and returns when they are durable; see `Client.push`.

        `step`: its number. Steps have the numbers 0, 1, 2, ..., and come in this order. One that is durable
        already changes nothing. A step that is sent again must have the same tables and keys as before.
        When the gateway ends, the step is sent again by itself. `lr`, `counts`, `scores`: see `Client.push`;
        keys that repeat were seen as often as they come, and have the highest of their scores.

        @raises Error BAD_ARGUMENT (another step is the next one), and as `Client.push`, but never
        PUSH_IN_DOUBT.
        """
        step = integer(step, "step", 0)
        given = entries(requests, 3, "(table, keys, gradients)")
        keys = [(self._tables.find(table), keys_of(asked)) for table, asked, _ in given]

        # Iterators are read once, and a step may be sent several times.
        extras = each_of(lr, counts, scores, len(given))
        rates = [each.lr for each in extras]
        seen, scored = [each.counts for each in extras], [each.scores for each in extras]

        def send(lease: Lease) -> None:
            lease.push(given, 1, lr=rates, counts=seen, scores=scored).result()

        with self._lock:
            while not self._pushed(send, keys, step):
                # The range was lost on the way. The next lease of it says what is durable.
                self._lease = None

    def _pushed(self, send: Callable[[Lease], None], keys: list[tuple[Table, Keys]], step: int) -> bool:
        """False: the range was lost. @raises Error."""
        if self._next is not None and step < self._next:
            return True
        lease = self._range()
        index = step - lease.begin
        if index < self._at:
            return True
        while self._at < min(index, len(self._keys)):
            lease.skip(self._keys[self._at], 1)
            self._at += 1
        if index > self._at:
            raise Error("BAD_ARGUMENT", f"step {lease.begin + self._at} of {self.name!r} is next, not {step}")
        if index < lease.done:
            lease.skip(keys, 1)
        else:
            send(lease)
        if lease.lost:
            return False
        self._keys[index:] = [keys]
        self._at += 1
        if self._at == self.every:
            lease.finish()
            if lease.lost:
                return False
            self._lease, self._at, self._keys, self._next = None, 0, [], lease.end
        return True

    def _range(self) -> Lease:
        """The range of the next step."""
        while self._lease is None or self._lease.lost:
            # Ranges are made as they are needed, and finished in their order.
            size = (int(self._dataset.status()["finished"]) + 1) * self.every
            self._dataset.extend([size])
            self._lease, self._at = self._dataset.acquire(), 0
            if self._lease is not None and (not self._keys or self._next != self._lease.begin):
                self._keys, self._next = [], self._lease.begin
        return self._lease
