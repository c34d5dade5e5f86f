"""One rank of several that share the batches of a data set.

`python ddp_data.py SCHEDULER TABLE FILE RUN STORE RANK WORLD`. Prints the dense parameters and the report, or
what was raised.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from reference import DIM, KINDS, Net
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

import kintsugi
import kintsugi.torch as kt
from kintsugi import _ranges
from kintsugi._reader import Source

BATCH = 4
STALL_SECONDS = 3.0
"""Longer than a lease lasts in tests of stalls."""

OVERFLOWS = (2,)
"""Batches whose loss overflows on the first rank."""


def read(content: bytes, samples: int) -> tuple[Tensor, Tensor]:
    rows = [line.split(b"\t") for line in content.splitlines()]
    assert len(rows) == samples
    try:
        return torch.tensor([[int(key) for key in row] for row in rows]), torch.tensor([0.0])
    except ValueError as error:
        raise kintsugi.Error("BAD_DATA", str(error)) from None


def loss_of(net: Any, keys: Tensor) -> Tensor:
    loss: Tensor = (net(keys).sum(1) - 1).square().mean()
    return loss


def given(data: kintsugi.RangeDataset, parts: bool) -> Iterator[Any]:
    """Batches; `parts`: of loops that are left in the second one."""
    going = True
    while going:
        going = False
        for _, batch in zip(range(2) if parts else itertools.count(), data, strict=False):
            going = parts
            yield batch


def train(client: kintsugi.Client, table: str, file: Path, run: str, rank: int) -> list[Any]:
    net = Net(kt.KintsugiEmbedding(client, table, DIM, optimizer=KINDS["adam"].ours))
    model = DistributedDataParallel(net)
    group = distributed.group.WORLD
    rows = kt.RowOptimizer(model, group=group)
    dense = torch.optim.SGD(net.top.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    data = kintsugi.RangeDataset(
        client, [file], batch=BATCH, run=run, reader=read, audit=True, group=group, timeout=60
    )
    sizes = []
    for number, (keys, _) in enumerate(given(data, run.startswith("left"))):
        sizes.append(len(keys))
        if run.startswith("stalls") and number == 1 and rank == 0:
            time.sleep(STALL_SECONDS)
        loss = loss_of(model, keys)
        if number in OVERFLOWS and rank == 0:
            loss = loss * float("inf")
        for optimizer in (rows, dense):
            optimizer.zero_grad()
        scaler.scale(loss).backward()
        for optimizer in (rows, dense):
            scaler.step(optimizer)
        scaler.update()
    return [net.top.weight.detach().tolist(), data.report(), sizes, net.rows.table.trained]


def refused(client: kintsugi.Client, table: str, file: Path, run: str) -> list[Any]:
    """Each use that is no training of a group is an error on each rank."""
    group = distributed.group.WORLD
    data = kintsugi.RangeDataset(client, [file], batch=BATCH, run=run, reader=read, group=group, timeout=60)
    said: list[Any] = []
    layers = [
        kt.KintsugiEmbedding(client, table, DIM, optimizer=KINDS["adam"].ours, fused=fused)
        for fused in (False, True)
    ]
    rows = kt.RowOptimizer(layers[0])
    torch.manual_seed(1)
    top = torch.nn.Linear(DIM, 1)
    shared = kt.SharedOptimizer(client, f"{table}-dense", top)
    uses: list[Callable[[Tensor], object]] = [
        lambda keys: layers[0](keys),
        lambda keys: layers[1](keys).sum().backward(),
        lambda _: (top(torch.ones(1, DIM)).sum().backward(), shared.step()),
        lambda _: next(iter(kt.Pipeline(layers[1], None, lambda *_: None)(data))),
    ]
    for batch, use in zip(data, [*uses, None], strict=False):
        if use is None:
            break
        try:
            use(batch[0])
            said.append("nothing")
        except kintsugi.Error as error:
            said.append(str(error))
    del rows
    odd: Any
    for odd in ({"batch": 3}, {"batch": BATCH, "follow": True}, {"batch": BATCH, "timeout": 0}):
        try:
            kintsugi.RangeDataset(client, [file], run=run, reader=read, group=group, **odd)
        except kintsugi.Error as error:
            said.append(str(error))
    return said


def other_places(client: kintsugi.Client, file: Path, run: str, rank: int) -> list[Any]:
    """The second rank begins anew after the first batch."""
    data = kintsugi.RangeDataset(
        client, [file], batch=BATCH, run=run, reader=read, group=distributed.group.WORLD, timeout=60
    )
    batches = iter(data)
    next(batches)
    kept = batches
    if rank == 1:
        batches = iter(data)
    next(batches)
    del kept
    return ["nothing"]


def other_files(client: kintsugi.Client, file: Path, run: str, rank: int) -> list[Any]:
    """The second rank has another file of the same name and size: with other lines, and so other batches."""
    if rank == 1:
        changed: Any = _ranges
        changed.Source = ChangedSource
    data = kintsugi.RangeDataset(
        client, [file], batch=BATCH, run=run, reader=read, group=distributed.group.WORLD, timeout=60
    )
    return [len(keys) for keys, _ in data]


class ChangedSource(Source):
    """The second batch has two samples more."""

    def shares(self, *asked: Any) -> Any:
        for number, (read, samples) in enumerate(super().shares(*asked)):
            yield read, samples + 2 * (number == 1)


class SlowSource(Source):
    """The second batch takes longer than a lease lasts."""

    def shares(self, *asked: Any) -> Any:
        for number, each in enumerate(super().shares(*asked)):
            if number == 1:
                time.sleep(STALL_SECONDS)
            yield each


def main() -> None:
    scheduler, table, file, run, store, rank_of, world_of = sys.argv[1:]
    rank, world = int(rank_of), int(world_of)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    with kintsugi.connect(scheduler, timeout=60) as client:
        said: list[Any]
        try:
            if run.startswith("refused"):
                said = refused(client, table, Path(file), run)
            elif run.startswith("places"):
                said = other_places(client, Path(file), run, rank)
            elif run.startswith("files"):
                said = other_files(client, Path(file), run, rank)
            else:
                if run.startswith("slow") and rank == 1:
                    changed: Any = _ranges
                    changed.Source = SlowSource
                said = train(client, table, Path(file), run, rank)
        except kintsugi.Error as error:
            said = [error.code, str(error.args[0])]
        print(json.dumps(said), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
