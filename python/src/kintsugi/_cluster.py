"""A whole job on this machine, for tests, notebooks and trying things out: real processes."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType

from ._checks import bad, integer, path, shown, text
from ._errors import Error
from ._processes import Process

_START = 60.0
"""Seconds for processes to start: many at once on a small machine take a while."""


def _event(name: str, field: str) -> Callable[[str], str | None]:
    def find(line: str) -> str | None:
        if f'"{name}"' not in line:
            return None
        record = json.loads(line)
        return str(record[field]) if record.get("event") == name else None

    return find


class LocalCluster:
    """A scheduler and PS nodes, each a process. `close`, or leaving the `with`, ends them all."""

    def __init__(
        self,
        *,
        ps: int,
        code: str,
        token: str | None,
        checkpoint: str | None,
        restore: str | None,
        limits: Mapping[str, int],
    ) -> None:
        self._token = token
        self._owner = os.getpid()
        self._nodes: list[Process] = []
        arguments = ["scheduler", "--listen", "127.0.0.1:0", "--ps", str(ps), "--code", code]
        if checkpoint is not None:
            arguments += ["--checkpoint", checkpoint, "--every", "0s"]
        if restore is not None:
            arguments += ["--restore", restore]
        for name, value in limits.items():
            arguments += ["--limit", f"{name}={value}"]
        self._scheduler = Process([*arguments, "--log-format", "json"], token=token)
        _clusters.add(self)
        try:
            ready = _event("scheduler.ready", "address")
            self.address: str = self._scheduler.wait_for(ready, _START, "the scheduler")
            self._nodes = [self._start(index) for index in range(ps)]
            for index in range(ps):
                self._wait(index)
        except BaseException:
            self.close()
            raise

    def _start(self, index: int) -> Process:
        # Failure domains of their own, as if each were a machine.
        name = ["--name", f"ps-{index}", "--host-label", f"host-{index}"]
        flags = ["--scheduler", self.address, "--connect-timeout", "60s", "--log-format", "json"]
        return Process(["ps", *name, *flags], token=self._token)

    def _wait(self, index: int) -> None:
        self._nodes[index].wait_for(_event("ps.ready", "address"), _START, f"ps-{index}")

    def __len__(self) -> int:
        """Nodes that were started, killed ones too."""
        return len(self._nodes)

    def _at(self, index: int) -> Process:
        if 0 <= (index := integer(index, "index")) < len(self._nodes):
            return self._nodes[index]
        raise Error("BAD_ARGUMENT", f"there is no ps {index}, only 0 to {len(self._nodes) - 1}")

    def kill(self, index: int) -> None:
        """SIGKILL to PS `index`. @raises Error BAD_ARGUMENT."""
        self._at(index).kill()

    def restart(self, index: int) -> None:
        """Starts a killed PS again, empty, under the same name. @raises Error BAD_ARGUMENT."""
        self._at(index).kill()
        index = integer(index, "index")
        self._nodes[index] = self._start(index)
        self._wait(index)

    def add(self) -> int:
        """One more PS, which gets its share of the job; returns its index."""
        self._nodes.append(self._start(len(self._nodes)))
        self._wait(len(self._nodes) - 1)
        return len(self._nodes) - 1

    def close(self) -> None:
        """Ends every process; nothing is kept."""
        _clusters.discard(self)
        if os.getpid() != self._owner:
            return
        for process in [*self._nodes, self._scheduler]:
            process.kill()
        self._nodes = []

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _forked(self) -> None:
        for process in [*self._nodes, self._scheduler]:
            process.forked()


_clusters: weakref.WeakSet[LocalCluster] = weakref.WeakSet()


def _after_fork() -> None:
    for cluster in list(_clusters):
        cluster._forked()


os.register_at_fork(after_in_child=_after_fork)


def start_local_cluster(
    ps: int = 5,
    code: str = "4+1",
    *,
    token: str | None = None,
    checkpoint: str | None = None,
    restore: str | None = None,
    limits: Mapping[str, int] | None = None,
) -> LocalCluster:
    """Starts a scheduler and `ps` PS nodes as processes of this machine; returns when all are up.

    `code`: k+r, data and parity shards of a group; "none" for no redundancy. `checkpoint`: a directory or
    `s3://bucket/prefix` where `Client.checkpoint` saves to. `restore`: the job begins with the newest
    checkpoint of such a place, or with that of `PLACE@N`. `limits`: of the scheduler, see docs/limits.md.

    >>> with kintsugi.start_local_cluster(ps=5, code="4+1") as cluster:
    ...     client = kintsugi.connect(cluster.address)

    @raises Error NOT_ENOUGH_NODES, BAD_ARGUMENT, UNREACHABLE, DEPENDENCY_MISSING.
    """
    if limits is not None and not isinstance(limits, Mapping):
        raise bad(f"limits must be a mapping of names to integers, not {shown(limits)}")
    return LocalCluster(
        ps=integer(ps, "ps", 1),
        code=text(code, "code"),
        token=None if token is None else text(token, "token"),
        checkpoint=None if checkpoint is None else path(checkpoint, "checkpoint"),
        restore=None if restore is None else path(restore, "restore"),
        limits={text(name, "a limit"): integer(value, name) for name, value in (limits or {}).items()},
    )
