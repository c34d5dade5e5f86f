"""Files of every format, read by the process beside this one: the same batches as in TypeScript."""

import gzip
import hashlib
import json
import multiprocessing
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kintsugi
from kintsugi import _reader

SCRIPT = str(Path(__file__).with_name("reader.mjs"))
ROWS = 700
SCHEMA: dict[str, Any] = {
    "label": ["rating", {"column": "count", "atLeast": 40}],
    "dense": [
        "age",
        {"column": "count", "transform": "log1p"},
        {"column": "age", "name": "bucket", "transform": {"bucketise": [18, 30.5]}},
    ],
    "sparse": [
        {"column": "user", "key": "integer", "table": "users"},
        {"column": "seen", "key": "integer", "table": "users", "multi": True, "weights": "shares"},
        "city",
        {"column": "tags", "multi": True, "limit": 2},
    ],
    "weight": "weight",
    "time": "time",
}
COLUMNS = ["rating", "age", "count", "user", "city", "tags", "seen", "shares", "weight", "time"]


def rows() -> Iterator[dict[str, Any]]:
    random = np.random.default_rng(3)
    for i in range(ROWS):
        seen = random.integers(0, 1000, random.integers(0, 5)).tolist()
        yield {
            "rating": i % 2,
            "age": None if i % 7 == 0 else i % 80 + 0.25,
            "count": int(random.integers(0, 100)),
            "user": int(random.integers(1, 1 << 50)),
            "city": [None, "Basel", "São Paulo", "Québec, QC", 'the "Big" Apple', "x"][i % 6],
            "tags": [f"tag{n}" for n in random.integers(0, 9, random.integers(0, 4))],
            "seen": seen,
            "shares": [n / 4 for n in seen],
            "weight": i % 16 / 8,
            "time": 900 + i / 4,
        }


def cell(value: Any, delimiter: str) -> str:
    text = "|".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
    return '"' + text.replace('"', '""') + '"' if delimiter in text or '"' in text else text


def delimited(delimiter: str) -> str:
    lines = [delimiter.join(cell(row[name], delimiter) for name in COLUMNS) for row in rows()]
    return "\n".join([delimiter.join(COLUMNS), *lines, ""])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("formats")
    texts = {"a.csv": delimited(","), "a.tsv": delimited("\t")}
    texts["a.jsonl"] = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows())
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    node("parquet", str(folder / "a.jsonl"), str(folder / "a.parquet"))
    return sorted(each for each in folder.iterdir() if each.name.startswith("a."))


