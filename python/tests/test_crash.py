"""A gateway, a program or its parent ends: what is repeated, what is in doubt, and what is left behind."""

import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import kintsugi
from kintsugi._gateway import SpawnedGateway
from kintsugi._processes import program as program_of_kintsugi


def spawned(client: kintsugi.Client) -> SpawnedGateway:
    assert isinstance(client._connection.gateway, SpawnedGateway)
    return client._connection.gateway


def signal_gateway(client: kintsugi.Client, number: signal.Signals) -> None:
    pid = spawned(client).pid
    assert pid is not None
    os.kill(pid, number)


def counting_table(client: kintsugi.Client, policy: kintsugi.Policy | None = None) -> kintsugi.Table:
    return client.create_table(
        f"t-{uuid4()}", 4, optimizer=kintsugi.SGD(lr=-1), initializer=kintsugi.Zeros(), policy=policy
    )


def seen(table: kintsugi.Table, keys: Any) -> list[int]:
    """Sightings of keys of a table with a policy."""
    sightings: list[int] = table.pull(keys, state=True)[:, -1].copy().view(np.uint32).tolist()
    return sightings


def test_pulls_are_repeated_at_a_new_gateway(client: kintsugi.Client) -> None:
    table = counting_table(client)
    keys = np.arange(1000)
    table.push(keys, np.ones((1000, 4))).result()
    kept = table.pull(keys)
    # Stopped, it answers nothing; then it is gone.
    signal_gateway(client, signal.SIGSTOP)
    pulls = [table.pull_async(keys) for _ in range(3)]
    signal_gateway(client, signal.SIGKILL)
    assert all((pull.result() == 1).all() for pull in pulls)
    assert (kept == 1).all()
    assert client.status()["nodes"]


def test_a_push_that_the_gateway_did_not_answer_is_in_doubt(client: kintsugi.Client) -> None:
    table = counting_table(client)
    keys = np.arange(100)
    table.push(keys, np.ones((100, 4))).result()
    signal_gateway(client, signal.SIGSTOP)
    push = table.push(keys, np.ones((100, 4)))
    assert not push.done()
    signal_gateway(client, signal.SIGKILL)
    with pytest.raises(kintsugi.PushInDoubt) as error:
        push.result()
    assert error.value.code == "PUSH_IN_DOUBT"
    # All or nothing on each shard; the next one is as ever.
    before = table.pull(keys)
    assert set(np.unique(before)) <= {1.0, 2.0}
    table.push(keys, np.ones((100, 4))).result()
    assert (table.pull(keys) == before + 1).all()


def test_flush_says_that_a_push_is_in_doubt(client: kintsugi.Client) -> None:
    table = counting_table(client)
    signal_gateway(client, signal.SIGSTOP)
    table.push([1], np.ones((1, 4)))
    signal_gateway(client, signal.SIGKILL)
    with pytest.raises(kintsugi.PushInDoubt):
        client.flush()
    client.flush()


def test_a_thread_that_waits_is_woken_when_the_gateway_dies(client: kintsugi.Client) -> None:
    table = counting_table(client)
    signal_gateway(client, signal.SIGSTOP)
    pulls = [table.pull_async([1, 2]) for _ in range(4)]
    results: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda p=pull: results.append(p.result())) for pull in pulls]
    for thread in threads:
        thread.start()
    signal_gateway(client, signal.SIGKILL)
    for thread in threads:
        thread.join()
    assert len(results) == 4


