"""Whole trainings with PyTorch: steps that overlap, losses of PS, and the example."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import importlib.util
import inspect
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from torch import Tensor, nn

import kintsugi.torch as kt

ROOT = Path(__file__).resolve().parents[2]
LINES = 1200
LOSS = nn.BCEWithLogitsLoss()


class Model(nn.Module):
    def __init__(self, client: kintsugi.Client, table: str) -> None:
        super().__init__()
        self.rows = kt.KintsugiEmbedding(client, table, 8, optimizer=kintsugi.Adagrad(lr=0.1))
        self.top = nn.Linear(17, 1)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        rows = self.rows(sparse).flatten(1)
        return self.top(torch.cat([torch.log1p(dense), rows], 1)).squeeze(1)


def digest(table: kintsugi.Table) -> str:
    """Over all rows with their optimizer state, in order of key."""
    keys = np.sort(np.concatenate([keys for keys, _ in table.items()]))
    return hashlib.sha256(keys.tobytes() + table.pull(keys, state=True).tobytes()).hexdigest()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "train.tsv"
    random = np.random.default_rng(5)
    keys = random.integers(0, 300, (LINES, 2))
    labels = (keys.sum(1) % 7 < 3).astype(int)
    path.write_text("".join(f"{y}\t{a % 5}\t{a:x}\t{b:x}\n" for y, (a, b) in zip(labels, keys, strict=True)))
    return path


def trained(
    client: kintsugi.Client, file: Path, each: Callable[[int], None] = lambda _: None, **options: Any
) -> tuple[str, list[float]]:
    """The digest of the table, and all losses."""
    torch.manual_seed(1)
    model = Model(client, f"t-{uuid4()}")
    data = kintsugi.RangeDataset(
        client, [file], dense=[1], sparse=[2, 3], batch=50, run=f"run-{uuid4()}", audit=True
    )
    losses = []
    for loss in kt.Pipeline(model, torch.optim.Adam(model.parameters(), 1e-2), LOSS, **options)(data):
        losses.append(float(loss))
        each(len(losses))
    assert data.report() == {"samples": LINES, "trained": LINES, "lost": 0, "duplicated": 0}
    return digest(model.rows.table), losses


def test_a_run_with_a_kill_has_the_digest_of_a_quiet_one(client: kintsugi.Client, file: Path) -> None:
    quiet = trained(client, file, deterministic=True)
    assert len(quiet[1]) == LINES / 50
    with (
        kintsugi.start_local_cluster(ps=3, code="2+1") as cluster,
        kintsugi.connect(cluster.address, timeout=60) as other,
    ):
        killed = trained(
            other, file, lambda batch: cluster.kill(1) if batch == 9 else None, deterministic=True
        )
    assert killed == quiet


def test_steps_that_overlap_learn_too(client: kintsugi.Client, file: Path) -> None:
    _, losses = trained(client, file, prefetch=2, in_flight=4)
    assert len(losses) == LINES / 50
    # One row or all rows in a range: nothing waits for a range that this process has itself.
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


def test_batches_of_any_iterable_and_layers_that_are_traced(client: kintsugi.Client) -> None:
    torch.manual_seed(2)
    name = f"t-{uuid4()}"
    collection = kt.EmbeddingBagCollection(client, [kt.EmbeddingBagConfig(name, 4, ["a", "b"])])

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bags = collection

        def forward(self, features: dict[str, tuple[Tensor, Tensor]]) -> Tensor:
            out = self.bags(features)
            return (out["a"] + out["b"]).sum(1)

    keys = np.arange(12)
    batches = [({"a": (keys, np.array([0, 5])), "b": (keys[:4], np.array([0, 2]))}, torch.ones(2))] * 6
    pipeline = kt.Pipeline(Sum(), None, LOSS, prefetch=2, in_flight=1)
    losses = [float(loss) for loss in pipeline(batches)]
    assert len(losses) == 6
    assert losses[-1] < losses[0]
    assert pipeline._paths == {id(collection): (0,)}
    with pytest.raises(kintsugi.Error, match="layers of one client, not of 0"):
        kt.Pipeline(nn.Linear(1, 1), None, LOSS)


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dlrm", ROOT / "examples/python/dlrm.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_changes_few_lines_of_plain_torch() -> None:
    module = example()
    plain, ours = (inspect.getsource(f).splitlines()[2:] for f in (module.plain, module.with_kintsugi))
    matching = difflib.SequenceMatcher(None, plain, ours, autojunk=False)
    changed = [max(b - a, d - c) for tag, a, b, c, d in matching.get_opcodes() if tag != "equal"]
    # And the import.
    assert sum(changed) + 1 <= 8


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples in the Criteo layout: three ranges and a rest for batches of 20."""
    random = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("clicks") / "train.tsv"
    with path.open("w") as out:
        for label, key in zip(random.integers(0, 2, 2000), random.integers(0, 99, 2000), strict=True):
            out.write("\t".join([str(label), *["3"] * 13, *[f"{key:x}"] * 26]) + "\n")
    return path


