"""A connection to a gateway with its memory: how requests for rows are laid out, and sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ._arena import ALIGNMENT, Arena, Block
from ._arrays import Keys, Rows
from ._errors import Error
from ._extras import Extras
from ._link import VERSION, Link, Reply

MAX_PAYLOAD = 256 << 20
"""Bytes of keys and rows of one request on the socket, where memory cannot be shared."""


_PATIENCE = 10.0
"""Seconds for a gateway on a busy machine to answer its first message, beyond what it waits for the job."""

_TAKEN = ALIGNMENT
"""Bytes at the start of a push's block: a word that the gateway sets when it has read keys and rows."""


class Gateway(Protocol):
    """Something that gives connections."""

    def link(self, timeout: float) -> Link:
        """A connection. @raises Error, GatewayLost: it ended at once."""
        ...


NOTHING = Extras()

Word = npt.NDArray[np.int32]
"""One number in shared memory."""


@dataclass
class Call:
    """Rows of one table. `rows`: gradients of a push; of a pull where the rows go, or None."""

    table: str
    """See `Table.named`."""
    keys: Keys
    width: int
    rows: Rows | None = None
    extras: Extras = NOTHING
    """A push has some."""

    def described(self, keys_at: int, rows_at: int, extras_at: Sequence[int]) -> list[Any]:
        """The entry of this table in the message. `extras_at`: of each of the arrays of `extras`."""
        entry = [self.table, keys_at, len(self.keys), rows_at, self.extras.lr]
        left = iter(extras_at)
        entry += [None if each is None else next(left) for each in (self.extras.counts, self.extras.scores)]
        while entry[-1] is None:
            entry.pop()
        return entry

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.table.split("\n")[0]

    @property
    def extras_bytes(self) -> int:
        """Bytes of counts and scores, with their padding."""
        return sum(_padded(array.nbytes) for array in self.extras.arrays)


def named(calls: Sequence[Call]) -> str:
    """The tables and keys of a push, for errors."""
    return ", ".join(f"{call.name}: {len(call.keys)} keys" for call in calls) or "no tables"


def _padded(size: int) -> int:
    return size + (-size % ALIGNMENT)


