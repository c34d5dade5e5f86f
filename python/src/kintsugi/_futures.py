"""Answers to requests that are under way."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

from ._checks import seconds
from ._errors import Error, GatewayLost, PushInDoubt
from ._link import Reply
from ._session import Session, Word

T = TypeVar("T")

ATTEMPTS = 3
"""Most gateways that may end during one request. After that it is not repeated any more."""


def gateways_ended(error: GatewayLost | None) -> Error:
    """The error when the last attempt has failed."""
    return Error("UNREACHABLE", f"{ATTEMPTS} gateways ended, one after the other: {error}")


class Future(Generic[T]):
    """An answer that is there or will be. The connection is read by whoever waits."""

    def __init__(
        self,
        open_session: Callable[[], Session],
        send: Callable[[Session], tuple[Reply, Callable[[Reply], T]]],
    ) -> None:
        self._open = open_session
        # The function keeps arrays such as gradients. It is dropped as soon as it will not be sent again.
        self._send: Callable[[Session], tuple[Reply, Callable[[Reply], T]]] | None = send
        self._attempts = 0
        self._session: Session
        self._reply: Reply
        self._finish: Callable[[Reply], T]
        self._result: T | None = None
        self._finished = False
        self._lock = Lock()
        """The thread has it that takes the answer, or asks again."""
        self._begin()

    def _begin(self) -> None:
        """Sends the request, again on a new connection if this one breaks meanwhile."""
        assert self._send is not None
        while True:
            self._attempts += 1
            self._session = self._open()
            try:
                self._reply, self._finish = self._send(self._session)
                return
            except GatewayLost as error:
                self._check_attempts(error)
                if self._finished:
                    return

    def _check_attempts(self, error: GatewayLost) -> None:
        if self._attempts >= ATTEMPTS:
            raise gateways_ended(error) from None

    def _lost(self, error: GatewayLost) -> None:
        """The connection broke before the answer: asks again."""
        self._check_attempts(error)
        self._begin()

    def _give_up(self) -> None:
        """There is no answer, and none is needed."""
        self._finished = True
        self._send = None

    def done(self) -> bool:
        """Whether `result` returns or raises at once."""
        if not self._finished:
            self._session.link.poll()
        return self._finished or (self._reply.done and not isinstance(self._reply.error, GatewayLost))

    def exception(self, timeout: float | None = None) -> Error | None:
        """Waits as `result` does; the error that it raises, or None. @raises TimeoutError."""
        try:
            self.result(timeout)
        except Error as error:
            return error
        return None

    def result(self, timeout: float | None = None) -> T:
        """Waits for the answer, at most `timeout` seconds.

        @raises Error, TimeoutError: it is still under way.
        """
        timeout = seconds(timeout, "timeout")
        while not self._finished:
            session, reply = self._session, self._reply
            if not session.link.wait(reply, timeout):
                raise TimeoutError("the answer has not come in time")
            with self._lock:
                if self._finished or reply is not self._reply:
                    continue
                if isinstance(reply.error, GatewayLost):
                    self._lost(reply.error)
                    continue
                reply.get()
                self._result = self._finish(reply)
                self._finished = True
                self._send = None
                del self._finish
        return self._result  # type: ignore[return-value]


class PushFuture(Future[None]):
    """A push that is under way."""

    def __init__(
        self,
        open_session: Callable[[], Session],
        push: Callable[[Session], tuple[Reply, Word | None]],
        what: str,
    ) -> None:
        self._word: Word | None = None
        self._what = what
        self._told = False
        """Somebody has asked for the result, and it was an error."""
        self.number = 0
        """Pushes of a client count from 1."""

        def send(session: Session) -> tuple[Reply, Callable[[Reply], None]]:
            reply, self._word = push(session)
            return reply, self._answered

        super().__init__(open_session, send)

    def _begin(self) -> None:
        super()._begin()
        self._send = None

    def _answered(self, reply: Reply) -> None:  # noqa: ARG002
        """The push is durable, and keeps no memory any more."""
        self._word = None

    @property
    def taken(self) -> bool:
        """Whether its gradients in shared memory may be written over: the gateway has read them."""
        return (self._word is not None and bool(self._word[0])) or self.done()

    @property
    def settled(self) -> bool:
        """True once the push is durable, or failed and somebody has asked for its result."""
        return self._finished or self._told or (self._reply.done and self._reply.error is None)

    @property
    def name(self) -> str:
        """The name in errors, such as `push 7 (items: 100 keys)`."""
        return f"push {self.number} ({self._what})"

    def _lost(self, error: GatewayLost) -> None:
        text = f"the gateway ended while {self.name} was under way: {error}"
        raise PushInDoubt(message=text, pushes=[self.name]) from None

    def result(self, timeout: float | None = None) -> None:
        """Waits until the push is durable: every live parity of its shards has it.

        @raises Error, PushInDoubt, TimeoutError: it is still under way.
        """
        try:
            super().result(timeout)
        except Error:
            self._told = True
            raise
