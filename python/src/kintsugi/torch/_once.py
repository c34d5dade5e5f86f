"""Values that programs set: those that a program sets at its start once per job, however often it starts."""

from __future__ import annotations

import hashlib
import itertools
import time
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import numpy.typing as npt

from .._arrays import Keys, Rows
from .._client import Client
from .._errors import Error, PushInDoubt
from .._specs import SGD, Zeros
from .._tables import Table
from ..schedules import Step

CHUNK_BYTES = 4 << 20
"""Bytes of whole rows that are read and written at once."""

LOAD_SECONDS = 60.0
"""A program waits so long for one that sets the same values and does not go on; then it sets them itself."""

SEND_SECONDS = LOAD_SECONDS / 3
"""A gateway takes rows so long after a program has made sure that nobody has taken its place."""

LOADS_ONCE = 16
"""So many values of the same keys are set once per job; a program that sets more of them sets them always."""

MARKS = "kintsugi-loads"
"""The table of the marks of all loads of a job: a few floats for each."""

_LOOK_SECONDS = 0.05
_NOTE_SECONDS = 1.0
_FINISHED = -1.0
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


def set_first(client: Client, table: Table, keys: Keys, rows: Rows, ready: int) -> None:
    """Has a table begin with these values, len(keys) x dim: of several programs one sets them.

    `ready`: a key of its own. Its row says that the values are there. So a table that is made anew under its
    name begins with them, too, and one of a checkpoint has them.

    @raises Error, as `Table.assign`.
    """
    place = np.array([ready], np.uint64)
    if (table.pull(place) == 1).all():
        return
    _set_once(client, table, keys, rows, _digest(b"first" + _birth(table), rows, table.dim))
    # All programs say so before they train.
    _assign(table, place, np.ones((1, table.dim), np.float32))


def _birth(table: Table) -> bytes:
    """Job and id of a table: another one of its name has another id, and another job counts ids anew."""
    return f"{table.job} {table.id}".encode()


