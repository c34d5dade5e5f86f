"""Samples in lines of text: ranges of bytes of a file, and their columns as arrays.

The bytes of all fields are parsed at once, one digit of each field after the other: a string per field would
cost a hundred times as much.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ._arrays import Rows
from ._checks import integer, listed, shown
from ._errors import Error

KeyKind = Literal["hex", "integer", "text"]

_NEWLINE = 10
_MINUS = 45
_MAX_LINE = 64 << 10
_MARK = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8, which some programs write before the first line."""
_DECIMAL = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
"""Numbers as the readers of `kintsugi worker` take them; what else `float` takes is a mistake in a file."""
_MAX_FLOAT = 3.4e38
"""A larger number does not fit a float32."""
_MISSING = np.uint64(1 << 63)
_HEX = np.full(256, -1, np.int64)
for _index, _digit in enumerate("0123456789abcdef"):
    _HEX[ord(_digit)] = _HEX[ord(_digit.upper())] = _index

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]


class Batch(NamedTuple):
    """Samples in columns: numpy arrays, or tensors where these were asked for."""

    dense: Any
    """samples x dense columns, float32; what is empty is 0."""
    sparse: Any
    """samples x sparse columns, int64: the key of each value."""
    label: Any
    """samples, float32."""


def lines_of(path: str, begin: int, end: int, chunk: int = 1 << 20) -> Iterator[bytes]:
    """The lines that start in begin <= byte < end of a file, in pieces of whole lines.

    @raises Error BAD_DATA.
    """
    try:
        with open(path, "rb") as file:
            at = begin
            if begin > 0:
                # The line that byte begin - 1 is in belongs to the range before, with its newline.
                file.seek(begin - 1)
                at = begin - 1 + len(file.readline(_MAX_LINE + 1))
            while at < end:
                piece = file.read(min(chunk, end - at))
                piece += file.readline(_MAX_LINE + 1) if not piece.endswith(b"\n") else b""
                if not piece:
                    return
                first = at == 0
                at += len(piece)
                piece = piece.removeprefix(_MARK) if first else piece
                yield piece if piece.endswith(b"\n") else piece + b"\n"
    except OSError as error:
        raise _unreadable(path, error) from None


def batches_of(pieces: Iterator[bytes], size: int) -> Iterator[tuple[bytes, int]]:
    """Lines, and how many they are: `size`, but for the last ones."""
    rest = b""
    for piece in pieces:
        rest += piece
        ends = np.flatnonzero(np.frombuffer(rest, np.uint8) == _NEWLINE) + 1
        at = 0
        for last in ends[size - 1 :: size]:
            yield rest[at:last], size
            at = int(last)
        rest = rest[at:]
    if rest:
        yield rest, rest.count(b"\n")