class Session:
    """See the module."""

    def __init__(
        self, gateway: Gateway, memory_bytes: int, memory_directory: str | None, timeout: float
    ) -> None:
        self.link = gateway.link(timeout)
        self.arena: Arena | None = None
        arena: Arena | None = None
        try:
            hello: dict[str, Any] = {"op": "hello", "version": VERSION, "timeoutMs": int(timeout * 1000)}
            block: Block | None = None
            if memory_bytes > 0:
                arena = Arena(memory_bytes, memory_directory)
                hello["memory"], block = arena.place()
            reply = self.link.send(hello, keep=block)
            # The gateway has the same limit for the job, and answers in time.
            if not self.link.wait(reply, timeout + _PATIENCE):
                raise Error("UNREACHABLE", "the gateway does not answer")
            welcome = reply.get()
        except BaseException:
            self.link.close()
            raise
        finally:
            if arena is not None:
                arena.close_file()
        if welcome["shared"]:
            self.arena = arena
        self.client: int = welcome["client"]

    def room(self, size: int) -> Block | None:
        """Shared memory for a request, as soon as there is any; None: there will be none."""
        arena = self.arena
        if arena is None or size > arena.size:
            return None
        while (block := arena.take(size)) is None:
            if self.link.pending == 0:
                # Arrays of the caller's fill it.
                return None
            self.link.wait_any()
        return block

    # ---- pull

    def pull(self, calls: Sequence[Call], whole: bool) -> tuple[Reply, Block | None, list[Rows | None]]:
        """Sends a pull. The arrays are those that the rows will be in; None: they come with the answer."""
        inside = [self._inside(call.rows) for call in calls]
        rows_bytes = [0 if at is not None else _padded(4 * call.width * len(call.keys))
                      for call, at in zip(calls, inside, strict=True)]  # fmt: skip
        keys_bytes = [_padded(8 * len(call.keys)) for call in calls]
        block = self.room(sum(rows_bytes) + sum(keys_bytes))
        message: dict[str, Any] = {"op": "pull"}
        if whole:
            message["whole"] = True
        if block is None:
            return self._pull_behind(message, calls)
        at = 0
        described: list[list[str | int]] = []
        arrays: list[Rows | None] = []
        for call, place, size in zip(calls, inside, rows_bytes, strict=True):
            count = len(call.keys)
            if place is None:
                arrays.append(block.array(at, (count, call.width), np.float32))
                place = block.offset + at
                at += size
            else:
                arrays.append(call.rows)
            described.append([call.table, 0, count, place])
        for call, entry, size in zip(calls, described, keys_bytes, strict=True):
            np.copyto(block.array(at, (len(call.keys),), np.uint64), call.keys)
            entry[1] = block.offset + at
            at += size
        message["calls"] = described
        return self.link.send(message, keep=(block, arrays)), block, arrays

    def _pull_behind(
        self, message: dict[str, Any], calls: Sequence[Call]
    ) -> tuple[Reply, None, list[Rows | None]]:
        _check_payload(sum((8 + 4 * call.width) * len(call.keys) for call in calls))
        at = 0
        described: list[list[str | int]] = []
        for call in calls:
            described.append([call.table, at, len(call.keys), 0])
            at += call.keys.nbytes
        message.update(calls=described, behind=True)
        payload = [call.keys.data.cast("B") for call in calls if len(call.keys) > 0]
        return self.link.send(message, payload), None, [None] * len(calls)

    # ---- push

    def push(self, calls: Sequence[Call], message: dict[str, Any]) -> tuple[Reply, Word | None]:
        """Sends a push, or its keys alone. Rows that lie in shared memory already are not copied."""
        sizes = []
        places = []
        for call in calls:
            place = self._inside(call.rows)
            places.append(place)
            copied = 0 if place is not None or call.rows is None else _padded(call.rows.nbytes)
            sizes.append(_padded(call.keys.nbytes) + copied + call.extras_bytes)
        block = self.room(_TAKEN + sum(sizes))
        if block is None:
            return self._push_behind(message, calls), None
        taken = block.array(0, (1,), np.int32)
        taken[0] = 0
        message["taken"] = block.offset
        at = _TAKEN
        described: list[list[Any]] = []
        for call, place in zip(calls, places, strict=True):
            np.copyto(block.array(at, (len(call.keys),), np.uint64), call.keys)
            keys_at = block.offset + at
            at += _padded(call.keys.nbytes)
            if call.rows is None:
                place = 0
            elif place is None:
                np.copyto(block.array(at, call.rows.shape, np.float32), call.rows)
                place = block.offset + at
                at += _padded(call.rows.nbytes)
            extras_at = []
            for array in call.extras.arrays:
                np.copyto(block.array(at, array.shape, array.dtype.type), array)
                extras_at.append(block.offset + at)
                at += _padded(array.nbytes)
            described.append(call.described(keys_at, place, extras_at))
        message["calls"] = described
        return self.link.send(message, keep=(block, [call.rows for call in calls])), taken

    def _push_behind(self, message: dict[str, Any], calls: Sequence[Call]) -> Reply:
        at = 0
        described: list[list[Any]] = []
        payload = []
        for call in calls:
            keys_at, rows_at = at, at + call.keys.nbytes
            at = rows_at
            if len(call.keys) > 0:
                payload.append(call.keys.data.cast("B"))
            # The rows of a deletion have no values.
            if call.rows is not None and call.rows.nbytes > 0:
                padding = bytes(-call.rows.nbytes % 8)
                payload += [call.rows.data.cast("B"), memoryview(padding)]
                at += call.rows.nbytes + len(padding)
            extras_at = []
            for array in call.extras.arrays:
                extras_at.append(at)
                if len(call.keys) == 0:
                    continue
                padding = bytes(-array.nbytes % 8)
                payload += [array.data.cast("B"), memoryview(padding)]
                at += array.nbytes + len(padding)
            described.append(call.described(keys_at, rows_at, extras_at))
        _check_payload(at)
        message.update(calls=described, behind=True)
        return self.link.send(message, payload)

    def _inside(self, rows: Rows | None) -> int | None:
        if rows is None or self.arena is None:
            return None
        at = self.arena.offset_of(rows)
        return at if at is not None and at % 4 == 0 else None


def _check_payload(size: int) -> None:
    if size > MAX_PAYLOAD:
        text = f"a request of {size} bytes does not fit the shared memory: more memory_bytes, or fewer keys"
        raise Error("LIMIT", text)


def placed(
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
