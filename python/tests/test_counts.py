"""Counts that pushes bring: how often keys were seen, in shared memory and on the socket."""

from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pytest

import kintsugi
from kintsugi import Error

KEYS = np.arange(50)
ONES = np.ones((50, 2), np.float32)


def table(client: kintsugi.Client, policy: kintsugi.Policy | None = None) -> kintsugi.Table:
    return client.create_table(
        f"t-{uuid4()}", 2, optimizer=kintsugi.SGD(lr=-1), initializer=kintsugi.Zeros(), policy=policy
    )


def seen(of: kintsugi.Table, keys: npt.ArrayLike = KEYS) -> list[int]:
    sightings: list[int] = of.pull(keys, state=True)[:, -1].copy().view(np.uint32).tolist()
    return sightings


def test_a_key_is_seen_as_often_as_its_count_says(either: kintsugi.Client) -> None:
    a, b, plain = (
        table(either, kintsugi.Policy(ttl=500)),
        table(either, kintsugi.Policy(ttl=500)),
        table(either),
    )
    a.push(KEYS, ONES, counts=KEYS + 1).result()
    a.push(KEYS, ONES, lr=1, counts=(KEYS + 1).tolist()).result()
    a.push(KEYS, ONES).result()
    requests = [(a, KEYS, ONES), (plain, KEYS, ONES), (b, KEYS[:7], ONES[:7])]
    either.push(requests, counts=[KEYS + 5, KEYS + 1, np.full(7, 9, np.int8)]).result()
    either.push([(a, [3, -1, 4, 3], ONES[:4]), (b, [], ONES[:0])], counts=[[10, 7, 1, 20], []]).result()
    expected = 2 * (KEYS + 1) + 1 + KEYS + 5
    expected[3] += 30
    expected[4] += 1
    assert seen(a) == expected.tolist()
    assert seen(b) == [9] * 7 + [0] * 43
    # A push with a rate of its own takes one away, three add one.
    assert (a.pull(KEYS)[5:] == 2).all()
    assert (plain.pull(KEYS) == 1).all()


def test_what_is_no_count_is_refused_and_changes_nothing(either: kintsugi.Client) -> None:
    for a in [table(either, kintsugi.Policy(counter=2)), table(either)]:
        wrong: list[tuple[Any, str, str]] = [
            ([1] * 49 + [0], r"counts\[49\] is 0: a key that is pushed was seen 1 to", "BAD_ARGUMENT"),
            ([1] * 49 + [-3], r"counts\[49\] is -3", "BAD_ARGUMENT"),
            ([2**32] + [1] * 49, r"counts\[0\] is 4294967296", "BAD_ARGUMENT"),
            ([1.5] * 50, "counts must be integers", "BAD_ARGUMENT"),
            ([1] * 49, "50 keys need as many counts, not 49", "LENGTH_MISMATCH"),
            (3, "50 keys need as many counts, not one number", "LENGTH_MISMATCH"),
        ]
        for counts, text, code in wrong:
            with pytest.raises(Error, match=text) as raised:
                a.push(KEYS, ONES, counts=counts)
            assert raised.value.code == code
        with pytest.raises(Error, match="1 tables need as many arrays of counts, not 2"):
            either.push([(a, KEYS, ONES)], counts=[None, None])
        assert not a.pull(KEYS).any()
        assert len(a) == 0


def test_keys_that_repeat_in_a_batch_of_a_range_are_seen_as_often(either: kintsugi.Client) -> None:
    a = table(either, kintsugi.Policy(ttl=500))
    dataset = either.dataset(f"d-{uuid4()}", [("day", 30)], batch=10, range_bytes=30)
    lease = dataset.acquire()
    assert lease is not None
    lease.push([(a, [5, 6, 5, -1, 5], ONES[:5])], 10).result()
    lease.push([(a, [5, 6, 5], ONES[:3])], 10, counts=[[2, 3, 4]]).result()
    lease.push([(a, [5, 6], ONES[:2])], 10, counts=[[1, 1]]).result()
    lease.finish()
    assert seen(a, [5, 6]) == [10, 5]
    assert a.pull([5, 6]).tolist() == [[6, 6], [3, 3]]
