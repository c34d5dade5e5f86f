"""Values that programs set: those that a program sets at its start once per job, however often it starts."""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from .._arrays import Keys, Rows
from .._client import Client
from .._errors import Error
from .._specs import SGD, Zeros
from .._tables import Table

CHUNK_BYTES = 4 << 20
"""Bytes of whole rows that are read and written at once."""

LOAD_SECONDS = 60.0
"""A program waits so long for one that sets the same values and does not go on; then it sets them itself."""

LOADS_ONCE = 16
"""So many values of the same keys are set once per job; a program that sets more of them sets them always."""

MARK_CHARACTERS = 64
"""Marks of a table have so much of its name in theirs."""

_LOOK_SECONDS = 0.05
_NOTE_SECONDS = 1.0
_PROGRESS = np.zeros(1, np.uint64)
_overwriting: ContextVar[bool] = ContextVar("overwriting", default=False)


@contextmanager
def overwrite() -> Iterator[None]:
    """Within this, `load_state_dict` sets rows and shared parameters again that this job was given before.

    Without it a program that has not trained a table yet does not set the same values of it a second time:
    a trainer that was started again would undo what the others have trained since.

    >>> with kintsugi.torch.overwrite():
    ...     model.load_state_dict(torch.load("best.pt"))
    """
    token = _overwriting.set(True)
    try:
        yield
    finally:
        _overwriting.reset(token)


def claimed(client: Client, name: str, number: int | None = None) -> bool:
    """Creates a table of marks, which only one program can; whether this one has. `number`: its seed."""
    seed = int(np.random.default_rng().integers(1, 1 << 31)) if number is None else number
    try:
        client.create_table(name, 1, optimizer=SGD(lr=0.0), initializer=Zeros(), seed=seed)
    except Error as error:
        if error.code != "TABLE_EXISTS":
            raise
        return False
    return True


def found_table(client: Client, name: str) -> Table | None:
    """The table of a name; None: there is none. @raises Error, but not UNKNOWN_TABLE."""
    try:
        return client.table(name)
    except Error as error:
        if error.code != "UNKNOWN_TABLE":
            raise
        return None


def set_values(client: Client, table: Table, keys: Keys, rows: Rows, *, first: Rows | None = None) -> None:
    """Sets the values of `keys`, each once: len(keys) x dim. The state of the optimizer stays.

    A program that has trained the table sets them. What a program sets before that is done once per job: the
    n-th values of these keys, after the same ones before. Of several programs one sets them, and the others
    wait for it. Where training has moved them since, they stay, with a warning. `overwrite` sets them.

    `first`: the values that every program begins with; they count as set.

    @raises Error, as `Table.assign`.
    """
    place = hashlib.blake2b(keys.tobytes(), digest_size=8).digest()
    before, count = table.loads.get(place, (b"", 0))
    if table.trained or _overwriting.get() or count >= LOADS_ONCE:
        _assign(table, keys, rows)
        return
    if count == 0 and first is not None and _same(rows, first):
        _compare(table, keys, rows)
        return
    after = _digest(before + place + table.name.encode(), rows, table.dim)
    _set_once(client, table, keys, rows, f"{table.name[:MARK_CHARACTERS]}-loaded-{after.hex()}")
    table.loads[place] = after, count + 1


def _digest(before: bytes, rows: Rows, dim: int) -> bytes:
    digest = hashlib.blake2b(before, digest_size=8)
    size = max(1, CHUNK_BYTES // (4 * dim))
    for at in range(0, len(rows), size):
        digest.update(np.ascontiguousarray(rows[at : at + size], np.float32).tobytes())
    return digest.digest()


def _set_once(client: Client, table: Table, keys: Keys, rows: Rows, base: str) -> None:
    attempt = 0
    while True:
        name = f"{base}-{attempt}"
        if claimed(client, name):
            try:
                _assign(table, keys, rows, client.table(name))
            except BaseException:
                table.given_up.add(name)
                raise
            return
        if name not in table.given_up and _is_finished(client, client.table(name), f"{base}-{attempt + 1}"):
            _compare(table, keys, rows)
            return
        attempt += 1


def _is_finished(client: Client, mark: Table, following: str) -> bool:
    """Waits for the program that has claimed a mark. False: it has ended before its last row was set."""
    seen, end = -1.0, 0.0
    while True:
        progress = float(mark.pull(_PROGRESS)[0, 0])
        if progress < 0:
            return True
        if progress != seen:
            seen, end = progress, time.monotonic() + LOAD_SECONDS
        if time.monotonic() >= end or found_table(client, following) is not None:
            return False
        time.sleep(_LOOK_SECONDS)


def _chunks(table: Table, keys: Keys, rows: Rows) -> Iterator[tuple[Keys, Rows]]:
    size = max(1, CHUNK_BYTES // (4 * table.width))
    for first in range(0, len(keys), size):
        yield keys[first : first + size], rows[first : first + size]


def _assign(table: Table, keys: Keys, rows: Rows, mark: Table | None = None) -> None:
    """`mark`: gets signs of progress, and -1 at the end."""
    noted = time.monotonic()
    progress = 0
    for some, values in _chunks(table, keys, rows):
        whole = table.pull(some, state=True).copy()
        whole[:, : table.dim] = values
        table.assign(some, whole).result()
        if mark is not None and time.monotonic() - noted >= _NOTE_SECONDS:
            noted, progress = time.monotonic(), progress + 1
            mark.assign(_PROGRESS, [[progress]]).result()
    if mark is not None:
        mark.assign(_PROGRESS, [[-1]]).result()


def _same(one: Rows, other: Rows) -> bool:
    return (
        np.ascontiguousarray(one, np.float32).tobytes() == np.ascontiguousarray(other, np.float32).tobytes()
    )


def _compare(table: Table, keys: Keys, rows: Rows) -> None:
    """Warns where the values are other ones by now."""
    moved = 0
    for some, values in _chunks(table, keys, rows):
        given = np.ascontiguousarray(values, np.float32).view(np.int32)
        moved += int((np.ascontiguousarray(table.pull(some)).view(np.int32) != given).any(1).sum())
    if moved > 0:
        text = f"table {table.name!r} was given these values before in this job. Training has moved {moved} "
        text += f"of {len(keys)} rows since, and they stay as they are. To undo that training, load within "
        warnings.warn(text + "`with kintsugi.torch.overwrite():`", stacklevel=2)
