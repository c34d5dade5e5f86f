"""The reader of files: a process beside this one, with the parsers that `kintsugi worker` has.

Batches lie in memory that both share, a few ahead of the one at hand. The same range of a file gives the same
batches, so a process that ends is started again, and goes on where the one before was.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import socket
import weakref
from collections.abc import Callable, Iterator, Sequence
from threading import RLock
from typing import Any, TypeVar

import numpy as np

from ._arena import Arena, Block
from ._batches import Unpacker
from ._errors import Error, GatewayLost
from ._futures import ATTEMPTS
from ._link import Link, Meanwhile, Reply
from ._processes import Process

T = TypeVar("T")

VERSION = 3
"""Version of the messages; a reader of another version refuses the connection."""

_MEMORY = 256 << 20
"""Bytes of shared memory at most. When arrays that are kept fill it, batches come over the socket."""

_ROOM = 8 << 20
"""Bytes of batches that are asked for at once, or one batch: as many are ahead of those at hand."""


class ReaderProcess:
    """A process that reads, and the memory that it shares with this one."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            try:
                self._process = Process(["reader"], stdin=theirs.fileno())
            except BaseException:
                ours.close()
                raise
        self.link = Link(ours)
        self._numbers = itertools.count(1)
        self._arena: Arena | None = Arena(_MEMORY)
        try:
            self._greet(self._arena)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def _greet(self, arena: Arena) -> None:
        place, block = arena.place()
        reply = self.link.send({"op": "hello", "version": VERSION, "memory": place}, keep=block)
        try:
            self.link.wait(reply)
            reply.get()
        except GatewayLost:
            self._process.wait()
            if self._process.killed:
                # As one that is killed later: the next attempt starts another one.
                raise
            raise self._process.failure("the reader of files") from None
        except Error as error:
            if error.code == "BAD_ARGUMENT":
                raise
            # Batches come over the socket.
            self._arena = None
        finally:
            arena.close_file()

    def next_number(self) -> int:
        """A number that no other source or stream of this process has."""
        return next(self._numbers)

    def ask(self, message: dict[str, Any], meanwhile: Meanwhile | None = None) -> Any:
        """The answer to a message. @raises Error, GatewayLost."""
        return self.answer(self.link.send(message), meanwhile)

    def answer(self, reply: Reply, meanwhile: Meanwhile | None) -> Any:
        """The answer that is on its way. @raises Error, GatewayLost."""
        while not self.link.wait(reply, None if meanwhile is None else meanwhile.seconds):
            if meanwhile is not None:
                meanwhile.act()
        return reply.get()

    def fill(self, stream: int, size: int) -> tuple[Reply, Block | None]:
        """Asks for the next batches of a stream, about `size` bytes of them."""
        block = None if self._arena is None else self._arena.take(size)
        message: dict[str, Any] = {"op": "fill", "stream": stream, "bytes": size}
        if block is not None:
            message["at"] = block.offset
        return self.link.send(message, keep=block), block

    def drop(self, message: dict[str, Any]) -> None:
        """Sends a message whose answer nobody waits for."""
        with contextlib.suppress(GatewayLost):
            self.link.send(message)

    def close(self) -> None:
        """Ends the process."""
        self.link.close()
        self._process.kill()

    def forked(self) -> None:
        """In a child after a fork: the process is the parent's."""
        self.link.abandon()
        self._process.forked()


_lock = RLock()
_running: ReaderProcess | None = None


def running_reader() -> ReaderProcess:
    """The reader of this process; a new one, if there is none or it has ended. @raises Error, GatewayLost."""
    global _running
    with _lock:
        if _running is None or _running.link.lost:
            if _running is not None:
                _running.close()
                _running = None
            _running = ReaderProcess()
        return _running


def _close() -> None:
    global _running
    if _running is not None:
        _running.close()
        _running = None


def _after_fork() -> None:
    global _running, _lock
    _lock = RLock()
    if _running is not None:
        _running.forked()
        _running = None


atexit.register(_close)
os.register_at_fork(after_in_child=_after_fork)


def _ended(error: GatewayLost) -> Error:
    return Error("UNREACHABLE", f"{ATTEMPTS} readers of files ended, one after the other: {error}")


