"""Whole rows, scans, events and checkpoints."""

from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

import kintsugi


def test_whole_rows_are_assigned(client: kintsugi.Client) -> None:
    source = client.create_table(f"t-{uuid4()}", 3, optimizer=kintsugi.Adam())
    copy = client.create_table(f"t-{uuid4()}", 3, optimizer=kintsugi.Adam(), seed=9)
    keys = np.arange(50)
    source.push(keys, np.random.default_rng(2).standard_normal((50, 3))).result()
    copy.assign(keys, source.pull(keys, state=True)).result()
    assert (copy.pull(keys, state=True) == source.pull(keys, state=True)).all()
    with pytest.raises(kintsugi.Error, match="DIM_MISMATCH"):
        copy.assign(keys, np.zeros((50, 3)))


@pytest.mark.parametrize("memory_bytes", [64 << 20, 0], ids=["shared", "socket"])
def test_rows_are_deleted(cluster: kintsugi.LocalCluster, memory_bytes: int) -> None:
    with kintsugi.connect(cluster.address, timeout=60, memory_bytes=memory_bytes) as client:
        delete_rows(client)


def delete_rows(client: kintsugi.Client) -> None:
    table = client.create_table(f"t-{uuid4()}", 3, optimizer=kintsugi.Adam())
    keys = np.arange(50)
    initial = table.pull(keys, state=True)
    table.push(keys, np.ones((50, 3))).result()
    once = table.pull(keys, state=True)
    table.push(keys, np.ones((50, 3))).result()
    table.delete([3, 4, 4, -1, 10**6]).result()
    assert len(table) == 48
    assert (table.pull([3, 4], state=True) == initial[3:5]).all()
    client.delete([(table, keys)]).result()
    assert len(table) == 0
    table.push(keys, np.ones((50, 3))).result()
    assert (table.pull(keys, state=True) == once).all()
    with pytest.raises(kintsugi.Error, match="KEY_TYPE"):
        table.delete([0.5])


def test_rows_go_by_themselves(client: kintsugi.Client) -> None:
    policy = kintsugi.Policy(ttl=3, min_frequency=(2, 1), l2_below=(0.1, 3), counter=2)
    table = client.create_table(f"t-{uuid4()}", 3, policy=policy)
    assert table.policy == policy
    assert client.table(table.name).policy == policy
    assert table.width == 8
    initial = table.pull([7])
    table.push([7], np.ones((1, 3))).result()
    assert (table.pull([7]) == initial).all()
    table.push([7], np.ones((1, 3))).result()
    assert (table.pull([7]) != initial).all()
    for _ in range(4):
        # Shards have clocks of their own: every one of them sees some of these keys.
        table.push(np.arange(100, 400), np.ones((300, 3))).result()
    assert (table.pull([7]) == initial).all()
    assert 7 not in np.concatenate([keys for keys, _ in table.items()])
    for wrong in (
        kintsugi.Policy(),
        kintsugi.Policy(ttl=0),
        kintsugi.Policy(max_rows=0),
        kintsugi.Policy(memory=1),  # type: ignore[arg-type]
        kintsugi.Policy(min_frequency=(1, 2, 3)),  # type: ignore[arg-type]
        kintsugi.Policy(l2_below=(0.0, 3)),
        kintsugi.Policy(l2_below=(1e39, 3)),
        kintsugi.Policy(l2_below=0.1),  # type: ignore[arg-type]
        kintsugi.Policy(bloom=1),
        kintsugi.Policy(bloom=(2, 100)),  # type: ignore[arg-type]
        kintsugi.Policy(bloom=(2, 100, 0.9)),
        kintsugi.Policy(probability=1.5),
        kintsugi.Policy(likely=0),
        kintsugi.Policy(likely=2, counter=2),
        {"ttl": 3},
    ):
        with pytest.raises(kintsugi.Error, match="BAD_ARGUMENT"):
            client.create_table(f"t-{uuid4()}", 3, policy=wrong)  # type: ignore[arg-type]


