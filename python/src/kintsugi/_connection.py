"""The way to a job: one session with a gateway at a time, and a new one when it breaks."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from collections import deque
from collections.abc import Callable
from multiprocessing.context import get_spawning_popen
from threading import RLock
from typing import Any

from ._errors import Error, GatewayLost, joined
from ._futures import ATTEMPTS, Future, PushFuture, gateways_ended
from ._gateway import SharedGateway, SpawnedGateway
from ._link import Reply
from ._session import Session


class Connection:
    """Threads may share it. After a fork the child's has a session of its own."""

    def __init__(
        self,
        gateway: SharedGateway | SpawnedGateway,
        memory_bytes: int,
        memory_directory: str | None,
        timeout: float,
    ) -> None:
        self.gateway = gateway
        self._memory = memory_bytes, memory_directory
        self._timeout = timeout
        self._lock = RLock()
        self._session: Session | None = None
        self._closed = False
        self.before_use: Callable[[], None] | None = None
        """Called before the next use: gradients that are held leave."""
        self._scans = 0
        self._pushes = 0
        self._unsettled: list[PushFuture] = []
        _connections.add(self)
        try:
            self.open()
        except BaseException:
            self.close()
            raise

    def open(self) -> Session:
        """The session, a new one if it broke. @raises Error CLOSED, UNREACHABLE, and of `connect`."""
        self._used()
        with self._lock:
            if self._closed:
                raise Error("CLOSED", "the client is closed")
            if self._session is None or self._session.link.lost:
                self._session = self._connect()
            return self._session

    @property
    def trust(self) -> tuple[int, int]:
        """Another one when the gateway is another, or has said again that a table is unknown."""
        session = self._session
        return (0, 0) if session is None else (id(session), session.link.unknown_tables)

    def _used(self) -> None:
        if self.before_use is not None:
            self.before_use()

    def _connect(self) -> Session:
        """A gateway that is killed may still take a connection, and break it at once."""
        broken: GatewayLost | None = None
        for _ in range(ATTEMPTS):
            try:
                return Session(self.gateway, *self._memory, self._timeout)
            except GatewayLost as error:
                broken = error
        raise gateways_ended(broken)

    def ask(self, message: dict[str, Any]) -> Any:
        """The answer to a request that may be sent twice. @raises Error."""

        def send(session: Session) -> tuple[Reply, Any]:
            return session.link.send(dict(message)), lambda reply: reply.value

        return Future[Any](self.open, send).result()

    def recipe(self) -> tuple[Any, ...]:
        """The arguments by which another process connects, without the token.

        A process that is being spawned shares the gateway of this one, as a child after a fork does.
        """
        gateway = self.gateway
        rest = *self._memory, self._timeout
        if isinstance(gateway, SpawnedGateway) and get_spawning_popen() is None:
            return gateway.scheduler, None, gateway.tls_ca, *rest
        return None, gateway.path, None, *rest

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed

    def next_scan(self) -> int:
        """A number that no other scan of this process has."""
        with self._lock:
            self._scans += 1
            return self._scans

    def noted(self, future: PushFuture) -> PushFuture:
        """Has `flush` wait for a push."""
        with self._lock:
            self._pushes += 1
            future.number = self._pushes
            self._unsettled = [each for each in self._unsettled if not each.settled]
            self._unsettled.append(future)
        return future

    def flush(self) -> None:
        """Waits until every push that was noted has ended. @raises Error: one for all that failed."""
        self._used()
        with self._lock:
            unsettled, self._unsettled = self._unsettled, []
        waiting = deque(unsettled)
        failed = []
        try:
            while waiting:
                future = waiting[0]
                if not future.settled and (error := future.exception()) is not None:
                    failed.append((future.name, error))
                waiting.popleft()
        finally:
            # After an interrupt.
            with self._lock:
                self._unsettled = [*waiting, *self._unsettled]
        if failed:
            raise joined(failed)

    def close(self) -> None:
        """Ends the session, and a gateway that this process has started."""
        with contextlib.suppress(Error):
            self._used()
        _connections.discard(self)
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._session is not None:
                self._session.link.close()
            self.gateway.close()

    def forked(self) -> None:
        """In a child: another lock, and no session yet."""
        self._lock = RLock()
        self.before_use = None
        if self._session is not None:
            self._session.link.abandon()
        self._session = None
        self._unsettled = []
        self.gateway = self.gateway.forked()


_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _close_all() -> None:
    for connection in list(_connections):
        connection.close()


def _after_fork() -> None:
    for connection in list(_connections):
        connection.forked()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
