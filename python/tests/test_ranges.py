"""Samples of text files: their columns, and that each is trained exactly once."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import kintsugi
from kintsugi._reader import Source


def run() -> str:
    return f"run-{uuid4()}"


def written(path: Path, lines: int, columns: int = 3) -> Path:
    """Lines of: line number, a value, a key in hexadecimal digits, ..."""
    path.write_text("".join(f"{i}\t{i * 3}" + f"\t{i:x}" * (columns - 2) + "\n" for i in range(lines)))
    return path


def read(path: Path, **options: Any) -> Any:
    (batch,) = kintsugi.read_batches([path], batch=100, **options)
    return batch


def test_columns_become_arrays(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_bytes(b"1\t5\t\tff\t\n0\t-3\t2.5\t0000000A\tb\r\n1\t\t1e3\t\tfFfFfFfF")
    batch = read(file, label=0, dense=[1, 2], sparse=[3, 4])
    assert batch.label.tolist() == [1, 0, 1]
    assert batch.dense.tolist() == [[5, 0], [-3, 2.5], [0, 1000]]
    # As `kintsugi worker` has them: the column above, the value below, the highest bit for no value.
    first, second, none = 1 << 32, 2 << 32, 1 << 63
    expected = [[first + 255, second | none], [first + 10, second + 11], [first | none, second + 0xFFFFFFFF]]
    assert batch.sparse.view(np.uint64).tolist() == expected
    assert batch.sparse.dtype == np.int64


def test_columns_by_name_and_other_keys(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("city,click,n\nBasel,1,7\n,0,9\nBasel,1,\n")
    text = read(file, label="click", sparse=["city"], keys="text")
    assert text.label.tolist() == [1, 0, 1]
    assert text.sparse[0] == text.sparse[2] != text.sparse[1]
    numbers = read(file, label="click", sparse=["n"], keys="integer")
    assert numbers.sparse.view(np.uint64)[:2, 0].tolist() == [(1 << 32) + 7, (1 << 32) + 9]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"label": "click", "sparse": ["town"]}, 'must be a column "town"'),
        ({"label": "click", "sparse": [1]}, "all positions"),
        ({"label": 9}, "must be a column 9, and the line has 0 to 2"),
    ]
    for options, why in wrong:
        with pytest.raises(kintsugi.Error, match=why):
            read(file, **options)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("1\t2\n1\n", ":2: 1 columns instead of 2"),
        ("1\tx\n", ':1: column "1" must be a number or empty, not "x"'),
        ("1\t\n\n1\t1\n", ":2: a blank line"),
        ("1\t1_000\n", 'not "1_000"'),
        ("1\t 5 \n", 'not " 5 "'),
        ("1\tNaN\n", 'not "NaN"'),
        ("1\t-inf\n", 'not "-inf"'),
        ("1\t1e400\n", 'not "1e400"'),
        ("1\t-\n", 'not "-"'),
        ("nan\t1\n", ':1: column "0" must be a number, not "nan"'),
        ("1\t1\n\t1\n", ':2: column "0" must be a number, not ""'),
    ],
)
def test_what_is_wrong_in_a_file_is_said(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "a.tsv"
    file.write_text(content)
    with pytest.raises(kintsugi.Error, match=why) as error:
        read(file, label=0, dense=[1])
    assert error.value.code == "BAD_DATA"


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_ranges_share_no_line_and_miss_none(tmp_path: Path, size: int) -> None:
    file = written(tmp_path / "a.tsv", 200)
    bytes_ = file.stat().st_size
    for layout in ({"header": False}, {"columns": {"label": 0, "dense": [], "sparse": [], "keys": "hex"}}):
        source = Source([str(file)], layout)
        spans = [(0, begin, min(bytes_, begin + size)) for begin in range(0, bytes_, size)]
        batches = [batch for span in spans for batch in source.batches(3, span)]
        if "header" in layout:
            assert b"".join(batch.content for batch in batches) == file.read_bytes()
        else:
            assert [label for batch in batches for label in batch.label.tolist()] == list(range(200))


def test_each_sample_once_also_when_a_trainer_leaves(
    cluster: kintsugi.LocalCluster, client: kintsugi.Client, tmp_path: Path
) -> None:
    files = [written(tmp_path / "a.tsv", 700), written(tmp_path / "b.tsv", 300)]
    name = run()

    def data(client: kintsugi.Client) -> kintsugi.RangeDataset:
        return kintsugi.RangeDataset(
            client, files, dense=[0], sparse=[2], label=1, batch=4, epochs=2, run=name, audit=True
        )

    seen: list[float] = []
    with kintsugi.connect(cluster.address, timeout=60) as other:
        for batch in data(other):
            seen += batch.dense[:, 0].tolist()
            if len(seen) > 30:
                break
        # The last batch was seen, but not pushed.
        seen = seen[:-4]
    ours = data(client)
    for batch in ours:
        seen += batch.dense[:, 0].tolist()
    # A batch that was durable came once more, for dense parameters; none was applied twice.
    assert len(seen) >= 2000
    assert set(seen) == set(range(700))
    assert ours.report() == {"samples": 2000, "trained": 2000, "lost": 0, "duplicated": 0}


def test_a_reader_of_ones_own(client: kintsugi.Client, tmp_path: Path) -> None:
    file = written(tmp_path / "a.tsv", 50)
    data = kintsugi.RangeDataset(
        client, [file], batch=8, run=run(), reader=lambda lines, count: (lines.splitlines(), count)
    )
    batches = list(data)
    assert [line for lines, _ in batches for line in lines] == file.read_bytes().splitlines()
    assert [count for _, count in batches] == [8] * 6 + [2]


def test_a_run_keeps_its_columns(client: kintsugi.Client, tmp_path: Path) -> None:
    file, name = written(tmp_path / "a", 10), run()

    def opened(**columns: Any) -> kintsugi.RangeDataset:
        return kintsugi.RangeDataset(client, [file], label=1, batch=4, run=name, **columns)

    opened(dense=[0], sparse=[2])
    for columns in ({"dense": [0], "sparse": [1]}, {"dense": [0], "sparse": [2], "keys": "text"}):
        with pytest.raises(kintsugi.Error, match=r"has a schema with .*: give that of the run"):
            opened(**columns)
    opened(dense=[0], sparse=[2])


def test_wrong_data_is_set_aside(client: kintsugi.Client, tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_text("1\t2\nnonsense\n")
    data = kintsugi.RangeDataset(client, [file], dense=[1], batch=8, run=run())
    for _ in range(3):
        with pytest.raises(kintsugi.Error, match=":2: 1 columns instead of 2"):
            list(data)
    assert list(data) == []
    assert len(data.dataset.status()["setAside"]) == 1


@pytest.mark.parametrize("label", ["y", 0])
def test_a_byte_order_mark_is_no_part_of_the_first_cell(tmp_path: Path, label: str | int) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"\xef\xbb\xbf" + (b"y,n\n1,7\n" if label == "y" else b"1,7\n"))
    batch = read(file, label=label, dense=["n" if label == "y" else 1])
    assert (batch.label.tolist(), batch.dense.tolist()) == ([1], [[7]])


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("y,n,n\n1,7,8\n")
    with pytest.raises(kintsugi.Error, match='the column "n" more than once') as error:
        read(file, label="y", dense=["n"])
    assert error.value.code == "BAD_DATA"
