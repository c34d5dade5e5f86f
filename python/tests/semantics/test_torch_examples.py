"""The examples of steps run, and two processes end with the rows of one."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")

FOLDER = Path(__file__).resolve().parents[3] / "examples/python"


def said(name: str, *flags: str) -> str:
    done = subprocess.run(
        [sys.executable, str(FOLDER / name), *flags], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


Run = Callable[..., str]


@pytest.fixture
def run(
    cluster: kintsugi.LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Runs an example in this process, at the job of the tests: what it prints."""

    def of(name: str, *flags: str) -> str:
        path = str(FOLDER / name)
        monkeypatch.setattr(sys, "argv", [path, "--scheduler", cluster.address, *flags])
        runpy.run_path(path, run_name="__main__")
        return capsys.readouterr().out

    return of


def test_mixed_precision_with_accumulation(run: Run) -> None:
    text = run("amp.py", "--steps", "40")
    first, last = (float(each) for each in re.findall(r"\d\.\d+", text))
    assert last < 0.8 * first


def test_an_average_of_dense_parameters_over_live_rows(run: Run) -> None:
    text = run("ema.py", "--steps", "150")
    _, live, averaged = (float(each) for each in re.findall(r"\d\.\d+", text))
    assert averaged < live


@pytest.mark.filterwarnings("default")
def test_export_to_onnx_and_back(run: Run) -> None:
    for needed in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(needed, reason=f"LEFT OUT: {needed} is not installed")
    text = run("to_onnx.py", "--steps", "20")
    exported, again = (float(each) for each in re.findall(r": (\d\.\de[-+]\d+) apart", text))
    assert exported < 1e-5
    assert again < 1e-5


@pytest.mark.long
def test_processes_end_with_the_rows_of_one() -> None:
    one, two = (said("ddp.py", "--processes", str(count)).split("rows ")[1] for count in (1, 2))
    assert float(one) == pytest.approx(float(two), rel=1e-5)