def node(*arguments: str) -> list[str]:
    done = subprocess.run(["node", SCRIPT, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def arrays_in(batch: kintsugi.SchemaBatch) -> Iterator[Any]:
    """The arrays of a batch as TypeScript has them."""
    yield from (batch.label, batch.dense, batch.weight, batch.time)
    size = len(batch.label)
    for column in batch.sparse.values():
        if isinstance(column, kintsugi.Values):
            yield from (column.keys, column.offsets.astype(np.uint32), column.weights)
        else:
            yield from (column, np.arange(size + 1, dtype=np.uint32))


def digest(batches: Iterator[Any]) -> str:
    found = hashlib.sha256()
    for batch in batches:
        for array in arrays_in(batch):
            if array is not None:
                found.update(array.tobytes())
    return found.hexdigest()


@pytest.mark.parametrize("batch", [1, 64, 1000])
def test_every_format_gives_the_batches_of_the_typescript_reader(files: list[Path], batch: int) -> None:
    assert len(files) == 7
    schema = files[0].with_name("schema.json")
    theirs = node("digest", str(schema), str(batch), *map(str, files))
    ours = [digest(kintsugi.read_batches([file], schema=schema, batch=batch)) for file in files]
    assert ours == theirs
    assert len(set(ours)) == 1


def test_batches_by_a_schema(files: list[Path]) -> None:
    batches = list(kintsugi.read_batches(files, schema=SCHEMA, batch=200))
    assert [len(batch.label) for batch in batches] == [200, 200, 200, 100] * len(files)
    first, expected = batches[0], list(rows())[:200]
    assert first.label.tolist() == [[row["rating"], float(row["count"] >= 40)] for row in expected]
    assert first.sparse["user"].tolist() == [row["user"] for row in expected]
    assert list(first.sparse) == ["user", "seen", "city", "tags"]
    seen = first.sparse["seen"]
    assert seen.keys.tolist() == [key for row in expected for key in row["seen"]]
    assert np.diff(seen.offsets).tolist() == [len(row["seen"]) for row in expected]
    assert seen.weights.tolist() == [share for row in expected for share in row["shares"]]
    assert first.sparse["tags"].weights is None
    assert np.diff(first.sparse["tags"].offsets).max() == 2
    assert first.time.tolist() == [row["time"] for row in expected]
    assert first.weight.dtype == np.float32
    # Arrays are the caller's.
    first.dense[:] += 1


def test_every_format_is_trained_once(client: kintsugi.Client, files: list[Path]) -> None:
    data = kintsugi.RangeDataset(
        client, files, schema=SCHEMA, batch=16, epochs=2, run=f"run-{uuid4()}", audit=True
    )
    seen = [weight for batch in data for weight in batch.weight.tolist()]
    assert sorted(seen) == sorted(row["weight"] for row in rows() for _ in range(2 * len(files)))
    samples = 2 * ROWS * len(files)
    assert data.report() == {"samples": samples, "trained": samples, "lost": 0, "duplicated": 0}


def fnv(text: bytes, column: int) -> int:
    key = 0xCBF29CE484222325
    for byte in text:
        key = (key ^ byte) * 0x100000001B3 % 2**64
    return key ^ (((column + 1) << 32) * 0x9E3779B97F4A7C15 % 2**64)


def digits_key(text: str, column: int, base: int) -> int:
    return (column + 1) << 32 | (int(text, base) if text else 1 << 63)


NUMBER = st.one_of(
    st.integers(-(10**17), 10**17).map(str),
    st.floats(-1e37, 1e37, allow_nan=False).map(repr),
    st.sampled_from(["+5", "1.", ".5", "-0", "1e3"]),
)
WORD = st.text(st.characters(exclude_characters='\0\n\r\t,"', exclude_categories=["Cs"]), max_size=12)
KEYS: dict[str, Any] = {
    "hex": (st.text("0123456789abcdefABCDEF", max_size=8), lambda text, at: digits_key(text, at, 16)),
    "integer": (st.text("0123456789", max_size=9), lambda text, at: digits_key(text, at, 10)),
    "text": (WORD, lambda text, at: fnv(text.encode(), at)),
}


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from(sorted(KEYS)), st.sampled_from(["a.csv", "a.tsv"]), st.integers(1, 9))
def test_columns_by_position(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, kind: Any, name: str, batch: int
) -> None:
    cells, key_of = KEYS[kind]
    line = st.tuples(NUMBER, st.one_of(NUMBER, st.just("")), cells, cells)
    lines = data.draw(st.lists(line, min_size=1, max_size=20))
    file = tmp_path_factory.mktemp("columns") / name
    separator = "," if name == "a.csv" else "\t"
    file.write_text("".join(separator.join(line) + "\n" for line in lines))
    read = kintsugi.read_batches([file], label=0, dense=[1], sparse=[3, 2], keys=kind, batch=batch)
    batches = list(read)
    assert [len(each.label) for each in batches] == [
        min(batch, len(lines) - begin) for begin in range(0, len(lines), batch)
    ]
    labels = np.concatenate([each.label for each in batches])
    assert (labels == np.array([float(line[0]) for line in lines]).astype(np.float32)).all()
    dense = np.concatenate([each.dense for each in batches])[:, 0]
    assert (dense == np.array([float(line[1] or 0) for line in lines]).astype(np.float32)).all()
    sparse = np.concatenate([each.sparse for each in batches]).view(np.uint64).tolist()
    assert sparse == [[key_of(line[3], 0), key_of(line[2], 1)] for line in lines]


def numbers(path: Path, count: int) -> Path:
    path.write_text("".join(f"{i}\t{i:x}\n" for i in range(count)))
    return path


def labels_of(batches: Iterator[Any]) -> list[float]:
    return [label for batch in batches for label in batch.label.tolist()]


def test_a_reader_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    file = numbers(tmp_path / "a.tsv", 200_000)
    seen: list[float] = []
    killed: set[int] = set()
    # Wide batches, of which few are read ahead.
    for batch in kintsugi.read_batches([file], dense=[0] * 40, sparse=[1], batch=1000):
        seen += batch.label.tolist()
        # A dead reader is known as such when it is asked for more than it has read ahead.
        pid = _reader.running_reader().pid
        if len(killed) < 2 and pid not in killed:
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)
    assert seen == list(range(200_000))
    assert len(killed) == 2


def test_a_reader_that_cannot_start_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = numbers(tmp_path / "a.tsv", 10)
    _reader._close()
    script = tmp_path / "kintsugi"
    for content, why in (("exit 3", "status 3"), ("kill -KILL $$", "3 readers of files ended")):
        script.write_text(f"#!/bin/sh\n{content}\n")
        script.chmod(0o700)
        monkeypatch.setenv("KINTSUGI_COMMAND", str(script))
        with pytest.raises(kintsugi.Error, match=why) as error:
            next(kintsugi.read_batches([file], batch=5))
        assert error.value.code == "UNREACHABLE"
    monkeypatch.delenv("KINTSUGI_COMMAND")
    assert labels_of(kintsugi.read_batches([file], batch=5)) == list(range(10))


def test_arrays_that_are_kept_fill_the_memory_and_the_rest_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = numbers(tmp_path / "a.tsv", 200_000)
    _reader._close()
    monkeypatch.setattr(_reader, "_MEMORY", 3 << 20)
    batches = list(kintsugi.read_batches([file], dense=[0], sparse=[1], batch=5000))
    assert labels_of(iter(batches)) == list(range(200_000))
    for batch in batches:
        batch.dense[:] = batch.label[:, None]
        batch.sparse[:] = 7
    assert labels_of(iter(batches)) == list(range(200_000))
    _reader._close()