@dataclass(frozen=True)
class Columns:
    """Which columns of a file are what: positions, or names in its first line."""

    dense: Sequence[int]
    sparse: Sequence[int]
    label: int
    separator: bytes
    kind: KeyKind
    width: int
    """Columns of a line."""

    def parse(self, lines: bytes, count: int) -> Batch:
        """`count` lines as arrays. @raises Error BAD_DATA."""
        data = np.frombuffer(lines, np.uint8)
        breaks = np.flatnonzero((data == self.separator[0]) | (data == _NEWLINE))
        width = self.width
        newlines = data[breaks] == _NEWLINE
        if len(breaks) != count * width or not newlines[width - 1 :: width].all():
            line = next(i for i, each in enumerate(lines.split(b"\n"))
                        if each.count(self.separator) + 1 != width)  # fmt: skip
            found = lines.split(b"\n")[line].count(self.separator) + 1
            raise Error("BAD_DATA", f"line {line + 1} of a batch has {found} columns instead of {width}")
        ends = breaks.reshape(count, width)
        starts = np.concatenate([[0], breaks[:-1] + 1]).reshape(count, width)
        returns = (ends[:, -1] > starts[:, -1]) & (data[ends[:, -1] - 1] == 13)
        ends[:, -1] -= returns

        def of(columns: Sequence[int]) -> tuple[Positions, Positions]:
            return starts[:, list(columns)].reshape(-1), ends[:, list(columns)].reshape(-1)

        dense = _numbers(data, *of(self.dense)).reshape(count, len(self.dense))
        label_starts, label_ends = of([self.label])
        empty = np.flatnonzero(label_starts == label_ends)
        if len(empty):
            raise _bad_field(data, label_starts, label_ends, int(empty[0]))
        label = _numbers(data, label_starts, label_ends)
        keys = _keys(data, *of(self.sparse), self.kind).reshape(count, len(self.sparse))
        # A column's number is in its keys, as in those of `kintsugi worker`.
        place = np.arange(1, len(self.sparse) + 1, dtype=np.uint64) << np.uint64(32)
        if self.kind == "text":
            keys = keys ^ (place * np.uint64(0x9E3779B97F4A7C15))
            keys[keys == np.uint64(2**64 - 1)] = 0
        else:
            keys = keys | place
        return Batch(dense, keys.view(np.int64), label)


def _digits(data: Bytes, starts: Positions, ends: Positions, base: int) -> npt.NDArray[np.uint64]:
    """Numbers without sign; of an empty field 0. @raises Error BAD_DATA."""
    values = np.zeros(len(starts), np.int64)
    longest = int((ends - starts).max(initial=0))
    for i in range(longest):
        inside = starts + i < ends
        digits = _HEX[data[np.where(inside, starts + i, 0)]]
        if ((digits < 0) | (digits >= base))[inside].any():
            wrong = int(np.flatnonzero(inside & ((digits < 0) | (digits >= base)))[0])
            raise _bad_field(data, starts, ends, wrong)
        values = np.where(inside, values * base + digits, values)
    return values.view(np.uint64)


def _bad_field(data: Bytes, starts: Positions, ends: Positions, field: int) -> Error:
    text = data[starts[field] : ends[field]].tobytes()[:24].decode(errors="replace")
    return Error("BAD_DATA", f"{text!r} is no number of the kind that its column has")


def _numbers(data: Bytes, starts: Positions, ends: Positions) -> Rows:
    """float32 of each field. @raises Error BAD_DATA."""
    lengths = ends - starts
    negative = (lengths > 0) & (data[np.minimum(starts, len(data) - 1)] == _MINUS)
    try:
        if lengths.max(initial=0) > 15 or (negative & (lengths == 1)).any():
            raise Error("BAD_DATA", "")
        values = _digits(data, starts + negative, ends, 10).astype(np.float64)
        return np.where(negative, -values, values).astype(np.float32)
    except Error:
        # Not integers only.
        result = np.zeros(len(starts), np.float32)
        for i in np.flatnonzero(lengths):
            text = data[starts[i] : ends[i]].tobytes()
            if not _DECIMAL.fullmatch(text) or abs(value := float(text)) > _MAX_FLOAT:
                raise _bad_field(data, starts, ends, int(i)) from None
            result[i] = value
        return result


def _keys(data: Bytes, starts: Positions, ends: Positions, kind: KeyKind) -> npt.NDArray[np.uint64]:
    """A key per field, of its value alone. An empty field has a key that no value has."""
    lengths = ends - starts
    if kind != "text":
        if lengths.max(initial=0) > (8 if kind == "hex" else 9):
            wrong = int(np.argmax(lengths))
            raise _bad_field(data, starts, ends, wrong)
        return np.where(lengths == 0, _MISSING, _digits(data, starts, ends, 16 if kind == "hex" else 10))
    # FNV-1a, 64 bits.
    hashes = np.full(len(starts), 0xCBF29CE484222325, np.uint64)
    for i in range(int(lengths.max(initial=0))):
        inside = starts + i < ends
        byte = data[np.where(inside, starts + i, 0)].astype(np.uint64)
        hashes = np.where(inside, (hashes ^ byte) * np.uint64(0x100000001B3), hashes)
    return hashes


