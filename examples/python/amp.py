"""Mixed precision, gradient accumulation, a clip and a schedule: what stands between `backward` and `step`.

python amp.py                          # a job of its own
python amp.py --scheduler host:7077    # one that runs
"""

from __future__ import annotations

import argparse
import contextlib

import torch
from torch import Tensor, nn

import kintsugi
from kintsugi.torch import KintsugiEmbeddingBag, RowOptimizer, clip_grad_norm_

KEYS, MICRO, SAMPLES = 1000, 4, 64
LIKED = torch.randn(KEYS, generator=torch.Generator().manual_seed(7))


class Model(nn.Module):
    """A bag of keys, and a small network above it."""

    def __init__(self, client: kintsugi.Client) -> None:
        super().__init__()
        self.bag = KintsugiEmbeddingBag(client, "items", 16, mode="sum", optimizer=kintsugi.Adam(lr=0.02))
        self.top = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, keys: Tensor) -> Tensor:
        """Logits of samples."""
        return self.top(self.bag(keys)).squeeze(1)


def main() -> None:
    """Trains, and prints the loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scheduler", help="of a running job; without it one is started here")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if options.scheduler is None:
            cluster = stack.enter_context(kintsugi.start_local_cluster(ps=3, code="2+1"))
            options.scheduler = cluster.address
        client = stack.enter_context(kintsugi.connect(options.scheduler, timeout=60))
        train(client, options.steps)


def train(client: kintsugi.Client, steps: int) -> None:
    """A step is of some micro-batches."""
    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Model(client).to(device)
    optimizers = [RowOptimizer(model), torch.optim.Adam(model.top.parameters(), lr=0.01)]
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(each, steps) for each in optimizers]
    scaler = torch.amp.GradScaler(device)
    loss_of = nn.BCEWithLogitsLoss()
    losses = []
    for _ in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        total = 0.0
        for _ in range(MICRO):
            keys = torch.randint(0, KEYS, (SAMPLES, 3))
            label = (LIKED[keys].sum(1) > 0).float().to(device)
            with torch.autocast(device, torch.bfloat16):
                loss = loss_of(model(keys.to(device)).float(), label) / MICRO
            scaler.scale(loss).backward()
            total += loss.item()
        for optimizer in optimizers:
            scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        for schedule in schedules:
            schedule.step()
        losses.append(total)
    print(f"loss {sum(losses[:10]) / 10:.3f} at first, {sum(losses[-10:]) / 10:.3f} at last")


if __name__ == "__main__":
    main()
