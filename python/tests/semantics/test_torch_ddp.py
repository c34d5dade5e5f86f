"""DistributedDataParallel: ranks do what one process with the whole batch does, with keys that overlap."""

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
from ddp_loading import STATE
from ddp_rank import STEPS, loss_of
from reference import DIM, DROPS, KINDS, Net, Pair, Rows, keys_of
from reference import loss_of as loss_of_rows
from torch import distributed

import kintsugi.torch as kt


@pytest.mark.parametrize(
    ("world", "kind"),
    [
        (2, "adam"),
        *(
            pytest.param(world, kind, marks=pytest.mark.long)
            for world in (2, 4)
            for kind in ("sgd", "adagrad", "adam")
            if (world, kind) != (2, "adam")
        ),
    ],
)
def test_ranks_are_one_process(
    cluster: kintsugi.LocalCluster, client: kintsugi.Client, tmp_path: Path, world: int, kind: str
) -> None:
    table = client.create_table(f"t-{uuid4()}", DIM, optimizer=KINDS[kind].ours)
    reference = Rows(table, KINDS[kind])
    net = Net(reference)
    program = [
        sys.executable,
        str(Path(__file__).with_name("ddp_rank.py")),
        cluster.address,
        table.name,
        kind,
    ]
    running = [
        subprocess.Popen(
            [*program, str(tmp_path / "store"), str(rank), str(world)], stdout=subprocess.PIPE, text=True
        )
        for rank in range(world)
    ]
    said = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * world
    results = [json.loads(each.splitlines()[-1]) for each in said]
    assert results[1:] == results[:-1]

    optimizers: list[Any] = [reference.optimizer, torch.optim.SGD(net.top.parameters(), lr=0.1)]
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        for micro in range(2):
            losses = [loss_of(net, step, micro, rank) for rank in range(world)]
            scaler.scale(torch.stack(losses).sum() / world).backward()
        for optimizer in optimizers:
            scaler.unscale_(optimizer)
        gradients = [row.grad for row in reference.rows if row.grad is not None]
        parts = [torch.cat(gradients), *(each.grad for each in net.top.parameters())]
        looked = [float(part.norm()) for part in parts]
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
    assert results[0]["scale"] == scaler.get_scale() == 512.0
    assert results[0]["norm"] == pytest.approx(float(norm), rel=1e-5)
    assert results[0]["looked"] == pytest.approx(looked, rel=1e-5)
    torch.testing.assert_close(torch.tensor(results[0]["top"]), net.top.weight.detach(), rtol=0, atol=1e-6)
    reference.check(client)


def test_a_rank_that_does_something_else_is_an_error_and_nothing_is_sent(
    cluster: kintsugi.LocalCluster, client: kintsugi.Client, tmp_path: Path
) -> None:
    table = client.create_table(f"t-{uuid4()}", DIM, optimizer=KINDS["sgd"].ours)
    before = table.pull(range(4))
    program = [sys.executable, str(Path(__file__).with_name("ddp_alone.py")), cluster.address, table.name]
    running = [
        subprocess.Popen(
            [*program, str(tmp_path / "store"), str(rank), "2"], stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    said: list[dict[str, list[list[str]]]] = [
        dict(json.loads(line) for line in process.communicate()[0].splitlines()) for process in running
    ]
    codes = {name: [[code for code, _ in rank.get(name, [])] for rank in said] for name in said[1]}
    texts = {name: " ".join(text for rank in said for _, text in rank.get(name, [])) for name in said[1]}
    assert codes == {
        "look": [["TIMEOUT"] * 2, []],
        "look at parameters": [["TIMEOUT"] * 2, []],
        "look beside step": [["BAD_ARGUMENT"]] * 2,
        "early look": [["BAD_ARGUMENT"], ["TIMEOUT", "BAD_ARGUMENT"]],
        "step beside look": [["BAD_ARGUMENT"]] * 2,
        "batch": [["BAD_ARGUMENT"]] * 2,
        "tables": [["BAD_ARGUMENT"]] * 2,
        "end": [[], ["UNREACHABLE"] * 2],
    }
    for name, text in (
        ("look", "rank 0 waited 2 s for the others at a look at gradients of step 0"),
        ("look beside step", "rank 0 is at a step() of step 0, rank 1 at a look at gradients of step 0"),
        ("early look", "rank 1 waited 2 s for the others at a step() after a look of step 0"),
        ("batch", "kintsugi.torch.step can have them"),
        ("tables", "ranks have layers of different tables"),
        ("end", "a rank has ended"),
    ):
        assert text in texts[name]
    assert (table.pull(range(4)) == before).all()


def test_ranks_that_load_go_back_together(
    cluster: kintsugi.LocalCluster, client: kintsugi.Client, tmp_path: Path
) -> None:
    table = client.create_table(f"t-{uuid4()}", DIM, optimizer=KINDS["adam"].ours)
    program = [sys.executable, str(Path(__file__).with_name("ddp_loading.py")), cluster.address, table.name]
    running = [
        subprocess.Popen(
            [*program, str(tmp_path / "store"), str(rank), "2"], stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    said = [json.loads(process.communicate()[0]) for process in running]
    assert said == [[[], STATE["weight"].tolist()]] * 2
    assert table.pull([2], state=True)[0, -1] == 2  # steps of Adam


@pytest.mark.parametrize("drop", DROPS)
def test_gradients_that_are_dropped_after_an_average_begin_anew(
    client: kintsugi.Client, tmp_path: Path, drop: str
) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        pair = Pair(client)
        rows = kt.RowOptimizer(pair.layer, group=distributed.group.WORLD)
        for step in range(3):
            for keys in (keys_of(step, 5), keys_of(step, 6)):
                DROPS[drop](pair, rows)
                pair.torch.optimizer.zero_grad(set_to_none="zeros" not in drop or keys[1] == 5)
                for layer in (pair.layer, pair.torch):
                    loss_of_rows(layer(keys), step).backward()
                # Ranks average what is there at this look.
                assert rows.param_groups[0]["params"][0].grad is not None
            rows.step()
            pair.torch.optimizer.step()
        pair.check()
    finally:
        distributed.destroy_process_group()


def test_ranks_that_nobody_averages_are_warned(
    cluster: kintsugi.LocalCluster, client: kintsugi.Client, tmp_path: Path
) -> None:
    table = client.create_table(f"t-{uuid4()}", DIM, optimizer=KINDS["sgd"].ours)
    program = [sys.executable, str(Path(__file__).with_name("ddp_warned.py")), cluster.address, table.name]
    running = [
        subprocess.Popen(
            [*program, str(tmp_path / "store"), str(rank), "2"], stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    said = [json.loads(process.communicate()[0]) for process in running]
    expected = {"alone": 1, "fused": 1, "scaled": 0, "group": 0, "not parallel": 0, "frozen": 0}
    assert said == [expected] * 2
