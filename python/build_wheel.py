"""Wheels with the program of Kintsugi inside: no compiler, npm or Node for those who install them.

python python/build_wheel.py [x86_64] [aarch64] [--out python/dist]     # default: both

For one's own machine `pip wheel --no-deps ./python` is faster: it takes the addon that is there.

Run in a checkout after `npm install`. The program is what `npm pack` would publish of compiled JavaScript,
the packages that it needs in the versions of package-lock.json, and the prebuilt addon (native/prebuild.mjs).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLIBC = (2, 28)
"""The glibc of manylinux_2_28: no file inside may need a newer one."""
MACHINES = {"x86_64": ("x64", 62), "aarch64": ("arm64", 183)}
"""Names of processors: that of npm, and the number in the header of an ELF file."""
FILES = ("package.json", "LICENSE", "src/fleet/dashboard/page", "examples/logistic.mjs")
DROPPED = re.compile(
    # Types, maps, sources and pages of packages; addons for one Node (all take the one for Node-API), or for
    # another C library.
    r"\.([cm]?ts|map|tsbuildinfo|cpp|cc|c|h|gyp|yml)$|(?<!license)\.(md|markdown)$|/\.|/(test|benchmark)s?/"
    r"|\.abi\d+\.|\.musl\.node$",
    re.IGNORECASE,
)


def local() -> Path:
    """The program for this machine alone, in a folder, with the addon that the checkout has compiled."""
    machine = platform.machine()
    addon = ROOT / "build/Release/kintsugi.node"
    if sys.platform != "linux" or machine not in MACHINES:
        raise SystemExit(f"there are wheels for Linux on {' and '.join(MACHINES)}, not for {machine}")
    if not addon.exists():
        raise SystemExit(f"{addon} is not there: run `npm install` in {ROOT} before")
    _run("npm", "run", "compile")
    return staged(machine, addon)


def staged(machine: str, compiled: Path | None = None) -> Path:
    """The program for a machine, in a folder. `compiled`: its addon, in place of one for an old C library."""
    npm_name = MACHINES[machine][0]
    folder = ROOT / "build" / "wheel" / (machine if compiled is None else "local")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if compiled is None:
        _run("node", "native/prebuild.mjs", f"linux-{npm_name}-glibc")
    addon = f"prebuilds/linux-{npm_name}/kintsugi-ps.napi.glibc.node"
    for name in (*FILES, "dist", addon):
        source, target = ROOT / name, folder / name
        if name == addon and compiled is not None:
            source = compiled
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)
    packages = folder / "packages"
    packages.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy2(ROOT / name, packages / name)
    what = ["--omit=dev", "--omit=peer", "--ignore-scripts", "--no-audit", "--no-fund", "--no-bin-links"]
    _run("npm", "install", *what, "--os=linux", f"--cpu={npm_name}", "--libc=glibc", cwd=packages)
    (packages / "node_modules").rename(folder / "node_modules")
    shutil.rmtree(packages)
    # An optional peer: Python reads parquet, too.
    shutil.copytree(ROOT / "node_modules" / "hyparquet", folder / "node_modules" / "hyparquet")
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if DROPPED.search(f"/{path.relative_to(folder)}"):
            path.unlink()
    check(machine, folder, GLIBC if compiled is None else None)
    return folder


def check(machine: str, folder: Path, glibc: tuple[int, int] | None) -> None:
    """Every addon is for this machine and for an old C library; None: for whichever is here."""
    addons = sorted(folder.rglob("*.node"))
    if not addons:
        raise SystemExit(f"{machine}: there is no addon in {folder}")
    for path in addons:
        content = path.read_bytes()
        (found,) = struct.unpack_from("<H", content, 18)
        versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", content)
        newest = max(((int(major), int(minor)) for major, minor in versions), default=(0, 0))
        if content[:4] != b"\x7fELF" or found != MACHINES[machine][1] or (glibc and newest > glibc):
            raise SystemExit(f"{path} is for machine {found} with glibc {newest}, not for {machine}, {glibc}")


def build(machine: str, out: Path) -> Path:
    """The wheel for a machine."""
    tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"
    environment = {
        **os.environ,
        "KINTSUGI_WHEEL_PROGRAM": str(staged(machine)),
        "KINTSUGI_WHEEL_PLATFORM": tag,
        "SOURCE_DATE_EPOCH": "1700000000",
    }
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(out), str(ROOT / "python")]
    subprocess.run(command, check=True, env=environment)
    version = json.loads((ROOT / "package.json").read_text())["version"]
    return out / f"kintsugi_ps-{version}-py3-none-{tag}.whl"


def _run(*command: str, cwd: Path = ROOT) -> None:
    subprocess.run(command, check=True, cwd=cwd, stdout=subprocess.DEVNULL)


def sizes(wheel: Path) -> Iterator[str]:
    """Lines about the size of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        entries = archive.infolist()
    yield f"{wheel.name}  {wheel.stat().st_size / 1e6:.1f} MB, installed"
    yield f"{sum(entry.file_size for entry in entries) / 1e6:.1f} MB in {len(entries)} files"


def main() -> None:
    """Builds what is asked for."""
    parser = argparse.ArgumentParser(description="wheels of kintsugi-ps")
    parser.add_argument("machines", nargs="*", metavar="|".join(MACHINES), default=list(MACHINES))
    parser.add_argument("--out", type=Path, default=ROOT / "python" / "dist")
    flags = parser.parse_args()
    for machine in flags.machines:
        if machine not in MACHINES:
            parser.error(f"{machine} is none of {', '.join(MACHINES)}")
    _run("npm", "run", "compile")
    for machine in flags.machines:
        print(*sizes(build(machine, flags.out)))


if __name__ == "__main__":
    main()
