"""Batches of samples as arrays: views of the bytes in which the reader of files leaves them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._arena import ALIGNMENT


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
    """Takes one array after the other. Each begins at a multiple of 8 bytes."""

    __slots__ = ("_content", "place")

    def __init__(self, content: Any, begin: int) -> None:
        self._content = content
        self.place = begin

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = np.ndarray(shape, dtype, self._content, self.place)
        self.place += (array.nbytes + 7) & -8
        return array


_KEYS = np.dtype(np.int64)
_FLOATS = np.dtype(np.float32)
_TIMES = np.dtype(np.float64)
_BYTES = np.dtype(np.uint8)


class Unpacker:
    """Makes arrays of the bytes of batches."""

    def __init__(self, shape: dict[str, Any] | None, by_schema: bool) -> None:
        """`shape`: what their arrays have in common, see src/training/reading/shape.ts; None: lines."""
        self._shape = shape
        self._by_schema = by_schema
        columns = shape["sparse"] if shape is not None else []
        self._names = [column["name"] for column in columns]
        self._single = [column["name"] for column in columns if not column["multi"]]
        self._multi = [column for column in columns if column["multi"]]

    def unpacked(self, content: Any, counts: list[list[int]]) -> list[Any]:
        """Batches that lie one after the other in memory that can be written.

        `counts`: of each its rows, and the values of its `multi` columns.
        """
        batches: list[Any] = []
        begin = 0
        for each in counts:
            cursor = _Cursor(content, begin)
            batches.append(self._batch(cursor, each))
            begin = cursor.place + (-cursor.place % ALIGNMENT)
        return batches

    def _batch(self, cursor: _Cursor, counts: list[int]) -> Any:
        size = counts[0]
        shape = self._shape
        if shape is None:
            return Lines(cursor.take((counts[1],), _BYTES).tobytes(), size)
        # One array, because each costs more than a view of it.
        keys = cursor.take((len(self._single), size), _KEYS)
        time = cursor.take((size,), _TIMES) if shape["time"] else None
        labels = shape["labels"]
        label = cursor.take((size,) if labels == 1 else (size, labels), _FLOATS)
        dense = cursor.take((size, shape["width"]), _FLOATS)
        if not self._by_schema:
            return Batch(dense, keys.T, label)
        weight = cursor.take((size,), _FLOATS) if shape["weight"] else None
        sparse: dict[str, Any] = dict(zip(self._single, keys, strict=True))
        if self._multi:
            for column, count in zip(self._multi, counts[1:], strict=True):
                several = cursor.take((count,), _KEYS)
                offsets = cursor.take((size + 1,), _KEYS)
                weights = cursor.take((count,), _FLOATS) if column["weighted"] else None
                sparse[column["name"]] = Values(several, offsets, weights)
            sparse = {name: sparse[name] for name in self._names}
        return SchemaBatch(dense, sparse, weight, time, label)


def tensors_of(part: Any) -> Any:
    """A batch with tensors of PyTorch in place of arrays."""
    import torch

    if isinstance(part, np.ndarray):
        return torch.from_numpy(part)
    if isinstance(part, dict):
        return {name: tensors_of(each) for name, each in part.items()}
    return type(part)(*(tensors_of(each) for each in part)) if isinstance(part, tuple) else part
