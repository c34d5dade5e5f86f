"""Ranks that do not all do the same: `python ddp_alone.py SCHEDULER TABLE STORE RANK WORLD`.

Prints what was raised, by the name of the case.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
from reference import DIM, KINDS, keys_of
from torch import distributed

import kintsugi
import kintsugi.torch as kt

SECONDS = 2.0
CASES = (
    "look",
    "look at parameters",
    "look beside step",
    "early look",
    "step beside look",
    "batch",
    "tables",
    "end",
)


def case(name: str, rank: int, layer: Any, rows: Any) -> None:
    parameter = rows.param_groups[0]["params"][0]
    if name == "look":
        # The other rank has nothing to do with rows meanwhile.
        if rank == 0:
            parameter.grad  # noqa: B018
    elif name == "look at parameters":
        # Each rank has a gradient of its own, and the other one trains no rows meanwhile.
        layer(keys_of(1, rank)).sum().backward()
        if rank == 0:
            next(iter(layer.parameters())).grad  # noqa: B018
        parameter.grad = None
    elif name in ("look beside step", "step beside look"):
        layer(keys_of(1, rank)).sum().backward()
        if rank == (name == "look beside step"):
            parameter.grad  # noqa: B018
        rows.step()
    elif name == "early look":
        if rank == 0:
            parameter.grad  # noqa: B018
        layer(keys_of(1, rank)).sum().backward()
        parameter.grad  # noqa: B018
        rows.step()
    elif name == "batch":
        with kt.step(layer.client):
            layer(keys_of(1, rank)).sum().backward()
    elif name == "tables":
        other = kt.KintsugiEmbedding(layer.client, f"{layer.table.name}-other", DIM)
        made(layer if rank == 0 else other)
    elif name == "end":
        if rank == 0:
            os._exit(0)
        layer(keys_of(1, rank)).sum().backward()
        rows.step()


def made(layer: Any) -> kt.RowOptimizer:
    return kt.RowOptimizer(layer, group=distributed.group.WORLD, timeout=SECONDS)


def main() -> None:
    scheduler, table, store, rank_of, world_of = sys.argv[1:]
    rank, world = int(rank_of), int(world_of)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    with kintsugi.connect(scheduler, timeout=60) as client:
        for name in CASES:
            layer = kt.KintsugiEmbedding(client, table, DIM, optimizer=KINDS["sgd"].ours)
            rows = made(layer)
            said = []
            for _ in range(2):
                try:
                    case(name, rank, layer, rows)
                except kintsugi.Error as error:
                    said.append([error.code, str(error.args[0])])
                    # The second time nobody waits: the first failure is raised again.
                    if error.code == "BAD_ARGUMENT":
                        break
            print(json.dumps([name, said]), flush=True)


if __name__ == "__main__":
    main()
