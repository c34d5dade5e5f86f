"""Tables of a job, and the requests for their rows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays import Keys, Rows, keys_of, present, rows_of, target_of
from ._checks import entries, flag, integer, listed, number, text
from ._connection import Connection
from ._errors import Error, GatewayLost
from ._evictions import Evictions
from ._extras import Counts, Rate, Scores, each_of
from ._futures import Future, PushFuture
from ._link import Reply
from ._session import Call, Session, named, placed
from ._specs import (
    UNCHANGED,
    Initializer,
    Optimizer,
    Policy,
    Unchanged,
    changes_of,
    initializer_of,
    optimizer_of,
    policy_of,
)
from .schedules import Schedule


class Table:
    """A table of the job. `Client.create_table` and `Client.table` give it."""

    def __init__(self, tables: Tables, spec: dict[str, Any]) -> None:
        self._tables = tables
        self.id: int = spec["id"]
        """The number of the table in the job. One under the name of one that was dropped has another."""
        self.name: str = spec["name"]
        self.dim: int = spec["dim"]
        """float32 values per row."""
        self.width: int = spec["width"]
        """float32 values of a whole row: `dim` values, then the state of the optimizer."""
        self.pool: str = spec["pool"]
        self.seed: int = spec["seed"]
        self.optimizer: Optimizer = optimizer_of(spec["optimizer"])
        self.initializer: Initializer = initializer_of(spec["initializer"])
        self.policy: Policy | None = policy_of(spec["policy"]) if "policy" in spec else None
        self.job: str = spec["job"]
        """Id of the job that it is a table of."""
        self.trained = False
        """Whether this process has pushed gradients to it."""
        self.loads: dict[bytes, tuple[bytes, int]] = {}
        """Digest and count of what this process has set before that, by the digest of its keys."""
        self.given_up: set[int] = set()
        """Keys of marks of values that this process has begun to set, and has failed."""
        self.dropped = False
        """Whether this process has dropped it."""

    @property
    def named(self) -> str:
        """How requests name it, so that no other table that has taken its name is meant."""
        return f"{self.name}\n{self.id}"

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {self.dim}, optimizer={self.optimizer})"

    def pull(self, keys: npt.ArrayLike, *, out: Rows | None = None, state: bool = False) -> Rows:
        """Rows of `keys`, len(keys) x dim, float32; see `Client.pull`. @raises Error, as there."""
        return self.pull_async(keys, out=out, state=state).result()

    def pull_async(
        self, keys: npt.ArrayLike, *, out: Rows | None = None, state: bool = False
    ) -> Future[Rows]:
        """Begins a pull; its rows are not to be read, nor `out` written, before `result`."""
        return self._tables.pull([(self, keys)], [out], state, lambda rows: rows[0])

    def push(
        self,
        keys: npt.ArrayLike,
        gradients: npt.ArrayLike,
        *,
        lr: float | None = None,
        counts: npt.ArrayLike | None = None,
        scores: npt.ArrayLike | None = None,
    ) -> PushFuture:
        """Applies gradients, len(keys) x dim, by the table's optimizer; those of repeated keys are summed.

        `lr`: the learning rate of this push, in place of the table's. `counts`: how often each key was seen,
        len(keys) integers from 1 on, for a policy of the table. `scores`: len(keys) finite numbers, for a
        policy with `score`; see `Client.push`.

        @raises Error LENGTH_MISMATCH, DIM_MISMATCH, KEY_TYPE, BAD_ARGUMENT; the result raises the others.
        """
        rate = None if lr is None else number(lr, "lr", 0)
        return self._tables.push([(self, keys, gradients)], lr=rate, counts=[counts], scores=[scores])

    def assign(self, keys: npt.ArrayLike, rows: npt.ArrayLike) -> PushFuture:
        """Sets whole rows, len(keys) x width: values, then the optimizer's state.

        @raises Error, as `push`.
        """
        return self._tables.push([(self, keys, rows)], whole=True)

    def delete(self, keys: npt.ArrayLike) -> PushFuture:
        """Deletes the rows of `keys`, with the state of their optimizer; see `Client.delete`.

        @raises Error, as `push`.
        """
        return self._tables.delete([(self, keys)])

    def _assign_until(self, keys: npt.ArrayLike, rows: npt.ArrayLike, until: tuple[str, float]) -> PushFuture:
        """As `assign`, up to a time of `_gateway_clock`.

        @raises Error TIMEOUT, in its result: the gateway has sent nothing.
        """
        return self._tables.push([(self, keys, rows)], whole=True, until=until)

    def _gateway_clock(self) -> tuple[str, float]:
        """The clock of the gateway, which no other gateway has, and its time in milliseconds."""
        return self._tables.clock()

    def set(
        self,
        *,
        lr: float | Unchanged = UNCHANGED,
        clip_norm: float | Unchanged | None = UNCHANGED,
        schedule: Schedule | Unchanged | None = UNCHANGED,
        policy: Policy | Unchanged = UNCHANGED,
    ) -> None:
        """Changes settings of the table, for everybody and durably; what is left out stays.

        Pushes that begin afterwards have them; those that bring a rate of their own keep that, as those of
        optimizers of PyTorch do. None takes the clipping or the schedule away. A schedule comes and goes
        only where rows count their steps without it: with `Adam` and `AdamW`. A policy takes the place of the
        whole former one, in a table that has one; rows that went under that stay gone.

        @raises Error BAD_ARGUMENT (for a value that the optimizer does not take, any rate of FTRL, and a
            policy of a table that was created without one), CLOSED.
        """
        self._tables.set(self, changes_of(lr, clip_norm, schedule, policy))

    def drop(self) -> None:
        """Drops the table with all its rows, for everybody and durably: it cannot be undone.

        Afterwards its memory is free, and so is its name: a table that is created under it is another one and
        begins empty. Checkpoints and exports that were made before keep it. Processes that train it get
        UNKNOWN_TABLE.

        @raises Error UNKNOWN_TABLE, NOT_READY (while the job loads shards from a checkpoint), CLOSED.
        """
        self._tables.drop(self)

    def items(self, batch: int = 65_536, *, state: bool = False) -> Iterator[tuple[Keys, Rows]]:
        """All rows, in batches of at most `batch`: keys, and their rows, len(keys) x dim (`state`: width).

        Every row that was durable at the beginning comes once, in no order. Each is of one moment, different
        ones of different moments. It does not go on on another gateway.

        @raises Error UNRECOVERABLE, CLOSED, UNREACHABLE.
        """
        return self._tables.scan(self, batch, state)

    def evictions(
        self, *, since: dict[str, Any] | None = None, poll_seconds: float = 1.0
    ) -> Iterator[Evictions]:
        """Keys whose rows leave the table, by its policy or by `delete`, in batches, without an end.

        The first batch has no keys: what leaves from then on comes, about `poll_seconds` after it is durable.
        `since`: the `position` of a batch, to go on after it; then there is no such first batch. A batch with
        `gap` says that others may have left, too, which nobody tells any more: `items` has the keys that are
        there. It does not go on on another gateway; a new call from the last position does.

        @raises Error UNKNOWN_TABLE, UNRECOVERABLE, BAD_ARGUMENT, CLOSED, UNREACHABLE.
        """
        return self._tables.evictions(self, since, poll_seconds)

    def __len__(self) -> int:
        """Rows that the owners of the shards count now."""
        return self._tables.count(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process attaches to the table, which must be there; in another job to that of its name."""
        client = self._tables.client()
        if client is None:
            raise Error("CLOSED", f"the client of table {self.name!r} is gone")
        return _attached, (client, self.name, self.job, self.id)

    def __deepcopy__(self, memo: dict[int, Any]) -> Table:
        """A table is one: copies of what has it share it."""
        return self

    def __bool__(self) -> bool:
        """A table is one, also without rows."""
        return True


