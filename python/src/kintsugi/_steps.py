"""Where the gradients of a batch go: at once to their tables, or together in one push of the batch."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock, RLock, get_ident, local
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._arrays import Keys, Rows, keys_of
from ._client import Client
from ._errors import Error
from ._extras import MAX_COUNT
from ._futures import PushFuture
from ._link import Meanwhile
from ._tables import Table

Counted = npt.NDArray[np.int64] | None
"""How often each key of a table was seen; None: once."""


class Request(NamedTuple):
    """Gradients of a table in a push, len(keys) x dim."""

    table: Table
    keys: Keys
    rows: Rows
    counts: Counted = None


def parted(requests: Sequence[Request]) -> tuple[list[tuple[Table, Keys, Rows]], list[Counted]]:
    """Requests of `Client.push`, and their counts."""
    return [(table, keys, rows) for table, keys, rows, _ in requests], [each.counts for each in requests]


class Step:
    """Gradients of one batch, whichever modules they come from. In a push each table is named once."""

    def __init__(
        self,
        *,
        fused: bool = False,
        push_now: Callable[[], None] | None = None,
        members: tuple[int, ...] | None = None,
        alike: bool = False,
        meanwhile: Meanwhile | None = None,
    ) -> None:
        """`fused`: gradients of layers without a RowOptimizer may come here as `backward` makes them.

        `push_now`: pushes the step before its end, and waits until it is durable. `members`: of the process
        group whose ranks have a part of the batch each; what they give is the same on all of them.
        `alike`: each has the whole batch. `meanwhile`: what is to be done while ranks wait for each other.
        """
        self.fused = fused
        self.members = members
        self.alike = alike
        self.meanwhile = meanwhile
        self.rows: Any = None
        """Rows that look-ups share, of `kintsugi.torch.step`; None: each look-up has its own."""
        self.elsewhere: list[tuple[Any, str]] = []
        """Rows of RowOptimizers that took gradients within a `kintsugi.torch.step`, with their tables."""
        self.lr: Any = None
        """Rate of layers without one of their own, or what gives it; None: that of the table."""
        self.closed = False
        """True once its push was made: gradients that came now would be lost."""
        self.anchors: list[Any] = []
        """Parameters that stand for the fused layers whose gradients are here."""
        self._push_now = push_now
        self._lock = Lock()
        self._given: dict[str, list[Request]] = {}
        self._rates: dict[str, float | None] = {}
        self._expected: dict[str, list[tuple[Table, Keys]]] = {}
        self._stepped: set[str] = set()
        self._fused: set[str] = set()
        self.looked: weakref.WeakSet[Any] = weakref.WeakSet()
        """Look-ups of fused layers that `backward` has not come to."""

    def has_fused(self, table: Table) -> bool:
        """Whether gradients of the table are here that left in `backward`."""
        return table.name in self._fused

    @property
    def is_stepped(self) -> bool:
        """Whether optimizers, or `backward` of fused layers, have stepped all that was looked up to learn."""
        some = bool(self._stepped or self._fused)
        return some and not self.looked and self._expected.keys() <= self._stepped

    def add(self, request: Request, lr: float | None = None, *, fused: bool = False) -> None:
        """Keeps gradients of a table; they are not copied. `fused`: they left in `backward`.

        @raises Error BAD_ARGUMENT: a table has one rate and one step in a push; or the push was made.
        """
        table = request.table
        with self._lock:
            if self.closed:
                text = f"gradients of {table.name!r} come after the push of their batch"
                raise Error("BAD_ARGUMENT", text)
            if fused and table.name in self._stepped:
                text = f"table {table.name!r} has a second step in one push: fused gradients come after "
                raise Error("BAD_ARGUMENT", text + "the step of a RowOptimizer")
            if self._rates.setdefault(table.name, lr) != lr:
                text = (
                    f"{table.name!r} has two learning rates in one step: {self._rates[table.name]} and {lr}"
                )
                raise Error("BAD_ARGUMENT", text)
            self._given.setdefault(table.name, []).append(request._replace(keys=keys_of(request.keys)))
            if fused:
                self._fused.add(table.name)

    def add_stepped(self, requests: Sequence[Request], rates: Sequence[float | None]) -> None:
        """Keeps what the `step` of an optimizer gives. One push is one step of an optimizer.

        @raises Error BAD_ARGUMENT: a table has a second step here; and as `add`.
        """
        names = [each.table.name for each in requests]
        twice = self._stepped.intersection(names)
        if twice or any(name in self._given for name in names):
            text = f"table {sorted(twice) or names} has a second step in one push: a batch has one step"
            raise Error("BAD_ARGUMENT", text)
        for request, rate in zip(requests, rates, strict=True):
            self.add(request, rate)
        self._stepped.update(names)

    def expect(self, table: Table, keys: Keys) -> None:
        """Notes keys that the push of this batch names, whether an optimizer makes a step or not."""
        with self._lock:
            self._expected.setdefault(table.name, []).append((table, keys_of(keys)))

    def unnamed(self) -> list[tuple[Table, Keys]]:
        """Keys that were expected and have no gradient: the optimizer made no step."""
        with self._lock:
            left = []
            for name, expected in sorted(self._expected.items()):
                named = [each.keys for each in self._given.get(name, [])]
                keys = without([keys for _, keys in expected], named)
                if len(keys) > 0:
                    left.append((expected[0][0], keys))
            return left

    def push_now(self, *, fused: bool = False) -> None:
        """Has what an optimizer has stepped pushed before a look-up that is to see it.

        `fused`: also what fused layers have given. @raises Error BAD_ARGUMENT: its push is at its end.
        """
        if self.closed or not (self._stepped or (fused and self._given)):
            return
        if self._push_now is None:
            text = (
                f"a step of {', '.join(sorted(self._given))} is pushed at the end of kintsugi.torch.step or "
            )
            text += "of the batch of a Pipeline: look rows up, load and save before step(), or after that end"
            raise Error("BAD_ARGUMENT", text)
        self._push_now()

    def requests(self) -> list[Request]:
        """Pushes in the order of the names of their tables. The order depends on nothing else."""
        with self._lock:
            return [_joined(self._given[name]) for name in sorted(self._given)]

    def rates(self) -> list[float | None]:
        """The learning rate of each of `requests`; None: that of the table."""
        with self._lock:
            return [self._rates[name] for name in sorted(self._given)]


def _ascending(lists: Sequence[Keys]) -> Keys:
    """Keys of lists, ascending and each once. Those of one look-up are so already."""
    keys = lists[0] if len(lists) == 1 else np.concatenate(lists)
    if not (keys[1:] > keys[:-1]).all():
        keys = np.sort(keys)
        keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
    return keys


def without(lists: Sequence[Keys], named: Sequence[Keys]) -> Keys:
    """Keys of `lists` that are in none of `named`, ascending and each once.

    `np.setdiff1d` would hash all keys three times, which took a sixth of a step.
    """
    keys = _ascending(lists)
    if len(keys) == 0 or not any(len(each) for each in named):
        return keys
    others = _ascending(named)
    if np.array_equal(keys, others):
        return keys[:0]
    at = np.searchsorted(others, keys)
    at[at == len(others)] = 0
    left: Keys = keys[others[at] != keys]
    return left


def _joined(given: list[Request]) -> Request:
    """All gradients of a table. A policy has each key come once: it would be seen as often as it comes.

    `given`: where there are several, each has a key once.
    """
    if len(given) == 1:
        return given[0]
    table = given[0].table
    keys = np.concatenate([each.keys for each in given])
    if table.policy is None:
        return Request(table, keys, np.concatenate([each.rows for each in given]))
    distinct, inverse = np.unique(keys.view(np.int64), return_inverse=True)
    summed = np.zeros((len(distinct), table.dim), np.float32)
    ends = np.cumsum([len(each.keys) for each in given])[:-1]
    # `np.add.at` takes ten times as long.
    for each, at in zip(given, np.split(inverse, ends), strict=True):
        summed[at] += each.rows
    if all(each.counts is None for each in given):
        return Request(table, distinct.view(np.uint64), summed)
    counts = [np.zeros(len(each.keys), np.int64) if each.counts is None else each.counts for each in given]
    sums = np.bincount(inverse, np.concatenate(counts), len(distinct))
    return Request(table, distinct.view(np.uint64), summed, np.clip(sums, 1, MAX_COUNT).astype(np.int64))


class Steps:
    """The steps of a client. A thread has one current step at most."""

    def __init__(self, client: Client) -> None:
        self._client = weakref.ref(client)
        self._pending: deque[PushFuture] = deque()
        self._local = local()
        self._lock = Lock()
        self._sending = RLock()
        """The thread has it that begins the push of what was held."""
        self._settling = RLock()
        """The thread has it that waits for pushes."""
        self.dense: weakref.WeakSet[Any] = weakref.WeakSet()
        """Hooks of models that bring dense parameters from the job, at the begin of a batch."""
        self.held: Step | None = None
        """Gradients of the last pass of `backward`, as long as nobody could see that they have not left."""
        self.fused: dict[int, Step] = {}
        """Gradients of passes of `backward` that are under way, by the number that autograd gives a pass."""
        self._training: list[int] = []
        """Threads that are in a batch of a data set."""

    @contextmanager
    def of_batch(self, step: Step) -> Iterator[None]:
        """Within this, the step of a batch of a data set is the current one of this thread."""
        before, self.current = self.current, step
        thread = get_ident()
        self._training.append(thread)
        try:
            yield
        finally:
            self._training.remove(thread)
            self.current = before

    def refuse_elsewhere(self) -> None:
        """Gradients are about to be pushed, and not as those of a batch.

        @raises Error BAD_ARGUMENT: another thread is in a batch of a data set, which has them in its push.
        """
        training = self._training
        if training and get_ident() not in training:
            text = "a batch of a RangeDataset is trained in another thread than that which takes it, so its "
            text += "push would be without these gradients: train it in that thread. What is no part of the "
            raise Error("BAD_ARGUMENT", text + "data set needs a client of its own")

    @property
    def client(self) -> Client | None:
        """The client, as long as somebody has it."""
        return self._client()

    @property
    def current(self) -> Step | None:
        """The step of this thread."""
        step: Step | None = getattr(self._local, "step", None)
        return step

    @current.setter
    def current(self, step: Step | None) -> None:
        self._local.step = step

    def begin(self) -> None:
        """A batch of a data set begins, or the last one has ended. @raises Error, as `Client.pull`."""
        for each in list(self.dense):
            each.before_batch()

    def hold(self, step: Step) -> None:
        """Keeps a step until `release` sends it or `drop` forgets it; any use of the client sends it."""
        self.release()
        client = self._client()
        assert client is not None
        with self._lock:
            self.held = step
            client._connection.before_use = self.release

    def release(self) -> None:
        """Sends what is held, or waits until another thread has begun to. @raises Error, as `Client.push`."""
        with self._sending:
            held = self._taken()
            if held is not None:
                self.push(held.requests(), held.rates())

    def drop(self) -> None:
        """Forgets what is held: the loop is refused."""
        self._taken()

    def _taken(self) -> Step | None:
        with self._lock:
            held, self.held = self.held, None
            client = self._client()
            if held is not None and client is not None:
                client._connection.before_use = None
        return held

    def push(self, requests: Sequence[Request], rates: Sequence[float | None]) -> PushFuture | None:
        """Begins one push of several tables; `settle` waits for it. None: there is nothing to push."""
        if not requests:
            return None
        self.refuse_elsewhere()
        client = self._client()
        assert client is not None
        given, counts = parted(requests)
        pushed = client.push(given, lr=list(rates), counts=counts)
        self._pending.append(pushed)
        return pushed

    def settle(self) -> None:
        """Waits for what `push` began: pulls that follow see it. @raises Error."""
        self.release()
        # Other threads wait here until what one of them waits for has ended.
        with self._settling:
            while self._pending:
                pushed = self._pending[0]
                try:
                    pushed.result()
                except Error:
                    self._pending.popleft()
                    raise
                self._pending.popleft()

    def catch_up(self) -> None:
        """Has all gradients of this thread that have left be durable, also those of its batch.

        @raises Error, as `Client.push`; BAD_ARGUMENT: they are pushed at the end of `kintsugi.torch.step`.
        """
        step = self.current
        if step is not None:
            step.push_now(fused=True)
        self.settle()

    def forget(self) -> None:
        """Pushes are the parent's after a fork."""
        self._pending.clear()
        self._local = local()
        self._lock = Lock()
        self._sending = RLock()
        self._settling = RLock()
        self.held = None
        self.fused = {}
        self._training = []


_of_clients: weakref.WeakKeyDictionary[Client, Steps] = weakref.WeakKeyDictionary()


def release_all() -> None:
    """Sends what is held, of all clients. @raises Error, as `Client.push`."""
    for steps in list(_of_clients.values()):
        steps.release()


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
