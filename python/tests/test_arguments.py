"""Public calls with odd arguments: the right answer, or an error with a code that changes nothing."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import kintsugi
from kintsugi import Error

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
COUNTERS = {"optimizer": kintsugi.SGD(lr=-1.0), "initializer": kintsugi.Zeros()}
"""Gradients are added to rows."""
KEYS = [3, 2, 1]
ROWS = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
Given = Callable[[], Any]


def strided() -> Any:
    wide = np.zeros((6, 8), np.float32)
    wide[::2, ::2] = ROWS
    return wide[::2, ::2]


def masked(mask: Any) -> Any:
    return np.ma.MaskedArray(ROWS.copy(), mask)


def tensor(given: Any, **options: Any) -> Any:
    return torch.tensor(np.asarray(given), **options)


KEYS_TAKEN: dict[str, Given] = {
    "list": lambda: KEYS,
    "tuple": lambda: tuple(KEYS),
    "range": lambda: range(3, 0, -1),
    "numpy scalars": lambda: [np.int8(3), np.uint64(2), np.int64(1)],
    "signed and unsigned": lambda: [np.int64(3), np.uint64(2), 1],
    "big endian": lambda: np.array(KEYS, ">i8"),
    "uint8": lambda: np.array(KEYS, np.uint8),
    "int32": lambda: np.array(KEYS, np.int32),
    "strided": lambda: np.array([3, 0, 2, 0, 1, 0])[::2],
    "reversed": lambda: np.array([1, 2, 3])[::-1],
    "not masked": lambda: np.ma.MaskedArray(KEYS),
}
KEYS_REFUSED: dict[str, tuple[str, Given]] = {
    "floats": ("KEY_TYPE", lambda: [3.0, 1.0, 2.0]),
    "truths": ("KEY_TYPE", lambda: np.array([True, False, True])),
    "texts": ("KEY_TYPE", lambda: ["3", "1", "2"]),
    "one text": ("KEY_TYPE", lambda: "312"),
    "none": ("KEY_TYPE", lambda: None),
    "a set": ("KEY_TYPE", lambda: set(KEYS)),
    "a class": ("KEY_TYPE", lambda: np.ndarray),
    "too large": ("KEY_TYPE", lambda: [2**64, 1, 2]),
    "masked": ("KEY_TYPE", lambda: np.ma.MaskedArray(KEYS, [True, False, False])),
    "masked inside": ("KEY_TYPE", lambda: [3, np.ma.masked, 2]),
    "dates": ("KEY_TYPE", lambda: np.array(["2020-01-01"] * 3, "M8[D]")),
    "ragged": ("KEY_TYPE", lambda: [[3], [1, 2]]),
    "a number": ("LENGTH_MISMATCH", lambda: 3),
    "two dimensions": ("LENGTH_MISMATCH", lambda: np.array(KEYS).reshape(3, 1)),
}
ROWS_TAKEN: dict[str, Given] = {
    "lists": lambda: ROWS.tolist(),
    "float16": lambda: ROWS.astype(np.float16),
    "float64": lambda: ROWS.astype(np.float64),
    "integers": lambda: ROWS.astype(np.int64),
    "big endian": lambda: ROWS.astype(">f4"),
    "strided": strided,
    "transposed": lambda: np.ascontiguousarray(ROWS.T).T,
    "in columns": lambda: np.asfortranarray(ROWS),
    "read only": lambda: np.broadcast_to(ROWS, ROWS.shape),
    "one after the other": lambda: ROWS.reshape(-1),
    "arrays in a list": lambda: list(ROWS),
    "not masked": lambda: masked(False),
}
ROWS_REFUSED: dict[str, tuple[str, Given]] = {
    "transposed": ("DIM_MISMATCH", lambda: ROWS.T),
    "another shape": ("DIM_MISMATCH", lambda: ROWS.reshape(2, 6)),
    "one row": ("DIM_MISMATCH", lambda: ROWS.reshape(1, 12)),
    "one column": ("DIM_MISMATCH", lambda: ROWS.reshape(12, 1)),
    "three dimensions": ("DIM_MISMATCH", lambda: ROWS.reshape(3, 2, 2)),
    "three dimensions, the last is dim": ("DIM_MISMATCH", lambda: ROWS.reshape(3, 1, 4)),
    "a number": ("DIM_MISMATCH", lambda: 1.0),
    "too few": ("LENGTH_MISMATCH", lambda: ROWS[:2]),
    "too many, one after the other": ("LENGTH_MISMATCH", lambda: np.ones(16, np.float32)),
    "masked": ("BAD_ARGUMENT", lambda: masked(ROWS == 2)),
    "truths": ("BAD_ARGUMENT", lambda: ROWS > 2),
    "complex": ("BAD_ARGUMENT", lambda: ROWS * 1j),
    "texts": ("BAD_ARGUMENT", lambda: ROWS.astype(str)),
    "objects": ("BAD_ARGUMENT", lambda: ROWS.astype(object)),
    "none": ("BAD_ARGUMENT", lambda: None),
    "a class": ("BAD_ARGUMENT", lambda: np.ndarray),
    "ragged": ("BAD_ARGUMENT", lambda: [[1.0], [1.0, 2.0], [1.0]]),
    "beyond float32": ("BAD_ARGUMENT", lambda: np.full((3, 4), 1e39)),
}
if torch is not None:
    KEYS_TAKEN |= {
        "a tensor": lambda: tensor(KEYS),
        "a tensor of int32": lambda: tensor(KEYS, dtype=torch.int32),
        "a strided tensor": lambda: tensor([3, 0, 2, 0, 1, 0])[::2],
        "scalar tensors": lambda: [torch.tensor(3), torch.tensor(2), torch.tensor(1)],
    }
    KEYS_REFUSED |= {
        "a tensor of floats": ("KEY_TYPE", lambda: tensor(KEYS, dtype=torch.float32)),
        "a tensor of truths": ("KEY_TYPE", lambda: torch.tensor([True, False, True])),
        "a sparse tensor": ("KEY_TYPE", lambda: tensor(KEYS).to_sparse()),
        "a tensor without values": ("KEY_TYPE", lambda: torch.ones(3, dtype=torch.int64, device="meta")),
        "a tensor of two dimensions": ("LENGTH_MISMATCH", lambda: tensor(KEYS).view(3, 1)),
    }
    ROWS_TAKEN |= {
        "a tensor": lambda: tensor(ROWS),
        "a tensor that needs gradients": lambda: tensor(ROWS, requires_grad=True),
        "a result of autograd": lambda: tensor(ROWS, requires_grad=True) * 1,
        "a tensor of bfloat16": lambda: tensor(ROWS, dtype=torch.bfloat16),
        "a tensor of float16": lambda: tensor(ROWS, dtype=torch.float16),
        "a tensor of float64": lambda: tensor(ROWS, dtype=torch.float64),
        "a strided tensor": lambda: tensor(np.repeat(ROWS, 2, 1))[:, ::2],
        "a transposed tensor": lambda: tensor(ROWS).t().contiguous().t(),
        "a negated view": lambda: torch.complex(tensor(ROWS), tensor(-ROWS)).conj().imag,
        "an expanded tensor": lambda: tensor(ROWS[None]).expand(2, 3, 4)[1],
        "tensors in a list": lambda: list(tensor(ROWS, requires_grad=True)),
    }
    ROWS_REFUSED |= {
        "a transposed tensor": ("DIM_MISMATCH", lambda: tensor(ROWS).t()),
        "a sparse tensor": ("BAD_ARGUMENT", lambda: tensor(ROWS).to_sparse()),
        "a tensor without values": ("BAD_ARGUMENT", lambda: torch.ones(3, 4, device="meta")),
    }


@pytest.fixture
def table(client: kintsugi.Client) -> kintsugi.Table:
    return client.create_table(f"t-{uuid4()}", 4, **COUNTERS)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def one(cluster: kintsugi.LocalCluster) -> Iterator[kintsugi.Client]:
    """A client for many cases."""
    with kintsugi.connect(cluster.address, timeout=60) as client:
        yield client


def fresh(one: kintsugi.Client) -> kintsugi.Table:
    return one.create_table(f"t-{uuid4()}", 4, **COUNTERS)  # type: ignore[arg-type]


MINUTE: Any = np.float32(60)
PAGES: Any = np.int64(1 << 20)


def listed(*parts: Any) -> Any:
    """A list in place of a tuple."""
    return list(parts)


PUSHES: dict[str, Callable[[kintsugi.Client, kintsugi.Table, Any, Any], Any]] = {
    "Table.push": lambda _, table, keys, rows: table.push(keys, rows).result(),
    "Client.push": lambda one, table, keys, rows: one.push([(table, keys, rows)]).result(),
    "Client.push, a named table": lambda one, table, keys, rows: one.push(
        [listed(table.name, keys, rows)]
    ).result(),
    "Table.assign": lambda _, table, keys, rows: table.assign(keys, rows).result(),
    "Client.assign": lambda one, table, keys, rows: one.assign(((table, keys, rows),)).result(),
}
PULLS: dict[str, Callable[[kintsugi.Client, kintsugi.Table, Any], Any]] = {
    "Table.pull": lambda _, table, keys: table.pull(keys),
    "Table.pull with state": lambda _, table, keys: table.pull(keys, state=np.True_),  # type: ignore[arg-type]
    "Table.pull_async": lambda _, table, keys: table.pull_async(keys).result(timeout=MINUTE),
    "Client.pull": lambda one, table, keys: one.pull([(table, keys)])[0],
    "Client.pull_async": lambda one, table, keys: one.pull_async([(table.name, keys)]).result()[0],
}


@pytest.mark.parametrize("call", PUSHES)
def test_rows_are_taken(one: kintsugi.Client, call: str) -> None:
    for what, given in ROWS_TAKEN.items():
        table = fresh(one)
        PUSHES[call](one, table, KEYS, given())
        assert (table.pull(KEYS) == ROWS).all(), what


@pytest.mark.parametrize("call", PUSHES)
def test_rows_are_refused_and_change_nothing(one: kintsugi.Client, call: str) -> None:
    table = fresh(one)
    for what, (code, given) in ROWS_REFUSED.items():
        with pytest.raises(Error) as error:
            PUSHES[call](one, table, KEYS, given())
        assert error.value.code == code, what
    assert not table.pull(KEYS).any()
    assert len(table) == 0


@pytest.mark.parametrize("call", PUSHES)
def test_keys_of_pushes(one: kintsugi.Client, call: str) -> None:
    for what, given in KEYS_TAKEN.items():
        table = fresh(one)
        PUSHES[call](one, table, given(), ROWS)
        assert (table.pull(KEYS) == ROWS).all(), what
    table = fresh(one)
    for what, (code, given) in KEYS_REFUSED.items():
        with pytest.raises(Error) as error:
            PUSHES[call](one, table, given(), ROWS)
        assert error.value.code == code, what
    assert len(table) == 0


@pytest.mark.parametrize("call", PULLS)
def test_keys_of_pulls(one: kintsugi.Client, call: str) -> None:
    table = fresh(one)
    table.push(KEYS, ROWS).result()
    for what, given in KEYS_TAKEN.items():
        assert (PULLS[call](one, table, given()) == ROWS).all(), what
    for what, (code, given) in KEYS_REFUSED.items():
        with pytest.raises(Error) as error:
            PULLS[call](one, table, given())
        assert error.value.code == code, what


def test_a_square_that_is_transposed_is_not_found_out_but_a_rectangle_is(table: kintsugi.Table) -> None:
    eight = np.ones((8, 4), np.float32)
    with pytest.raises(Error, match="4 keys x 4 values do not fit gradients of 8 x 2") as error:
        table.push([1, 2, 3, 4], eight[:, :2])
    assert error.value.code == "DIM_MISMATCH"


def test_no_rows_at_all(one: kintsugi.Client) -> None:
    table = fresh(one)
    given: Any
    for given in ([], np.empty((0, 4)), np.empty(0)):
        table.push([], given).result()
    with pytest.raises(Error, match="of 0 x 3"):
        table.push([], np.empty((0, 3)))


TRUE: Any = True
ONE: Any = 1
NUMBERS: dict[str, tuple[Given, bool]] = {
    "int": (lambda: 3, True),
    "numpy": (lambda: np.int16(3), True),
    "an array without dimensions": (lambda: np.array(3), True),
    "a tensor": (lambda: torch.tensor(3) if torch else 3, True),
    "true": (lambda: True, False),
    "numpy's true": (lambda: np.True_, False),
    "a text": (lambda: "3", False),
    "an array": (lambda: np.array([3]), False),
    "a list": (lambda: [3], False),
    "a class": (lambda: int, False),
    "complex": (lambda: 3j, False),
    "not a number": (lambda: float("nan"), False),
}
INTEGERS = {
    **NUMBERS,
    "a float": (lambda: 3.0, False),
    "none": (lambda: None, False),
    "below": (lambda: -3, False),
    "huge": (lambda: 2**70, False),
}


def name() -> str:
    return f"t-{uuid4()}"


def refused(call: Callable[[], object], what: object, code: str = "BAD_ARGUMENT") -> None:
    with pytest.raises(Error) as error:
        call()
    assert error.value.code == code, what


def test_integers(one: kintsugi.Client, tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_text("1\t2\n" * 6)
    wide = tmp_path / "b.tsv"
    wide.write_text("1\t2\t4\t8\n")
    table = fresh(one)
    table.push(KEYS, ROWS).result()
    calls: dict[str, Callable[[Any], object]] = {
        "create_table: dim": lambda n: one.create_table(name(), n).dim == 3,
        "create_table: seed": lambda n: one.create_table(name(), 2, seed=n).seed == 3,
        "empty: count": lambda n: one.empty(n, 2).shape == (3, 2),
        "empty: dim": lambda n: one.empty(2, n).shape == (2, 3),
        "items: batch": lambda n: sum(len(keys) for keys, _ in table.items(n)) == 3,
        "events: since": lambda n: next(iter(one.events(n)))["number"] > 3,
        "read_batches: batch": lambda n: len(next(kintsugi.read_batches([file], batch=n)).label) == 3,
        "read_batches: a column": lambda n: next(kintsugi.read_batches([wide], dense=[n], batch=3)).dense[0],
        "Cosine: steps": lambda n: kintsugi.schedules.Cosine(steps=n).spec()["steps"] == 3,
    }  # fmt: skip
    unlimited = ("Cosine: steps", "read_batches: batch", "read_batches: a column")
    for call, of in calls.items():
        for what, (given, taken) in INTEGERS.items():
            if what in ("below", "huge") and call in unlimited:
                continue
            if taken:
                assert of(given()), (call, what)
            else:
                refused(lambda of=of, given=given: of(given()), (call, what))  # type: ignore[misc]


def test_numbers(one: kintsugi.Client) -> None:
    table = fresh(one)
    table.push([9], np.zeros((1, 4))).result()
    calls: dict[str, Callable[[Any], object]] = {
        "push: lr": lambda x: not table.push([9], ROWS[:1], lr=x).exception(),
        "Client.push: lr": lambda x: not one.push([(table, [9], ROWS[:1])], lr=[x]).exception(),
        "SGD: lr": lambda x: kintsugi.SGD(lr=x).spec() == {"kind": "sgd", "lr": 3.0},
        "Adam: clip_norm": lambda x: kintsugi.Adam(clip_norm=x).spec()["clipNorm"] == 3.0,
        "Uniform: high": lambda x: kintsugi.Uniform(0, x).high == 3.0,
        "Cosine: floor": lambda x: kintsugi.schedules.Cosine(3, floor=x).floor == 3.0,
        "Step: factor": lambda x: kintsugi.schedules.Step(3, x).factor == 3.0,
        "result: timeout": lambda x: table.pull_async([9]).result(x).shape == (1, 4),
    }
    for call, of in calls.items():
        for what, (given, taken) in NUMBERS.items():
            if call == "Client.push: lr" and what == "a list":
                continue
            if taken:
                assert of(given()), (call, what)
            else:
                refused(lambda of=of, given=given: of(given()), (call, what))  # type: ignore[misc]


def test_requests_of_a_wrong_form(one: kintsugi.Client, cluster: kintsugi.LocalCluster) -> None:
    table = fresh(one)
    wrong: list[Any] = [
        table, "abc", None, {table.name: KEYS}, (table, KEYS), [table], [(table,)], [{table: KEYS}], ["ab"],
        [(None, KEYS)], [(kintsugi.Table, KEYS)], [("", KEYS)], [(7, KEYS)],
    ]  # fmt: skip
    for requests in wrong:
        refused(lambda requests=requests: one.pull(requests), requests)  # type: ignore[misc]
        refused(lambda requests=requests: one.pull_async(requests), requests)  # type: ignore[misc]
    for requests in [*wrong, (table, KEYS, ROWS), [(table, KEYS)]]:
        refused(lambda requests=requests: one.push(requests), requests)  # type: ignore[misc]
        refused(lambda requests=requests: one.assign(requests), requests)  # type: ignore[misc]
    refused(lambda: one.pull([(table, KEYS)], state=ONE), "state")
    outs: list[Any] = [5, "a", ROWS.tolist(), [ROWS.tolist()], [np.empty((3, 4))], [np.ma.MaskedArray(ROWS)],
                       [np.empty((6, 4), np.float32)[::2]], [np.broadcast_to(ROWS, (3, 4))]]  # fmt: skip
    for out in outs:
        with pytest.raises(Error):
            one.pull([(table, KEYS)], out=out)
    # A table that another client of the job has is this client's, too.
    with kintsugi.connect(cluster.address, timeout=60) as other:
        other.push([(table, KEYS, ROWS)]).result()
        assert (other.pull([(table, KEYS)])[0] == ROWS).all()


def test_a_table_of_another_job_is_refused(one: kintsugi.Client) -> None:
    table = fresh(one)
    with (
        kintsugi.start_local_cluster(ps=1, code="none") as cluster,
        kintsugi.connect(cluster.address, timeout=60) as other,
    ):
        refused(lambda: other.pull([(table, KEYS)]), "not there", "UNKNOWN_TABLE")
        other.create_table(table.name, 4, **COUNTERS)  # type: ignore[arg-type]
        refused(lambda: other.push([(table, KEYS, ROWS)]), "of the same name", "UNKNOWN_TABLE")


def test_a_class_or_a_text_in_place_of_an_object(one: kintsugi.Client, tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_text("1\t2\n")
    odd: Any
    for odd in (kintsugi.Adagrad, "adagrad", {"kind": "sgd", "lr": 0.1}, kintsugi.Zeros(), 0.1):
        refused(lambda odd=odd: one.create_table(name(), 2, optimizer=odd), odd)  # type: ignore[misc]
    for odd in (kintsugi.Zeros, "zeros", kintsugi.Adagrad(), 0.0):
        refused(lambda odd=odd: one.create_table(name(), 2, initializer=odd), odd)  # type: ignore[misc]
    for odd in (kintsugi.schedules.Cosine, "cosine", kintsugi.Adagrad(), 0.1):
        refused(lambda odd=odd: kintsugi.Adam(schedule=odd), odd)  # type: ignore[misc]
    for odd in (None, "", 5, str, b"items"):
        refused(lambda odd=odd: one.create_table(odd, 2), odd)  # type: ignore[misc]
        refused(lambda odd=odd: one.table(odd), odd)  # type: ignore[misc]
        refused(lambda odd=odd: one.restore(odd), odd)  # type: ignore[misc]
        refused(lambda odd=odd: one.dataset(odd, [("a", 1)], batch=1, range_bytes=1), odd)  # type: ignore[misc]
    for odd in (str(file), file, None, [5], [None]):
        refused(lambda odd=odd: kintsugi.RangeDataset(one, odd, dense=[1], batch=2), odd)  # type: ignore[misc]
        refused(lambda odd=odd: kintsugi.read_batches(odd, dense=[1], batch=2), odd)  # type: ignore[misc]
        refused(lambda odd=odd: one.dataset(name(), odd, batch=1, range_bytes=1), odd)  # type: ignore[misc]
    for odd in ("1", 1, None, [1.0], [True]):
        refused(lambda odd=odd: next(kintsugi.read_batches([file], dense=odd, batch=2)), odd)  # type: ignore[misc]
    for odd in ("hexadecimal", None, int):
        refused(lambda odd=odd: next(kintsugi.read_batches([file], sparse=[1], batch=2, keys=odd)), odd)  # type: ignore[misc]


def test_connect(cluster: kintsugi.LocalCluster) -> None:
    odd: Any
    for odd in (None, 5, str, b"127.0.0.1:1", [], [5]):
        refused(lambda odd=odd: kintsugi.connect(odd), odd)  # type: ignore[misc]
    for odd in (0, -1, "1", True, None, float("nan")):
        refused(lambda odd=odd: kintsugi.connect(cluster.address, timeout=odd), odd)  # type: ignore[misc]
    for odd in (-1, 1.5, "1", True, None):
        refused(lambda odd=odd: kintsugi.connect(cluster.address, memory_bytes=odd), odd)  # type: ignore[misc]
    for odd in (5, b"token", ["token"]):
        refused(lambda odd=odd: kintsugi.connect(cluster.address, token=odd), odd)  # type: ignore[misc]
    refused(lambda: kintsugi.start_local_cluster(ps=TRUE), "ps")
    refused(lambda: kintsugi.start_local_cluster(ps=1, code=None), "code")  # type: ignore[arg-type]
    refused(lambda: kintsugi.start_local_cluster(ps=1, limits=["a"]), "limits")  # type: ignore[arg-type]
    refused(lambda: cluster.kill("0"), "kill")  # type: ignore[arg-type]
    with kintsugi.connect([cluster.address], timeout=MINUTE, memory_bytes=PAGES) as client:
        assert client.tables() is not None


def test_keys_of_both_signs_are_taken_bit_for_bit(table: kintsugi.Table) -> None:
    table.push([-2, 2**63 + 1, -1], ROWS).result()
    assert (table.pull(np.array([2**64 - 2, 2**63 + 1], np.uint64)) == ROWS[:2]).all()