def test_keys_wait_without_a_row(client: kintsugi.Client) -> None:
    policy = kintsugi.Policy(bloom=(2, 10_000, 0.001))
    table = client.create_table(f"t-{uuid4()}", 3, policy=policy)
    assert table.policy == policy
    initial = table.pull([7])
    table.push([7], np.ones((1, 3))).result()
    assert (table.pull([7]) == initial).all()
    assert len(table) == 0
    table.push([7, 8], np.ones((2, 3))).result()
    assert (table.pull([7]) != initial).all()
    assert len(table) == 1
    policy = kintsugi.Policy(probability=0.25)
    table = client.create_table(f"t-{uuid4()}", 3, policy=policy)
    assert client.table(table.name).policy == policy
    table.push(np.arange(1000), np.ones((1000, 3))).result()
    assert 150 < len(table) < 350
    simple = client.create_table(f"t-{uuid4()}", 3, policy=kintsugi.Policy(bloom=3))
    assert simple.policy == kintsugi.Policy(bloom=(3, 1_000_000, 0.01))
    likely = client.create_table(f"t-{uuid4()}", 3, policy=kintsugi.Policy(likely=3, ttl=9))
    assert likely.policy == kintsugi.Policy(likely=3, ttl=9)


def test_a_policy_is_set(client: kintsugi.Client) -> None:
    table = client.create_table(f"t-{uuid4()}", 3, policy=kintsugi.Policy(ttl=3))
    longer = kintsugi.Policy(ttl=500, counter=2)
    table.set(policy=longer)
    assert table.policy == longer
    assert client.table(table.name).policy == longer
    initial = table.pull([7])
    table.push([7], np.ones((1, 3))).result()
    assert (table.pull([7]) == initial).all()
    table.push([7], np.ones((1, 3))).result()
    assert (table.pull([7]) != initial).all()
    for _ in range(10):
        table.push(np.arange(100, 400), np.ones((300, 3))).result()
    assert (table.pull([7]) != initial).all()
    for wrong in (None, kintsugi.Policy(), {"ttl": 3}):
        with pytest.raises(kintsugi.Error, match="BAD_ARGUMENT"):
            table.set(policy=wrong)  # type: ignore[arg-type]
    plain = client.create_table(f"t-{uuid4()}", 3)
    with pytest.raises(kintsugi.Error, match="from its creation on"):
        plain.set(policy=longer)
    assert plain.policy is None


HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def test_ttls_are_steps_or_times(client: kintsugi.Client) -> None:
    for policy, spec in (
        (kintsugi.Policy(ttl=DAY), {"ttl": 86_400, "clock": "seconds"}),
        (kintsugi.Policy(ttl=5, keep=100), {"ttl": 5, "keep": 100}),
        (
            kintsugi.Policy(min_frequency=(5, 500, 0.99, 1000)),
            {"minFrequency": {"sightings": 5, "ttl": 500, "decay": {"factor": 0.99, "every": 1000}}},
        ),
        (
            kintsugi.Policy(ttl=DAY, min_frequency=(5, HOUR, 0.99, HOUR), l2_below=(0.5, HOUR), keep=7),
            {
                "ttl": 86_400,
                "minFrequency": {"sightings": 5, "ttl": 3600, "decay": {"factor": 0.99, "every": 3600}},
                "l2Below": {"norm": 0.5, "ttl": 3600},
                "clock": "seconds",
                "keep": 7,
            },
        ),
    ):
        assert policy.spec() == spec
        table = client.create_table(f"t-{uuid4()}", 3, policy=policy)
        assert table.policy == policy
        assert client.table(table.name).policy == policy
    table = client.create_table(f"t-{uuid4()}", 3, policy=kintsugi.Policy(ttl=DAY))
    table.set(policy=kintsugi.Policy(ttl=HOUR, keep=100))
    assert table.policy == kintsugi.Policy(ttl=timedelta(minutes=60), keep=100)
    for other in (kintsugi.Policy(ttl=5), kintsugi.Policy(max_rows=5)):
        with pytest.raises(kintsugi.Error, match=r"BAD_ARGUMENT.*seconds from its creation on"):
            table.set(policy=other)
    with pytest.raises(kintsugi.Error, match="TABLE_EXISTS"):
        client.create_table(table.name, 3, policy=kintsugi.Policy(ttl=3600, keep=100))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (kintsugi.Policy(ttl=DAY, l2_below=(0.5, 5)), "all ttls of a policy are datetime.timedelta, or none"),
        (kintsugi.Policy(min_frequency=(5, HOUR, 0.5, 60)), "all ttls of a policy are datetime.timedelta"),
        (kintsugi.Policy(ttl=timedelta(milliseconds=1500)), "ttl must be whole seconds, from 1 to 536870911"),
        (kintsugi.Policy(ttl=timedelta(0)), "ttl must be whole seconds"),
        (kintsugi.Policy(ttl=-DAY), "ttl must be whole seconds"),
        (kintsugi.Policy(ttl=timedelta(days=9999)), "ttl must be whole seconds"),
        (kintsugi.Policy(ttl=np.timedelta64(5, "h")), "ttl must be an integer"),  # type: ignore[arg-type]
        (kintsugi.Policy(ttl=5.5), "ttl must be an integer"),  # type: ignore[arg-type]
        (kintsugi.Policy(keep=5), "keep says how many rows stay in spite of ttl: it needs one"),
        (kintsugi.Policy(ttl=5, keep=0), "keep must be an integer from 1 to 281474976710656"),
        (kintsugi.Policy(ttl=5, keep=HOUR), "keep must be an integer"),  # type: ignore[arg-type]
        (kintsugi.Policy(min_frequency=(HOUR, 5)), "sightings of min_frequency"),  # type: ignore[arg-type]
        (kintsugi.Policy(min_frequency=(5, 500, 0.5)), "min_frequency must be"),  # type: ignore[arg-type]
        (
            kintsugi.Policy(min_frequency=(5, 500, 1.0, 9)),
            "factor of min_frequency must be above 0 and below 1",
        ),
        (kintsugi.Policy(min_frequency=(5, 500, 1e-9, 9)), "factor of min_frequency must be above 0"),
        (kintsugi.Policy(min_frequency=(5, 500, 0.5, 0)), "every of min_frequency must be an integer from 1"),
        (kintsugi.Policy(counter=2, min_frequency=(5, 500, 0.5, 9)), "would lose its admission"),
    ],
)
def test_times_that_say_nothing_are_refused(policy: kintsugi.Policy, message: str) -> None:
    with pytest.raises(kintsugi.Error, match=f"BAD_ARGUMENT.*{message}"):
        policy.spec()


