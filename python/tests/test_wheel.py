"""The wheel as users get it: in an empty environment, where there is no Node, no npm and no compiler."""

import os
import platform
import re
import subprocess
import sys
import time
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


def survives_a_kill(path: Path) -> None:
    """The first program of the page runs in an environment whose programs are at `path`."""
    python = str(path / "python")
    printed = run([python, "-c", first_program("docs/python.md")], PATH=str(path))
    # Initial values between -0.05 and 0.05, and a first step of Adagrad of about 0.05 down.
    values = [float(number) for number in re.findall(r"-?\d\.\d+(?:e-?\d+)?", printed)]
    assert len(values) == 32
    assert all(-0.11 < value < 0.001 for value in values)


def shell_of(page: str) -> list[str]:
    """Lines of the shell in a page."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_the_lines_of_the_page_install_it_in_an_empty_environment(tmp_path: Path) -> None:
    run([sys.executable, "-m", "venv", str(tmp_path / "venv")])
    path = tmp_path / "venv" / "bin"
    lines = shell_of("docs/python.md")
    assert [line.split()[1] for line in lines] == ["wheel", "install", "install"]
    # Another architecture's wheel beside it must not matter.
    dist = ROOT / "python" / "dist"
    dist.mkdir(exist_ok=True)
    other = dist / "kintsugi_ps-0.0.1-py3-none-manylinux_2_28_other.whl"
    other.write_bytes(b"")
    try:
        for line in lines:
            # PyTorch itself is large: the last line installs the wheel alone.
            options = {"PIP_NO_DEPS": "1"} if "[torch]" in line else {}
            begun = time.monotonic()
            run(["bash", "-ec", f"cd '{ROOT}'; {line}"], PATH=f"{path}:{os.environ['PATH']}", **options)
            assert time.monotonic() - begun < 60, line
    finally:
        other.unlink()
    survives_a_kill(path)
    where = run([str(path / "python"), "-c", "import kintsugi; print(kintsugi.__file__)"], PATH=str(path))
    assert where.startswith(str(tmp_path))


def test_the_lines_that_install_torchrec_are_those_of_ci() -> None:
    lines = [line for line in shell_of("docs/pytorch.md") if "torchrec" in line or "torchmetrics" in line]
    assert len(lines) == 2
    for line in lines:
        assert line.removeprefix("pip install ") in (ROOT / ".ci/torch").read_text()


def test_the_program_of_the_page_survives_a_kill_with_nothing_but_the_wheel(tmp_path: Path) -> None:
    out = tmp_path / "wheels"
    run([sys.executable, str(ROOT / "python/build_wheel.py"), platform.machine(), "--out", str(out)])
    (wheel,) = out.glob("*.whl")
    assert re.fullmatch(r"kintsugi_ps-[\d.]+-py3-none-manylinux_2_28_\w+\.whl", wheel.name)
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("/node_modules/hyparquet/src/index.js") for name in names)
    assert "kintsugi/py.typed" in names
    assert "kintsugi/_program/dist/src/cli/main.js" in names
    assert not [name for name in names if "/.venv/" in name or name.endswith((".map", ".d.ts"))]
    assert wheel.stat().st_size < 8e6

    run([sys.executable, "-m", "venv", str(tmp_path / "venv")])
    path = tmp_path / "venv" / "bin"
    python = str(path / "python")
    # Programs that run from here on find no other program of this machine by its name.
    run([python, "-m", "pip", "install", "-q", str(wheel)], PATH=str(path))
    survives_a_kill(path)
    where = run([python, "-c", "from kintsugi._processes import program; print(*program())"], PATH=str(path))
    assert where.split()[0].startswith(str(tmp_path))
    assert "/kintsugi/_program/" in where
