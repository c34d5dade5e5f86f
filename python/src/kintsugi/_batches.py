"""Batches of samples as arrays: views of the bytes in which the reader of files leaves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._arena import ALIGNMENT

At = Callable[[int, tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]]
"""An array at a byte, of a shape and a type."""


class Batch(NamedTuple):
    """Samples in columns: numpy arrays, or tensors where these were asked for."""

    dense: Any
    """samples x dense columns, float32; what is empty is 0."""
    sparse: Any
    """samples x sparse columns, int64: the key of each value."""
    label: Any
    """samples, float32."""


class SchemaBatch(NamedTuple):
    """Samples by a schema: numpy arrays, or tensors where these were asked for."""

    dense: Any
    """samples x inputs of the dense columns with their transforms, float32."""
    sparse: dict[str, Any]
    """By the name of the column: int64 keys of the samples; `Values` where it is `multi`."""
    weight: Any
    """samples, float32; None: the schema has no such column."""
    time: Any
    """samples, float64; None: the schema has no such column."""
    label: Any
    """samples, float32; samples x labels, where the schema has several."""


class Values(NamedTuple):
    """Values of a sparse column that has several: sample b has offsets[b] to offsets[b + 1] of them."""

    keys: Any
    """int64."""
    offsets: Any
    """samples + 1, int64."""
    weights: Any
    """As many float32 as keys; None: the column has no weights."""


class Lines(NamedTuple):
    """Whole lines of a file."""

    content: bytes
    samples: int


class _Cursor:
    """Takes one array after the other."""

    def __init__(self, at: At, begin: int) -> None:
        self._at = at
        self.place = begin

    def take(self, shape: tuple[int, ...], dtype: type[Any]) -> npt.NDArray[Any]:
        array = self._at(self.place, shape, dtype)
        self.place += array.nbytes
        return array


def unpacked(shape: dict[str, Any] | None, by_schema: bool, at: At, counts: list[list[int]]) -> list[Any]:
    """Batches that lie one after the other, each with its rows and the values of `multi` columns in `counts`.

    `shape`: what their arrays have in common, see src/training/reading/shape.ts; None: lines.
    """
    batches: list[Any] = []
    begin = 0
    for each in counts:
        cursor = _Cursor(at, begin)
        if shape is None:
            batches.append(Lines(cursor.take((each[1],), np.uint8).tobytes(), each[0]))
        elif by_schema:
            batches.append(_of_schema(shape, cursor, each))
        else:
            sparse = cursor.take((len(shape["sparse"]), each[0]), np.int64).T
            label = cursor.take((each[0],), np.float32)
            batches.append(Batch(cursor.take((each[0], shape["width"]), np.float32), sparse, label))
        begin = cursor.place + (-cursor.place % ALIGNMENT)
    return batches


def _of_schema(shape: dict[str, Any], cursor: _Cursor, counts: list[int]) -> SchemaBatch:
    size, *several = counts
    columns = shape["sparse"]
    multi = [column for column in columns if column["multi"]]
    single = [column["name"] for column in columns if not column["multi"]]
    # One array, because each costs more than a view of it.
    keys = dict(zip(single, cursor.take((len(single), size), np.int64), strict=True))
    lists = [cursor.take((count,), np.int64) for count in several]
    time = cursor.take((size,), np.float64) if shape["time"] else None
    labels = shape["labels"]
    label = cursor.take((size,) if labels == 1 else (size, labels), np.float32)
    dense = cursor.take((size, shape["width"]), np.float32)
    weight = cursor.take((size,), np.float32) if shape["weight"] else None
    values = {}
    for column, each in zip(multi, lists, strict=True):
        offsets = cursor.take((size + 1,), np.uint32).astype(np.int64)
        weights = cursor.take((len(each),), np.float32) if column["weighted"] else None
        values[column["name"]] = Values(each, offsets, weights)
    sparse = {name: keys.get(name, values.get(name)) for name in (column["name"] for column in columns)}
    return SchemaBatch(dense, sparse, weight, time, label)


def tensors_of(part: Any) -> Any:
    """A batch with tensors of PyTorch in place of arrays."""
    import torch

    if isinstance(part, np.ndarray):
        return torch.from_numpy(part)
    if isinstance(part, dict):
        return {name: tensors_of(each) for name, each in part.items()}
    return type(part)(*(tensors_of(each) for each in part)) if isinstance(part, tuple) else part