def test_new_rows_make_others_go(client: kintsugi.Client) -> None:
    policy = kintsugi.Policy(max_rows=100, memory=True)
    table = client.create_table(f"t-{uuid4()}", 3, policy=policy)
    assert client.table(table.name).policy == policy
    for step in range(40):
        table.push(np.arange(step * 20, step * 20 + 20), np.ones((20, 3))).result()
    # Shards round their parts up, and a push never makes its own rows go.
    assert 20 <= len(table) <= 150
    keys = np.concatenate([keys for keys, _ in table.items()])
    assert set(range(780, 800)) <= set(keys.tolist())


def test_items_gives_every_row_once(client: kintsugi.Client) -> None:
    table = client.create_table(
        f"t-{uuid4()}", 2, optimizer=kintsugi.SGD(lr=-1), initializer=kintsugi.Zeros()
    )
    assert len(table) == 0
    assert list(table.items()) == []
    keys = np.arange(3000, dtype=np.uint64)
    table.push(keys, np.stack([keys, 2 * keys], axis=1).astype(np.float32)).result()
    assert len(table) == 3000
    seen: dict[int, float] = {}
    for some, rows in table.items(batch=700):
        assert len(some) <= 700
        assert rows.shape == (len(some), 2)
        seen.update(zip(some.tolist(), rows[:, 1].tolist(), strict=True))
    assert seen == {key: 2.0 * key for key in range(3000)}
    # Leaving the loop in the middle does no harm.
    for _ in table.items(batch=10):
        break
    assert len(list(table.items(batch=1000, state=True))) >= 3


def test_events(client: kintsugi.Client) -> None:
    events = list(client.events())
    assert [event["number"] for event in events] == sorted(event["number"] for event in events)
    joined = [event for event in events if event["kind"] == "node.joined"]
    assert len(joined) >= 3
    assert next(client.events(follow=True)) == events[0]


def test_a_checkpoint(tmp_path: Path) -> None:
    with (
        kintsugi.start_local_cluster(ps=2, code="1+1", checkpoint=str(tmp_path)) as cluster,
        kintsugi.connect(cluster.address, timeout=60) as client,
    ):
        client.create_table("items", 4).push(np.arange(100), np.ones((100, 4))).result()
        made = client.checkpoint()
        assert (made["number"], made["rows"]) == (1, 100)
        assert client.restore(str(tmp_path))["shards"] == []
