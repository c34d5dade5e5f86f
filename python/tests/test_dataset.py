"""Every sample is trained exactly once, whoever is killed, stopped or loses its gateway."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

import kintsugi
from trainer import BATCH, train

SAMPLES = 500


@pytest.fixture(scope="module")
def short_leases() -> Iterator[kintsugi.LocalCluster]:
    with kintsugi.start_local_cluster(ps=3, code="2+1", limits={"leaseMs": 2000}) as cluster:
        yield cluster


def counting_table(client: kintsugi.Client) -> kintsugi.Table:
    return client.create_table(f"t-{uuid4()}", 2, optimizer=kintsugi.SGD(lr=-1), initializer=kintsugi.Zeros())


def trainer(
    cluster: kintsugi.LocalCluster, run: str, table: kintsugi.Table, hang_after: int
) -> subprocess.Popen[str]:
    arguments = [cluster.address, run, table.name, str(SAMPLES), str(hang_after)]
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("trainer.py")), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def says(process: subprocess.Popen[str], line: str) -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == f"{line}\n"


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def expect_each_once(client: kintsugi.Client, table: kintsugi.Table, run: str) -> None:
    assert (table.pull(np.arange(SAMPLES)) == 1).all()
    assert len(table) == SAMPLES
    status = client.dataset(run, [("numbers", SAMPLES * 8)], batch=BATCH, range_bytes=512).status()
    assert status["complete"]
    assert status["samples"] == [SAMPLES]
    assert status["setAside"] == []


def expired_leases(client: kintsugi.Client) -> int:
    lost = [event["fields"] for event in client.events() if event["kind"] == "range.lost"]
    return sum(fields["reason"] == "its lease expired" for fields in lost)


def test_every_sample_once(client: kintsugi.Client) -> None:
    table, run = counting_table(client), f"run-{uuid4()}"
    train(client, run, table.name, SAMPLES, lambda: None)
    expect_each_once(client, table, run)


def test_a_trainer_that_is_killed_gives_its_ranges_back_at_once(
    cluster: kintsugi.LocalCluster, client: kintsugi.Client
) -> None:
    table, run = counting_table(client), f"run-{uuid4()}"
    before = expired_leases(client)
    killed = trainer(cluster, run, table, hang_after=3)
    try:
        assert says(killed, "hangs")
        killed.send_signal(signal.SIGKILL)
        train(client, run, table.name, SAMPLES, lambda: None)
    finally:
        end(killed)
    expect_each_once(client, table, run)
    # Nobody waited for its lease.
    assert expired_leases(client) == before


@pytest.mark.parametrize("stopped", [False, True], ids=["hangs", "SIGSTOP"])
def test_a_trainer_that_hangs_loses_its_ranges(short_leases: kintsugi.LocalCluster, stopped: bool) -> None:
    with kintsugi.connect(short_leases.address, timeout=60) as client:
        table, run = counting_table(client), f"run-{uuid4()}"
        before = expired_leases(client)
        hung = trainer(short_leases, run, table, hang_after=3)
        try:
            assert says(hung, "hangs")
            if stopped:
                hung.send_signal(signal.SIGSTOP)
            train(client, run, table.name, SAMPLES, lambda: None)
            assert expired_leases(client) == before + 1
            # The trainer goes on with a range that another one has by now, finds that out, and does no harm.
            hung.send_signal(signal.SIGCONT)
            assert hung.communicate("\n")[0] == "done\n"
            assert hung.returncode == 0
        finally:
            end(hung)
        expect_each_once(client, table, run)


def test_a_gateway_that_is_killed_loses_and_repeats_nothing(client: kintsugi.Client) -> None:
    table, run = counting_table(client), f"run-{uuid4()}"
    batches = 0

    def kill_now_and_then() -> None:
        nonlocal batches
        batches += 1
        if batches in (2, 9):
            kill_gateway(client)

    train(client, run, table.name, SAMPLES, kill_now_and_then)
    expect_each_once(client, table, run)


def kill_gateway(client: kintsugi.Client) -> None:
    pid = client.gateway_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def test_a_batch_that_cannot_be_trained_is_set_aside_and_named(client: kintsugi.Client) -> None:
    run = f"run-{uuid4()}"
    data = client.dataset(run, [("numbers", 8 * BATCH)], batch=BATCH, range_bytes=1 << 20)
    for _ in range(3):
        lease = data.acquire()
        assert lease is not None
        lease.fail(0, "no such feature")
    assert data.acquire() is None
    aside = data.status()["setAside"]
    assert [(each["batch"], each["message"]) for each in aside] == [(0, "no such feature")]


def test_ranges_are_handed_back(client: kintsugi.Client) -> None:
    table, run = counting_table(client), f"run-{uuid4()}"
    data = client.dataset(run, [("numbers", 8 * BATCH * 2)], batch=BATCH, range_bytes=1 << 20)
    lease = data.acquire()
    assert lease is not None
    keys = np.arange(BATCH)
    with pytest.raises(kintsugi.Error, match="is not done"):
        lease.skip([(table, keys)], BATCH)
    lease.push([(table, keys, np.ones((BATCH, 2)))], BATCH).result()
    lease.give_back()
    again = data.acquire()
    assert again is not None
    assert (again.number, again.done, again.begun) == (lease.number, 1, 1)
    with pytest.raises(kintsugi.Error, match="is done: skip it"):
        again.push([(table, keys, np.ones((BATCH, 2)))], BATCH).result()
    again.skip([(table, keys)], BATCH)
    again.push([(table, keys + BATCH, np.ones((BATCH, 2)))], BATCH)
    again.finish()
    assert (table.pull(np.arange(2 * BATCH)) == 1).all()
    assert data.acquire() is None


def test_the_gradients_of_a_batch_go_to_their_own_keys(client: kintsugi.Client) -> None:
    table, run = counting_table(client), f"run-{uuid4()}"
    data = client.dataset(run, [("numbers", 24)], batch=1, range_bytes=24)
    lease = data.acquire()
    assert lease is not None
    batches = [[9, -1, 4], [9, 4, 7], [4, 9, 4], [-1, 7, 9, 7]]
    expected: dict[int, int] = {}
    for number, keys in enumerate(batches, 1):
        values = np.arange(len(keys)) + 10 * number
        lease.push([(table, keys, np.repeat(values[:, None], 2, axis=1))], 1).result()
        for key, value in zip(keys, values, strict=True):
            expected[key] = expected.get(key, 0) + int(value)
    lease.finish()
    del expected[-1]
    assert not lease.lost
    assert dict(zip(expected, table.pull(list(expected))[:, 0], strict=True)) == expected
    assert len(table) == 3
