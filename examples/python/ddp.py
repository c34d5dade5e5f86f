"""DistributedDataParallel: processes with keys that overlap do what one does with the whole batch.

python ddp.py                  # two processes, and a job of their own
python ddp.py --processes 1    # the same rows
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

import kintsugi
from kintsugi.torch import KintsugiEmbedding, RowOptimizer

KEYS, SAMPLES, STEPS = 50, 64, 40


class Model(nn.Module):
    """Rows of two keys, multiplied with a vector."""

    def __init__(self, client: kintsugi.Client) -> None:
        super().__init__()
        self.rows = KintsugiEmbedding(client, "rows", 8, optimizer=kintsugi.Adam(lr=0.05))
        self.top = nn.Linear(8, 1)

    def forward(self, keys: Tensor) -> Tensor:
        """A number for each pair of keys."""
        return self.top(self.rows(keys).prod(1)).squeeze(1)


def train(rank: int, processes: int, scheduler: str, store: str) -> None:
    """One process."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=processes)
    with kintsugi.connect(scheduler, timeout=60) as client:
        torch.manual_seed(1)
        model = DistributedDataParallel(Model(client))
        rows = RowOptimizer(model, group=distributed.group.WORLD)
        dense = torch.optim.SGD(model.parameters(), lr=0.05)
        data = torch.Generator().manual_seed(5)
        for _ in range(STEPS):
            # All processes draw the same batch, and each takes its part.
            keys = torch.randint(0, KEYS, (SAMPLES, 2), generator=data).chunk(processes)[rank]
            target = torch.where(keys.sum(1) % 2 == 0, 1.0, -1.0)
            loss = (model(keys) - target).square().mean()
            for optimizer in (rows, dense):
                optimizer.zero_grad()
            loss.backward()
            for optimizer in (rows, dense):
                optimizer.step()
    distributed.destroy_process_group()


def main() -> None:
    """Trains, and prints the sum of all rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    processes = parser.parse_args().processes
    with tempfile.TemporaryDirectory() as folder, kintsugi.start_local_cluster(ps=3, code="2+1") as cluster:
        store = str(Path(folder) / "store")
        multiprocessing.spawn(train, (processes, cluster.address, store), nprocs=processes)
        with kintsugi.connect(cluster.address, timeout=60) as client:
            rows = client.table("rows").pull(np.arange(KEYS))
            print(f"{processes} processes, sum of rows {np.abs(rows).sum():.4f}")


if __name__ == "__main__":
    main()
