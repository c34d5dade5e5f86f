"""Ranks with DistributedDataParallel: `python ddp_warned.py SCHEDULER TABLE STORE RANK WORLD`.

Prints how many warnings two steps give that nobody averages the gradients of rows, by the name of the case.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from reference import KINDS, Net, keys_of
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import kintsugi
import kintsugi.torch as kt

CASES: dict[str, dict[str, Any]] = {
    "alone": {},
    "fused": {"fused": True},
    "scaled": {"grad_scale": 0.5},
    "group": {},
    "not parallel": {},
    "frozen": {},
}


def warned(client: kintsugi.Client, table: str, name: str) -> int:
    net = Net(kt.KintsugiEmbedding(client, table, 4, optimizer=KINDS["sgd"].ours, **CASES[name]))
    if name == "frozen":
        net.rows.requires_grad_(False)
    group = distributed.group.WORLD if name == "group" else None
    rows = None if name == "fused" else kt.RowOptimizer(net, group=group)
    model = net if name == "not parallel" else DistributedDataParallel(net)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            model(keys_of(1, 2)).sum().backward()
            if rows is not None:
                rows.step()
                rows.zero_grad()
    found = [each for each in seen if "each rank pushes its own" in str(each.message)]
    # The line of the program that has called the layer.
    assert all(Path(each.filename).name == "reference.py" for each in found)
    return len(found)


def main() -> None:
    scheduler, table, store, rank, world = sys.argv[1:]
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(world)
    )
    torch.set_num_threads(1)
    with kintsugi.connect(scheduler, timeout=60) as client:
        print(json.dumps({name: warned(client, table, name) for name in CASES}), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