def _attached(client: Any, name: str, job: str, number: int) -> Table:
    """The table of a pickle. @raises Error UNKNOWN_TABLE."""
    table: Table = client.table(name)
    if table.job == job and table.id != number:
        raise _dropped(name)
    return table


def _dropped(name: str) -> Error:
    return Error("UNKNOWN_TABLE", f"table {name!r} was dropped, and another one has its name")


def named_by(given: Table | str, table: Table) -> str:
    """How a request names a table; a name alone means the one that has it, with rows of that shape."""
    return table.named if isinstance(given, Table) else f"{table.name}\n{table.dim}x{table.width}"


class Tables:
    """The tables of a job that this process knows. Each exists once, whoever asks for it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.client: Callable[[], Any] = lambda: None
        """The client whose tables they are, as long as it is there."""
        self._known: dict[str, Table] = {}
        self._doubtful: set[str] = set()
        """Names of known tables that others may have by now: a request has met a table that is gone."""
        self._trust = connection.trust

    def create(self, spec: dict[str, Any]) -> Table:
        """See `Client.create_table`."""
        return self._of_spec(self.connection.ask({"op": "createTable", "table": spec}))

    def find(self, given: Table | str) -> Table:
        """The table of a name, or that another client of this job has. @raises Error UNKNOWN_TABLE."""
        if isinstance(given, Table):
            if given.dropped:
                raise Error("UNKNOWN_TABLE", f"table {given.name!r} was dropped")
            return given if given._tables is self else self._own(given)
        name = text(given, "table must be a table of this job or its name: the name")
        if self._trust != self.connection.trust:
            self._trust = self.connection.trust
            self._doubtful.update(self._known)
        known = None if name in self._doubtful else self._known.get(name)
        return known or self.get(name)

    def get(self, name: str) -> Table:
        """The table that has this name in the job now, as it is set now. @raises Error UNKNOWN_TABLE."""
        name = text(name, "table must be a table of this job or its name: the name")
        return self._of_spec(self.connection.ask({"op": "table", "name": name}))

    def _own(self, given: Table) -> Table:
        found = self._known.get(given.name)
        if found is None or found.id != given.id:
            found = self.get(given.name)
        if given.job != found.job:
            raise Error("UNKNOWN_TABLE", f"table {given.name!r} is none of this job, but of {given.job}")
        if given.id != found.id:
            raise _dropped(given.name)
        return found

    def every(self) -> list[Table]:
        """All that the job has."""
        return [self._of_spec(spec) for spec in self.connection.ask({"op": "tables"})]

    def set(self, table: Table, changes: dict[str, Any]) -> None:
        """See `Table.set`."""
        self._of_spec(self.connection.ask({"op": "setTable", "name": table.named, **changes}))

    def drop(self, table: Table) -> None:
        """See `Table.drop`."""
        self.find(table)
        self.connection.ask({"op": "dropTable", "name": table.named})
        table.dropped = True
        self._known.pop(table.name, None)

    def _of_spec(self, spec: dict[str, Any]) -> Table:
        table = self._known.get(spec["name"])
        if table is None or table.id != spec["id"]:
            table = self._known[spec["name"]] = Table(self, spec)
        table.optimizer = optimizer_of(spec["optimizer"])
        table.policy = policy_of(spec["policy"]) if "policy" in spec else None
        self._doubtful.discard(table.name)
        return table

    def count(self, table: Table) -> int:
        """See `Table.__len__`."""
        rows: int = self.connection.ask({"op": "rows", "name": table.named})
        return rows

    def pull(
        self,
        requests: Sequence[tuple[Table | str, npt.ArrayLike]],
        out: Sequence[Rows | None] | None,
        state: bool,
        of: Any,
    ) -> Future[Any]:
        """Begins a pull, see `Client.pull`. Its result is what `of` makes of the rows of each request."""
        requests = entries(requests, 2, "(table, keys)")
        out = [None] * len(requests) if out is None else listed(out, "out", "arrays")
        if len(out) != len(requests):
            raise Error("LENGTH_MISMATCH", f"{len(requests)} requests do not fit {len(out)} arrays of out")
        state = flag(state, "state")
        calls = []
        places = []
        for (given, asked), target in zip(requests, out, strict=True):
            table = self.find(given)
            width = table.width if state else table.dim
            keys = keys_of(asked)
            if target is not None:
                target_of(target, len(keys), width)
            where = present(keys)
            places.append((len(keys), where, target))
            direct = target if where is None else None
            calls.append(Call(named_by(given, table), keys if where is None else keys[where], width, direct))

        def send(session: Session) -> tuple[Reply, Any]:
            reply, _, arrays = session.pull(calls, state)
            return reply, lambda reply: of(placed(calls, places, arrays, reply.payload))

        return Future[Any](self.connection.open, send)

    def push(
        self,
        requests: Sequence[tuple[Table | str, npt.ArrayLike, npt.ArrayLike]],
        *,
        lr: Rate = None,
        counts: Counts = None,
        scores: Scores = None,
        whole: bool = False,
        until: tuple[str, float] | None = None,
    ) -> PushFuture:
        """Begins a push, see `Client.push`. `whole`: of whole rows, see `Client.assign`.

        `until`: time of a `clock` up to which the gateway takes the push; then its result raises TIMEOUT.
        """
        requests = entries(requests, 3, f"(table, keys, {'rows' if whole else 'gradients'})")
        calls = []
        extras = each_of(lr, counts, scores, len(requests))
        for (given, asked, rows), of in zip(requests, extras, strict=True):
            table = self.find(given)
            width = table.width if whole else table.dim
            table.trained = table.trained or not whole
            keys = keys_of(asked)
            values = rows_of(rows, len(keys), width, "rows" if whole else "gradients")
            extra = of.checked(table.name, table.policy, len(keys))
            where = present(keys)
            if where is not None:
                keys, values, extra = keys[where], values[where], extra.of(where)
            calls.append(Call(named_by(given, table), keys, width, values, extra))
        message: dict[str, Any] = {"op": "push", "whole": True} if whole else {"op": "push"}
        if until is not None:
            message["until"] = until
        return self._begin(calls, message)

    def _begin(self, calls: list[Call], message: dict[str, Any]) -> PushFuture:
        push = PushFuture(
            self.connection.open, lambda session: session.push(calls, dict(message)), named(calls)
        )
        return self.connection.noted(push)

    def delete(self, requests: Sequence[tuple[Table | str, npt.ArrayLike]]) -> PushFuture:
        """Begins a deletion, see `Client.delete`."""
        calls = []
        for given, asked in entries(requests, 2, "(table, keys)"):
            table = self.find(given)
            keys = keys_of(asked)
            where = present(keys)
            keys = keys if where is None else keys[where]
            calls.append(Call(named_by(given, table), keys, 0, np.empty((len(keys), 0), np.float32)))
        return self._begin(calls, {"op": "delete"})

    def clock(self) -> tuple[str, float]:
        """The clock of the gateway, and its time in milliseconds."""
        name, now = self.connection.ask({"op": "clock"})
        return name, now

    def scan(self, table: Table, batch: int, state: bool) -> Iterator[tuple[Keys, Rows]]:
        """See `Table.items`."""
        batch, state = integer(batch, "batch", 1), flag(state, "state")
        session = self.connection.open()
        width = table.width if state else table.dim
        number = self.connection.next_scan()

        def ask(message: dict[str, Any]) -> Reply:
            reply = session.link.send({**message, "scan": number})
            session.link.wait(reply)
            reply.get()
            return reply

        try:
            ask({"op": "scan", "name": table.named, "batch": batch, "whole": state})
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

    def evictions(
        self, table: Table, since: dict[str, Any] | None, poll_seconds: float
    ) -> Iterator[Evictions]:
        """See `Table.evictions`."""
        poll_ms = max(1, round(1000 * number(poll_seconds, "poll_seconds", 0)))
        session = self.connection.open()
        stream = self.connection.next_scan()

        def ask(message: dict[str, Any]) -> Reply:
            reply = session.link.send({**message, "stream": stream})
            session.link.wait(reply)
            reply.get()
            return reply

        try:
            place = {} if since is None else {"from": since}
            ask({"op": "evictions", "name": table.named, "pollMs": poll_ms, **place})
            while batch := (reply := ask({"op": "evicted"})).value:
                keys = np.frombuffer(reply.payload, np.uint64, len(batch["reasons"]))
                yield Evictions(keys, batch["reasons"], batch["gap"], batch["position"])
        except GatewayLost as error:
            raise Error("UNREACHABLE", f"the gateway ended in the middle of a stream: {error}") from None
        finally:
            if not session.link.lost:
                with contextlib.suppress(GatewayLost):
                    session.link.send({"op": "endEvictions", "stream": stream})