def set_values(client: Client, table: Table, keys: Keys, rows: Rows, *, first: Rows | None = None) -> None:
    """Sets the values of `keys`, each once: len(keys) x dim. The state of the optimizer stays.

    A program that has trained the table sets them. What a program sets before that is done once per job: the
    n-th values of these keys, after the same ones before. Of several programs one sets them, and the others
    wait for it. Where the table has other values by then, they stay, with a warning. `overwrite` sets them.
    A row that is gone reads as one that training could have made, so it stays, too.

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
    whose = table.name.encode() + _generation(client, table)
    after = _digest(before + place + whose, rows, table.dim)
    if not _set_once(client, table, keys, rows, after):
        _compare(table, keys, rows)
    table.loads[place] = after, count + 1


_generations: weakref.WeakKeyDictionary[Table, bytes] = weakref.WeakKeyDictionary()


def _generation(client: Client, table: Table) -> bytes:
    """Tells a table from those that had its name before and were dropped; empty for the first one.

    The table of marks has a list for each name: who has had it, by job and id. A job that begins with a
    checkpoint is another one and counts ids anew. There a table that has rows is taken for the one of the
    checkpoint, so that no load undoes what was trained.
    """
    known = _generations.get(table)
    if known is not None:
        return known
    marks = _marks(client)
    job, latest, earlier = _job_of(table), None, 0
    for number in itertools.count():
        key = _key(f"{number} {table.name}".encode())
        row = marks.pull([key])[0]
        if row[0] == 0:
            is_new = latest is not None and (latest[:2] == job or len(table) == 0)
            # Several programs may come here: the row of one of them is in the list.
            row = _set_mark(marks, key, [*job, 2 * table.id + is_new])
        latest = [int(each) for each in row]
        earlier += latest[2] % 2
        if latest[:2] == job and latest[2] // 2 == table.id:
            break
    known = b"" if earlier == 0 else str(earlier).encode()
    _generations[table] = known
    return known


def _job_of(table: Table) -> list[int]:
    """Numbers of a job that floats have exactly; not 0."""
    digest = hashlib.blake2b(table.job.encode(), digest_size=6).digest()
    return [int.from_bytes(part, "little") | 1 for part in (digest[:3], digest[3:])]


def _digest(before: bytes, rows: Rows, dim: int) -> bytes:
    digest = hashlib.blake2b(before, digest_size=8)
    size = max(1, CHUNK_BYTES // (4 * dim))
    for at in range(0, len(rows), size):
        digest.update(np.ascontiguousarray(rows[at : at + size], np.float32).tobytes())
    return digest.digest()


def _marks(client: Client) -> Table:
    """The table of marks. The first push of a row sets it, and later ones change nothing: their rate is 0.

    So of several programs one sets a mark, and a push that is sent again is none too many.
    """
    never_again = SGD(lr=-1.0, schedule=Step(every=1, factor=0.0))
    return client.create_table(MARKS, 3, optimizer=never_again, initializer=Zeros())


def _key(what: bytes) -> int:
    """The key of a mark. It is even: the next one says how far a program is."""
    return int.from_bytes(hashlib.blake2b(what, digest_size=8).digest(), "little") >> 2 << 1


def _set_mark(marks: Table, key: int, values: npt.ArrayLike) -> Rows:
    """Sets three numbers above 0 if nobody has before; what is there now."""
    while True:
        try:
            marks.push([key], np.array([values], np.float32)).result()
        except PushInDoubt:
            continue
        row: Rows = marks.pull([key])[0]
        return row


class _Mark:
    """Two rows of the table of marks: one has who sets some values, and one how far that program is."""

    def __init__(self, marks: Table, values: bytes, attempt: int) -> None:
        """`values`: their digest. `attempt`: of several programs, each after one that does not go on."""
        self._marks = marks
        self._values = values
        self._attempt = attempt
        self.key = _key(values + attempt.to_bytes(8, "little"))
        self._progress = np.array([self.key + 1], np.uint64)

    @property
    def following(self) -> _Mark:
        """That of a program that goes on in place of the one that has this one."""
        return _Mark(self._marks, self._values, self._attempt + 1)

    def claim(self) -> bool:
        """Whether this program has it: nobody had it before."""
        ticket = np.random.default_rng().integers(1, 1 << 24, self._marks.dim).astype(np.float32)
        return bool((_set_mark(self._marks, self.key, ticket) == ticket).all())

    @property
    def is_claimed(self) -> bool:
        """Whether some program has it."""
        return bool(self._marks.pull([self.key])[0, 0] > 0)

    @property
    def progress(self) -> float:
        """Another number whenever rows were set; `_FINISHED` at the end."""
        return float(self._marks.pull(self._progress)[0, 0])

    def note(self, progress: float) -> None:
        """Says how far this program is."""
        row = np.zeros((1, self._marks.width), np.float32)
        row[0, 0] = progress
        self._marks.assign(self._progress, row).result()

    def is_finished(self) -> bool:
        """Waits for the program that has it. False: it does not go on, or another one does in its place."""
        seen, end = -2.0, 0.0
        while True:
            progress = self.progress
            if self.following.is_claimed:
                return False
            if progress == _FINISHED:
                return True
            if progress != seen:
                seen, end = progress, time.monotonic() + LOAD_SECONDS
            if time.monotonic() >= end:
                return False
            time.sleep(_LOOK_SECONDS)


class _OvertakenError(Exception):
    """Another program sets the values in place of this one, which has stalled."""


class _Turn:
    """The right of a program to set values, as long as others see that it goes on. `began`: its `clock`."""

    def __init__(self, mark: _Mark, began: float) -> None:
        self.mark = mark
        self._noted = began
        """Nobody takes the place of this program within LOAD_SECONDS from here."""
        self._progress = 0

    @staticmethod
    def clock() -> float:
        """Seconds that go on while a machine sleeps."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def keep(self, table: Table) -> tuple[str, float]:
        """Before rows of a table are set. After a stall this program goes on if nobody has taken its place.

        Returns the time up to which the gateway takes these rows: nobody takes the place before that.

        @raises _OvertakenError.
        """
        # The gateway is asked first: a stall between both looks shortens the time.
        clock, time_ms = table._gateway_clock()
        now = self.clock()
        if now - self._noted >= LOAD_SECONDS / 2:
            following = self.mark.following
            if not following.claim():
                raise _OvertakenError
            self.mark, self._noted, self._progress = following, now, 0
        return clock, time_ms + 1000 * SEND_SECONDS

    def note(self, table: Table, count: int) -> None:
        """`count` rows were set. @raises _OvertakenError: perhaps after another program had set them."""
        now = self.clock()
        if now - self._noted >= LOAD_SECONDS:
            try:
                self.keep(table)
            except _OvertakenError:
                text = f"this program stalled for {now - self._noted:.0f} s while it set {count} rows of "
                text += f"table {table.name!r}, and another one took its place: what training had moved of "
                warnings.warn(text + "them by then may be lost", stacklevel=2)
                raise
        elif now - self._noted >= _NOTE_SECONDS:
            self._noted, self._progress = now, self._progress + 1
            self.mark.note(self._progress)

    def end(self) -> None:
        """All rows are set. @raises _OvertakenError: another program sets them again."""
        self.mark.note(_FINISHED)
        # A program that takes this place looks for the note afterwards: one of both sees the other.
        if self.mark.following.is_claimed:
            raise _OvertakenError


