"""A reader of files that is slow, or is started again: the same samples, each once."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import kintsugi
from kintsugi import _reader

LEASE_MS = 2000
WAITS = 10
"""Quarters of a lease for which a reader hangs: two leases and a half."""
MOST_SECONDS = 30.0
"""After this time a reader goes on that nobody was seen to wait for."""


@pytest.fixture(scope="module")
def short_leases() -> Iterator[kintsugi.LocalCluster]:
    with kintsugi.start_local_cluster(ps=3, code="2+1", limits={"leaseMs": LEASE_MS}) as cluster:
        yield cluster


def numbers(path: Path, count: int) -> Path:
    path.write_text("".join(f"{i}\t{i:x}\n" for i in range(count)))
    return path


def expired_leases(client: kintsugi.Client) -> int:
    lost = [event["fields"] for event in client.events() if event["kind"] == "range.lost"]
    return sum(fields["reason"] == "its lease expired" for fields in lost)


def test_a_lease_is_kept_while_a_slow_reader_is_waited_for(
    short_leases: kintsugi.LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = numbers(tmp_path / "a.tsv", 100)
    keep, kept = kintsugi.Lease.keep, []
    with kintsugi.connect(short_leases.address, timeout=60) as client:
        data = kintsugi.RangeDataset(client, [file], batch=10, run=f"run-{uuid4()}", audit=True)
        pid = _reader.running_reader().pid

        def keep_and_count(lease: kintsugi.Lease) -> None:
            keep(lease)
            kept.append(lease.number)
            if len(kept) == WAITS:
                os.kill(pid, signal.SIGCONT)

        monkeypatch.setattr(kintsugi.Lease, "keep", keep_and_count)
        os.kill(pid, signal.SIGSTOP)
        late = threading.Timer(MOST_SECONDS, os.kill, [pid, signal.SIGCONT])
        late.start()
        try:
            labels = [label for batch in data for label in batch.label.tolist()]
        finally:
            late.cancel()
            os.kill(pid, signal.SIGCONT)
        assert labels == list(range(100))
        assert len(kept) >= WAITS
        assert expired_leases(client) == 0
        assert data.report() == {"samples": 100, "trained": 100, "lost": 0, "duplicated": 0}


def killed_after_the_first(batches: Iterator[Any]) -> Iterator[Any]:
    """The batches; the reader is killed when the first one is there."""
    yield next(batches)
    os.kill(_reader.running_reader().pid, signal.SIGKILL)
    yield from batches


@pytest.mark.parametrize("place", [".", "*.tsv"], ids=["folder", "pattern"])
def test_a_new_file_is_none_of_those_of_a_reader_that_is_started_again(tmp_path: Path, place: str) -> None:
    # More than is read ahead of the first batch.
    numbers(tmp_path / "b.tsv", 60_000)
    batches = kintsugi.read_batches([tmp_path / place], dense=[0] * 40, batch=1000)
    labels: list[float] = []
    for batch in killed_after_the_first(batches):
        if not labels:
            numbers(tmp_path / "a.tsv", 5)
        labels += batch.label.tolist()
    assert labels == list(range(60_000))


def test_a_file_that_is_gone_when_a_reader_is_started_again_is_named(tmp_path: Path) -> None:
    # A name that is also a pattern, which another file matches.
    file, other = tmp_path / "a*.tsv", tmp_path / "ab.tsv"
    numbers(file, 60_000)
    batches = kintsugi.read_batches([file], dense=[0] * 40, batch=1000)
    next(batches)
    file.rename(other)
    os.kill(_reader.running_reader().pid, signal.SIGKILL)
    with pytest.raises(kintsugi.Error, match="no such file") as error:
        list(batches)
    assert error.value.code == "BAD_DATA"


def test_a_file_that_is_shorter_when_a_reader_is_started_again_is_named(tmp_path: Path) -> None:
    file = numbers(tmp_path / "a.tsv", 60_000)
    batches = kintsugi.read_batches([file], dense=[0] * 40, batch=1000)
    next(batches)
    numbers(file, 5000)
    os.kill(_reader.running_reader().pid, signal.SIGKILL)
    with pytest.raises(kintsugi.Error, match=r"a\.tsv: had .* and has") as error:
        list(batches)
    assert error.value.code == "BAD_DATA"
