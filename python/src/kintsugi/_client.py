"""A client of a job: tables, pulls, pushes and data sets."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from ._answers import JobStatus
from ._arrays import Rows
from ._checks import entries, flag, integer, number, path, text, texts
from ._connection import Connection
from ._dataset import Dataset
from ._errors import Error
from ._extras import Counts, Rate, Scores
from ._futures import Future, PushFuture
from ._gateway import SharedGateway, SpawnedGateway
from ._numbered import NumberedSteps
from ._specs import (
    Adagrad,
    Initializer,
    Optimizer,
    Policy,
    Uniform,
    checked_initializer,
    checked_optimizer,
    checked_policy,
)
from ._tables import Table, Tables

_UNIX = "unix:"
MAX_COUNT = 2**31 - 1
"""Most rows of an array."""
MAX_DIM = 65_536
"""Most values of a row, as the job has it."""


class Client:
    """See `connect`. May be used from several threads; a child after a fork connects anew by itself."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tables = Tables(connection)
        self._tables.client = weakref.ref(self)
        self._identity = uuid4().hex
        """That of this client and of those that pickles of it have made elsewhere."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process connects anew. The token is not in it: it is `KINTSUGI_TOKEN` there."""
        _pickled.setdefault(self._identity, self)
        return _reconnected, (*self._connection.recipe(), self._identity)

    def __deepcopy__(self, memo: dict[int, Any]) -> Client:
        """A client is one: copies of what has it share it."""
        return self

    @property
    def gateway_pid(self) -> int | None:
        """The process of the gateway that this client has started; None: it shares one."""
        gateway = self._connection.gateway
        return gateway.pid if isinstance(gateway, SpawnedGateway) else None

    @property
    def id(self) -> int:
        """Id of this client in the job; another one after the gateway was started again."""
        return self._connection.open().client

    @property
    def shared(self) -> bool:
        """Rows lie in memory that the gateway shares; otherwise they go over the socket."""
        return self._connection.open().arena is not None

    # ---- tables

    def create_table(
        self,
        name: str,
        dim: int,
        *,
        optimizer: Optimizer | None = None,
        initializer: Initializer | None = None,
        seed: int = 0,
        policy: Policy | None = None,
        pool: str = "embedding",
    ) -> Table:
        """Creates a table, or finds it when it exists with the same specification.

        `dim`: float32 values per row, 1 to 65,536. `optimizer`: default Adagrad(lr=0.05). `initializer`:
        default Uniform(-0.05, 0.05); initial values depend on `seed` and the key only. `pool`: "embedding",
        with the code of the job, or "mirrored", with r copies. `policy`: which rows go by
        themselves; default: none.

        @raises Error TABLE_EXISTS (with another specification), BAD_ARGUMENT, LIMIT.
        """
        spec = {
            "name": text(name, "the name of a table"),
            "dim": integer(dim, "dim", 1, MAX_DIM),
            "pool": text(pool, "pool"),
            "seed": integer(seed, "seed", 0),
            "optimizer": (Adagrad() if optimizer is None else checked_optimizer(optimizer)).spec(),
            "initializer": (Uniform() if initializer is None else checked_initializer(initializer)).spec(),
        }
        if policy is not None:
            spec["policy"] = checked_policy(policy).spec()
        return self._tables.create(spec)

    def table(self, name: str) -> Table:
        """A table that exists. @raises Error UNKNOWN_TABLE."""
        return self._tables.get(name)

    def tables(self) -> list[Table]:
        """The tables of the job."""
        return self._tables.every()

    def list_tables(self, limit: int = 100, after: str | None = None) -> dict[str, Any]:
        """A page of the tables by their names, with their sizes now.

        `tables`: dicts of name, pool, dim, optimizer, initializer, seed, shards, rows, and `bytes` of these
        rows with their optimizer state. `total`: tables of the job. `next`: the `after` of the next page, if
        there is one. `missing`: names of PS that did not answer, whose rows are not counted.

        @raises Error BAD_ARGUMENT, UNREACHABLE.
        """
        message: dict[str, Any] = {"op": "listTables", "limit": integer(limit, "limit", 1)}
        if after is not None:
            message["after"] = text(after, "after")
        page: dict[str, Any] = self._connection.ask(message)
        return page

    # ---- rows

    def pull(
        self,
        requests: Sequence[tuple[Table | str, npt.ArrayLike]],
        *,
        out: Sequence[Rows | None] | None = None,
        state: bool = False,
    ) -> list[Rows]:
        """Rows of several tables: per (table, keys) an array, len(keys) x dim, float32.

        Keys are integers, repeated ones too; int64 are taken as u64, and -1 is missing: its row is zero. A
        row that was never pushed has its initial value. `state`: whole rows, len(keys) x width. `out`: arrays
        that the rows go to. Without it they stay in shared memory, until the array is dropped.

        @raises Error UNKNOWN_TABLE, UNRECOVERABLE, KEY_TYPE, LENGTH_MISMATCH, BAD_ARGUMENT, CLOSED.
        """
        rows: list[Rows] = self._tables.pull(requests, out, state, lambda rows: rows).result()
        return rows

    def pull_async(
        self, requests: Sequence[tuple[Table | str, npt.ArrayLike]], *, state: bool = False
    ) -> Future[list[Rows]]:
        """Begins a pull of several tables; see `pull`."""
        return self._tables.pull(requests, None, state, lambda rows: rows)

    def push(
        self,
        requests: Sequence[tuple[Table | str, npt.ArrayLike, npt.ArrayLike]],
        *,
        lr: Rate = None,
        counts: Counts = None,
        scores: Scores = None,
    ) -> PushFuture:
        """Applies gradients to several tables: (table, keys, gradients), len(keys) x dim each.

        `lr`: the learning rate of this push, of all tables, or a list with one of each. It is taken in place
        of that of the table; a schedule of the table multiplies it, and FTRL takes none. None: the table's.

        `counts`: of programs that sum gradients of repeated keys themselves: a list with an array for each
        table, or None: how often each key was seen, len(keys) integers from 1 on. The policy of a table goes
        by them; where it has none they say nothing. None: once each.

        `scores`: a list with an array for each table, or None: len(keys) finite numbers, which become
        float32, for a table whose policy has `score`; others refuse them. Rows of the lowest score go first
        where new ones need room. Of a repeated key the highest counts. None: rows keep the scores that they
        have, at first 0.

        A table is named once. Gradients of repeated keys are summed, those of -1 are left out. They may be
        written over when this returns, but for those in shared memory (`empty`): they are read until the
        push is `taken`. Its `result()` returns when the push is durable. It is atomic per shard, not across
        shards.

        @raises Error LENGTH_MISMATCH, DIM_MISMATCH, KEY_TYPE, UNKNOWN_TABLE; the result raises MEMORY_LIMIT,
        UNRECOVERABLE, BAD_ARGUMENT, CLOSED, PUSH_IN_DOUBT.
        """
        return self._tables.push(requests, lr=lr, counts=counts, scores=scores)

    def assign(self, requests: Sequence[tuple[Table | str, npt.ArrayLike, npt.ArrayLike]]) -> PushFuture:
        """Sets whole rows instead of applying gradients: (table, keys, rows), len(keys) x width each.

        @raises Error, as `push`.
        """
        return self._tables.push(requests, whole=True)

    def delete(self, requests: Sequence[tuple[Table | str, npt.ArrayLike]]) -> PushFuture:
        """Deletes rows, with the state of their optimizer, of several tables: (table, keys).

        Its `result()` returns when that is durable, as that of a push. A key without a row changes nothing,
        and so does -1. A deleted key that is pushed again starts from its initial value. Checkpoints and
        exports that are there keep the rows; the next ones do not have them.

        @raises Error, as `push`.
        """
        return self._tables.delete(requests)

    def empty(self, count: int, dim: int) -> Rows:
        """An array for gradients in shared memory, count x dim: to push it copies nothing.

        It is uninitialized; of ordinary memory where none can be shared.
        """
        count, dim = integer(count, "count", 0, MAX_COUNT), integer(dim, "dim", 1, MAX_DIM)
        session = self._connection.open()
        block = session.room(4 * count * dim)
        if block is None:
            return np.empty((count, dim), np.float32)
        return block.array(0, (count, dim), np.float32)

    def flush(self) -> None:
        """Waits until every push of this client has ended: it is durable, or it failed.

        @raises Error: what failed, when all have ended. Of one push that is its own error. Of several it is
        one error with `pushes` and `errors`: `PushInDoubt` where the gateway ended, and `PushesFailed`
        otherwise. What `result()` of a push has raised is not raised again.
        """
        self._connection.flush()

    # ---- the job

    def status(self) -> JobStatus:
        """Nodes, pools, tables, redundancy and recoveries, as the scheduler knows them now."""
        status: JobStatus = self._connection.ask({"op": "status"})
        return status

    def events(self, since: int = 0, *, follow: bool = False) -> Iterator[dict[str, Any]]:
        """Events of the job, oldest first: the newest 1,000 after number `since`.

        With `follow` new events come as they happen, without an end. docs/events.md lists them.
        """
        since, follow = integer(since, "since", 0), flag(follow, "follow")
        return self._events(since, follow)

    def _events(self, since: int, follow: bool) -> Iterator[dict[str, Any]]:
        while True:
            found = self._connection.ask({"op": "events", "since": since, "follow": follow})
            for event in found:
                since = event["number"]
                yield event
            if not follow:
                return

    def checkpoint(self) -> dict[str, Any]:
        """Has a checkpoint of the job made now; returns when it is complete: number, rows, bytes, tookMs.

        @raises Error BAD_ARGUMENT when the job has no place for checkpoints; PLACE_FAILED, LIMIT, TIMEOUT.
        """
        made: dict[str, Any] = self._connection.ask({"op": "checkpoint"})
        return made

    def restore(self, place: str, *, number: int | None = None) -> dict[str, Any]:
        """Loads the shards of the running job that are beyond repair from a checkpoint.

        `number`: of the checkpoint; default: the newest. Everything else stays as it is. Returns
        number, agoMs, and the shards.

        @raises Error NOT_READY, CHECKPOINT_MISSING, BAD_CHECKPOINT, PLACE_FAILED, BAD_ARGUMENT.
        """
        which = {} if number is None else {"number": integer(number, "number", 0)}
        where = path(place, "place")
        restored: dict[str, Any] = self._connection.ask({"op": "restore", "place": where, **which})
        return restored

    def dataset(
        self,
        name: str,
        files: Sequence[tuple[str, int]],
        *,
        batch: int,
        range_bytes: int,
        epochs: int = 1,
        seed: int = 0,
        shuffle: bool = False,
        follow: bool = False,
    ) -> Dataset:
        """Registers a data set of the job, or joins it; see `Dataset`. A client works on one.

        `files`: (name, bytes) each, cut into ranges of `range_bytes`. `batch`: samples of a full batch.
        `shuffle`: the ranges of an epoch in an order that `seed` chooses. `follow`: the files grow, see
        `Dataset.extend`; one epoch.

        @raises Error BAD_ARGUMENT when it is registered with other files or another batch.
        """
        named = [
            [path(file, "the name of a file"), integer(size, "bytes of a file", 0)]
            for file, size in entries(files, 2, "(name, bytes)", "files")
        ]
        spec: dict[str, Any] = {
            "name": text(name, "the name of a data set"),
            "files": named,
            "batch": integer(batch, "batch", 1),
            "epochs": integer(epochs, "epochs", 1),
            "seed": integer(seed, "seed", 0),
            "shuffle": flag(shuffle, "shuffle"),
            "follow": flag(follow, "follow"),
            "rangeBytes": integer(range_bytes, "range_bytes", 1),
        }
        return Dataset(self._tables, spec)

    def steps(self, name: str, *, every: int = 1) -> NumberedSteps:
        """Steps that are applied once, also when they are sent again; see `NumberedSteps`.

        `name`: of a sequence of steps, which one program at a time works on. It is a data set of the job, so
        a client has one, or a data set of files. `every`: steps for which the job is asked once. More of
        them cost less, and a program that begins again sends up to `every` - 1 durable ones again.

        >>> steps = client.steps("trainer-0")
        >>> for step in range(steps.next, 1000):
        ...     steps.push([(items, keys, gradients)], step=step)

        @raises Error BAD_ARGUMENT: the job knows it with another `every`.
        """
        return NumberedSteps(self._tables, text(name, "name"), integer(every, "every", 1))

    def close(self) -> None:
        """Ends this client. Pushes that are under way may or may not be applied: `flush` first."""
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_pickled: weakref.WeakValueDictionary[str, Client] = weakref.WeakValueDictionary()
"""Clients that were pickled here, or come from a pickle, by identity: what is read again has the same one."""


