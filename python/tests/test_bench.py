"""Short forms of the programs in bench/: they work, and say what they are to say."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench"

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="LEFT OUT: torch is not installed"
)


def run(name: str, *flags: str) -> str:
    command = [sys.executable, str(BENCH / f"{name}.py"), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_chaos() -> None:
    said = run("chaos", "--minutes", "0", "--samples", "4000", "--trainers", "2", "--every", "0.2")
    assert "1 rounds, 4,000 samples, each applied once; no process is left" in said


@pytest.mark.long
@needs_torch
def test_chaos_in_step_mode() -> None:
    flags = ["--minutes", "0", "--samples", "6000", "--trainers", "2", "--every", "0.1", "--step"]
    said = run("chaos", *flags)
    assert "1 rounds, 6,000 samples, each applied once; no process is left" in said
    assert "killed" in said


def test_rows() -> None:
    assert "64 keys x 4 floats" in run("rows", "--keys", "64", "--dim", "4", "--calls", "2", "--rounds", "1")


def test_reading() -> None:
    said = run("reading", "--rows", "500", "--batch", "64", "--rounds", "1")
    assert "ratings.csv  500 rows in batches of 64: ratio " in said


@needs_torch
def test_memory() -> None:
    said = run("memory", "--steps", "50")
    assert "      50  trainer" in said
    assert "from a fifth of the steps to the end: trainer " in said


@needs_torch
def test_dlrm(tmp_path: Path) -> None:
    data = tmp_path / "train.tsv"
    data.write_text("".join("\t".join(["1", *["3"] * 13, *[f"{i:x}"] * 26]) + "\n" for i in range(96)))
    flags = ["--batch", "32", "--dim", "4", "--batches", "3", "--rounds", "1"]
    said = run("dlrm", "--data", str(data), *flags)
    assert "3 batches a pass" in said
    assert "Pipeline" in said
    said = run("dlrm", "--data", str(data), *flags, "--step")
    assert "RowOptimizer" in said
    assert "samples per second of CPU" in said
