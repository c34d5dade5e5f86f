"""An exponential moving average (EMA) of the dense parameters, over the rows as they are.

python ema.py                          # a job of its own
python ema.py --scheduler host:7077    # one that runs
"""

from __future__ import annotations

import argparse
import contextlib

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import kintsugi
from kintsugi.torch import KintsugiEmbeddingBag, RowOptimizer

KEYS, SAMPLES, TEST = 300, 32, 4096
LIKED = torch.randn(KEYS, generator=torch.Generator().manual_seed(7))


def drawn(samples: int, data: torch.Generator) -> tuple[Tensor, Tensor]:
    """Keys of samples, and their labels, of which a tenth is wrong."""
    keys = torch.randint(0, KEYS, (samples, 3), generator=data)
    liked = LIKED[keys].sum(1) > 0
    return keys, (liked ^ (torch.rand(samples, generator=data) < 0.1)).float()


def main() -> None:
    """Trains, and prints losses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scheduler", help="of a running job; without it one is started here")
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if options.scheduler is None:
            cluster = stack.enter_context(kintsugi.start_local_cluster(ps=3, code="2+1"))
            options.scheduler = cluster.address
        client = stack.enter_context(kintsugi.connect(options.scheduler, timeout=60))
        train(client, options.steps)


def train(client: kintsugi.Client, steps: int) -> None:
    """The network above the bags has an average. Rows have none: one step moves few of them, and little."""
    torch.manual_seed(1)
    data = torch.Generator().manual_seed(5)
    bag = KintsugiEmbeddingBag(client, "ema", 16, mode="sum", optimizer=kintsugi.Adam(lr=0.02))
    top = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    averaged = AveragedModel(top, multi_avg_fn=get_ema_multi_avg_fn(0.95))
    optimizers = [RowOptimizer(bag), torch.optim.Adam(top.parameters(), lr=0.06)]
    loss_of = nn.BCEWithLogitsLoss()

    def tested(network: nn.Module) -> float:
        keys, label = drawn(TEST, torch.Generator().manual_seed(9))
        with torch.no_grad():
            return loss_of(network(bag(keys)).squeeze(1), label).item()

    first = tested(top)
    for _ in range(steps):
        keys, label = drawn(SAMPLES, data)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss_of(top(bag(keys)).squeeze(1), label).backward()
        for optimizer in optimizers:
            optimizer.step()
        averaged.update_parameters(top)
    print(f"loss {first:.3f} at first, {tested(top):.3f} at last, {tested(averaged):.3f} averaged")


if __name__ == "__main__":
    main()
