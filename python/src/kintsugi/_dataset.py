"""Data sets of a job: ranges of files that one program at a time leases, trains and acknowledges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ._answers import DatasetStatus
from ._arrays import Keys, keys_of, present, rows_of
from ._checks import entries, integer, listed, seconds, text
from ._errors import Error, GatewayLost
from ._extras import Counts, Rate, Scores, each_of
from ._futures import Future, PushFuture
from ._link import Meanwhile, Reply
from ._session import Call, Session, named
from ._tables import Table, Tables, named_by

Requests = Sequence[tuple[Table | str, npt.ArrayLike, npt.ArrayLike]]


class BatchFuture(PushFuture):
    """The push of a batch of a leased range: it is applied once, by this program or by another one."""

    def __init__(
        self, lease: Lease, session: Session, calls: Sequence[Call], message: dict[str, Any]
    ) -> None:
        self._lease = lease
        super().__init__(lambda: session, lambda _: session.push(calls, message), named(calls))

    def _answered(self, reply: Reply) -> None:
        super()._answered(reply)
        self._lease.lost = self._lease.lost or bool(reply.value)

    def _check_attempts(self, error: GatewayLost) -> None:  # noqa: ARG002
        # No push was sent: another program has the range by now, and this batch with it.
        self._lease.lost = True
        self._give_up()

    def _lost(self, error: GatewayLost) -> None:  # noqa: ARG002
        self._lease.lost = True
        self._give_up()


@dataclass
class Lease:
    """A range of samples that this program has, until `finish`, `give_back` or `fail`, or until it is lost.

    Its batches are given to `skip` and `push` in their order, each once: the first `done` ones were made
    durable by somebody before and are skipped, the others are pushed. Both name the same tables and keys for
    the same batch, whoever reads it: the numbers of pushes, by which none is applied twice, depend on them.

    A program that asks for nothing for as long as the lease lasts loses it, and so does one whose gateway
    ends: then `lost` is set, the next program redoes what was not durable, and nothing is raised.
    """

    dataset: Dataset
    number: int
    epoch: int
    file: int
    """Index in the files of the data set."""
    begin: int
    end: int
    """Bytes of the file: the samples whose lines start in begin <= byte < end."""
    done: int
    """Batches that are durable already."""
    begun: int
    """Batches that somebody has begun; those above `done` may have been applied at some shards."""
    lease_ms: float
    lost: bool = False
    """Somebody else has the range now, or will have it."""
    finished: bool = False
    """The job knows that it is finished, or somebody else has it: there is nothing to give back."""

    def __post_init__(self) -> None:
        session = self.dataset._session
        assert session is not None
        self._session = session

    def skip(self, requests: Sequence[tuple[Table | str, npt.ArrayLike]], samples: int) -> None:
        """The next batch, of `samples` samples, is durable already. @raises Error BAD_ARGUMENT."""
        tables = self.dataset._tables
        samples = integer(samples, "samples", 0)
        calls = []
        for given, asked in entries(requests, 2, "(table, keys)"):
            table = tables.find(given)
            calls.append(Call(named_by(given, table), _distinct(keys_of(asked))[0], table.dim))
        message = {"op": "skip", "range": self.number, "samples": samples}
        self._send(lambda: self._session.push(calls, message)[0])

    def push(
        self,
        requests: Requests,
        samples: int,
        *,
        lr: Rate = None,
        counts: Counts = None,
        scores: Scores = None,
    ) -> PushFuture:
        """Applies the gradients of the next batch, of `samples` samples; acknowledged when it is durable.

        Gradients of repeated keys are summed, which were seen as often as they come, and have the highest of
        their scores. `lr`, `counts`, `scores`: see `Client.push`.

        @raises Error, as `Client.push`, but never PUSH_IN_DOUBT.
        """
        tables = self.dataset._tables
        samples = integer(samples, "samples", 0)
        requests = entries(requests, 3, "(table, keys, gradients)")
        calls = []
        extras = each_of(lr, counts, scores, len(requests))
        for (given, asked, gradients), of in zip(requests, extras, strict=True):
            table = tables.find(given)
            table.trained = True
            every = keys_of(asked)
            keys, inverse, where = _distinct(every)
            rows = rows_of(gradients, len(every), table.dim, "gradients")
            extra = of.checked(table.name, table.policy, len(every))
            if where is not None:
                rows, extra = rows[where], extra.of(where)
            if inverse is not None:
                summed = np.zeros((len(keys), table.dim), np.float32)
                np.add.at(summed, inverse, rows)
                rows = summed
                extra = extra.summed(inverse, len(keys), table.policy)
            calls.append(Call(named_by(given, table), keys, table.dim, rows, extra))
        message = {"op": "pushBatch", "range": self.number, "samples": samples}
        return tables.connection.noted(BatchFuture(self, self._session, calls, message))

    def keep(self) -> None:
        """Says that this program lives; every other request says so, too."""
        self._send(lambda: self._session.link.send({"op": "keep"}))

    def finish(self) -> None:
        """Every batch was skipped or pushed. Returns when the job knows, or the range is `lost`.

        @raises Error: what a push of it raised.
        """
        reply = self._send(lambda: self._session.link.send({"op": "finish", "range": self.number}))
        self.lost = self.lost or bool(reply and reply.value)
        self.finished = True

    def give_back(self) -> None:
        """Gives the range back: another program goes on from the first batch that is not durable."""
        self._send(lambda: self._session.link.send({"op": "giveBack", "range": self.number}))

    def fail(self, batch: int, why: str, code: str = "MODEL") -> None:
        """Batch `batch` of the range cannot be trained; after some attempts it is set aside, and named."""
        what = {"batch": integer(batch, "batch", 0), "code": text(code, "code"), "why": text(why, "why")}
        message = {"op": "fail", "range": self.number, **what}
        self._send(lambda: self._session.link.send(message))

    def _send(self, send: Callable[[], Reply]) -> Reply | None:
        """None: the range is lost."""
        if self.lost:
            return None
        try:
            reply = send()
            self._session.link.wait(reply)
            reply.get()
        except GatewayLost:
            self.lost = True
            return None
        return reply


class FollowedLease(Lease):
    """A lease of the first rank of a process group, as the others have it: they report nothing to the job."""

    def skip(self, requests: Sequence[tuple[Table | str, npt.ArrayLike]], samples: int) -> None:
        """The first rank does."""

    def push(
        self,
        requests: Requests,  # noqa: ARG002
        samples: int,  # noqa: ARG002
        *,
        lr: Rate = None,  # noqa: ARG002
        counts: Counts = None,  # noqa: ARG002
        scores: Scores = None,  # noqa: ARG002
    ) -> PushFuture:
        """@raises Error BAD_ARGUMENT: the first rank pushes."""
        raise Error("BAD_ARGUMENT", "the first rank of the group pushes its batches")

    def _send(self, send: Callable[[], Reply]) -> Reply | None:  # noqa: ARG002
        return None


_KEPT_PER_LEASE = 4
"""A lease is kept so often in its time while this program waits for something else than the job."""


def kept(lease: Lease) -> Meanwhile:
    """Keeps a lease while something is waited for."""
    return Meanwhile(lease.lease_ms / 1000 / _KEPT_PER_LEASE, lease.keep)


def _distinct(keys: Keys) -> tuple[Keys, npt.NDArray[Any] | None, npt.NDArray[np.bool_] | None]:
    """Keys, each once; for each that is not missing its index there, if it is not its own; and which are not
    missing, if not all.
    """  # noqa: D205
    where = present(keys)
    if where is not None:
        keys = keys[where]
    # Keys of a layer are in order already. Seeing that takes a hundredth of the time of `unique`.
    signed = keys.view(np.int64)
    if (signed[1:] > signed[:-1]).all():
        return keys, None, where
    distinct, inverse = np.unique(keys, return_inverse=True)
    if len(distinct) == len(keys):
        return keys, None, where
    return distinct, inverse.reshape(-1), where


class Dataset:
    """A data set of the job, by name: every program that gives the same one shares its ranges.

    Each range is leased to one program at a time. Losing a program, a lease or a gateway loses no sample and
    applies none twice.
    """

    def __init__(self, tables: Tables, spec: dict[str, Any]) -> None:
        self._tables = tables
        self._spec = spec
        self._session: Session | None = None
        self._acquiring: Future[Any] | None = None
        """A range that was asked for, and that nobody has waited for to the end."""
        self.name: str = spec["name"]
        registered = Future[Any](tables.connection.open, self._register).result()
        self.batch: int = registered["batch"]

    def _register(self, session: Session) -> tuple[Reply, Any]:
        def opened(reply: Reply) -> Any:
            self._session = session
            return reply.value

        return session.link.send({"op": "openDataset", **self._spec}), opened

    def _ask(self, message: dict[str, Any]) -> Future[Any]:
        """Asks a gateway that knows the data set: one that was started again is told of it first."""

        def send(session: Session) -> tuple[Reply, Any]:
            if self._session is not session:
                reply, opened = self._register(session)
                session.link.wait(reply)
                reply.get()
                opened(reply)
            return session.link.send(dict(message)), lambda reply: reply.value

        return Future[Any](self._tables.connection.open, send)

    def acquire(self, timeout: float | None = None) -> Lease | None:
        """Waits for a range; None when every range is finished or set aside.

        After `timeout` seconds it is still asked for, and the next call goes on waiting for it.

        @raises Error, TimeoutError.
        """
        timeout = seconds(timeout, "timeout")
        self._acquiring = self._acquiring or self._ask({"op": "acquire"})
        try:
            given = self._acquiring.result(timeout)
        except Error:
            self._acquiring = None
            raise
        self._acquiring = None
        if given is None:
            return None
        lease_ms = given.pop("leaseMs")
        return Lease(self, **given, lease_ms=lease_ms)

    def extend(self, sizes: Sequence[int]) -> list[int]:
        """Files that grow have whole lines up to these sizes. Returns what is durable, also from others."""
        given = [integer(each, "a size", 0) for each in listed(sizes, "sizes", "bytes of files")]
        durable: list[int] = self._ask({"op": "extendDataset", "sizes": given}).result()
        return durable

    def status(self) -> DatasetStatus:
        """State of the data set: ranges that are open, finished and set aside, and samples of each epoch.

        @raises Error.
        """
        status = self._tables.connection.ask({"op": "datasetStatus", "name": self.name})
        if status is None:
            raise Error("BAD_ARGUMENT", f"nobody has registered a data set {self.name!r}")
        found: DatasetStatus = status
        return found
