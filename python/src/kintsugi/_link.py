"""A connection to a gateway: requests out, answers in.

There is no thread. Whoever waits for an answer reads, also for the others; when it has its own, another one
goes on. So a child after a fork inherits nothing that runs, and an answer wakes the thread that wants it.

A frame is two lengths (u32, little endian), a message in JSON, and bytes behind it.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from threading import Condition
from typing import Any, NamedTuple

from ._errors import Error, GatewayLost

VERSION = 1
"""Version of the messages; a gateway of another version refuses the connection."""

_HEAD = struct.Struct("<II")
_PIECE = 1 << 16
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class Reply:
    """An answer that is there or will be. `keep`: memory that the gateway reads or writes until then."""

    __slots__ = ("done", "error", "keep", "payload", "value")

    def __init__(self, keep: object) -> None:
        self.keep = keep
        self.done = False
        self.value: Any = None
        self.error: Exception | None = None
        self.payload = b""

    def get(self) -> Any:
        """The value, or raises the error; only when it is done."""
        if self.error is not None:
            raise self.error
        return self.value


def _connected(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError as error:
        connection.close()
        raise GatewayLost(str(error)) from error
    return connection


class Meanwhile(NamedTuple):
    """`act` is called every `seconds` while something is waited for."""

    seconds: float
    act: Callable[[], None]


class Link:
    """See the module."""

    def __init__(self, path: str | socket.socket) -> None:
        """`path`: of the socket of a gateway; or the end of a pair whose other end a process has."""
        if isinstance(path, socket.socket):
            self._socket = path
        else:
            self._socket = _connected(path)
        self._condition = Condition()
        self._reading = False
        self._pending: dict[int, Reply] = {}
        self._buffer = bytearray()
        self._next = 1
        self._lost: GatewayLost | None = None
        self.unknown_tables = 0
        """How often the gateway has said that a table is unknown."""

    @property
    def lost(self) -> bool:
        """The connection is gone."""
        return self._lost is not None

    @property
    def pending(self) -> int:
        """Requests without an answer."""
        return len(self._pending)

    # ---- out

    def send(self, message: dict[str, Any], payload: Sequence[memoryview] = (), keep: object = None) -> Reply:
        """Sends a request. @raises GatewayLost."""
        reply = Reply(keep)
        with self._condition:
            if self._lost:
                raise self._lost
            number = self._next
            self._next += 1
            message["id"] = number
            body = _encode(message).encode()
            head = _HEAD.pack(len(body), sum(part.nbytes for part in payload))
            self._pending[number] = reply
            try:
                self._socket.sendall(head + body)
                for part in payload:
                    self._socket.sendall(part)
            except OSError as error:
                self._break(error)
                raise GatewayLost(str(error)) from error
            except BaseException as error:
                # Half a frame may be out.
                self._break(error)
                raise
        return reply

    # ---- in

    def wait(self, reply: Reply, timeout: float | None = None) -> bool:
        """Waits until the answer is there, or `timeout` seconds; whether it is."""
        end = None if timeout is None else time.monotonic() + timeout
        with self._condition:
            while not reply.done:
                left = None if end is None else end - time.monotonic()
                if left is not None and left < 0:
                    return False
                if self._reading:
                    self._condition.wait(left)
                else:
                    self._read(left)
            return True

    def wait_any(self) -> None:
        """Waits until something was answered; returns at once when nothing is asked."""
        with self._condition:
            before = len(self._pending)
            while self._pending and len(self._pending) >= before:
                if self._reading:
                    self._condition.wait()
                else:
                    self._read(None)

    def poll(self) -> None:
        """Takes what has come, without waiting."""
        with self._condition:
            if not self._reading and self._pending:
                self._read(0)

    def _read(self, timeout: float | None) -> None:
        """Reads once, with the lock given up meanwhile."""
        self._reading = True
        self._condition.release()
        piece: bytes | None = None
        problem: BaseException | None = None
        received = False
        try:
            # An interrupt may come while it waits: nothing is lost by that.
            ready = self._poll(timeout)
            if ready:
                received = True
                piece = self._socket.recv(_PIECE)
        except OSError as error:
            problem = error
        finally:
            self._condition.acquire()
            self._reading = False
            if received and piece is None and problem is None:
                problem = InterruptedError("interrupted in the middle of a read")
            if problem is not None:
                self._break(problem)
            elif piece is not None:
                try:
                    self._take(piece)
                except BaseException as error:
                    # An interrupt in the middle of a frame, or no frame at all.
                    self._break(error)
                    raise
            self._condition.notify_all()

    def _poll(self, timeout: float | None) -> bool:
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return bool(poller.poll(None if timeout is None else timeout * 1000))

    def _take(self, piece: bytes) -> None:
        if not piece:
            return self._break(ConnectionResetError("the gateway closed the connection"))
        buffer = self._buffer
        buffer += piece
        at = 0
        while len(buffer) - at >= _HEAD.size:
            length, extra = _HEAD.unpack_from(buffer, at)
            start = at + _HEAD.size
            end = start + length + extra
            if len(buffer) < end:
                break
            self._answered(json.loads(buffer[start : start + length]), bytes(buffer[start + length : end]))
            at = end
        del buffer[:at]
        return None

    def _answered(self, message: dict[str, Any], payload: bytes) -> None:
        reply = self._pending.pop(message["id"], None)
        if reply is None:
            return
        if "code" in message:
            reply.error = Error(message["code"], message["message"])
            self.unknown_tables += message["code"] == "UNKNOWN_TABLE"
        reply.value = message.get("value")
        reply.payload = payload
        reply.keep = None
        reply.done = True

    def _break(self, error: BaseException) -> None:
        if self._lost is None:
            self._lost = GatewayLost(str(error))
        with contextlib.suppress(OSError):
            # Wakes a thread that is reading.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for reply in self._pending.values():
            reply.error = self._lost
            # The reply keeps its block as long as the arena lives: an old gateway may still write there.
            reply.done = True
        self._pending.clear()
        self._condition.notify_all()

    def close(self) -> None:
        """Ends the connection; what is under way ends with GatewayLost."""
        with self._condition:
            self._break(ConnectionAbortedError("closed"))

    def abandon(self) -> None:
        """In a child after a fork: the connection is the parent's."""
        self._lost = GatewayLost("the connection belongs to the parent of this process")
        # Another thread of the parent may have the lock for ever.
        self._condition = Condition()
        for reply in self._pending.values():
            reply.error = self._lost
            reply.done = True
        self._pending = {}
        with contextlib.suppress(OSError):
            self._socket.close()
