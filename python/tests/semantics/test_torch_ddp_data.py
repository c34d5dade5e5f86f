"""A `RangeDataset` of a process group: ranks are one trainer, and do what one process does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from ddp_data import BATCH, OVERFLOWS, STALL_SECONDS, loss_of
from reference import DIM, KEYS, KINDS, Net, Rows

MAX_RANGE_FAILURES = 3
"""A range is set aside after so many failures at one batch, see docs/limits.md."""


def written(path: Path, lines: int) -> list[list[int]]:
    keys = [[n % KEYS, n * n % KEYS] for n in range(lines)]
    path.write_text("".join(f"{one}\t{two}\n" for one, two in keys))
    return keys


def ranks(cluster: kintsugi.LocalCluster, table: str, file: Path, run: str, world: int = 2) -> list[Any]:
    program = [sys.executable, str(Path(__file__).with_name("ddp_data.py")), cluster.address, table]
    store = str(file.with_suffix(f".{uuid4()}"))
    running = [
        subprocess.Popen(
            [*program, str(file), run, store, str(rank), str(world)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    said = [process.communicate() for process in running]
    # Python prints an exception that a generator raises at its end, and goes on.
    assert not [errors for _, errors in said if "Exception ignored" in errors]
    return [json.loads(each.splitlines()[-1]) for each, _ in said]


@pytest.mark.parametrize(
    ("lines", "world", "run"),
    [(31, 2, "r"), (31, 2, "left"), pytest.param(30, 4, "r", marks=pytest.mark.long)],
)
def test_ranks_are_one_trainer(
    cluster: kintsugi.LocalCluster, client: kintsugi.Client, tmp_path: Path, lines: int, world: int, run: str
) -> None:
    table = client.create_table(f"t-{uuid4()}", DIM, optimizer=KINDS["adam"].ours)
    reference = Rows(table, KINDS["adam"])
    net = Net(reference)
    dense = torch.optim.SGD(net.top.parameters(), lr=0.1)
    file = tmp_path / "train.tsv"
    keys = torch.tensor(written(file, lines))
    results = ranks(cluster, table.name, file, f"{run}-{uuid4()}", world)
    last = lines % BATCH
    sizes = [BATCH // world] * (lines // BATCH) + [last // world if last % world == 0 else last]
    report = {"samples": lines, "trained": lines, "lost": 0, "duplicated": 0}
    # All ranks have trained the table, whoever has pushed: each may load rows anew.
    assert [each[1:] for each in results] == [[report, sizes, True]] * world
    for number, batch in enumerate(keys.split(BATCH)):
        for optimizer in (reference.optimizer, dense):
            optimizer.zero_grad()
        loss_of(net, batch).backward()
        for optimizer in (reference.optimizer, dense):
            if number not in OVERFLOWS:
                optimizer.step()
    for top, *_ in results:
        torch.testing.assert_close(torch.tensor(top), net.top.weight.detach(), rtol=0, atol=1e-6)
    reference.check(client)


def test_what_one_rank_cannot_read_is_an_error_of_all(
    cluster: kintsugi.LocalCluster, client: kintsugi.Client, tmp_path: Path
) -> None:
    file = tmp_path / "train.tsv"
    written(file, 16)
    lines = file.read_text().splitlines()
    # The second half of the second batch.
    lines[6] = "1\tx"
    file.write_text("".join(f"{line}\n" for line in lines))
    run = f"r-{uuid4()}"
    for _ in range(MAX_RANGE_FAILURES):
        said = ranks(cluster, f"t-{uuid4()}", file, run)
        assert [code for code, _ in said] == ["BAD_DATA"] * 2
        assert said[0][1].startswith("rank 1: invalid literal")
        assert said[1][1].startswith("invalid literal")
    # The range is set aside at the batch that cannot be read, not at the one before.
    data = kintsugi.RangeDataset(client, [file], batch=BATCH, run=run, reader=lambda *_: None)
    (aside,) = data.dataset.status()["setAside"]
    assert (aside["batch"], aside["code"]) == (1, "BAD_DATA")


@pytest.mark.long
@pytest.mark.parametrize("run", ["slow", "stalls"])
def test_a_lease_while_ranks_wait_for_each_other(tmp_path: Path, run: str) -> None:
    """The first rank keeps its lease while it waits for another; where it stalls itself, it loses it."""
    file = tmp_path / "train.tsv"
    written(file, 16)
    limits = {"leaseMs": int(STALL_SECONDS * 500)}
    with (
        kintsugi.start_local_cluster(ps=3, code="2+1", limits=limits) as cluster,
        kintsugi.connect(cluster.address, timeout=60) as client,
    ):
        table = client.create_table(f"t-{uuid4()}", DIM, optimizer=KINDS["adam"].ours)
        one, other = ranks(cluster, table.name, file, f"{run}-1")
    assert one == other
    _, report, sizes, _ = one
    assert report == {"samples": 16, "trained": 16, "lost": 0, "duplicated": 0}
    if run == "slow":
        assert sizes == [BATCH // 2] * 4
    else:
        # All batches of the range are given again, for the dense parameters, and applied once.
        assert sizes == [BATCH // 2] * (2 + 4)


def test_ranks_that_have_read_other_batches_are_an_error_of_all(
    cluster: kintsugi.LocalCluster, tmp_path: Path
) -> None:
    file = tmp_path / "train.tsv"
    written(file, 16)
    said = ranks(cluster, f"t-{uuid4()}", file, f"files-{uuid4()}")
    text = "ranks have read different batches: rank 0 batch 1 of 4 samples, rank 1 batch 1 of 6 samples: all "
    assert said == [["BAD_ARGUMENT", text + "ranks need the same files"]] * 2


def test_ranks_at_different_places_are_an_error_of_all(
    cluster: kintsugi.LocalCluster, tmp_path: Path
) -> None:
    file = tmp_path / "train.tsv"
    written(file, 16)
    said = ranks(cluster, f"t-{uuid4()}", file, f"places-{uuid4()}")
    text = "rank 0 is at the push of batch 0 of range 0, rank 1 at the next range"
    text = f"all ranks ask for the same batches: {text}"
    assert said == [["BAD_ARGUMENT", text]] * 2


def test_what_is_no_training_of_a_group(cluster: kintsugi.LocalCluster, tmp_path: Path) -> None:
    file = tmp_path / "train.tsv"
    written(file, 40)
    said = ranks(cluster, f"t-{uuid4()}", file, f"refused-{uuid4()}")
    expected = [
        "are of one rank, and the batch is of a group: make kintsugi.torch.RowOptimizer(model, group=...)",
        "are of one rank, and the batch is of a group: make kintsugi.torch.RowOptimizer(model, group=...)",
        "ranks have dense parameters of their own: train them by DistributedDataParallel",
        "a Pipeline reads ahead",
        "batch must be a multiple of the 2 ranks",
        "files that grow are for trainers without a group",
        "timeout must be above 0",
    ]
    for rank in said:
        assert len(rank) == len(expected), rank
        for text, wanted in zip(rank, expected, strict=True):
            assert wanted in text
