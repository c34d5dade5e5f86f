"""DLRM on data in the Criteo layout, with plain PyTorch and with Kintsugi.

python dlrm.py --data train.tsv --test test.tsv                    # a job of its own: five PS, code 4+1
python dlrm.py --data train.tsv --test test.tsv --kill ps@50%      # one of them is killed half-way
python dlrm.py --data train.tsv --test test.tsv --trainers 2 --kill trainer@40% --kill gateway@60%
python dlrm.py --data train.tsv --test test.tsv --plain            # PyTorch alone
python dlrm.py --data train.tsv --scheduler host:7077 --run day-1  # one trainer of several of a running job
python dlrm.py --data train.tsv --shared       # a worker of a TrainingJob: it finds the job itself
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

import kintsugi
from kintsugi.torch import KintsugiEmbedding, Pipeline, RowOptimizer, SharedOptimizer

LAYOUT: dict[str, Any] = {"label": 0, "dense": range(1, 14), "sparse": range(14, 40), "tensors": True}
ROWS = 1_000_003
"""Rows of the table of plain PyTorch: keys are hashed. Kintsugi has a row for every key."""


class HashedEmbedding(nn.Embedding):
    """Any key in a table of fixed size."""

    def forward(self, keys: Tensor) -> Tensor:
        """Rows of `keys`."""
        return super().forward(keys % self.num_embeddings)


class DLRM(nn.Module):
    """Integers through a small network, categories through rows, and all pairs of them multiplied."""

    def __init__(self, embedding: nn.Module, dim: int) -> None:
        super().__init__()
        self.embedding = embedding
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, dim), nn.ReLU())
        self.top = nn.Sequential(
            nn.Linear(dim + 27 * 26 // 2, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1)
        )
        self.pairs = torch.tril_indices(27, 27, -1)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        """Logits of samples."""
        bottom = self.bottom(torch.log1p(dense.clamp(min=0)))
        rows = torch.cat([bottom[:, None], self.embedding(sparse)], 1)
        products = (rows @ rows.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([bottom, products], 1)).squeeze(1)


def plain(options: argparse.Namespace, progress: Progress) -> DLRM:
    """PyTorch alone."""
    data = kintsugi.read_batches([options.data], batch=options.batch, **LAYOUT)
    model = DLRM(HashedEmbedding(ROWS, options.dim, sparse=True), options.dim)
    nn.init.uniform_(model.embedding.weight, -0.05, 0.05)
    sparse = torch.optim.Adagrad(model.embedding.parameters(), lr=0.05)
    dense = torch.optim.Adam([*model.bottom.parameters(), *model.top.parameters()], lr=1e-3)
    for batch in progress(data):
        loss = cross_entropy(model(batch.dense, batch.sparse), batch.label)
        dense.zero_grad()
        sparse.zero_grad()
        loss.backward()
        dense.step()
        sparse.step()
    return model


def with_kintsugi(options: argparse.Namespace, progress: Progress) -> DLRM:
    """Rows in a job that survives."""
    client = client_of(options)
    data = kintsugi.RangeDataset(client, [options.data], batch=options.batch, **LAYOUT, **progress.run)
    model = DLRM(KintsugiEmbedding(client, "embedding", options.dim), options.dim)
    sparse = RowOptimizer(model)
    dense = torch.optim.Adam([*model.bottom.parameters(), *model.top.parameters()], lr=1e-3)
    for batch in progress(data):
        loss = cross_entropy(model(batch.dense, batch.sparse), batch.label)
        dense.zero_grad()
        sparse.zero_grad()
        loss.backward()
        dense.step()
        sparse.step()
    return model


def pipelined(options: argparse.Namespace, progress: Progress) -> DLRM:
    """The same with pulls, computation and pushes at once; several trainers share the dense parameters."""
    client = client_of(options)
    data = kintsugi.RangeDataset(client, [options.data], batch=options.batch, **LAYOUT, **progress.run)
    model = DLRM(KintsugiEmbedding(client, "embedding", options.dim), options.dim)
    dense: Any = torch.optim.Adam([*model.bottom.parameters(), *model.top.parameters()], lr=1e-3)
    if options.shared:
        dense = SharedOptimizer(client, "dense", model, kintsugi.Adam(lr=1e-3))
    pipeline = Pipeline(model, dense, cross_entropy, deterministic=options.deterministic)
    for _ in pipeline(progress.watch(data)):
        pass
    return model


def client_of(options: argparse.Namespace) -> kintsugi.Client:
    """A client of the job that was named, or of the one that the environment tells of."""
    if options.scheduler:
        return kintsugi.connect(options.scheduler, timeout=60)
    return kintsugi.from_env().connect()


class Progress:
    """Counts samples, and kills at the moments that were asked for."""

    def __init__(
        self,
        options: argparse.Namespace,
        cluster: kintsugi.LocalCluster | None,
        trainers: list[subprocess.Popen[str]],
    ) -> None:
        self.run = {"run": options.run, "audit": True}
        self.samples = 0
        self.data: kintsugi.RangeDataset | None = None
        self._cluster = cluster
        self._trainers = trainers
        self._says_so = options.says_so
        self._kills: list[tuple[float, str]] = []
        if options.kill:
            with open(options.data, "rb") as file:
                mine = sum(1 for _ in file) / options.trainers
            self._kills = sorted((mine * part, what) for what, part in options.kill)

    def watch(self, data: Any) -> Any:
        """Remembers a data set, for the report. Begins when the other trainers have."""
        if isinstance(data, kintsugi.RangeDataset):
            self.data = data
            data.on_batch = self.count
        for trainer in self._trainers:
            assert trainer.stdout is not None
            trainer.stdout.readline()
        return data

    def count(self, samples: int) -> None:
        """So many samples more."""
        if self.samples == 0 and self._says_so:
            print("trains", flush=True)
        self.samples += samples
        while self._kills and self.samples >= self._kills[0][0]:
            _, what = self._kills.pop(0)
            self.kill(what)
            print(f"killed a {what} after {self.samples:,} samples of this trainer", flush=True)

    def kill(self, what: str) -> None:
        """SIGKILL."""
        if what == "ps" and self._cluster is not None:
            self._cluster.kill(0)
        elif what == "trainer":
            self._trainers.pop().kill()
        elif self.data is not None and self.data.client.gateway_pid is not None:
            os.kill(self.data.client.gateway_pid, signal.SIGKILL)

    def __call__(self, data: Iterable[kintsugi.Batch]) -> Iterator[kintsugi.Batch]:
        """The same batches."""
        watched = self.watch(data)
        for batch in watched:
            yield batch
            if self.data is None:
                self.count(len(batch.label))


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve: how often a positive sample has the higher score."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    positive = labels > 0.5
    hits = positive.sum()
    return float((ranks[positive].sum() - hits * (hits + 1) / 2) / (hits * (len(labels) - hits)))


def tested(model: DLRM, file: str) -> float:
    """AUC on a file."""
    labels, scores = [], []
    with torch.no_grad():
        for batch in kintsugi.read_batches([file], batch=4096, **LAYOUT):
            scores.append(model(batch.dense, batch.sparse).numpy())
            labels.append(batch.label.numpy())
    return auc(np.concatenate(labels), np.concatenate(scores))


def digest(table: kintsugi.Table) -> str:
    """Over all rows with the state of their optimizer, in the order of their keys."""
    keys = np.sort(np.concatenate([keys for keys, _ in table.items()]))
    return hashlib.sha256(keys.tobytes() + table.pull(keys, state=True).tobytes()).hexdigest()


def kill_of(text: str) -> tuple[str, float]:
    """`ps@50%`: who, and at what part of the samples."""
    what, _, part = text.partition("@")
    if what not in ("ps", "trainer", "gateway") or not part.endswith("%"):
        raise argparse.ArgumentTypeError(f"{text} is not like ps@50%, trainer@50% or gateway@50%")
    return what, float(part[:-1]) / 100


def another_trainer(options: argparse.Namespace) -> subprocess.Popen[str]:
    """A process that shares the samples of this one."""
    names = ("data", "scheduler", "run", "batch", "dim", "seed")
    flags = [part for name in names for part in (f"--{name}", str(getattr(options, name)))]
    command = [sys.executable, __file__, *flags, "--pipeline", "--shared", "--says-so"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def end(trainer: subprocess.Popen[str]) -> None:
    """Ends a trainer that has nothing to do any more, or is killed already."""
    trainer.kill()
    trainer.communicate()


def parsed() -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(description="DLRM on data in the Criteo layout")
    parser.add_argument("--data", required=True)
    parser.add_argument("--test")
    parser.add_argument("--plain", action="store_true", help="PyTorch alone")
    parser.add_argument("--pipeline", action="store_true", help="overlap pulls, computation and pushes")
    parser.add_argument("--deterministic", action="store_true", help="a pipeline of one step at a time")
    parser.add_argument("--shared", action="store_true", help="a pipeline; dense parameters on the PS, too")
    parser.add_argument("--trainers", type=int, default=1, help="processes; more than one: --shared")
    parser.add_argument(
        "--kill", type=kill_of, action="append", metavar="ps@50%", help="or trainer@.., gateway@..; SIGKILL"
    )
    parser.add_argument("--scheduler", help="of a running job; without it one is started here")
    parser.add_argument("--run", default="train", help="trainers of a run share the samples")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--says-so", action="store_true", help="print a line when training begins")
    options = parser.parse_args()
    options.shared |= options.trainers > 1
    kills = [what for what, _ in options.kill or []]
    if options.plain and (kills or options.trainers > 1):
        parser.error("--plain is one process, and none is killed")
    if "ps" in kills and options.scheduler:
        parser.error("--kill ps needs a job that this program starts")
    if kills.count("trainer") >= options.trainers:
        parser.error("--kill trainer needs more --trainers")
    return options


def main() -> None:
    """Trains, tests, and says what happened."""
    options = parsed()
    torch.manual_seed(options.seed)
    with contextlib.ExitStack() as stack:
        cluster = None
        in_job = not options.scheduler and "KINTSUGI_SCHEDULER" in os.environ
        if not options.plain and not options.scheduler and not in_job:
            cluster = stack.enter_context(kintsugi.start_local_cluster(ps=5, code="4+1"))
            options.scheduler = cluster.address
        trainers = [another_trainer(options) for _ in range(options.trainers - 1)]
        for trainer in trainers:
            stack.callback(end, trainer)
        train(options, Progress(options, cluster, [*trainers]))


def train(options: argparse.Namespace, progress: Progress) -> None:
    """One trainer."""
    kind = pipelined if options.pipeline or options.deterministic or options.shared else with_kintsugi
    begin = time.perf_counter()
    model = (plain if options.plain else kind)(options, progress)
    seconds = time.perf_counter() - begin
    print(f"trained {progress.samples:,} samples in {seconds:.1f} s ({progress.samples / seconds:,.0f}/s)")
    if progress.data is not None:
        report = progress.data.report()
        print(
            f"samples {report['trained']:,} of {report['samples']:,}, "
            f"{report['lost']} lost, {report['duplicated']} duplicated"
        )
    area = tested(model, options.test) if options.test else None
    if area is not None:
        print(f"auc {area:.4f}")
    if "KINTSUGI_SCHEDULER" in os.environ:
        kintsugi.from_env().report(auc=area, samples=progress.samples)
    if options.deterministic and progress.data is not None:
        print(f"digest {digest(progress.data.client.table('embedding'))}")


if __name__ == "__main__":
    main()
