"""Where the gradients of a batch go: at once to their tables, or together in one push of the batch."""

from __future__ import annotations

import os
import weakref
from collections import deque
from threading import Lock

import numpy as np

from ._arrays import Keys, Rows, keys_of
from ._client import Client
from ._errors import Error
from ._futures import PushFuture
from ._tables import Table

Request = tuple[Table, Keys, Rows]


class Step:
    """Gradients of one batch, whichever modules they come from. In a push each table is named once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._given: dict[str, list[Request]] = {}
        self._rates: dict[str, float | None] = {}

    def add(self, table: Table, keys: Keys, gradients: Rows, lr: float | None = None) -> None:
        """Keeps gradients of `table`, len(keys) x dim; they are not copied.

        @raises Error BAD_ARGUMENT: a table has one learning rate in a push.
        """
        with self._lock:
            if self._rates.setdefault(table.name, lr) != lr:
                text = (
                    f"{table.name!r} has two learning rates in one step: {self._rates[table.name]} and {lr}"
                )
                raise Error("BAD_ARGUMENT", text)
            self._given.setdefault(table.name, []).append((table, keys_of(keys), gradients))

    def requests(self) -> list[Request]:
        """What to push, by the names of the tables: the order depends on nothing else."""
        with self._lock:
            return [_joined(self._given[name]) for name in sorted(self._given)]

    def rates(self) -> list[float | None]:
        """The learning rate of each of `requests`; None: that of the table."""
        with self._lock:
            return [self._rates[name] for name in sorted(self._given)]


def _joined(given: list[Request]) -> Request:
    if len(given) == 1:
        return given[0]
    table = given[0][0]
    keys = np.concatenate([keys for _, keys, _ in given])
    return table, keys, np.concatenate([gradients for _, _, gradients in given])


class Steps:
    """The steps of a client. Without a current one gradients are pushed as they come."""

    def __init__(self, client: Client) -> None:
        self._client = weakref.ref(client)
        self._pending: deque[PushFuture] = deque()
        self.current: Step | None = None

    def push(self, table: Table, keys: Keys, gradients: Rows, lr: float | None = None) -> None:
        """Begins a push; `settle` waits for it."""
        client = self._client()
        assert client is not None
        self._pending.append(client.push([(table, keys, gradients)], lr=lr))

    def settle(self) -> None:
        """Waits for what `push` began: pulls that follow see it. @raises Error."""
        while self._pending:
            self._pending.popleft().result()

    def forget(self) -> None:
        """Pushes are the parent's after a fork."""
        self._pending.clear()
        self.current = None


_of_clients: weakref.WeakKeyDictionary[Client, Steps] = weakref.WeakKeyDictionary()


def steps_of(client: Client) -> Steps:
    """The steps of `client`."""
    steps = _of_clients.get(client)
    if steps is None:
        steps = _of_clients.setdefault(client, Steps(client))
    return steps


def _after_fork() -> None:
    for steps in list(_of_clients.values()):
        steps.forget()


os.register_at_fork(after_in_child=_after_fork)
