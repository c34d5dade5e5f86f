"""One rank of two that load while they train: `python ddp_loading.py SCHEDULER TABLE STORE RANK WORLD`.

Every key is pushed by the first rank, and the second one looks none up. Prints warnings and rows.
"""

from __future__ import annotations

import json
import sys
import warnings

import torch
from reference import DIM, KINDS, keys_of
from torch import distributed

import kintsugi
import kintsugi.torch as kt

STATE = {"weight": torch.arange(5.0 * DIM).view(5, DIM)}


def main() -> None:
    scheduler, table, store, rank_of, world_of = sys.argv[1:]
    rank, world = int(rank_of), int(world_of)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    with kintsugi.connect(scheduler, timeout=60) as client, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        layer = kt.KintsugiEmbedding(client, table, DIM, optimizer=KINDS["adam"].ours)
        rows = kt.RowOptimizer(layer, group=distributed.group.WORLD)
        layer.load_state_dict(STATE)
        for _ in range(2):
            rows.zero_grad()
            layer(keys_of(0, 2, 4) if rank == 0 else keys_of(-1)).square().sum().backward()
            rows.step()
            # All ranks go back to the state, as in PyTorch.
            layer.load_state_dict(STATE)
            seen = layer(torch.arange(5)).detach()
        print(json.dumps([[str(each.message) for each in warned], seen.tolist()]), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