def _reconnected(*recipe: Any) -> Client:
    """The client of a pickle."""
    scheduler, path, tls_ca, memory_bytes, memory_directory, timeout, identity = recipe
    known = _pickled.get(identity)
    if known is not None and not known._connection.closed:
        return known
    made = connect(
        scheduler,
        gateway="spawn" if path is None else f"{_UNIX}{path}",
        token=os.environ.get("KINTSUGI_TOKEN") or None,
        tls_ca=tls_ca,
        timeout=timeout,
        memory_bytes=memory_bytes,
        memory_directory=memory_directory,
    )
    made._identity = identity
    _pickled[identity] = made
    return made


def connect(
    scheduler: str | Sequence[str] | None = None,
    *,
    gateway: str = "spawn",
    token: str | None = None,
    tls_ca: str | None = None,
    timeout: float = 10.0,
    memory_bytes: int = 512 << 20,
    memory_directory: str | None = None,
) -> Client:
    """Connects to a running job.

    `scheduler`: host:port; of several, all of them with commas between, or a list. `gateway`: "spawn" starts
    one for this process, and again when it ends; "unix:/path" takes one that runs there, with its own
    scheduler and token. `token`: the shared secret of the job. `tls_ca`: the job speaks TLS; a file with
    authorities, or "system". `timeout`: seconds to wait for the scheduler and the job, and for a gateway that
    runs; one that this process starts has a minute. `memory_bytes`: of shared memory for rows at most; it is
    taken page by page as it is used. 0: rows go over the socket. `memory_directory`: for a gateway in another
    container, a volume that is memory and that both have at the same path; the memory is a file there until
    the gateway has opened it. Default: anonymous memory.

    >>> with kintsugi.connect("scheduler-host:7077") as client:
    ...     items = client.create_table("items", 16, optimizer=kintsugi.Adagrad(lr=0.05))

    @raises Error UNREACHABLE, UNAUTHORIZED, NOT_ENOUGH_NODES, BAD_ARGUMENT, DEPENDENCY_MISSING.
    """
    timeout = number(timeout, "timeout", 0)
    memory_bytes = integer(memory_bytes, "memory_bytes", 0)
    if timeout == 0:
        raise Error("BAD_ARGUMENT", "timeout must be above 0")
    token = None if token is None else text(token, "token")
    tls_ca = None if tls_ca is None else path(tls_ca, "tls_ca")
    memory_directory = None if memory_directory is None else path(memory_directory, "memory_directory")
    gateway = text(gateway, "gateway")
    if scheduler is not None and not isinstance(scheduler, str):
        scheduler = ",".join(texts(scheduler, "scheduler", "addresses"))
    where: SharedGateway | SpawnedGateway
    if gateway.startswith(_UNIX):
        where = SharedGateway(gateway[len(_UNIX) :])
    elif gateway != "spawn":
        raise Error("BAD_ARGUMENT", f'gateway must be "spawn" or "unix:/path", not {gateway!r}')
    elif not scheduler:
        raise Error("BAD_ARGUMENT", "the address of the scheduler is missing")
    else:
        where = SpawnedGateway(scheduler, token=token, tls_ca=tls_ca)
    return Client(Connection(where, memory_bytes, memory_directory, timeout))
