"""Learning rates that pushes bring, in shared memory and on the socket."""

from collections.abc import Iterator
from uuid import uuid4

import numpy as np
import pytest

import kintsugi
from kintsugi import Error
from kintsugi._steps import Step

KEYS = np.arange(50)


@pytest.fixture(params=[512 << 20, 0], ids=["shared", "socket"])
def either(request: pytest.FixtureRequest, cluster: kintsugi.LocalCluster) -> Iterator[kintsugi.Client]:
    with kintsugi.connect(cluster.address, timeout=60, memory_bytes=request.param) as client:
        yield client


def table(client: kintsugi.Client, optimizer: kintsugi.Optimizer | None = None) -> kintsugi.Table:
    given = optimizer or kintsugi.SGD(lr=1.0)
    return client.create_table(f"t-{uuid4()}", 2, optimizer=given, initializer=kintsugi.Zeros())


def test_a_push_has_its_own_rate_and_the_next_one_that_of_the_table(either: kintsugi.Client) -> None:
    a, b = table(either), table(either)
    down = -np.ones((50, 2), np.float32)
    a.push(KEYS, down, lr=0.25).result()
    either.push([(a, KEYS, down), (b, KEYS, down)], lr=[None, 0.5]).result()
    either.push([(a, KEYS, down), (b, KEYS, down)], lr=2).result()
    either.push([(a, KEYS, down), (b, KEYS, down)], lr=0).result()
    assert (a.pull(KEYS) == 3.25).all()
    assert (b.pull(KEYS) == 2.5).all()


def test_what_is_no_rate_is_refused_and_changes_nothing(either: kintsugi.Client) -> None:
    a = table(either)
    ones = np.ones((50, 2), np.float32)
    for wrong in [-1.0, float("nan"), float("inf")]:
        with pytest.raises(Error, match="lr must be a finite number") as raised:
            a.push(KEYS, ones, lr=wrong)
        assert raised.value.code == "BAD_ARGUMENT"
    with pytest.raises(Error, match="1 tables need as many learning rates, not 2"):
        either.push([(a, KEYS, ones)], lr=[0.1, 0.2])
    with pytest.raises(Error, match="the lr of a push must be a number"):
        a.push(KEYS, ones, lr=1e39).result()
    ftrl = table(either, kintsugi.FTRL(lr=0.1))
    with pytest.raises(Error, match="ftrl takes no lr") as raised:
        ftrl.push(KEYS, ones, lr=0.1).result()
    assert raised.value.code == "BAD_ARGUMENT"
    assert not a.pull(KEYS).any()


def test_a_table_has_one_rate_in_a_step(either: kintsugi.Client) -> None:
    a, b = table(either), table(either)
    keys, ones = KEYS.astype(np.uint64), np.ones((50, 2), np.float32)
    step = Step()
    step.add(a, keys, ones, 0.5)
    step.add(b, keys, ones)
    step.add(a, keys, ones, 0.5)
    rates = dict(zip((each.name for each, _, _ in step.requests()), step.rates(), strict=True))
    assert rates == {a.name: 0.5, b.name: None}
    with pytest.raises(Error, match=r"two learning rates in one step: 0.5 and 0.25"):
        step.add(a, keys, ones, 0.25)
