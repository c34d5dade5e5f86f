"""Where the gateway is: one that this process starts, and starts again, or one that others share."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import tempfile
import time

from ._errors import Error, GatewayLost
from ._link import Link
from ._processes import Process

_POLL = 0.02
"""Seconds between two attempts to reach a gateway that somebody else starts."""

_START = 60.0
"""Seconds for a process to start on a busy machine; one that cannot start ends, which is noticed at once."""


class SharedGateway:
    """A gateway that was there before; its path is all that is known of it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def link(self, timeout: float) -> Link:
        """A connection. @raises Error UNREACHABLE."""
        end = time.monotonic() + timeout
        while True:
            try:
                return Link(self.path)
            except GatewayLost as error:
                if time.monotonic() > end:
                    raise Error("UNREACHABLE", f"no gateway answers at {self.path}: {error}") from None
            time.sleep(_POLL)

    def close(self) -> None:
        """Does nothing: somebody else ends this gateway."""

    def forked(self) -> SharedGateway:
        """The gateway for a child process: the same one."""
        return self


class SpawnedGateway:
    """A gateway of this process, at a socket in a directory that nobody else may enter."""

    def __init__(self, scheduler: str, *, token: str | None, tls_ca: str | None) -> None:
        self.scheduler = scheduler
        self._token = token
        self.tls_ca = tls_ca
        self._process: Process | None = None
        self.directory = tempfile.mkdtemp(prefix="kintsugi-gateway-")
        self.path = os.path.join(self.directory, "gateway.sock")

    @property
    def pid(self) -> int | None:
        """Id of the gateway's process, if it was started."""
        return None if self._process is None else self._process.pid

    def link(self, timeout: float) -> Link:
        """A connection, to a new process if the one before has ended. @raises Error, GatewayLost."""
        end = time.monotonic() + timeout
        if self._process is None or self._process.ended:
            self._start(max(timeout, _START))
        while True:
            try:
                return Link(self.path)
            except GatewayLost as error:
                if time.monotonic() > end:
                    raise Error("UNREACHABLE", f"the gateway does not answer: {error}") from None
                # The gateway ended just now.
                self._start(max(end - time.monotonic(), _START))

    def _start(self, timeout: float) -> None:
        if self._process is not None:
            self._process.kill()
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        arguments = ["gateway", "--scheduler", self.scheduler, "--socket", self.path, "--log-format", "json"]
        if self.tls_ca is not None:
            arguments += ["--tls-ca", self.tls_ca]
        self._process = Process(arguments, token=self._token, stdout=True)
        # One line says that it listens; the end of the stream, that it does not.
        ready, _, _ = select.select([self._process.stdout], [], [], timeout)
        if not ready:
            self._process.kill()
            raise Error("UNREACHABLE", f"the gateway did not start within {timeout:g} s")
        if not self._process.stdout.readline():
            self._process.wait()
            if self._process.killed:
                # As one that is killed later: the next attempt starts another one.
                raise GatewayLost("the gateway was killed while it started")
            raise self._process.failure("the gateway")

    def close(self) -> None:
        """Ends the process; nothing of it is left."""
        if self._process is not None:
            self._process.stop()
            self._process = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def forked(self) -> SharedGateway:
        """The gateway for a child process. Only the parent starts it again."""
        if self._process is not None:
            self._process.forked()
        return SharedGateway(self.path)