def run_example(clicks: Path, *flags: str) -> str:
    """Output of the example."""
    program = [sys.executable, str(ROOT / "examples/python/dlrm.py"), "--data", str(clicks), "--batch", "20"]
    done = subprocess.run([*program, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "samples 2000 of 2000, 0 lost, 0 duplicated" in done.stdout.replace(",000", "000")
    return done.stdout


def test_the_example_survives_the_loss_of_a_ps_and_of_its_gateway(clicks: Path) -> None:
    said = run_example(clicks, "--test", str(clicks), "--kill", "ps@50%", "--kill", "gateway@30%")
    assert "killed a gateway after 600 samples" in said
    # A batch whose push the gateway took with it may be trained again.
    assert re.search("killed a ps after 1,0[0-4][0-9] samples", said)
    assert "auc 0." in said


@pytest.mark.long
def test_the_example_survives_the_loss_of_a_trainer(clicks: Path) -> None:
    said = run_example(clicks, "--trainers", "2", "--kill", "trainer@10%")
    assert "killed a trainer after 100 samples" in said


@pytest.mark.long
def test_the_example_prints_the_same_digest_with_a_kill(clicks: Path) -> None:
    quiet, killed = (
        run_example(clicks, "--deterministic", *kills).splitlines()[-1]
        for kills in ([], ["--kill", "ps@50%"])
    )
    assert quiet.startswith("digest ")
    assert killed == quiet


def marked(text: str) -> list[int]:
    """Processes with this in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if text.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


@pytest.mark.long
def test_workers_find_their_job_and_one_is_lost_with_a_ps(clicks: Path, tmp_path: Path) -> None:
    """As in a TrainingJob: a worker that is lost is replaced, and each sample is trained once."""
    program = [sys.executable, str(ROOT / "examples/python/dlrm.py"), "--data", str(clicks), "--batch", "20"]
    with kintsugi.start_local_cluster(ps=5, code="4+1") as cluster:

        def worker(index: int) -> subprocess.Popen[str]:
            results = str(tmp_path / f"results-{index}")
            found = {"KINTSUGI_SCHEDULER": cluster.address, "KINTSUGI_RESULTS": results}
            flags = ["--shared", "--says-so", "--test", str(clicks)]
            environment = {**os.environ, **found, "POD_NAME": f"dlrm-worker-{index}"}
            return subprocess.Popen([*program, *flags], stdout=subprocess.PIPE, text=True, env=environment)

        lost, stays = worker(0), worker(1)
        assert lost.stdout is not None
        assert lost.stdout.readline() == "trains\n"
        lost.kill()
        cluster.kill(0)
        lost.communicate()
        another = worker(2)
        said = [one.communicate()[0] for one in (stays, another)]
    assert [stays.returncode, another.returncode] == [0, 0]
    for text in said:
        assert "samples 2,000 of 2,000, 0 lost, 0 duplicated" in text
    reports = [json.loads((tmp_path / f"results-{index}").read_text()) for index in (1, 2)]
    assert all(report["auc"] is not None for report in reports)
    assert 0 < sum(report["samples"] for report in reports) <= 2000


@pytest.mark.long
def test_ctrl_c_in_the_middle_of_training_leaves_nothing(clicks: Path, tmp_path: Path) -> None:
    mark = f"KINTSUGI_TEST_MARK={uuid4()}"
    name, value = mark.split("=")
    program = [sys.executable, str(ROOT / "examples/python/dlrm.py"), "--data", str(clicks), "--batch", "2"]
    process = subprocess.Popen(
        [*program, "--trainers", "2", "--says-so"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, name: value, "TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "trains\n"
    handles = []
    for pid in marked(mark):
        with contextlib.suppress(ProcessLookupError):
            handles.append(os.pidfd_open(pid))
    # Scheduler, five PS, two trainers, each with a gateway and a reader of files.
    assert len(handles) == 12
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    assert process.returncode == -signal.SIGINT or "KeyboardInterrupt" in said
    for handle in handles:
        select.select([handle], [], [])
        os.close(handle)
    assert marked(mark) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.skipif("KINTSUGI_TEST_DATA" not in os.environ, reason="LEFT OUT: KINTSUGI_TEST_DATA is not set")
@pytest.mark.parametrize(
    "flags",
    [[], ["--kill", "ps@50%"], ["--trainers", "2", "--kill", "trainer@40%"], ["--kill", "gateway@50%"]],
    ids=["quiet", "PS", "trainer", "gateway"],
)
def test_the_example_learns_as_plain_torch_does(flags: list[str]) -> None:
    folder = Path(os.environ["KINTSUGI_TEST_DATA"])
    files = [str(folder / f"movielens-100k.{part}.tsv") for part in ("train", "test")]
    program = [sys.executable, str(ROOT / "examples/python/dlrm.py"), "--data", files[0], "--test", files[1]]
    done = subprocess.run([*program, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "0 lost, 0 duplicated" in done.stdout
    assert float(done.stdout.split("auc ")[1]) > 0.782 - 0.005
