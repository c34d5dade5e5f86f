"""Pushes of several threads: whoever pulls after a push has begun waits for it, whoever waits first."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from kintsugi import Error
from kintsugi._steps import Request, Step, Steps, without


class Push:
    """A push under way, until it is ended."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.ended = threading.Event()
        self.error: Error | None = None

    def result(self) -> None:
        self.asked.release()
        self.ended.wait()
        if self.error is not None:
            raise self.error


class Connection:
    before_use = None


class FakeClient:
    """A client whose pushes begin when they may."""

    def __init__(self) -> None:
        self._connection = Connection()
        self.pushes: list[Push] = []
        self.asked = threading.Event()
        self.may_begin = threading.Event()
        self.may_begin.set()

    def push(self, requests: Any, lr: Any, counts: Any) -> Push:  # noqa: ARG002
        self.asked.set()
        self.may_begin.wait()
        self.pushes.append(Push())
        return self.pushes[-1]


class Waiting(threading.Thread):
    """A thread that settles."""

    def __init__(self, steps: Steps) -> None:
        super().__init__(daemon=True)
        self._steps = steps
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._steps.settle()
        except Error as error:
            self.error = error


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


@pytest.fixture
def steps(client: FakeClient) -> Steps:
    return Steps(client)  # type: ignore[arg-type]


PARTS: list[Any] = ["table", "keys", "rows"]
REQUEST = Request(*PARTS)


def test_all_threads_wait_for_a_push_that_one_waits_for(client: FakeClient, steps: Steps) -> None:
    steps.push([REQUEST], [None])
    [push] = client.pushes
    threads = [Waiting(steps) for _ in range(3)]
    assert push.asked.acquire(timeout=10)
    for each in threads:
        each.join(0.1)
    assert all(each.is_alive() for each in threads)
    push.ended.set()
    for each in threads:
        each.join(10)
    assert not any(each.is_alive() for each in threads)
    steps.settle()


def test_a_push_that_fails_is_an_error_once(client: FakeClient, steps: Steps) -> None:
    steps.push([REQUEST], [None])
    [push] = client.pushes
    threads = [Waiting(steps) for _ in range(2)]
    assert push.asked.acquire(timeout=10)
    push.error = Error("LIMIT", "too much")
    push.ended.set()
    for each in threads:
        each.join(10)
    assert {each.error for each in threads} == {push.error, None}
    steps.settle()


def test_what_another_thread_is_about_to_push_is_waited_for(client: FakeClient, steps: Steps) -> None:
    class Held(Step):
        def requests(self) -> Any:
            return [REQUEST]

        def rates(self) -> Any:
            return [None]

    steps.hold(Held())
    client.may_begin.clear()
    threads = [Waiting(steps) for _ in range(2)]
    assert client.asked.wait(10)
    threads[0].join(0.2)
    threads[1].join(0.2)
    assert all(each.is_alive() for each in threads)
    client.may_begin.set()
    while not client.pushes:
        threading.Event().wait(0.01)
    assert client.pushes[0].asked.acquire(timeout=10)
    assert all(each.is_alive() for each in threads)
    client.pushes[0].ended.set()
    for each in threads:
        each.join(10)
    assert not any(each.is_alive() for each in threads)
    assert len(client.pushes) == 1


def test_keys_without_others_are_those_of_numpy() -> None:
    random = np.random.default_rng(1)
    for _ in range(2000):
        high = int(random.choice([3, 20, 2**64 - 1], p=[0.4, 0.4, 0.2]))

        def lists(most: int, high: int = high) -> list[Any]:
            made = []
            for _ in range(random.integers(0, most)):
                keys = random.integers(0, high, random.integers(0, 12), dtype=np.uint64)
                made.append(np.unique(keys) if random.random() < 0.5 else keys)
            return made

        keys, named = [*lists(3), random.integers(0, high, 4, dtype=np.uint64)], lists(3)
        if random.random() < 0.3:
            named = [np.unique(np.concatenate(keys))]
        expected = np.unique(np.concatenate(keys))
        if named:
            expected = np.setdiff1d(expected, np.concatenate(named))
        found = without(keys, named)
        assert found.dtype == np.uint64
        assert np.array_equal(found, expected)