class Source:
    """Files that are read in one way. They stay the same ones, also when the reader is started again."""

    def __init__(self, files: Sequence[str], layout: dict[str, Any]) -> None:
        """`layout`: BatchLayout of src/training/reading/streams.ts. @raises Error BAD_DATA, BAD_ARGUMENT."""
        self._files = [each if "://" in each else os.path.abspath(each) for each in files]
        self._expanded = False
        """`_files` are files, and no folders or patterns any more."""
        self._layout = layout
        self._reader: ReaderProcess | None = None
        self._number = 0
        self._unpacker = Unpacker(None, False)
        self.parts: list[dict[str, Any]] = []
        """Each file has a name and a size; units of a range are bytes, or rows of parquet."""
        self.meaning: dict[str, str] | None = None
        """Meaning of the columns, part by part; None: only the program knows it."""
        self._ask(None)

    def _opened(self, meanwhile: Meanwhile | None = None) -> ReaderProcess:
        """The reader, which knows the files."""
        reader = running_reader()
        if reader is not self._reader:
            number = reader.next_number()
            message = {"op": "open", "source": number, "files": self._files, "layout": self._layout}
            opened = reader.ask({**message, "expanded": self._expanded}, meanwhile)
            closing = weakref.finalize(self, reader.drop, {"op": "closeSource", "source": number})
            closing.atexit = False
            self._check(opened["parts"])
            self._reader, self._number = reader, number
            self._unpacker = Unpacker(opened["shape"], "schema" in self._layout)
            self.parts, self.meaning = opened["parts"], opened["meaning"]
            self._files, self._expanded = opened["files"], True
        return reader

    def _check(self, parts: list[dict[str, Any]]) -> None:
        """Ranges were cut of the files as they were. @raises Error BAD_DATA: they are others now."""
        for file, before, part in zip(self._files, self.parts, parts, strict=False):
            if part["name"] != before["name"]:
                raise Error("BAD_DATA", f"{file}: was {before['name']} and is {part['name']}")
            if part["size"] < before["size"]:
                text = f"{file}: had {before['size']} bytes or rows, and has {part['size']}"
                raise Error("BAD_DATA", text)

    def _again(self, give: Callable[[int], Iterator[T]]) -> Iterator[T]:
        """Gives what a reader gives. After one that ends comes another, which leaves out what was given.

        @raises Error UNREACHABLE, when several end and give nothing.
        """
        given = attempts = 0
        while True:
            try:
                for each in give(given):
                    given += 1
                    attempts = 0
                    yield each
                return
            except GatewayLost as error:
                attempts += 1
                if attempts == ATTEMPTS:
                    raise _ended(error) from None

    def _ask(self, message: dict[str, Any] | None) -> Any:
        def answer(_: int) -> Iterator[Any]:
            reader = self._opened()
            yield None if message is None else reader.ask({**message, "source": self._number})

        return next(self._again(answer))

    def count(self) -> int:
        """Samples of all files. @raises Error BAD_DATA."""
        count: int = self._ask({"op": "count"})
        return count

    def sizes(self) -> list[int]:
        """How far the whole lines of each file go now. @raises Error BAD_DATA, BAD_ARGUMENT."""
        sizes: list[int] = self._ask({"op": "sizes"})
        return sizes

    def batches(self, batch: int, span: tuple[int, int, int] | None = None) -> Iterator[Any]:
        """Batches of all files, or of a span: the index of a file, and where its range begins and ends.

        @raises Error BAD_DATA, when all batches before were given.
        """
        return (read for read, _ in self.shares(batch, span))

    def shares(
        self,
        batch: int,
        span: tuple[int, int, int] | None = None,
        share: tuple[int, int] = (0, 1),
        meanwhile: Meanwhile | None = None,
    ) -> Iterator[tuple[Any, int]]:
        """Share `share[0]` of `share[1]` of each batch of a span, and the samples of the whole batch.

        A share is of samples that follow each other, as many as every other one. A batch whose samples cannot
        be divided is given as it is.

        @raises Error BAD_DATA, when all batches before were given.
        """
        message: dict[str, Any] = {"op": "read", "batch": batch}
        if span is not None:
            message.update(zip(("part", "begin", "end"), span, strict=True))
            if share[1] > 1:
                message.update(share=share[0], shares=share[1])
        return self._again(lambda given: self._stream({**message, "skip": given}, meanwhile))

    def _stream(self, message: dict[str, Any], meanwhile: Meanwhile | None) -> Iterator[tuple[Any, int]]:
        reader = self._opened(meanwhile)
        stream = reader.next_number()
        reader.ask({**message, "source": self._number, "stream": stream}, meanwhile)
        room = _ROOM
        try:
            reply, block = reader.fill(stream, room)
            while True:
                answer = reader.answer(reply, meanwhile)
                if (need := answer.get("need")) is not None:
                    # A batch may be a little larger than the one before.
                    room = need + need // 4
                    reply, block = reader.fill(stream, room)
                    continue
                batches = self._arrays(block, reply.payload, answer["batches"])
                if not answer["done"]:
                    reply, block = reader.fill(stream, room)
                else:
                    del block
                yield from zip(batches, answer["samples"], strict=True)
                if answer["done"]:
                    return
        finally:
            reader.drop({"op": "endStream", "stream": stream})

    def _arrays(self, block: Block | None, payload: bytes, counts: list[list[int]]) -> list[Any]:
        if block is not None:
            return self._unpacker.unpacked(block.array(0, (block.size,), np.uint8), counts)
        # Arrays may be written to.
        return self._unpacker.unpacked(bytearray(payload), counts)
