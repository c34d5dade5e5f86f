"""Tables, pulls and pushes, in shared memory and on the socket."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import kintsugi
from kintsugi import Error

ONES = kintsugi.SGD(lr=-1.0)
"""Gradients are added to rows: exact counters."""


def counters(client: kintsugi.Client, dim: int = 4) -> kintsugi.Table:
    return client.create_table(f"t-{uuid4()}", dim, optimizer=ONES, initializer=kintsugi.Zeros())


def code_of(error: pytest.ExceptionInfo[Error]) -> str:
    return error.value.code


def test_what_is_pushed_is_pulled(either: kintsugi.Client) -> None:
    table = counters(either)
    keys = np.array([5, 1, 2**63 + 1, 5], np.uint64)
    rows = np.arange(16, dtype=np.float32).reshape(4, 4)
    table.push(keys, rows).result()
    expected = rows.copy()
    expected[0] = expected[3] = rows[0] + rows[3]
    assert (table.pull(keys) == expected).all()
    into = np.empty((4, 4), np.float32)
    assert table.pull(keys, out=into) is into
    assert (into == expected).all()


def test_several_tables_at_once(either: kintsugi.Client) -> None:
    a, b = counters(either, 3), counters(either, 5)
    keys = np.arange(100)
    ones = np.ones((100, 3)), 2 * np.ones((50, 5))
    either.push([(a, keys, ones[0]), (b.name, keys[:50], ones[1])]).result()
    rows = either.pull([(b, keys), (a, keys[::-1])])
    assert (rows[0] == np.repeat([2.0, 0.0], 50)[:, None]).all()
    assert rows[1].shape == (100, 3)
    assert (rows[1] == 1).all()
    assert either.pull([]) == []


def test_missing_keys_have_rows_of_zeros(either: kintsugi.Client) -> None:
    table = either.create_table(f"t-{uuid4()}", 2, optimizer=ONES, initializer=kintsugi.Constant(3.0))
    keys = np.array([-1, 8, -1, 9])
    table.push(keys, np.ones((4, 2))).result()
    assert table.pull(keys).tolist() == [[0, 0], [4, 4], [0, 0], [4, 4]]
    into = np.full((4, 2), 7, np.float32)
    table.pull(keys, out=into)
    assert into.tolist() == [[0, 0], [4, 4], [0, 0], [4, 4]]


def test_no_keys_at_all(either: kintsugi.Client) -> None:
    table = counters(either)
    assert table.pull([]).shape == (0, 4)
    table.push(np.array([], np.int64), np.empty((0, 4), np.float32)).result()


def test_whole_rows_have_the_state_of_the_optimizer(either: kintsugi.Client) -> None:
    table = either.create_table(
        f"t-{uuid4()}", 2, optimizer=kintsugi.Adagrad(lr=0.5), initializer=kintsugi.Zeros()
    )
    table.push([1], [[2.0, 0.0]]).result()
    assert table.width == 4
    assert table.pull([1], state=True).tolist() == [[-0.5, 0.0, 4.0, 0.0]]


def test_a_row_that_was_never_pushed_depends_on_seed_and_key_only(either: kintsugi.Client) -> None:
    first = either.create_table(f"t-{uuid4()}", 8, seed=3, initializer=kintsugi.Normal(0, 1))
    second = either.create_table(f"t-{uuid4()}", 8, seed=3, initializer=kintsugi.Normal(0, 1))
    assert (first.pull([1, 2]) == second.pull([1, 2])).all()
    assert np.ptp(first.pull([1, 2])) > 0


def test_more_rows_than_the_shared_memory_holds(cluster: kintsugi.LocalCluster) -> None:
    with kintsugi.connect(cluster.address, timeout=60, memory_bytes=1 << 16) as client:
        table = counters(client, 64)
        keys = np.arange(1000)
        table.push(keys, np.ones((1000, 64))).result()
        assert (table.pull(keys) == 1).all()
        # Arrays that the caller keeps fill it; the next ones come over the socket.
        kept = [table.pull(keys[:100]) for _ in range(10)]
        assert all((rows == 1).all() for rows in kept)
        for i, rows in enumerate(kept):
            rows[:] = i
        assert [rows[0, 0] for rows in kept] == list(range(10))


def test_memory_may_be_a_file_on_a_volume(cluster: kintsugi.LocalCluster, tmp_path: Path) -> None:
    with kintsugi.connect(
        cluster.address, timeout=60, memory_bytes=1 << 20, memory_directory=str(tmp_path)
    ) as client:
        assert client.shared
        assert list(tmp_path.iterdir()) == []
        table = counters(client)
        table.push([1], np.ones((1, 4))).result()
        assert table.pull([1]).tolist() == [[1, 1, 1, 1]]


def test_gradients_in_shared_memory_are_not_copied(client: kintsugi.Client) -> None:
    table = counters(client, 64)
    gradients = client.empty(4096, 64)
    gradients[:] = 1
    keys = np.arange(4096)
    arena = client._connection.open().arena
    assert arena is not None
    before = arena.free_bytes
    future = table.push(keys, gradients)
    # The keys, and a line for the word that says that it is taken.
    assert before - arena.free_bytes == keys.nbytes + 64
    future.result()
    assert future.taken
    into = client.empty(4096, 64)
    assert (table.pull(keys, out=into) == 1).all()
    del future, into, gradients
    assert arena.free_bytes == arena.size


def test_gradients_may_be_written_over_when_they_are_taken(client: kintsugi.Client) -> None:
    table = counters(client, 64)
    gradients = client.empty(4096, 64)
    keys = np.arange(4096)
    pushes = []
    for _ in range(5):
        gradients[:] = 1
        pushes.append(table.push(keys, gradients))
        while not pushes[-1].taken:
            pass
        gradients[:] = np.nan
    client.flush()
    assert (table.pull(keys) == 5).all()


def test_pulls_and_pushes_overlap(client: kintsugi.Client) -> None:
    table = counters(client)
    keys = np.arange(500)
    pushes = [table.push(keys, np.ones((500, 4))) for _ in range(20)]
    pulls = [table.pull_async(keys) for _ in range(5)]
    client.flush()
    assert all(push.done() for push in pushes)
    assert all(pull.result().shape == (500, 4) for pull in pulls)
    assert (table.pull(keys) == 20).all()


def test_errors_have_codes(client: kintsugi.Client) -> None:
    table = counters(client)
    with pytest.raises(Error) as error:
        client.table("nobody has made it")
    assert code_of(error) == "UNKNOWN_TABLE"
    with pytest.raises(Error) as error:
        client.create_table(table.name, 5, optimizer=ONES)
    assert code_of(error) == "TABLE_EXISTS"
    with pytest.raises(Error) as error:
        table.push([1, 2], np.ones((1, 4)))
    assert code_of(error) == "LENGTH_MISMATCH"
    with pytest.raises(Error) as error:
        table.push([1, 2], np.ones((2, 3)))
    assert code_of(error) == "DIM_MISMATCH"
    with pytest.raises(Error) as error:
        table.pull([1.5])
    assert code_of(error) == "KEY_TYPE"
    with pytest.raises(Error) as error:
        client.push([(table, [1], np.ones((1, 4))), (table, [2], np.ones((1, 4)))]).result()
    assert code_of(error) == "BAD_ARGUMENT"
    # None of it harms what comes next.
    assert table.pull([1]).shape == (1, 4)


def test_a_table_is_found_with_what_it_was_created_with(client: kintsugi.Client) -> None:
    optimizer = kintsugi.RowwiseAdagrad(lr=0.1, initial_accumulator=0.5)
    made = client.create_table(f"t-{uuid4()}", 3, optimizer=optimizer, initializer=kintsugi.Uniform(-1, 1))
    with kintsugi.connect(client._connection.gateway.scheduler, timeout=60) as other:  # type: ignore[union-attr]
        found = other.table(made.name)
        assert (found.dim, found.width, found.optimizer) == (3, 4, optimizer)
        assert found.initializer == kintsugi.Uniform(-1, 1)
        assert made.name in [table.name for table in other.tables()]


def test_optimizers_are_those_of_the_job(client: kintsugi.Client) -> None:
    schedules = kintsugi.schedules
    for optimizer in [
        kintsugi.SGD(lr=0.1, schedule=schedules.Constant(warmup=3)),
        kintsugi.Momentum(lr=0.1, schedule=schedules.Step(every=10, factor=0.5)),
        kintsugi.RowwiseAdagrad(clip_norm=2.0, schedule=schedules.InverseSqrt(scale=4)),
        kintsugi.AdamW(weight_decay=0.1, clip_norm=1.0, schedule=schedules.Cosine(30, warmup=2, floor=0.1)),
        kintsugi.FTRL(lr=0.1, l1=0.2, l2=0.3, initial_accumulator=0.1),
    ]:
        made = client.create_table(f"t-{uuid4()}", 3, optimizer=optimizer)
        assert made.optimizer == optimizer
    with pytest.raises(Error) as error:
        client.create_table(f"t-{uuid4()}", 3, optimizer=kintsugi.FTRL(schedule=schedules.Cosine(steps=3)))
    assert code_of(error) == "BAD_ARGUMENT"


def test_status_and_close(client: kintsugi.Client) -> None:
    assert len(client.status()["nodes"]) == 3
    client.close()
    with pytest.raises(Error) as error:
        client.status()
    assert code_of(error) == "CLOSED"


def test_connect_says_why_it_cannot(cluster: kintsugi.LocalCluster) -> None:
    with pytest.raises(Error) as error:
        kintsugi.connect("127.0.0.1:1", timeout=0.5)
    assert code_of(error) == "UNREACHABLE"
    with pytest.raises(Error) as error:
        kintsugi.connect("not an address")
    assert code_of(error) == "BAD_ARGUMENT"
    with pytest.raises(Error) as error:
        kintsugi.connect(cluster.address, gateway="unix:/nowhere/gateway.sock", timeout=0.1)
    assert code_of(error) == "UNREACHABLE"


def test_table_exists_says_what_differs(client: kintsugi.Client) -> None:
    adam = kintsugi.Adam(lr=0.1)
    made = client.create_table(f"t-{uuid4()}", 4, optimizer=adam, seed=7)
    cases: list[tuple[str, dict[str, Any]]] = [
        ("dim 4, not 5", {"dim": 5}),
        ("seed 7, not 8", {"seed": 8}),
        ("optimizer adam, not sgd", {"optimizer": kintsugi.SGD(lr=0.1)}),
        ("optimizer.lr 0.1, not 0.2", {"optimizer": kintsugi.Adam(lr=0.2)}),
        ("optimizer.clipNorm none, not 1", {"optimizer": kintsugi.Adam(lr=0.1, clip_norm=1.0)}),
        ("initializer.high 0.05, not 0.1", {"initializer": kintsugi.Uniform(-0.05, 0.1)}),
        ('pool "embedding", not "mirrored"', {"pool": "mirrored"}),
    ]
    for difference, change in cases:
        with pytest.raises(Error) as error:
            client.create_table(made.name, **{"dim": 4, "optimizer": adam, "seed": 7, **change})
        assert str(error.value) == f'TABLE_EXISTS: table "{made.name}" exists with {difference}'


def test_a_table_that_another_client_has_just_created_is_attached_without_a_specification(
    client: kintsugi.Client, cluster: kintsugi.LocalCluster
) -> None:
    optimizer = kintsugi.Momentum(lr=0.25, momentum=0.5)
    with kintsugi.connect(cluster.address, timeout=60) as other:
        for dim in range(1, 20):
            made = client.create_table(f"t-{uuid4()}", dim, optimizer=optimizer, seed=dim)
            found = other.table(made.name)
            assert (found.dim, found.width, found.optimizer, found.seed) == (dim, 2 * dim, optimizer, dim)
            assert repr(found) == repr(made)
    with pytest.raises(Error, match="no table"):
        client.table("nobody has made it")


def test_tables_are_listed_with_their_sizes(client: kintsugi.Client) -> None:
    prefix = f"listed-{uuid4()}"
    for n in range(3):
        client.create_table(f"{prefix}-{n}", 4, optimizer=ONES)
    client.table(f"{prefix}-1").push([1, 2], np.ones((2, 4), np.float32)).result()
    page = client.list_tables(2, prefix)
    assert [table["name"] for table in page["tables"]] == [f"{prefix}-0", f"{prefix}-1"]
    assert page["next"] == f"{prefix}-1"
    assert page["total"] >= 3
    assert page["missing"] == []
    table = page["tables"][1]
    assert (table["rows"], table["bytes"], table["dim"]) == (2, 32, 4)
    assert table["optimizer"]["lr"] == -1.0
    assert table["shards"] > 0
    assert client.list_tables(after=f"{prefix}-1")["tables"][0]["name"] == f"{prefix}-2"
    with pytest.raises(Error, match=f'near it: .*"{prefix}-1"') as error:
        client.table(f"{prefix}_1")
    assert code_of(error) == "UNKNOWN_TABLE"
    with pytest.raises(Error) as error:
        client.list_tables(0)
    assert code_of(error) == "BAD_ARGUMENT"


def test_a_dropped_table_leaves_its_name_to_another_one(
    client: kintsugi.Client,
) -> None:
    name = f"t-{uuid4()}"
    table = client.create_table(name, 2, optimizer=kintsugi.SGD(lr=-1), initializer=kintsugi.Zeros())
    table.push([1], np.ones((1, 2))).result()
    table.drop()
    assert name not in [each.name for each in client.tables()]
    for work in [lambda: table.pull([1]), lambda: table.push([1], np.ones((1, 2))), table.drop]:
        with pytest.raises(Error, match="was dropped"):
            work()
    with pytest.raises(Error, match="UNKNOWN_TABLE"):
        client.table(name)
    again = client.create_table(name, 3, optimizer=kintsugi.SGD(lr=-1), initializer=kintsugi.Zeros())
    assert (again.pull([1]) == np.zeros((1, 3))).all()
    assert len(again) == 0


def test_the_rate_of_a_table_is_set_for_everybody(
    client: kintsugi.Client, cluster: kintsugi.LocalCluster
) -> None:
    table = client.create_table(
        f"t-{uuid4()}", 2, optimizer=kintsugi.SGD(lr=-1), initializer=kintsugi.Zeros()
    )
    table.push([1], np.ones((1, 2))).result()
    with kintsugi.connect(cluster.address, timeout=60) as other:
        theirs = other.table(table.name)
        theirs.set(lr=-3)
        table.push([1], np.ones((1, 2))).result()
        assert (table.pull([1]) == 4).all()
        assert theirs.optimizer == kintsugi.SGD(lr=-3)
    # The rate that it had gives the table as it is, and another one is refused.
    again = client.create_table(table.name, 2, optimizer=kintsugi.SGD(lr=-1), initializer=kintsugi.Zeros())
    assert (again, table.optimizer) == (table, kintsugi.SGD(lr=-3))
    with pytest.raises(Error, match=r"optimizer.lr -3, not -2"):
        client.create_table(table.name, 2, optimizer=kintsugi.SGD(lr=-2), initializer=kintsugi.Zeros())
    ftrl = client.create_table(f"t-{uuid4()}", 2, optimizer=kintsugi.FTRL(lr=0.5))
    for wrong in [0.1, "1", float("nan"), None]:
        with pytest.raises(Error, match="lr"):
            ftrl.set(lr=wrong)  # type: ignore[arg-type]


def test_the_clipping_and_the_schedule_of_a_table_are_set(client: kintsugi.Client) -> None:
    def made(optimizer: kintsugi.Optimizer) -> kintsugi.Table:
        return client.create_table(f"t-{uuid4()}", 2, optimizer=optimizer, initializer=kintsugi.Zeros())

    table, row = made(kintsugi.SGD(lr=-1)), np.array([[3, 4]], np.float32)
    table.push([1], row).result()
    table.set(clip_norm=2.5)
    assert table.optimizer == kintsugi.SGD(lr=-1, clip_norm=2.5)
    table.push([1], row).result()
    np.testing.assert_array_equal(table.pull([1]), 1.5 * row)
    table.set(lr=-2, clip_norm=None)
    assert table.optimizer == kintsugi.SGD(lr=-2)
    table.push([1], row).result()
    np.testing.assert_array_equal(table.pull([1]), 3.5 * row)
    cosine = kintsugi.schedules.Cosine(steps=10)
    with pytest.raises(Error, match=r"schedule stays none and cannot become .*cosine") as raised:
        table.set(schedule=cosine)
    assert raised.value.code == "BAD_ARGUMENT"
    adam = made(kintsugi.Adam())
    adam.set(schedule=cosine)
    assert adam.optimizer == kintsugi.Adam(schedule=cosine)
    adam.set(schedule=None)
    assert adam.optimizer == kintsugi.Adam()
    for wrong in [{}, {"clip_norm": 0}, {"clip_norm": "1"}, {"schedule": "cosine"}, {"schedule": 3}]:
        with pytest.raises(Error) as raised:
            adam.set(**wrong)  # type: ignore[arg-type]
        assert raised.value.code == "BAD_ARGUMENT"
    assert adam.optimizer == kintsugi.Adam()


def test_a_future_is_of_many_threads(client: kintsugi.Client) -> None:
    table = client.create_table(f"t-{uuid4()}", 2)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for _ in range(300):
                future = table.pull_async(np.arange(50))
                found = list(pool.map(lambda _, future=future: future.result(), range(4)))
                assert all(each is found[0] for each in found)
    finally:
        sys.setswitchinterval(before)
