"""The notebook runs from its first cell to its last, and shows what it says."""

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples/python/survive_a_kill.ipynb"


def test_the_notebook_survives_a_kill(capsys: pytest.CaptureFixture[str]) -> None:
    for needed in ("torch", "matplotlib"):
        pytest.importorskip(needed, reason=f"LEFT OUT: {needed} is not installed")
    import matplotlib as mpl

    mpl.use("agg")
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    names: dict[str, object] = {}
    try:
        for cell in cells:
            if cell["cell_type"] == "code":
                lines = [line for line in cell["source"] if not line.startswith("%")]
                exec("".join(lines), names)
    finally:
        for name in ("client", "cluster"):
            if name in names:
                names[name].close()  # type: ignore[attr-defined]
    assert "longest step after the kill" in capsys.readouterr().out


def test_the_notebook_shows_a_run() -> None:
    outputs = [
        output for cell in json.loads(NOTEBOOK.read_text())["cells"] for output in cell.get("outputs", [])
    ]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