def test_a_limit_of_the_system_is_not_the_fault_of_a_file(tmp_path: Path) -> None:
    file = numbers(tmp_path / "a.tsv", 10)
    pid = _reader.running_reader().pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), before[1]))
    try:
        with pytest.raises(kintsugi.Error, match="ulimit -n") as error:
            next(kintsugi.read_batches([file], batch=5))
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    assert error.value.code == "SYSTEM_LIMIT"


def test_batches_before_an_error_come_first(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_text("1\n" * 25 + "x\n" + "1\n" * 25)
    batches = kintsugi.read_batches([file], batch=10)
    assert [len(next(batches).label) for _ in range(2)] == [10, 10]
    with pytest.raises(kintsugi.Error) as error:
        next(batches)
    assert str(error.value) == f'BAD_DATA: {file}:26: column "0" must be a number, not "x"'


@pytest.mark.parametrize(
    ("name", "options", "code", "why"),
    [
        ("a.jsonl", {}, "BAD_ARGUMENT", "its columns have names, and no positions"),
        ("a.tsv", {"label": 1}, "BAD_DATA", "there must be a column 1, and the line has 0 to 0"),
        ("a.tsv", {"label": "y"}, "BAD_DATA", 'there must be a column "y", and the header has 1'),
        ("a.tsv", {"schema": {"label": "y"}}, "BAD_ARGUMENT", "schema: sparse must be"),
        ("a.tsv", {"schema": {"label": "y"}, "dense": [1]}, "BAD_ARGUMENT", "leave the others out"),
        ("a.tsv", {"schema": {"label": {1}}}, "BAD_ARGUMENT", "must be JSON"),
        ("a.tsv", {"schema": "/none/schema.json"}, "BAD_ARGUMENT", "must be a file of JSON"),
        ("a.tsv.gz", {}, "BAD_DATA", "a.tsv.gz"),
        ("none.tsv", {}, "BAD_DATA", "no such file"),
        ("*.none", {}, "BAD_DATA", "no file matches"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, name: str, options: dict[str, Any], code: str, why: str) -> None:
    for each in ("a.jsonl", "a.tsv", "a.tsv.gz"):
        (tmp_path / each).write_text("1\n")
    with pytest.raises(kintsugi.Error, match=why) as error:
        list(kintsugi.read_batches([tmp_path / name], batch=5, **options))
    assert error.value.code == code


def test_folders_and_patterns_stand_for_their_files(tmp_path: Path) -> None:
    for name in ("b", "a"):
        numbers(tmp_path / f"{name}.tsv", 3)
    for place in (tmp_path, tmp_path / "*.tsv"):
        assert labels_of(kintsugi.read_batches([place], batch=2)) == [0, 1, 2] * 2


def child(path: str, answer: Any) -> None:
    answer.put(labels_of(kintsugi.read_batches([path], sparse=[1], batch=100)))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_has_a_reader_of_its_own(tmp_path: Path, method: str) -> None:
    file = numbers(tmp_path / "a.tsv", 5000)
    mine = kintsugi.read_batches([file], sparse=[1], batch=100)
    first = next(mine)
    context: Any = multiprocessing.get_context(method)
    answers = context.Queue()
    children = [context.Process(target=child, args=(str(file), answers)) for _ in range(2)]
    for each in children:
        each.start()
    assert [answers.get() for _ in children] == [list(range(5000))] * 2
    for each in children:
        each.join()
        assert each.exitcode == 0
    assert [*first.label.tolist(), *labels_of(mine)] == list(range(5000))


def test_an_iterator_goes_on_in_a_child_after_a_fork(tmp_path: Path) -> None:
    file = numbers(tmp_path / "a.tsv", 5000)
    batches = kintsugi.read_batches([file], sparse=[1], batch=100)
    next(batches)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, b"1" if labels_of(batches) == list(range(100, 5000)) else b"0")
        _reader._close()
        os._exit(0)
    os.close(writing)
    assert os.read(reading, 1) == b"1"
    os.close(reading)
    os.waitpid(pid, 0)
    assert labels_of(batches) == list(range(100, 5000))


PROGRAM = """
import os, signal, sys
import kintsugi
from kintsugi import _reader
batches = kintsugi.read_batches([sys.argv[1]], batch=10)
next(batches)
print(_reader.running_reader().pid, flush=True)
if os.fork() == 0:
    # A child has the memory of its parent, and nothing that keeps the reader.
    sys.stdin.read()
    os._exit(0)
{rest}
"""


@pytest.mark.parametrize("rest", ["signal.pause()", ""], ids=["SIGKILL", "end"])
def test_a_reader_ends_with_its_program(tmp_path: Path, rest: str) -> None:
    file = numbers(tmp_path / "a.tsv", 100_000)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(rest=rest), str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        handle = os.pidfd_open(int(process.stdout.readline()))
        if rest:
            process.kill()
        process.wait()
        select.select([handle], [], [])
        os.close(handle)
    finally:
        process.stdin.close()
        process.stdout.close()
        process.kill()
        process.wait()
