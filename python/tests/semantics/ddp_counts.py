"""One rank of several whose layers count, see test_torch_counts.py.

`python ddp_counts.py SCHEDULER WHAT TABLES STORE [FILE] RANK WORLD`
"""

from __future__ import annotations

import json
import sys

import numpy as np
import torch
from torch import Tensor, distributed

import kintsugi
import kintsugi.torch as kt

KEYS = 12
STEPS = 6
OVERFLOWS = (2,)
BATCH = 4


def batch_of(step: int, micro: int, rank: int) -> list[int]:
    """Keys that repeat, and overlap between ranks. Step 3 is of the first rank alone, step 4 of none."""
    if step == 4 or (step == 3 and rank > 0):
        return [-1]
    random = np.random.default_rng([step, micro, rank])
    keys: list[int] = random.integers(-1, KEYS, 9).tolist()
    return keys


def lines_of(count: int) -> list[list[int]]:
    """Keys of samples, whose number no two ranks can divide at the end."""
    random = np.random.default_rng(9)
    lines: list[list[int]] = random.integers(0, KEYS, (count, 5)).tolist()
    return lines


def read(content: bytes, samples: int) -> Tensor:
    keys = torch.tensor([[int(key) for key in line.split()] for line in content.splitlines()])
    assert len(keys) == samples
    return keys


def layers_of(client: kintsugi.Client, names: list[str], *, differ: bool) -> list[kt.KintsugiEmbedding]:
    """A layer that counts, one that does not, and one whose table has no use for it."""
    policy = kintsugi.Policy(ttl=1000)
    return [
        kt.KintsugiEmbedding(client, names[0], 2, policy=policy, count_duplicates=True),
        kt.KintsugiEmbedding(client, names[1], 2, policy=policy, count_duplicates=differ),
        kt.KintsugiEmbedding(client, names[2], 3, count_duplicates=True),
    ]


def steps(layers: list[kt.KintsugiEmbedding], rows: kt.RowOptimizer, rank: int) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    for step in range(STEPS):
        rows.zero_grad()
        for micro in range(2):
            keys = torch.tensor(batch_of(step, micro, rank))
            loss = torch.stack([layer(keys).square().sum() for layer in layers]).sum()
            overflows = step in OVERFLOWS and rank == 1 and micro == 0
            scaler.scale(loss * (float("inf") if overflows else 1.0)).backward()
        if step == 5:
            # A look has the ranks meet before `step`.
            assert all(group["params"][0].grad is not None for group in rows.param_groups)
        scaler.step(rows)
        scaler.update()


def mixed(layers: list[kt.KintsugiEmbedding], rows: kt.RowOptimizer, rank: int) -> None:
    """Key 1 is counted on the first rank, and key 2 on none. Then both have zeros in place of gradients."""
    counts, other = layers
    named = [1, 1, 4] if rank == 0 else [4]
    loss = counts(torch.tensor(named)).sum() + other(torch.tensor([1, 2, 2])).sum()
    loss.backward()
    rows.step()
    rows.zero_grad()
    counts(torch.tensor([5, 5])).sum().backward()
    rows.zero_grad(set_to_none=False)
    rows.step()


def main() -> None:
    scheduler, what, tables, store, *file, rank_of, world_of = sys.argv[1:]
    rank, world = int(rank_of), int(world_of)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    group = distributed.group.WORLD
    said = "done"
    with kintsugi.connect(scheduler, timeout=60) as client:
        layers = layers_of(client, tables.split(","), differ=what == "differ" and rank == 1)
        if what == "mixed":
            other = kt.KintsugiEmbedding(client, layers[0].table.name, 2, policy=layers[0].table.policy)
            layers = [layers[0], other]
        try:
            rows = kt.RowOptimizer(layers, group=group, timeout=60)
            if what == "steps":
                steps(layers, rows, rank)
            elif what == "mixed":
                mixed(layers, rows, rank)
            elif what == "data":
                data = kintsugi.RangeDataset(
                    client, file, batch=BATCH, run=tables, reader=read, group=group, timeout=60
                )
                for keys in data:
                    rows.zero_grad()
                    layers[0](keys).square().mean().backward()
                    rows.step()
        except kintsugi.Error as error:
            said = str(error.args[0])
    print(json.dumps(said), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