def _set_once(client: Client, table: Table, keys: Keys, rows: Rows, values: bytes) -> bool:
    """Whether this program has set them; otherwise another one has. `values`: their digest."""
    marks = _marks(client)
    before: _Mark | None = None
    mark = _Mark(marks, values, 0)
    while True:
        began = _Turn.clock()
        if mark.claim():
            if before is not None and before.progress == _FINISHED:
                mark.note(_FINISHED)
                return False
            turn = _Turn(mark, began)
            try:
                _assign(table, keys, rows, turn)
                return True
            except _OvertakenError:
                mark = turn.mark
            except BaseException:
                table.given_up.add(turn.mark.key)
                raise
        elif mark.key not in table.given_up and mark.is_finished():
            return False
        before, mark = mark, mark.following


def _chunks(table: Table, keys: Keys, rows: Rows) -> Iterator[tuple[Keys, Rows]]:
    size = max(1, CHUNK_BYTES // (4 * table.width))
    for first in range(0, len(keys), size):
        yield keys[first : first + size], rows[first : first + size]


def _assign(table: Table, keys: Keys, rows: Rows, turn: _Turn | None = None) -> None:
    """@raises _OvertakenError."""
    for some, values in _chunks(table, keys, rows):
        whole = table.pull(some, state=True).copy()
        whole[:, : table.dim] = values
        if turn is None:
            table.assign(some, whole).result()
        else:
            _send(table, some, whole, turn)
            turn.note(table, len(some))
    if turn is not None:
        turn.end()


def _send(table: Table, keys: Keys, whole: Rows, turn: _Turn) -> None:
    """@raises _OvertakenError."""
    while True:
        until = turn.keep(table)
        try:
            return table._assign_until(keys, whole, until).result()
        except Error as error:
            # The program has stalled after its look at the clock, and the gateway has sent nothing.
            if error.code != "TIMEOUT":
                raise


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
        text = f"table {table.name!r} was given these values before. {moved} of {len(keys)} rows have others "
        text += "now, and they stay as they are: training has moved them since, or they were deleted, or "
        text += "went by a policy. To set them again, load within "
        warnings.warn(text + "`with kintsugi.torch.overwrite():`", stacklevel=2)
