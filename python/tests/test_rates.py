"""Learning rates that pushes bring, in shared memory and on the socket."""

from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

import kintsugi
from kintsugi import Error
from kintsugi._steps import Request, Step

KEYS = np.arange(50)


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
    step.add(Request(a, keys, ones), 0.5)
    step.add(Request(b, keys, ones))
    step.add(Request(a, keys, ones), 0.5)
    rates = dict(zip((each.table.name for each in step.requests()), step.rates(), strict=True))
    assert rates == {a.name: 0.5, b.name: None}
    with pytest.raises(Error, match=r"two learning rates in one step: 0.5 and 0.25"):
        step.add(Request(a, keys, ones), 0.25)


@pytest.mark.parametrize("lr", [0.25, [0.25]])
def test_a_batch_of_ranges_with_a_rate_is_a_push_with_it(
    either: kintsugi.Client, tmp_path: Path, lr: float | list[float]
) -> None:
    file = tmp_path / "a.tsv"
    file.write_text("".join(f"{i}\t{i % 7}\n" for i in range(20)))
    batched, plain, own = table(either), table(either), table(either)
    data = kintsugi.RangeDataset(either, [file], dense=[0], label=1, batch=4, run=f"run-{uuid4()}")
    for work in data.works():
        keys = work.batch.label.astype(np.uint64)
        gradients = np.stack([work.batch.dense[:, 0], -work.batch.dense[:, 0]], axis=1)
        work.lease.push([(batched, keys, gradients)], work.samples, lr=lr).result()
        plain.push(keys, gradients, lr=0.25).result()
        own.push(keys, gradients).result()
        work.finish()
    expected = plain.pull(KEYS)
    assert expected.any()
    np.testing.assert_array_equal(batched.pull(KEYS), expected)
    # The rate was taken: with that of the table there are other values.
    np.testing.assert_array_equal(own.pull(KEYS), 4 * expected)
