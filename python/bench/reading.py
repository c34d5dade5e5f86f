"""Reads files from Python and with the TypeScript library, in turns: CPU seconds of all processes.

python python/bench/reading.py [--rows 200000] [--batch 4096] [--rounds 5]

Ratios are CPU seconds of the TypeScript library by those of Python: medians of rounds that follow each other.
Files are in the Criteo layout as TSV, with a schema, and ratings as CSV; with pyarrow, the same as parquet,
too. What starts the processes does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import kintsugi
from kintsugi._processes import program
from kintsugi._reader import running_reader

Case = tuple[Path, dict[str, Any]]


def criteo(folder: Path, rows: int) -> Case:
    random = np.random.default_rng(1)
    numbers = random.integers(0, 2000, (rows, 13)).tolist()
    keys = random.integers(0, 1 << 32, (rows, 26)).tolist()
    columns = ["y", *(f"I{n}" for n in range(13)), *(f"C{n}" for n in range(26))]
    file = folder / "criteo.tsv"
    with file.open("w") as out:
        for i in range(rows):
            cells = [str(i % 2), *map(str, numbers[i]), *(f"{key:08x}" for key in keys[i])]
            out.write("\t".join(cells) + "\n")
    schema = {
        "label": "y",
        "dense": columns[1:14],
        "sparse": [{"column": name, "key": "hash"} for name in columns[14:]],
        "header": columns,
    }
    return file, schema


def ratings(folder: Path, rows: int) -> Case:
    random = np.random.default_rng(2)
    users, items = random.integers(0, 100_000, (2, rows)).tolist()
    file = folder / "ratings.csv"
    with file.open("w") as out:
        out.write("user,item,rating,genres\n")
        for i in range(rows):
            out.write(f"{users[i]},{items[i]},{i % 5 + 1},drama|crime{i % 9}\n")
    sparse: list[Any] = [{"column": name, "key": "integer", "table": name} for name in ("user", "item")]
    sparse.append({"column": "genres", "multi": True})
    return file, {"label": {"column": "rating", "atLeast": 4}, "sparse": sparse}


def as_parquet(file: Path, schema: dict[str, Any]) -> Case:
    """The same rows in row groups of 65,536: numbers as numbers, texts as texts. @raises ImportError."""
    from pyarrow import csv, parquet

    header = schema.get("header")
    read = csv.ReadOptions(column_names=header)
    table = csv.read_csv(
        file, read_options=read, parse_options=csv.ParseOptions(delimiter="\t" if header else ",")
    )
    written = file.with_suffix(".parquet")
    parquet.write_table(table, written, row_group_size=1 << 16)
    return written, {name: value for name, value in schema.items() if name != "header"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, standard in (("rows", 200_000), ("batch", 4096), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=standard)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for case in (criteo, ratings):
            file, schema = case(Path(folder), flags.rows)
            compare(flags, file, schema)
            with contextlib.suppress(ImportError):
                compare(flags, *as_parquet(file, schema))


def compare(flags: argparse.Namespace, file: Path, schema: dict[str, Any]) -> None:
    written = file.with_suffix(".json")
    written.write_text(json.dumps(schema))
    script = [
        program()[0],
        str(Path(__file__).with_suffix(".mjs")),
        str(written),
        str(flags.batch),
        str(file),
    ]
    found: dict[str, list[float]] = {"TypeScript": [], "Python": []}
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        # The first round of each warms it up.
        for _ in range(flags.rounds + 1):
            print(file=node.stdin, flush=True)
            theirs, rows = node.stdout.readline().split()
            found["TypeScript"].append(float(theirs))
            found["Python"].append(ours(file, schema, flags.batch, int(rows)))
        node.stdin.close()
    ratio = statistics.median(
        a / b for a, b in zip(found["TypeScript"][1:], found["Python"][1:], strict=True)
    )
    size = file.stat().st_size / 1e6
    for name, seconds in found.items():
        spent = statistics.median(seconds[1:])
        print(f"{file.name:12} {name:10} {spent:7.3f} CPU s {size / spent:7.0f} MB per CPU s")
    print(f"{file.name:12} {flags.rows:,} rows in batches of {flags.batch}: ratio {ratio:.2f}")


def ours(file: Path, schema: dict[str, Any], batch: int, rows: int) -> float:
    """CPU seconds of this process and of the reader beside it."""
    pid = running_reader().pid
    before = time.process_time() + cpu_seconds(pid)
    read = sum(len(each.label) for each in kintsugi.read_batches([file], schema=schema, batch=batch))
    spent = time.process_time() + cpu_seconds(pid) - before
    if read != rows:
        raise SystemExit(f"Python read {read} rows, and TypeScript {rows}")
    return spent


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process so far."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


if __name__ == "__main__":
    main()