def test_a_gateway_that_cannot_be_started_again_is_an_error(
    client: kintsugi.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINTSUGI_COMMAND", "false")
    signal_gateway(client, signal.SIGKILL)
    with pytest.raises(kintsugi.Error) as error:
        client.status()
    assert error.value.code == "UNREACHABLE"
    monkeypatch.delenv("KINTSUGI_COMMAND")
    assert client.status()["nodes"]


def test_a_gateway_that_is_killed_while_it_starts_is_started_again(
    cluster: kintsugi.LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = tmp_path / "once"
    script = tmp_path / "kintsugi"
    command = " ".join(program_of_kintsugi())
    script.write_text(f'#!/bin/sh\nmkdir "{once}" 2>&- && kill -KILL $$\nexec {command} "$@"\n')
    script.chmod(0o700)
    monkeypatch.setenv("KINTSUGI_COMMAND", str(script))
    with kintsugi.connect(cluster.address, timeout=60) as client:
        assert once.exists()
        assert client.status()["nodes"]
    script.write_text("#!/bin/sh\nkill -KILL $$\n")
    monkeypatch.setenv("KINTSUGI_COMMAND", str(script))
    with pytest.raises(kintsugi.Error, match="3 gateways ended") as error:
        kintsugi.connect(cluster.address, timeout=60)
    assert error.value.code == "UNREACHABLE"


def test_a_gateway_that_hangs_up_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def hang_up() -> None:
            for _ in range(3):
                server.accept()[0].close()

        closing = threading.Thread(target=hang_up)
        closing.start()
        with pytest.raises(kintsugi.Error) as error:
            kintsugi.connect("127.0.0.1:1", gateway=f"unix:{path}", timeout=5)
        closing.join()
    assert error.value.code == "UNREACHABLE"


def test_a_child_after_a_fork_has_a_connection_of_its_own(client: kintsugi.Client) -> None:
    table = counting_table(client)
    table.push([7], np.ones((1, 4))).result()
    mine = client.id
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        seen = bool((table.pull([7]) == 1).all()) and client.id != mine
        os.write(writing, b"good" if seen else b"bad!")
        client.close()
        os._exit(0)
    os.close(writing)
    assert os.read(reading, 4) == b"good"
    os.close(reading)
    os.waitpid(child, 0)
    assert client.id == mine
    assert (table.pull([7]) == 1).all()


def test_threads_share_a_client(client: kintsugi.Client) -> None:
    table = counting_table(client)
    failures: list[object] = []

    def work(number: int) -> None:
        keys = np.arange(number * 100, number * 100 + 100)
        for _ in range(20):
            table.push(keys, np.ones((100, 4))).result()
        if not (table.pull(keys) == 20).all():
            failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


PROGRAM = """
import signal, sys
import kintsugi
cluster = kintsugi.start_local_cluster(ps=2, code="1+1")
client = kintsugi.connect(cluster.address, timeout=60)
processes = [*cluster._nodes, cluster._scheduler, client._connection.gateway._process]
print(*[process.pid for process in processes], client._connection.gateway.directory, flush=True)
{rest}
"""


@pytest.fixture
def program() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("rest", "number"),
    [
        ("signal.pause()", signal.SIGINT),
        ("signal.pause()", signal.SIGKILL),
        ("raise ValueError('of the program')", None),
        ("", None),
    ],
    ids=["Ctrl-C", "SIGKILL", "exception", "end"],
)
def test_nothing_is_left_behind(
    program: list[subprocess.Popen[str]], rest: str, number: signal.Signals | None
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(rest=rest)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    program.append(process)
    assert process.stdout is not None
    *pids, directory = process.stdout.readline().split()
    handles = [handle for pid in pids if (handle := opened(int(pid))) is not None]
    if number is not None:
        process.send_signal(number)
    process.communicate()
    for handle in handles:
        select.select([handle], [], [])
        os.close(handle)
    assert not Path(directory).exists()


def opened(pid: int) -> int | None:
    """Becomes readable when the process ends; None: it has ended."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def test_flush_waits_for_all_pushes_and_raises_all_that_failed(client: kintsugi.Client) -> None:
    table, other = counting_table(client), counting_table(client)
    # A gradient of two tables that are one is refused by the gateway; what comes after is not.
    wrong = [client.push([(table, [n], np.ones((1, 4))), (table, [n], np.ones((1, 4)))]) for n in (1, 2)]
    right = other.push(np.arange(5000), np.ones((5000, 4)))
    with pytest.raises(kintsugi.PushesFailed) as raised:
        client.flush()
    assert right.settled
    error = raised.value
    assert error.code == "BAD_ARGUMENT"
    assert error.pushes == tuple(f"push {n} ({table.name}: 1 keys, {table.name}: 1 keys)" for n in (1, 2))
    assert [each.code for each in error.errors] == ["BAD_ARGUMENT"] * 2
    assert str(error).startswith(f"BAD_ARGUMENT: 2 pushes failed, {error.pushes[0]}, {error.pushes[1]}: ")
    assert pickle.loads(pickle.dumps(error)).pushes == error.pushes
    # Each is raised once, by flush or by its result.
    client.flush()
    with pytest.raises(kintsugi.Error):
        wrong[0].result()
    again = client.push([(table, [1], np.ones((1, 4))), (table, [1], np.ones((1, 4)))])
    assert again.exception() is not None
    client.flush()
    assert (other.pull(np.arange(5000)) == 1).all()


def test_one_dead_gateway_is_one_error_that_names_its_pushes(client: kintsugi.Client) -> None:
    table = counting_table(client)
    table.push([1], np.ones((1, 4))).result()
    signal_gateway(client, signal.SIGSTOP)
    for count in range(1, 12):
        table.push(np.arange(count), np.ones((count, 4)))
    signal_gateway(client, signal.SIGKILL)
    with pytest.raises(kintsugi.PushInDoubt) as raised:
        client.flush()
    error = raised.value
    assert error.pushes == tuple(f"push {n + 1} ({table.name}: {n} keys)" for n in range(1, 12))
    assert "while 11 pushes were under way: push 2 " in str(error)
    assert str(error).endswith("and 3 others")
    assert pickle.loads(pickle.dumps(error)).pushes == error.pushes
    client.flush()


@pytest.mark.parametrize("every", [1, 4])
def test_a_numbered_step_that_is_sent_again_is_applied_once(client: kintsugi.Client, every: int) -> None:
    table = counting_table(client, kintsugi.Policy(ttl=500))
    name = f"steps-{uuid4()}"
    steps = client.steps(name, every=every)
    assert steps.next == 0
    keys, ones, threes = np.arange(300), np.ones((300, 4)), [np.full(300, 3)]
    for step in range(6):
        if step % 2:
            signal_gateway(client, signal.SIGKILL)
        if step == 4:
            # The gateway has got the push, and answers nothing before it is gone.
            steps.push([(table, keys[:0], ones[:0])], step=3)
            session = client._connection.open()
            signal_gateway(client, signal.SIGSTOP)
            thread = threading.Thread(target=lambda: steps.push([(table, keys, ones)], step=4, counts=threes))
            thread.start()
            while session.link.pending == 0:
                pass
            signal_gateway(client, signal.SIGKILL)
            thread.join()
        once: Any = iter(threes)
        steps.push([(table, keys, ones)], step=step, counts=once)
        for again in range(step + 1):
            steps.push([(table, keys, ones)], step=again, counts=threes)
    assert (table.pull(keys) == 6).all()
    assert seen(table, keys) == [18] * 300
    with pytest.raises(kintsugi.Error, match=r"step 6 of .* is next, not 8"):
        steps.push([(table, keys, ones)], step=8)
    gateway = client._connection.gateway
    client.close()
    assert isinstance(gateway, SpawnedGateway)
    # Another program goes on, and sends what may be durable already.
    with kintsugi.connect(gateway.scheduler, timeout=60) as successor:
        again_steps = successor.steps(name, every=every)
        assert again_steps.next == 6 - 6 % every
        for step in range(again_steps.next, 8):
            again_steps.push([(table.name, keys, ones)], step=step)
        assert (successor.table(table.name).pull(keys) == 8).all()
        assert seen(successor.table(table.name), keys) == [18 + 2] * 300
