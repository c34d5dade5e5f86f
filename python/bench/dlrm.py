"""Samples per second of the example, DLRM, with Kintsugi against plain PyTorch, in turns.

python python/bench/dlrm.py --data train.tsv [--batch 4096] [--dim 64] [--rounds 5] [--batches 8] [--step]

One job of five PS with code 4+1, on this machine. Every round trains so many batches of the file with plain
PyTorch, with the few lines that the example changes, with `Pipeline`, and, where `torchrec` can be loaded,
with its fused embedding bags. A rate counts from the end of the first batch until everything is durable.
Ratios are of passes of one round. CPU time is that of the trainer and its gateway. With `--step` a round has
the lines of the example, with a RowOptimizer and with fused layers.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
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
import kintsugi.torch

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
        self._cpu = 0.0

    def watch(self, data: Any) -> Any:
        if isinstance(data, kintsugi.RangeDataset):
            self.client = data.client
            data.on_batch = self.count
        return data

    def count(self, samples: int) -> None:
        if self.batches == 0:
            self._begin = time.perf_counter()
            self._first = samples
            self._cpu = self._cpu_seconds()
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

    def per_cpu(self) -> float:
        """Samples per second of CPU time of this process and its gateway."""
        return (self.samples - self._first) / (self._cpu_seconds() - self._cpu)

    def _cpu_seconds(self) -> float:
        gateway = None if self.client is None else self.client.gateway_pid
        if gateway is None:
            return time.process_time()
        # The fields begin behind the name of the program, which is in parentheses.
        fields = Path(f"/proc/{gateway}/stat").read_text().rpartition(")")[2].split()
        return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _passed(module: ModuleType, model: Any, batches: Any) -> Any:
    """The model after a pass over the batches, which updates its rows by itself."""
    dense = torch.optim.Adam([*model.bottom.parameters(), *model.top.parameters()], lr=1e-3)
    for batch in batches:
        loss = module.cross_entropy(model(batch.dense, batch.sparse), batch.label)
        dense.zero_grad()
        loss.backward()
        dense.step()
    return model


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
        return _passed(module, model, progress(data))

    return kind


def fused(module: ModuleType) -> Callable[[Any, Any], Any]:
    """The loop of the example, with layers whose gradients leave in `backward`."""

    def kind(options: argparse.Namespace, progress: Any) -> Any:
        client = kintsugi.connect(options.scheduler, timeout=60)
        data = kintsugi.RangeDataset(
            client, [options.data], batch=options.batch, **module.LAYOUT, **progress.run
        )
        rows = kintsugi.torch.KintsugiEmbedding(client, "embedding", options.dim, fused=True)
        model = module.DLRM(rows, options.dim)
        return _passed(module, model, progress(data))

    return kind


def trained(
    kind: Callable[[Any, Any], Any], options: argparse.Namespace, run: str
) -> tuple[float, float, Clock]:
    torch.manual_seed(1)
    clock = Clock(run)
    kind(options, clock)
    rate, per_cpu = clock.rate(), clock.per_cpu()
    if clock.client is not None:
        clock.client.close()
    return rate, per_cpu, clock


def said(name: str, rates: list[float], bases: list[float], unit: str) -> None:
    ratios = sorted(rate / base for rate, base in zip(rates, bases, strict=True))
    print(
        f"{name:14} {statistics.median(rates):8,.0f} {unit}   {statistics.median(ratios):5.3f} "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", required=True)
    for name, standard in (("batch", 4096), ("dim", 64), ("rounds", 5), ("batches", 8)):
        parser.add_argument(f"--{name}", type=int, default=standard)
    parser.add_argument("--step", action="store_true")
    options = parser.parse_args()
    options.shared = options.deterministic = False
    # PyTorch's Adagrad makes a sparse tensor that PyTorch warns of.
    warnings.filterwarnings("ignore", "Sparse invariant checks")
    module = example()
    ways = {"plain PyTorch": module.plain, "Kintsugi": module.with_kintsugi, "Pipeline": module.pipelined}
    if options.step:
        ways = {"Fused": fused(module), "RowOptimizer": module.with_kintsugi}
    else:
        torchrec = with_torchrec(module)
        if torchrec is not None:
            ways["TorchRec"] = torchrec
    first = next(iter(ways))
    found: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
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
            for name in list(ways) if number % 2 == 0 else reversed(list(ways)):
                rate, per_cpu, clock = trained(ways[name], options, f"{name}-{number}")
                if number > 0:
                    found[name].append(rate)
                    cpu[name].append(per_cpu)
    print(
        f"DLRM, batch {options.batch}, dim {options.dim}, {clock.batches} batches a pass, "
        f"medians of {options.rounds} rounds, {torch.get_num_threads()} threads"
    )
    for name, rates in found.items():
        said(name, rates, found[first], "samples/s")
    for name, rates in cpu.items():
        said(name, rates, cpu[first], "samples per second of CPU")


if __name__ == "__main__":
    main()
