"""Streams of the keys whose rows leave a table."""

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import numpy as np
import pytest

import kintsugi
from kintsugi import Error

KEYS = np.arange(100, dtype=np.uint64)


def told(stream: Iterator[kintsugi.Evictions], count: int) -> tuple[dict[int, str], kintsugi.Evictions]:
    """The next keys with their reasons, and the last batch."""
    found: dict[int, str] = {}
    while len(found) < count:
        batch = next(stream)
        assert not batch.gap
        assert len(batch.keys) == len(batch.reasons)
        found.update(zip(batch.keys.tolist(), batch.reasons, strict=True))
    return found, batch


@pytest.fixture
def table(client: kintsugi.Client) -> kintsugi.Table:
    table = client.create_table(f"t-{uuid4()}", 2, policy=kintsugi.Policy(ttl=3))
    table.push(KEYS, np.ones((100, 2))).result()
    return table


def test_keys_that_leave_are_told_with_their_reasons(table: kintsugi.Table) -> None:
    stream = table.evictions(poll_seconds=0.01)
    first = next(stream)
    assert (len(first.keys), first.reasons, first.gap) == (0, [], False)
    table.delete(KEYS[:30]).result()
    found, _ = told(stream, 30)
    assert found == dict.fromkeys(range(30), "deleted")
    # Each shard has some of these, and steps with each push.
    rest = np.concatenate([KEYS[50:], np.arange(1000, 1400, dtype=np.uint64)])
    for _ in range(20):
        table.push(rest, np.ones((450, 2))).result()
    found, _ = told(stream, 20)
    assert found == dict.fromkeys(range(30, 50), "expired")


def test_rows_go_by_seconds_though_nobody_pushes(client: kintsugi.Client) -> None:
    policy = kintsugi.Policy(ttl=timedelta(seconds=2))
    table = client.create_table(f"t-{uuid4()}", 2, initializer=kintsugi.Zeros(), policy=policy)
    stream = table.evictions(poll_seconds=0.01)
    next(stream)
    begun = time.monotonic()
    table.push(KEYS, np.ones((100, 2))).result()
    rows = table.pull(KEYS)
    assert (rows != 0).all() or time.monotonic() - begun > 2
    found, _ = told(stream, 100)
    assert found == dict.fromkeys(range(100), "expired")
    assert time.monotonic() - begun >= 2
    assert (table.pull(KEYS) == 0).all()


def test_a_stream_goes_on_from_a_position(table: kintsugi.Table) -> None:
    stream = table.evictions(poll_seconds=0.01)
    next(stream)
    table.delete(KEYS[:10]).result()
    _, last = told(stream, 10)
    del stream  # closes it
    table.delete(KEYS[10:30]).result()
    position = json.loads(json.dumps(last.position))
    found, _ = told(table.evictions(since=position, poll_seconds=0.01), 20)
    assert sorted(found) == list(range(10, 30))


def test_a_dropped_table_ends_the_stream(table: kintsugi.Table) -> None:
    stream = table.evictions(poll_seconds=0.01)
    next(stream)
    table.drop()
    with pytest.raises(Error) as error:
        next(stream)
    assert error.value.code == "UNKNOWN_TABLE"


def test_a_position_that_is_none_is_refused(table: kintsugi.Table) -> None:
    with pytest.raises(Error) as error:
        next(table.evictions(since={"job": "none"}))
    assert error.value.code == "BAD_ARGUMENT"
