"""One rank of several: `python ddp_rank.py SCHEDULER TABLE KIND STORE RANK WORLD`; see test_torch_ddp.py."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from reference import DIM, KINDS, Net, keys_of
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

import kintsugi
import kintsugi.torch as kt

STEPS = 5
OVERFLOWS = (1,)


def batch(step: int, micro: int, rank: int) -> Tensor:
    """Keys that overlap between ranks. In step 3 only the first rank has some."""
    if step == 3 and rank > 0:
        return keys_of(-1)
    return keys_of(rank, 1 + step % 3, 5, 5 + micro, (rank * 7 + step) % 11)


def loss_of(net: Any, step: int, micro: int, rank: int) -> Tensor:
    """A mean over the samples of one rank. In some steps that of the last rank overflows, or of the first."""
    loss: Tensor = (net(batch(step, micro, rank)) - rank).square().mean()
    return loss * float("inf") if step in OVERFLOWS and rank == 0 and micro == 1 else loss


def main() -> None:
    scheduler, table, kind, store, rank_of, world_of = sys.argv[1:]
    rank, world = int(rank_of), int(world_of)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    with kintsugi.connect(scheduler, timeout=60) as client:
        net = Net(kt.KintsugiEmbedding(client, table, DIM, optimizer=KINDS[kind].ours))
        model = DistributedDataParallel(net)
        rows = kt.RowOptimizer(model, group=distributed.group.WORLD)
        dense = torch.optim.SGD(net.top.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        optimizers: list[torch.optim.Optimizer] = [rows, dense]
        for step in range(STEPS):
            for optimizer in optimizers:
                optimizer.zero_grad()
            with model.no_sync():
                scaler.scale(loss_of(model, step, 0, rank)).backward()
            scaler.scale(loss_of(model, step, 1, rank)).backward()
            for optimizer in optimizers:
                scaler.unscale_(optimizer)
            # All ranks look, and see the average.
            looked = [float(each.grad.norm()) for each in net.parameters()]
            norm = float(kt.clip_grad_norm_(net.parameters(), 1.0))
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
        said = {
            "norm": norm,
            "looked": looked,
            "scale": scaler.get_scale(),
            "top": net.top.weight.detach().tolist(),
        }
    print(json.dumps(said), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
