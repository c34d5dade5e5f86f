"""Tables that somebody drops and creates anew: what holds the old one never means the new one."""

import pickle
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import kintsugi
from kintsugi import Error

ONES = kintsugi.SGD(lr=-1.0)


@pytest.fixture
def other(cluster: kintsugi.LocalCluster) -> Any:
    """Another program of the job."""
    with kintsugi.connect(cluster.address, timeout=60) as client:
        yield client


def made(client: kintsugi.Client, name: str, dim: int, **options: Any) -> kintsugi.Table:
    return client.create_table(name, dim, optimizer=ONES, initializer=kintsugi.Zeros(), **options)


USES: list[Callable[[kintsugi.Table], Any]] = [
    lambda table: table.pull([1]),
    lambda table: table.pull([1], state=True),
    lambda table: table.push([1], np.ones((1, table.dim))).result(),
    lambda table: table.assign([1], np.ones((1, table.width))).result(),
    lambda table: table.delete([1]).result(),
    lambda table: table.set(lr=7.0),
    len,
    lambda table: list(table.items()),
    lambda table: next(table.evictions()),
    lambda table: table.drop(),
]


def check_gone(table: kintsugi.Table) -> None:
    for use in USES:
        with pytest.raises(Error, match=f'table ."?{table.name}.* was dropped') as error:
            use(table)
        assert error.value.code == "UNKNOWN_TABLE"


@pytest.mark.parametrize("dim", [2, 4])
@pytest.mark.parametrize("by_other", [False, True])
def test_an_old_table_is_unknown(
    either: kintsugi.Client, other: kintsugi.Client, dim: int, by_other: bool
) -> None:
    name = f"t-{uuid4()}"
    old = made(either, name, 2)
    old.push([1], [[5, 5]]).result()
    (other.table(name) if by_other else old).drop()
    new = made(other, name, dim)
    new.push([1, 2], np.ones((2, dim))).result()
    # The client hears of the new table, at the latest when it asks for it.
    now = either.table(name)
    assert (now.dim, now.id) == (dim, new.id)
    check_gone(old)
    assert now is not old
    assert now.optimizer == ONES
    assert now.pull([1, 2, 3]).tolist() == [[1] * dim, [1] * dim, [0] * dim]
    assert len(now) == 2


def test_a_request_by_name_means_the_table_that_has_it(
    either: kintsugi.Client, other: kintsugi.Client
) -> None:
    name = f"t-{uuid4()}"
    made(either, name, 2)
    other.table(name).drop()
    made(other, name, 3).push([1], [[1, 2, 3]]).result()
    either.list_tables()
    # At most one request meets the table that was dropped, and is told so.
    error = either.pull_async([(name, [1])]).exception()
    assert error is None or error.code == "UNKNOWN_TABLE"
    assert either.pull([(name, [1])])[0].tolist() == [[1, 2, 3]]


def test_a_name_means_the_table_that_has_it_with_rows_of_the_same_shape(
    either: kintsugi.Client, other: kintsugi.Client
) -> None:
    name = f"t-{uuid4()}"
    made(either, name, 2)
    either.push([(name, [1], [[1, 1]])]).result()
    other.table(name).drop()
    made(other, name, 2)
    either.list_tables()
    either.push([(name, [1], [[3, 3]])]).result()
    assert either.pull([(name, [1])])[0].tolist() == [[3, 3]]


def test_a_pickle_of_a_table_that_was_dropped_is_of_no_other(client: kintsugi.Client) -> None:
    name = f"t-{uuid4()}"
    table = made(client, name, 2)
    pickled = pickle.dumps(table)
    assert pickle.loads(pickled).id == table.id
    table.drop()
    made(client, name, 2)
    with pytest.raises(Error, match="was dropped"):
        pickle.loads(pickled)


def test_a_table_of_another_client_is_the_same_one_or_unknown(
    either: kintsugi.Client, other: kintsugi.Client
) -> None:
    name = f"t-{uuid4()}"
    theirs = made(other, name, 2)
    theirs.push([1], [[1, 2]]).result()
    assert either.pull([(theirs, [1])])[0].tolist() == [[1, 2]]
    theirs.drop()
    made(either, name, 2)
    with pytest.raises(Error, match="was dropped") as error:
        either.pull([(theirs, [1])])
    assert error.value.code == "UNKNOWN_TABLE"


def test_a_table_that_is_asked_for_has_the_settings_of_now(
    either: kintsugi.Client, other: kintsugi.Client
) -> None:
    name = f"t-{uuid4()}"
    table = made(either, name, 1, policy=kintsugi.Policy(ttl=500))
    theirs = other.table(name)
    theirs.set(lr=-0.5, policy=kintsugi.Policy(ttl=600))
    theirs.push([1], [[1]]).result()
    assert either.table(name) is table
    assert table.optimizer == kintsugi.SGD(lr=-0.5)
    assert table.policy == kintsugi.Policy(ttl=600)
