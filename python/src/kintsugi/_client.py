"""A connection to a job: tables, pulls and pushes."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from collections.abc import Iterator, Sequence
from threading import RLock
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays import Keys, Rate, Rows, keys_of, present, rates_of, rows_of, target_of
from ._dataset import Dataset
from ._errors import Error, GatewayLost
from ._futures import ATTEMPTS, Future, PushFuture, gateways_ended
from ._gateway import SharedGateway, SpawnedGateway
from ._link import Reply
from ._session import Call, Session
from ._specs import Adagrad, Initializer, Optimizer, Uniform, initializer_of, optimizer_of

_UNIX = "unix:"


class Table:
    """A table of the job. `Client.create_table` and `Client.table` give it."""

    def __init__(self, client: Client, spec: dict[str, Any]) -> None:
        self._client = client
        self.name: str = spec["name"]
        self.dim: int = spec["dim"]
        """float32 values per row."""
        self.width: int = spec["width"]
        """float32 values of a whole row: `dim` values, then the state of the optimizer."""
        self.pool: str = spec["pool"]
        self.seed: int = spec["seed"]
        self.optimizer: Optimizer = optimizer_of(spec["optimizer"])
        self.initializer: Initializer = initializer_of(spec["initializer"])

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {self.dim}, optimizer={self.optimizer})"

    def pull(self, keys: npt.ArrayLike, *, out: Rows | None = None, state: bool = False) -> Rows:
        """Rows of `keys`, len(keys) x dim, float32; see `Client.pull`. @raises Error, as there."""
        return self.pull_async(keys, out=out, state=state).result()

    def pull_async(
        self, keys: npt.ArrayLike, *, out: Rows | None = None, state: bool = False
    ) -> Future[Rows]:
        """Begins a pull; its rows are not to be read, nor `out` written, before `result`."""
        return self._client._pull([(self, keys)], [out], state, lambda rows: rows[0])

    def push(self, keys: npt.ArrayLike, gradients: npt.ArrayLike, *, lr: float | None = None) -> PushFuture:
        """Applies gradients, len(keys) x dim, by the table's optimizer; those of repeated keys are summed.

        `lr`: the learning rate of this push, in place of the table's; see `Client.push`.

        @raises Error LENGTH_MISMATCH, DIM_MISMATCH, KEY_TYPE, BAD_ARGUMENT; the result raises the others.
        """
        return self._client.push([(self, keys, gradients)], lr=lr)

    def assign(self, keys: npt.ArrayLike, rows: npt.ArrayLike) -> PushFuture:
        """Sets whole rows, len(keys) x width: values, then the optimizer's state.

        @raises Error, as `push`.
        """
        return self._client.assign([(self, keys, rows)])

    def items(self, batch: int = 65_536, *, state: bool = False) -> Iterator[tuple[Keys, Rows]]:
        """All rows, in batches of at most `batch`: keys, and their rows, len(keys) x dim (`state`: width).

        Every row that was durable at the beginning comes once, in no order. Each is of one moment, different
        ones of different moments. It does not go on on another gateway.

        @raises Error UNRECOVERABLE, CLOSED, UNREACHABLE.
        """
        return self._client._scan(self, batch, state)

    def __len__(self) -> int:
        """Rows that the owners of the shards count now."""
        rows: int = self._client._ask({"op": "rows", "name": self.name})
        return rows

    def __bool__(self) -> bool:
        """A table is one, also without rows."""
        return True


class Client:
    """See `connect`. May be used from several threads; a child after a fork connects anew by itself."""

    def __init__(
        self,
        gateway: SharedGateway | SpawnedGateway,
        memory_bytes: int,
        memory_directory: str | None,
        timeout: float,
    ) -> None:
        self._gateway = gateway
        self._memory = memory_bytes, memory_directory
        self._timeout = timeout
        self._owner = os.getpid()
        self._lock = RLock()
        self._session: Session | None = None
        self._closed = False
        self._scans = 0
        self._tables: dict[str, Table] = {}
        self._unsettled: list[PushFuture] = []
        _clients.add(self)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    @property
    def gateway_pid(self) -> int | None:
        """The process of the gateway that this client has started; None: it shares one."""
        return self._gateway.pid if isinstance(self._gateway, SpawnedGateway) else None

    def _open(self) -> Session:
        """The connection, a new one if it broke. @raises Error CLOSED, UNREACHABLE, and of `connect`."""
        with self._lock:
            if self._closed:
                raise Error("CLOSED", "the client is closed")
            if self._session is None or self._session.link.lost:
                self._session = self._connect()
            return self._session

    def _connect(self) -> Session:
        """A gateway that is killed may still take a connection, and break it at once."""
        broken: GatewayLost | None = None
        for _ in range(ATTEMPTS):
            try:
                return Session(self._gateway, *self._memory, self._timeout)
            except GatewayLost as error:
                broken = error
        raise gateways_ended(broken)

    def _forked(self) -> None:
        """In a child: another lock, and no connection yet."""
        self._lock = RLock()
        if self._session is not None:
            self._session.link.abandon()
        self._session = None
        self._unsettled = []
        self._gateway = self._gateway.forked()

    def _ask(self, message: dict[str, Any]) -> Any:
        """Asks what may be asked twice."""

        def send(session: Session) -> tuple[Reply, Any]:
            return session.link.send(dict(message)), lambda reply: reply.value

        return Future[Any](self._open, send).result()

    @property
    def id(self) -> int:
        """Of this client in the job; another one after the gateway was started again."""
        return self._open().client

    @property
    def shared(self) -> bool:
        """Rows lie in memory that the gateway shares; otherwise they go over the socket."""
        return self._open().arena is not None

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
        return self._known(self._ask({"op": "createTable", "table": spec}))

    def table(self, name: str) -> Table:
        """A table that exists. @raises Error UNKNOWN_TABLE."""
        return self._tables.get(name) or self._known(self._ask({"op": "table", "name": name}))

    def tables(self) -> list[Table]:
        """The tables of the job."""
        return [self._known(spec) for spec in self._ask({"op": "tables"})]

    def _known(self, spec: dict[str, Any]) -> Table:
        return self._tables.setdefault(spec["name"], Table(self, spec))

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
        rows: list[Rows] = self._pull(requests, targets, state, lambda rows: rows).result()
        return rows

    def pull_async(
        self, requests: Sequence[tuple[Table | str, npt.ArrayLike]], *, state: bool = False
    ) -> Future[list[Rows]]:
        """Begins a pull of several tables; see `pull`."""
        return self._pull(requests, [None] * len(requests), state, lambda rows: rows)

    def _pull(
        self,
        requests: Sequence[tuple[Table | str, npt.ArrayLike]],
        out: Sequence[Rows | None],
        state: bool,
        of: Any,
    ) -> Future[Any]:
        if len(out) != len(requests):
            raise Error("LENGTH_MISMATCH", f"{len(requests)} requests do not fit {len(out)} arrays of out")
        calls = []
        places = []
        for (given, asked), target in zip(requests, out, strict=True):
            table = self.table(given) if isinstance(given, str) else given
            width = table.width if state else table.dim
            keys = keys_of(asked)
            if target is not None:
                target_of(target, len(keys), width)
            where = present(keys)
            places.append((len(keys), where, target))
            direct = target if where is None else None
            calls.append(Call(table.name, keys if where is None else keys[where], width, direct))

        def send(session: Session) -> tuple[Reply, Any]:
            reply, _, arrays = session.pull(calls, state)
            return reply, lambda reply: of(_placed(calls, places, arrays, reply.payload))

        return Future[Any](self._open, send)

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
        return self._push(requests, {"op": "push"}, lr)

    def assign(self, requests: Sequence[tuple[Table | str, npt.ArrayLike, npt.ArrayLike]]) -> PushFuture:
        """Sets whole rows instead of applying gradients: (table, keys, rows), len(keys) x width each.

        @raises Error, as `push`.
        """
        return self._push(requests, {"op": "push", "whole": True})

    def _push(
        self,
        requests: Sequence[tuple[Table | str, npt.ArrayLike, npt.ArrayLike]],
        message: dict[str, Any],
        lr: Rate = None,
    ) -> PushFuture:
        whole = bool(message.get("whole"))
        calls = self._calls(requests, whole)
        for call, rate in zip(calls, rates_of(lr, len(calls)), strict=True):
            call.lr = rate

        return self._noted(PushFuture(self._open, lambda session: session.push(calls, dict(message))))

    def _noted(self, future: PushFuture) -> PushFuture:
        """`flush` waits for it."""
        with self._lock:
            self._unsettled = [each for each in self._unsettled if not each.settled]
            self._unsettled.append(future)
        return future

    def _calls(
        self, requests: Sequence[tuple[Table | str, npt.ArrayLike, npt.ArrayLike]], whole: bool
    ) -> list[Call]:
        calls = []
        for given, asked, rows in requests:
            table = self.table(given) if isinstance(given, str) else given
            width = table.width if whole else table.dim
            keys = keys_of(asked)
            gradients = rows_of(rows, len(keys), width, "gradients")
            where = present(keys)
            if where is not None:
                keys, gradients = keys[where], gradients[where]
            calls.append(Call(table.name, keys, width, gradients))
        return calls

    def _scan(self, table: Table, batch: int, state: bool) -> Iterator[tuple[Keys, Rows]]:
        session = self._open()
        width = table.width if state else table.dim
        with self._lock:
            self._scans += 1
            number = self._scans

        def ask(message: dict[str, Any]) -> Reply:
            reply = session.link.send({**message, "scan": number})
            session.link.wait(reply)
            reply.get()
            return reply

        try:
            ask({"op": "scan", "name": table.name, "batch": batch, "whole": state})
            while count := (reply := ask({"op": "scanned"})).value:
                keys = np.frombuffer(reply.payload, np.uint64, count)
                rows = np.frombuffer(reply.payload, np.float32, count * width, keys.nbytes)
                yield keys, rows.reshape(count, width)
        except GatewayLost as error:
            raise Error("UNREACHABLE", f"the gateway ended in the middle of a scan: {error}") from None
        finally:
            if not session.link.lost:
                with contextlib.suppress(GatewayLost):
                    session.link.send({"op": "endScan", "scan": number})

    def empty(self, count: int, dim: int) -> Rows:
        """An array for gradients in shared memory, count x dim: to push it copies nothing.

        It is uninitialized; of ordinary memory where none can be shared.
        """
        session = self._open()
        block = session.room(4 * count * dim)
        if block is None:
            return np.empty((count, dim), np.float32)
        return block.array(0, (count, dim), np.float32)

    def flush(self) -> None:
        """Waits until every push of this client is durable. @raises Error: the first that failed."""
        with self._lock:
            unsettled, self._unsettled = self._unsettled, []
        for future in unsettled:
            future.result()

    # ---- the job

    def status(self) -> dict[str, Any]:
        """Nodes, pools, tables, redundancy and recoveries, as the scheduler knows them now."""
        status: dict[str, Any] = self._ask({"op": "status"})
        return status

    def events(self, since: int = 0, *, follow: bool = False) -> Iterator[dict[str, Any]]:
        """What happened to the job, oldest first: the newest 1,000 events after number `since`.

        With `follow` it goes on with those that come, without an end. docs/events.md lists them.
        """
        while True:
            found = self._ask({"op": "events", "since": since, "follow": follow})
            for event in found:
                since = event["number"]
                yield event
            if not follow:
                return

    def checkpoint(self) -> dict[str, Any]:
        """Has a checkpoint of the job made now; returns when it is complete: number, rows, bytes, tookMs.

        @raises Error BAD_ARGUMENT when the job has no place for checkpoints; PLACE_FAILED, LIMIT, TIMEOUT.
        """
        made: dict[str, Any] = self._ask({"op": "checkpoint"})
        return made

    def restore(self, place: str, *, number: int | None = None) -> dict[str, Any]:
        """Loads the shards of the running job that are beyond repair from a checkpoint.

        `number`: of the checkpoint; default: the newest. Everything else stays as it is. Returns
        number, agoMs, and the shards.

        @raises Error NOT_READY, CHECKPOINT_MISSING, BAD_CHECKPOINT, PLACE_FAILED, BAD_ARGUMENT.
        """
        which = {} if number is None else {"number": number}
        restored: dict[str, Any] = self._ask({"op": "restore", "place": place, **which})
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
        return Dataset(self, spec)

    def close(self) -> None:
        """Ends this client. Pushes that are under way may or may not be applied: `flush` first."""
        _clients.discard(self)
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._session is not None:
                self._session.link.close()
            self._gateway.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _placed(
    calls: Sequence[Call],
    places: Sequence[tuple[int, npt.NDArray[np.bool_] | None, Rows | None]],
    arrays: Sequence[Rows | None],
    payload: bytes,
) -> list[Rows]:
    """Rows where the caller wants them."""
    results = []
    at = 0
    for call, (count, where, target), given in zip(calls, places, arrays, strict=True):
        rows = given
        if rows is None:
            floats = len(call.keys) * call.width
            rows = np.frombuffer(payload, np.float32, floats, at).reshape(len(call.keys), call.width)
            at += 4 * floats
            rows = rows if target is not None or where is not None else rows.copy()
        if where is not None:
            spread = target if target is not None else np.empty((count, call.width), np.float32)
            spread[:] = 0
            spread[where] = rows
            rows = spread
        elif target is not None and rows is not target:
            np.copyto(target, rows)
            rows = target
        results.append(rows)
    return results


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _close_all() -> None:
    for client in list(_clients):
        client.close()


def _after_fork() -> None:
    for client in list(_clients):
        client._forked()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)


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
    if gateway.startswith(_UNIX):
        return Client(SharedGateway(gateway[len(_UNIX) :]), memory_bytes, memory_directory, timeout)
    if gateway != "spawn":
        raise Error("BAD_ARGUMENT", f'gateway must be "spawn" or "unix:/path", not {gateway!r}')
    if not scheduler:
        raise Error("BAD_ARGUMENT", "the address of the scheduler is missing")
    spawned = SpawnedGateway(scheduler, token=token, tls_ca=tls_ca)
    return Client(spawned, memory_bytes, memory_directory, timeout)
