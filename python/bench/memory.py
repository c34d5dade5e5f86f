"""Memory of a trainer and of its gateway over many steps, with PyTorch.

python python/bench/memory.py [--steps 100000]

Each line: steps, then megabytes of each process that are its own (RssAnon), and of memory that both share.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

import kintsugi
import kintsugi.torch as kt

BATCH = 32
FIELDS = 8


def megabytes(pid: int, name: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


class Model(nn.Module):
    def __init__(self, client: kintsugi.Client) -> None:
        super().__init__()
        self.rows = kt.KintsugiEmbedding(client, "rows", 16)
        self.top = nn.Linear(16 * FIELDS, 1)

    def forward(self, _: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        return self.top(self.rows(sparse).flatten(1)).squeeze(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    random = np.random.default_rng(1)
    epochs = 10
    lines = flags.steps * BATCH // epochs
    with (
        tempfile.TemporaryDirectory() as folder,
        kintsugi.start_local_cluster(ps=2, code="1+1") as cluster,
        kintsugi.connect(cluster.address, timeout=60) as client,
    ):
        file = Path(folder) / "samples.tsv"
        with file.open("w") as out:
            for row in random.integers(0, 20_000, (lines, FIELDS)).tolist():
                out.write("\t".join([str(row[0] % 2), *(f"{key:04x}" for key in row)]) + "\n")
        data = kintsugi.RangeDataset(
            client, [file], sparse=range(1, FIELDS + 1), batch=BATCH, epochs=epochs, tensors=True
        )
        watch(client, data, flags.steps)


def watch(client: kintsugi.Client, data: kintsugi.RangeDataset, steps: int) -> None:
    model = Model(client)
    pipeline = kt.Pipeline(model, torch.optim.Adam(model.parameters()), nn.BCEWithLogitsLoss())
    found: list[list[float]] = []
    every = max(1, steps // 10)
    for number, _ in enumerate(pipeline(data), 1):
        if number % every:
            continue
        assert client.gateway_pid is not None
        pids = os.getpid(), client.gateway_pid
        found.append([megabytes(pid, "RssAnon") for pid in pids] + [megabytes(pids[0], "RssShmem")])
        trainer, gateway, shared = found[-1]
        print(
            f"{number:8,}  trainer {trainer:6.1f}  gateway {gateway:6.1f}  shared {shared:6.1f}", flush=True
        )
    first, last = found[len(found) // 5], found[-1]
    growth = [after - before for before, after in zip(first, last, strict=True)]
    print(
        "from a fifth of the steps to the end: trainer {:+.1f}, gateway {:+.1f}, shared {:+.1f}".format(
            *growth
        )
    )


if __name__ == "__main__":
    main()
