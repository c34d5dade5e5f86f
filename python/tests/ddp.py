"""One process of several that train one model with DistributedDataParallel.

`python ddp.py SCHEDULER TABLE STORE RANK WORLD`: three steps over its part, then parameters.
"""

import json
import sys

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

import kintsugi
import kintsugi.torch as kt


class Model(nn.Module):
    def __init__(self, client: kintsugi.Client, table: str, world: int) -> None:
        super().__init__()
        self.rows = kt.KintsugiEmbedding(
            client, table, 4, optimizer=kintsugi.SGD(lr=0.1), grad_scale=1 / world, fused=True
        )
        self.top = nn.Linear(4, 1)

    def forward(self, keys: Tensor) -> Tensor:
        return self.top(self.rows(keys)).squeeze(1)


def main() -> None:
    scheduler, table, store, rank, world = sys.argv[1:]
    size, number = int(world), int(rank)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=size)
    torch.manual_seed(1)
    with kintsugi.connect(scheduler, timeout=60) as client:
        model = DistributedDataParallel(Model(client, table, size))
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        keys = torch.arange(8).chunk(size)[number]
        for _ in range(3):
            opt.zero_grad()
            (model(keys) - 1).square().mean().backward()
            opt.step()
            client.flush()
            distributed.barrier()
        rows = client.table(table).pull(range(8))
    values = [float(value) for each in model.parameters() for value in each.detach().reshape(-1)]
    print(json.dumps([*values, *rows.reshape(-1).tolist()]), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
