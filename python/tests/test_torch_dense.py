"""Dense parameters: kept in the job with `save`, or on the PS with `SharedOptimizer`; files that grow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from torch import Tensor, nn

import kintsugi.torch as kt
from kintsugi.torch._saving import _bytes_of, _rows_of
from test_torch_training import LINES, LOSS, Model, digest


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "train.tsv"
    keys = np.random.default_rng(5).integers(0, 300, (LINES, 2))
    path.write_text("".join(f"{(a + b) % 2}\t{a % 5}\t{a:x}\t{b:x}\n" for a, b in keys.tolist()))
    return path


def opened(client: kintsugi.Client, path: Path, **options: Any) -> kintsugi.RangeDataset:
    return kintsugi.RangeDataset(
        client, [path], dense=[1], sparse=[2, 3], batch=10, tensors=True, audit=True, **options
    )


def parameters(model: nn.Module) -> list[float]:
    return [float(value) for each in model.parameters() for value in each.detach().reshape(-1)]


def test_bytes_are_exact_in_rows() -> None:
    for content in (b"", b"\0", bytes(range(256)) * 9, os.urandom(2000)):
        assert _bytes_of(_rows_of(content))[: len(content)] == content


def test_what_is_saved_is_there_for_the_next_trainer(client: kintsugi.Client) -> None:
    name = f"model-{uuid4()}"
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    optimizers = [torch.optim.Adam(each.parameters()) for each in (model, other)]
    assert kt.load(client, other, optimizers[1], name=name) is None
    model(torch.ones(3)).sum().backward()
    optimizers[0].step()
    for number in (1, 2, 3):
        saved = kt.save(client, model, optimizers[0], name=name, checkpoint=False)
        assert saved is not None
        assert saved["number"] == number
    assert kt.load(client, other, optimizers[1], name=name) == 3
    assert parameters(other) == parameters(model)
    assert str(optimizers[1].state_dict()) == str(optimizers[0].state_dict())
    with pytest.raises(kintsugi.Error, match="every needs data"):
        kt.save(client, model, every=1)


def training(client: kintsugi.Client, file: Path, until: Callable[[int], bool]) -> tuple[Model, int | None]:
    """Trains until the batch of that number, from what was saved."""
    torch.manual_seed(1)
    model = Model(client, "rows")
    dense = torch.optim.Adam(model.parameters(), 1e-2)
    found = kt.load(client, model, dense)
    data = opened(client, file)
    kt.save(client, model, dense, data, every=1)
    for index, _ in enumerate(kt.Pipeline(model, dense, LOSS, deterministic=True)(data)):
        if until(index):
            break
    return model, found


@pytest.mark.long
def test_a_job_that_begins_with_a_checkpoint_ends_with_the_same_bits(file: Path, tmp_path: Path) -> None:
    results = []
    for place, breaks in ((tmp_path / "quiet", None), (tmp_path / "killed", 70)):
        place.mkdir()
        with (
            kintsugi.start_local_cluster(ps=3, code="2+1", checkpoint=str(place)) as cluster,
            kintsugi.connect(cluster.address, timeout=60) as client,
        ):
            model, found = training(client, file, lambda index, breaks=breaks: index == breaks)  # type: ignore[misc]
            assert found is None
            if breaks is None:
                results.append((digest(model.rows.table), parameters(model)))
    # Every process is gone; two ranges of batches were saved, and the third one was begun.
    with (
        kintsugi.start_local_cluster(ps=3, code="2+1", restore=str(place), checkpoint=str(place)) as cluster,
        kintsugi.connect(cluster.address, timeout=60) as client,
    ):
        model, found = training(client, file, lambda _: False)
        assert found == 2
        results.append((digest(model.rows.table), parameters(model)))
    assert results[0] == results[1]


class Shared(nn.Module):
    def __init__(self, client: kintsugi.Client, name: str) -> None:
        super().__init__()
        self.rows = kt.KintsugiEmbedding(client, f"{name}-rows", 4, fused=True)
        self.top = nn.Linear(9, 1)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        return self.top(torch.cat([dense, self.rows(sparse).flatten(1)], 1)).squeeze(1)


def shared(client: kintsugi.Client, name: str, seed: int = 1) -> tuple[Shared, kt.SharedOptimizer]:
    torch.manual_seed(seed)
    model = Shared(client, name)
    return model, kt.SharedOptimizer(client, f"{name}-dense", model, kintsugi.SGD(lr=0.1))


def test_dense_parameters_on_the_ps_are_those_of_torch(client: kintsugi.Client) -> None:
    name = f"m-{uuid4()}"
    model, opt = shared(client, name)
    torch.manual_seed(1)
    plain = nn.Linear(9, 1)
    torch_opt = torch.optim.SGD(plain.parameters(), lr=0.1)
    inputs = torch.randn(5, 9)
    plain.load_state_dict(model.top.state_dict())
    for _ in range(3):
        for each, step in ((plain, torch_opt), (model.top, opt)):
            if each is not plain:
                opt.refresh()
            step.zero_grad()
            each(inputs).square().sum().backward()
            step.step()
    opt.refresh()
    assert np.allclose(parameters(model), parameters(plain), atol=1e-5)
    other, _ = shared(client, name)
    other(torch.zeros(1, 1), torch.tensor([[1, 2]]))
    assert parameters(other) == parameters(model)
    with pytest.raises(kintsugi.Error, match="TABLE_EXISTS"):
        shared(client, name, seed=2)


@pytest.mark.parametrize("pipeline", [False, True], ids=["loop", "pipeline"])
def test_dense_parameters_are_in_the_push_of_their_batch(
    client: kintsugi.Client, file: Path, pipeline: bool
) -> None:
    name = f"m-{uuid4()}"
    model, opt = shared(client, name)
    data = opened(client, file, run=name)
    batches = 0

    def each() -> None:
        nonlocal batches
        batches += 1
        if batches == 50:
            assert client.gateway_pid is not None
            os.kill(client.gateway_pid, signal.SIGKILL)

    if pipeline:
        for _ in kt.Pipeline(model, opt, LOSS)(data):
            each()
    else:
        for dense, sparse, label in data:
            loss = LOSS(model(dense, sparse), label)
            opt.zero_grad()
            loss.backward()
            opt.step()
            each()
    assert data.report() == {"samples": LINES, "trained": LINES, "lost": 0, "duplicated": 0}
    # Another process finds the same parameters, and they are not those of the beginning.
    other, _ = shared(client, name)
    begin = parameters(other)
    for each_model in (model, other):
        each_model(torch.zeros(1, 1), torch.tensor([[1, 2]]))
    assert parameters(other) == parameters(model) != begin


@pytest.mark.long
def test_two_processes_with_ddp_take_the_steps_of_one(cluster: kintsugi.LocalCluster, tmp_path: Path) -> None:
    results = []
    for world in (1, 2):
        table, store = f"t-{uuid4()}", tmp_path / f"store-{world}"
        program = [
            sys.executable,
            str(Path(__file__).with_name("ddp.py")),
            cluster.address,
            table,
            str(store),
        ]
        running = [
            subprocess.Popen([*program, str(rank), str(world)], stdout=subprocess.PIPE, text=True)
            for rank in range(world)
        ]
        said = [process.communicate()[0] for process in running]
        assert [process.returncode for process in running] == [0] * world
        results += [json.loads(each.splitlines()[-1]) for each in said]
    for other in results[1:]:
        assert np.allclose(results[0], other, atol=1e-6)


def test_files_that_grow_are_followed(client: kintsugi.Client, tmp_path: Path) -> None:
    path = tmp_path / "growing.tsv"
    path.write_text("1\t2\ta\tb\n0\t3\tc")
    run = f"run-{uuid4()}"
    data = opened(client, path, run=run, follow=True)
    sizes = []
    for batch in data:
        sizes.append(len(batch.label))
        if sum(sizes) == 1:
            # The line that was begun, and more; the last one without its end.
            with path.open("a") as out:
                out.write("\tf\n" + "1\t4\td\te\n" * 24 + "0\t1")
        if sum(sizes) == 26:
            break
    assert sizes[0] == 1
    assert max(sizes) <= 10
    with pytest.raises(kintsugi.Error, match="trained once"):
        opened(client, path, run=run, follow=True, epochs=2)
