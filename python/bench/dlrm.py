"""Samples per second of the example, DLRM, with Kintsugi against plain PyTorch, in turns.

python python/bench/dlrm.py --data train.tsv [--batch 4096] [--dim 64] [--rounds 5] [--batches 8]

One job of five PS with code 4+1, on this machine. Every round trains so many batches of the file with plain
PyTorch, with the few lines that the example changes, with `Pipeline`, and, where `torchrec` can be loaded,
with its fused embedding bags. A rate counts from the end of the first batch until everything is durable.
Ratios are of passes of one round.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import kintsugi

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/python/dlrm.py"


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dlrm_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Clock:
    """Stands for the progress of the example: counts samples, and the time since the first batch."""

    def __init__(self, run: str) -> None:
        self.run: dict[str, Any] = {"run": run}
        self.samples = 0
        self.batches = 0
        self.client: kintsugi.Client | None = None
        self._begin = 0.0
        self._first = 0

    def watch(self, data: Any) -> Any:
        if isinstance(data, kintsugi.RangeDataset):
            self.client = data.client
            data.on_batch = self.count
        return data

    def count(self, samples: int) -> None:
        if self.batches == 0:
            self._begin = time.perf_counter()
            self._first = samples
        self.batches += 1
        self.samples += samples

    def __call__(self, data: Iterable[Any]) -> Iterator[Any]:
        for batch in self.watch(data):
            yield batch
            if self.client is None:
                self.count(len(batch.label))

    def rate(self) -> float:
        """Samples per second, now that all of them are trained."""
        return (self.samples - self._first) / (time.perf_counter() - self._begin)


def with_torchrec(module: ModuleType) -> Callable[[Any, Any], Any] | None:
    """The example with rows in TorchRec's fused embedding bags, which have their own Adagrad."""
    try:
        import torchrec
        from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
    except (ImportError, OSError) as error:
        print(f"LEFT OUT: TorchRec: {error}")
        return None
    names = [f"C{number}" for number in range(1, 27)]

    class Fused(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        def __init__(self, dim: int) -> None:
            super().__init__()
            table = torchrec.EmbeddingBagConfig(
                name="embedding", embedding_dim=dim, num_embeddings=module.ROWS, feature_names=names
            )
            self.bags = FusedEmbeddingBagCollection(
                tables=[table],
                optimizer_type=torch.optim.Adagrad,
                optimizer_kwargs={"lr": 0.05},
                device=torch.device("cpu"),
            )

        def forward(self, keys: torch.Tensor) -> torch.Tensor:
            values = (keys % module.ROWS).T.reshape(-1)
            lengths = torch.ones(values.numel(), dtype=torch.int32)
            features = torchrec.KeyedJaggedTensor(keys=names, values=values, lengths=lengths)
            return self.bags(features).values().view(*keys.shape, -1)

    def kind(options: argparse.Namespace, progress: Any) -> Any:
        data = kintsugi.read_batches([options.data], batch=options.batch, **module.LAYOUT)
        model = module.DLRM(Fused(options.dim), options.dim)
        dense = torch.optim.Adam([*model.bottom.parameters(), *model.top.parameters()], lr=1e-3)
        for batch in progress(data):
            loss = module.cross_entropy(model(batch.dense, batch.sparse), batch.label)
            dense.zero_grad()
            loss.backward()
            dense.step()
        return model

    return kind


def trained(kind: Callable[[Any, Any], Any], options: argparse.Namespace, run: str) -> tuple[float, Clock]:
    torch.manual_seed(1)
    clock = Clock(run)
    kind(options, clock)
    rate = clock.rate()
    if clock.client is not None:
        clock.client.close()
    return rate, clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", required=True)
    for name, standard in (("batch", 4096), ("dim", 64), ("rounds", 5), ("batches", 8)):
        parser.add_argument(f"--{name}", type=int, default=standard)
    options = parser.parse_args()
    options.shared = options.deterministic = False
    # PyTorch's Adagrad makes a sparse tensor that PyTorch warns of.
    warnings.filterwarnings("ignore", "Sparse invariant checks")
    module = example()
    ways = {"plain PyTorch": module.plain, "Kintsugi": module.with_kintsugi, "Pipeline": module.pipelined}
    torchrec = with_torchrec(module)
    if torchrec is not None:
        ways["TorchRec"] = torchrec
    found: dict[str, list[float]] = {name: [] for name in ways}
    with (
        kintsugi.start_local_cluster(ps=5, code="4+1") as cluster,
        tempfile.NamedTemporaryFile("w", suffix=".tsv") as part,
        open(options.data) as file,
    ):
        part.writelines(itertools.islice(file, options.batch * options.batches))
        part.flush()
        options.data = part.name
        options.scheduler = cluster.address
        # The first round warms everything up.
        for number in range(options.rounds + 1):
            for name, kind in ways.items():
                rate, clock = trained(kind, options, f"{name}-{number}")
                if number > 0:
                    found[name].append(rate)
    print(
        f"DLRM, batch {options.batch}, dim {options.dim}, {clock.batches} batches a pass, "
        f"medians of {options.rounds} rounds, {torch.get_num_threads()} threads"
    )
    for name, rates in found.items():
        ratios = sorted(rate / base for rate, base in zip(rates, found["plain PyTorch"], strict=True))
        print(
            f"{name:14} {statistics.median(rates):8,.0f} samples/s   {statistics.median(ratios):5.2f} "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main()
