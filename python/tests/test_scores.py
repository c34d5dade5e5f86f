"""Scores that pushes bring: which rows go first, in shared memory and on the socket."""

from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pytest

import kintsugi
from kintsugi import Error

KEYS = np.arange(50)
ONES = np.ones((50, 2), np.float32)
SCORED = kintsugi.Policy(max_rows=1000, score=True)


def table(client: kintsugi.Client, policy: kintsugi.Policy | None = None) -> kintsugi.Table:
    return client.create_table(
        f"t-{uuid4()}", 2, optimizer=kintsugi.SGD(lr=-1), initializer=kintsugi.Zeros(), policy=policy
    )


def scores_of(of: kintsugi.Table, keys: npt.ArrayLike = KEYS) -> list[float]:
    scores: list[float] = of.pull(keys, state=True)[:, -3].tolist()
    return scores


def test_a_row_has_the_score_that_was_pushed_last(either: kintsugi.Client) -> None:
    a, b, plain = table(either, SCORED), table(either, SCORED), table(either)
    assert a.policy == SCORED
    assert a.width == 2 + 3
    a.push(KEYS, ONES, scores=KEYS / 8).result()
    a.push(KEYS, ONES).result()
    assert scores_of(a) == (KEYS / 8).tolist()
    a.push(KEYS[:2], ONES[:2], lr=1, counts=[3, 4], scores=[-7, 2**20]).result()
    requests: list[tuple[kintsugi.Table, npt.ArrayLike, npt.ArrayLike]]
    requests = [(a, [40, -1, 41, 40], ONES[:4]), (plain, KEYS, ONES), (b, KEYS[:7], ONES[:7])]
    either.push(requests, scores=[[-3, 9, 5, -2], None, np.full(7, 9, np.int8)]).result()
    expected = KEYS / 8
    expected[[0, 1, 40, 41]] = [-7, 2**20, -2, 5]
    assert scores_of(a) == expected.tolist()
    assert scores_of(b) == [9] * 7 + [0] * 43
    seen = a.pull(KEYS, state=True)[:, -1].copy().view(np.uint32)
    assert seen[[0, 1, 2, 40]].tolist() == [5, 6, 2, 4]
    assert (plain.pull(KEYS) == 1).all()


def test_rows_of_the_lowest_score_go_first(either: kintsugi.Client) -> None:
    a = table(either, kintsugi.Policy(max_rows=160, score=True))
    for start in range(0, 800, 50):
        a.push(KEYS + start, ONES, scores=-(KEYS + start)).result()
    fresh = np.arange(5000, 5050)
    a.push(fresh, ONES, scores=np.full(50, 10)).result()
    assert (a.pull(fresh) == 1).all()
    assert (a.pull(np.arange(10)) == 1).all()
    assert len(a) < 300


def test_what_is_no_score_is_refused_and_changes_nothing(either: kintsugi.Client) -> None:
    a = table(either, SCORED)
    wrong: list[tuple[Any, str, str]] = [
        ([1] * 49 + [np.nan], r"scores\[49\] is nan: a score is a finite number", "BAD_ARGUMENT"),
        ([-np.inf] + [1] * 49, r"scores\[0\] is -inf", "BAD_ARGUMENT"),
        ([1e39] * 50, "scores have a number that float32 cannot hold", "BAD_ARGUMENT"),
        (["x"] * 50, "scores must be floats", "BAD_ARGUMENT"),
        ([1] * 49, "50 keys need as many scores, not 49", "LENGTH_MISMATCH"),
        (3, "50 keys need as many scores, not one number", "LENGTH_MISMATCH"),
    ]
    for scores, text, code in wrong:
        with pytest.raises(Error, match=text) as raised:
            a.push(KEYS, ONES, scores=scores)
        assert raised.value.code == code
    with pytest.raises(Error, match="1 tables need as many arrays of scores, not 2"):
        either.push([(a, KEYS, ONES)], scores=[None, None])
    for other in (table(either), table(either, kintsugi.Policy(max_rows=50))):
        with pytest.raises(Error, match="its rows have no scores: it takes them where") as raised:
            other.push(KEYS, ONES, scores=KEYS)
        assert raised.value.code == "BAD_ARGUMENT"
    assert len(a) == 0


def test_keys_that_repeat_in_a_batch_of_a_range_have_the_highest(either: kintsugi.Client) -> None:
    a = table(either, SCORED)
    dataset = either.dataset(f"d-{uuid4()}", [("day", 30)], batch=10, range_bytes=30)
    lease = dataset.acquire()
    assert lease is not None
    lease.push([(a, [5, 6, 5, -1, 5], ONES[:5])], 10, scores=[[-3, 2, -1, 9, -2]]).result()
    assert scores_of(a, [5, 6]) == [-1, 2]
    lease.push([(a, [5, 6, 5], ONES[:3])], 10, counts=[[2, 3, 4]]).result()
    assert scores_of(a, [5, 6]) == [-1, 2]
    lease.push([(a, [6, 7], ONES[:2])], 10, scores=[[4, 0.5]]).result()
    lease.finish()
    assert scores_of(a, [5, 6, 7]) == [-1, 4, 0.5]


def test_numbered_steps_bring_scores(either: kintsugi.Client) -> None:
    a = table(either, SCORED)
    steps = either.steps(f"s-{uuid4()}")
    steps.push([(a, [1, 2, 1], ONES[:3])], step=0, scores=[[3, -2, 4]])
    steps.push([(a, [1, 2], ONES[:2])], step=1)
    assert scores_of(a, [1, 2]) == [4, -2]
    with pytest.raises(Error, match="finite"):
        steps.push([(a, [1], ONES[:1])], step=2, scores=[[float("nan")]])


def test_a_policy_says_whether_rows_have_scores(either: kintsugi.Client) -> None:
    for policy in (kintsugi.Policy(score=True), kintsugi.Policy(ttl=5, score=True)):
        with pytest.raises(Error, match="score says which rows go for max_rows or memory"):
            table(either, policy)
    with pytest.raises(Error, match="score must be True or False"):
        table(either, kintsugi.Policy(max_rows=5, score=1))  # type: ignore[arg-type]
    a = table(either, SCORED)
    a.set(policy=kintsugi.Policy(memory=True, score=True))
    with pytest.raises(Error, match="a table keeps score from its creation on"):
        a.set(policy=kintsugi.Policy(max_rows=5))
