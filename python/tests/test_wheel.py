"""The wheel as users get it: in an empty environment, where there is no Node, no npm and no compiler."""

import os
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or platform.machine() not in ("x86_64", "aarch64"),
    reason="LEFT OUT: there is no wheel for this machine",
)


def run(command: list[str], **environment: str) -> str:
    outer = {
        name: value for name, value in os.environ.items() if not name.startswith(("KINTSUGI_", "PYTHON"))
    }
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**outer, **environment}, cwd="/"
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


def first_program(page: str) -> str:
    found = re.search(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_program_of_the_page_survives_a_kill_with_nothing_but_the_wheel(tmp_path: Path) -> None:
    out = tmp_path / "wheels"
    run([sys.executable, str(ROOT / "python/build_wheel.py"), platform.machine(), "--out", str(out)])
    (wheel,) = out.glob("*.whl")
    assert re.fullmatch(r"kintsugi_ps-[\d.]+-py3-none-manylinux_2_28_\w+\.whl", wheel.name)
    names = zipfile.ZipFile(wheel).namelist()
    assert "kintsugi/py.typed" in names
    assert "kintsugi/_program/dist/src/cli/main.js" in names
    assert not [name for name in names if "/.venv/" in name or name.endswith((".map", ".d.ts"))]
    assert wheel.stat().st_size < 8e6

    run([sys.executable, "-m", "venv", str(tmp_path / "venv")])
    path = tmp_path / "venv" / "bin"
    python = str(path / "python")
    # What runs from here on finds nothing of this machine by its name.
    run([python, "-m", "pip", "install", "-q", str(wheel)], PATH=str(path))
    printed = run([python, "-c", first_program("docs/python.md")], PATH=str(path))
    # Initial values between -0.05 and 0.05, and a first step of Adagrad of about 0.05 down.
    values = [float(number) for number in re.findall(r"-?\d\.\d+(?:e-?\d+)?", printed)]
    assert len(values) == 32
    assert all(-0.11 < value < 0.001 for value in values)
    where = run([python, "-c", "from kintsugi._processes import program; print(*program())"], PATH=str(path))
    assert where.split()[0].startswith(str(tmp_path))
    assert "/kintsugi/_program/" in where
