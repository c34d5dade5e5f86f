"""What a program has of a job: its tables, pulls, pushes and data sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays import Rate, Rows
from ._connection import Connection
from ._dataset import Dataset
from ._errors import Error
from ._futures import Future, PushFuture
from ._gateway import SharedGateway, SpawnedGateway
from ._specs import Adagrad, Initializer, Optimizer, Uniform
from ._tables import Table, Tables

_UNIX = "unix:"


class Client:
    """See `connect`. May be used from several threads; a child after a fork connects anew by itself."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tables = Tables(connection)

    @property
    def gateway_pid(self) -> int | None:
        """The process of the gateway that this client has started; None: it shares one."""
        gateway = self._connection.gateway
        return gateway.pid if isinstance(gateway, SpawnedGateway) else None

    @property
    def id(self) -> int:
        """Of this client in the job; another one after the gateway was started again."""
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
        pool: str = "embedding",
    ) -> Table:
        """Creates a table, or finds it when it exists with the same specification.

        `dim`: float32 values per row, 1 to 65,536. `optimizer`: default Adagrad(lr=0.05). `initializer`:
        default Uniform(-0.05, 0.05); initial values depend on `seed` and the key only. `pool`: "embedding",
        with the code of the job, or "mirrored", with r copies.

        @raises Error TABLE_EXISTS (with another specification), BAD_ARGUMENT, LIMIT.
        """
        spec = {
            "name": name,
            "dim": dim,
            "pool": pool,
            "seed": seed,
            "optimizer": (optimizer or Adagrad()).spec(),
            "initializer": (initializer or Uniform()).spec(),
        }
        return self._tables.create(spec)

    def table(self, name: str) -> Table:
        """A table that exists. @raises Error UNKNOWN_TABLE."""
        return self._tables.find(name)

    def tables(self) -> list[Table]:
        """The tables of the job."""
        return self._tables.every()

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
        targets = list(out) if out is not None else [None] * len(requests)
        rows: list[Rows] = self._tables.pull(requests, targets, state, lambda rows: rows).result()
        return rows

    def pull_async(
        self, requests: Sequence[tuple[Table | str, npt.ArrayLike]], *, state: bool = False
    ) -> Future[list[Rows]]:
        """Begins a pull of several tables; see `pull`."""
        return self._tables.pull(requests, [None] * len(requests), state, lambda rows: rows)

    def push(
        self,
        requests: Sequence[tuple[Table | str, npt.ArrayLike, npt.ArrayLike]],
        *,
        lr: Rate = None,
    ) -> PushFuture:
        """Applies gradients to several tables: (table, keys, gradients), len(keys) x dim each.

        `lr`: the learning rate of this push, of all tables, or a list with one of each. It is taken in place
        of that of the table; a schedule of the table multiplies it, and FTRL takes none. None: the table's.

        A table is named once. Gradients of repeated keys are summed, those of -1 are left out. They may be
        written over when this returns, but for those in shared memory (`empty`): they are read until the
        push is `taken`. Its `result()` returns when the push is durable. It is atomic per shard, not across
        shards.

        @raises Error LENGTH_MISMATCH, DIM_MISMATCH, KEY_TYPE, UNKNOWN_TABLE; the result raises MEMORY_LIMIT,
        UNRECOVERABLE, BAD_ARGUMENT, CLOSED, PUSH_IN_DOUBT.
        """
        return self._tables.push(requests, lr=lr)

    def assign(self, requests: Sequence[tuple[Table | str, npt.ArrayLike, npt.ArrayLike]]) -> PushFuture:
        """Sets whole rows instead of applying gradients: (table, keys, rows), len(keys) x width each.

        @raises Error, as `push`.
        """
        return self._tables.push(requests, whole=True)

    def empty(self, count: int, dim: int) -> Rows:
        """An array for gradients in shared memory, count x dim: to push it copies nothing.

        It is uninitialized; of ordinary memory where none can be shared.
        """
        session = self._connection.open()
        block = session.room(4 * count * dim)
        if block is None:
            return np.empty((count, dim), np.float32)
        return block.array(0, (count, dim), np.float32)

    def flush(self) -> None:
        """Waits until every push of this client is durable. @raises Error: the first that failed."""
        self._connection.flush()

    # ---- the job

    def status(self) -> dict[str, Any]:
        """Nodes, pools, tables, redundancy and recoveries, as the scheduler knows them now."""
        status: dict[str, Any] = self._connection.ask({"op": "status"})
        return status

    def events(self, since: int = 0, *, follow: bool = False) -> Iterator[dict[str, Any]]:
        """What happened to the job, oldest first: the newest 1,000 events after number `since`.

        With `follow` it goes on with those that come, without an end. docs/events.md lists them.
        """
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
        which = {} if number is None else {"number": number}
        restored: dict[str, Any] = self._connection.ask({"op": "restore", "place": place, **which})
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
        spec = {"name": name, "files": [list(file) for file in files], "batch": batch, "epochs": epochs}
        spec |= {"seed": seed, "shuffle": shuffle, "follow": follow, "rangeBytes": range_bytes}
        return Dataset(self._tables, spec)

    def close(self) -> None:
        """Ends this client. Pushes that are under way may or may not be applied: `flush` first."""
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(
    scheduler: str | None = None,
    *,
    gateway: str = "spawn",
    token: str | None = None,
    tls_ca: str | None = None,
    timeout: float = 10.0,
    memory_bytes: int = 512 << 20,
    memory_directory: str | None = None,
) -> Client:
    """Connects to a running job.

    `scheduler`: host:port; of several, all of them with commas between. `gateway`: "spawn" starts one for
    this process, and again when it ends; "unix:/path" takes one that runs there, with its own scheduler and
    token. `token`: the shared secret of the job. `tls_ca`: the job speaks TLS; a file with authorities, or
    "system". `timeout`: seconds to wait for the scheduler and the job, and for a gateway that runs; one that
    this process starts has a minute. `memory_bytes`: of shared memory for rows at most; it is taken page by
    page as it is used. 0: rows go over the socket. `memory_directory`: for a gateway in another container, a
    volume that is memory and that both have at the same path; the memory is a file there until the gateway
    has opened it. Default: anonymous memory.

    >>> with kintsugi.connect("scheduler-host:7077") as client:
    ...     items = client.create_table("items", 16, optimizer=kintsugi.Adagrad(lr=0.05))

    @raises Error UNREACHABLE, UNAUTHORIZED, NOT_ENOUGH_NODES, BAD_ARGUMENT, DEPENDENCY_MISSING.
    """
    if timeout <= 0 or memory_bytes < 0:
        raise Error("BAD_ARGUMENT", "timeout must be above 0, and memory_bytes at least 0")
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
