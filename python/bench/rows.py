"""Pulls and pushes from Python against the TypeScript library, in turns, at one job of real processes.

python python/bench/rows.py [--keys 4096] [--dim 64] [--calls 50] [--rounds 7]

Ratios are times of the TypeScript library by those of Python: medians of rounds that follow each other.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import kintsugi
from kintsugi._processes import program

BASES = ("TypeScript pull", "TypeScript push", "TypeScript pull, one ahead")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, standard in (("keys", 4096), ("dim", 64), ("calls", 50), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=standard)
    flags = parser.parse_args()
    with (
        kintsugi.start_local_cluster(ps=5, code="4+1") as cluster,
        kintsugi.connect(cluster.address, timeout=60) as client,
    ):
        compare(flags, cluster.address, client)


def compare(flags: argparse.Namespace, address: str, client: kintsugi.Client) -> None:
    table = client.create_table("rows", flags.dim, optimizer=kintsugi.SGD(lr=0.01))
    generator = np.random.default_rng(1)
    keys = [generator.integers(0, 200_000, flags.keys) for _ in range(32)]
    ordinary = np.full((flags.keys, flags.dim), 0.01, np.float32)
    shared = client.empty(flags.keys, flags.dim)
    shared[:] = 0.01
    under_way: list[kintsugi.Future[np.ndarray]] = []

    def ahead(each: np.ndarray) -> None:
        under_way.append(table.pull_async(each))
        if len(under_way) > 1:
            under_way.pop(0).result()

    ways: dict[str, Callable[[np.ndarray], object]] = {
        "pull": lambda each: table.pull(each),
        "pull, one ahead": ahead,
        "push": lambda each: table.push(each, shared).result(),
        "push of ordinary memory": lambda each: table.push(each, ordinary).result(),
    }

    def milliseconds(call: Callable[[np.ndarray], object]) -> float:
        begin: float = time.perf_counter()
        for i in range(flags.calls):
            call(keys[i % len(keys)])
        return (time.perf_counter() - begin) * 1000 / len(range(flags.calls))

    numbers = [str(number) for number in (flags.keys, flags.dim, flags.calls)]
    typescript = subprocess.Popen(
        [program()[0], str(Path(__file__).with_name("rows.mjs")), address, *numbers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert typescript.stdin is not None
    assert typescript.stdout is not None
    found: dict[str, list[float]] = {name: [] for name in (*BASES, *ways)}
    # The first round warms everything up.
    for number in range(flags.rounds + 1):
        typescript.stdin.write("\n")
        typescript.stdin.flush()
        times = [float(each) for each in typescript.stdout.readline().split()]
        times += [milliseconds(call) for call in ways.values()]
        if number > 0:
            for name, value in zip(found, times, strict=True):
                found[name].append(value)
    typescript.communicate()
    print(f"{flags.keys} keys x {flags.dim} floats, 5 PS, code 4+1, medians of {flags.rounds} rounds")
    for name, values in found.items():
        base = found[next(each for each in BASES if each.endswith(name.split(" of ")[0]))]
        ratio = statistics.median(a / b for a, b in zip(base, values, strict=True))
        print(f"{name:26} {statistics.median(values):7.3f} ms   {ratio:5.2f}")


if __name__ == "__main__":
    main()