_LIMITS = {
    errno.EMFILE: 'this process has as many open files as its limit allows; raise "ulimit -n"',
    errno.ENFILE: "this machine has as many open files as its limit allows; raise the sysctl fs.file-max",
    errno.ENOMEM: 'the system gives no more memory; free some, or raise "ulimit -v"',
}
"""Limits of the system by their errors: nothing is wrong with the file then."""


def _unreadable(path: str, error: OSError) -> Error:
    """SYSTEM_LIMIT or BAD_DATA, as `docs/errors.md` has them."""
    limit = _LIMITS.get(error.errno or 0)
    said = f"{path} cannot be read: {error.strerror}"
    return Error("BAD_DATA", said) if limit is None else Error("SYSTEM_LIMIT", f"{said}: {limit}")


def header_of(path: str) -> bytes:
    """The first line of a file. @raises Error BAD_DATA."""
    try:
        with open(path, "rb") as file:
            return file.readline(_MAX_LINE)
    except OSError as error:
        raise _unreadable(path, error) from None


def line_bytes(path: str) -> float:
    """Bytes per line at the beginning of a file. @raises Error BAD_DATA."""
    try:
        with open(path, "rb") as file:
            piece = file.read(1 << 20)
    except OSError as error:
        raise _unreadable(path, error) from None
    return len(piece) / max(1, piece.count(b"\n"))


def size_of(path: str) -> int:
    """Bytes of a file. @raises Error BAD_DATA."""
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise _unreadable(path, error) from None


def whole_lines(path: str, known: int) -> int:
    """Where the last whole line ends, of a file whose lines up to byte `known` are known.

    @raises Error BAD_DATA: it has become shorter.
    """
    size = size_of(path)
    if size < known:
        raise Error("BAD_DATA", f"{path} has {size} bytes, and had {known}: what is followed must only grow")
    with open(path, "rb") as file:
        while size > known:
            begin = max(known, size - (1 << 16))
            file.seek(begin)
            last = file.read(size - begin).rfind(b"\n")
            if last >= 0:
                return begin + last + 1
            size = begin
    return known


def columns_of(
    file: str, dense: Sequence[Any], sparse: Sequence[Any], label: int | str, kind: KeyKind
) -> Columns:
    """Where columns are in a file. @raises Error BAD_ARGUMENT, BAD_DATA."""
    if kind not in ("hex", "integer", "text"):
        raise Error("BAD_ARGUMENT", f'keys must be "hex", "integer" or "text", not {shown(kind)}')
    label = label if isinstance(label, str) else integer(label, "label")
    separator = b"," if file.endswith(".csv") else b"\t"
    first = header_of(file).removeprefix(_MARK).rstrip(b"\r\n").split(separator)
    names = [name.decode(errors="replace") for name in first]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None and isinstance(label, str):
        raise Error("BAD_DATA", f'{file}:1: the header has the column "{twice}" more than once')

    def position(column: int | str) -> int:
        if isinstance(column, str) != isinstance(label, str):
            raise Error("BAD_ARGUMENT", "columns are all positions, or all names")
        if isinstance(column, str) and column not in names:
            raise Error("BAD_DATA", f"{file} has no column {column!r}")
        at = names.index(column) if isinstance(column, str) else integer(column, "a column")
        if not 0 <= at < len(names):
            raise Error("BAD_DATA", f"{file} has no column {column}, only 0 to {len(names) - 1}")
        return at

    return Columns(
        [position(each) for each in listed(dense, "dense", "columns")],
        [position(each) for each in listed(sparse, "sparse", "columns")],
        position(label),
        separator,
        kind,
        len(names),
    )
