"""What callers give, as the arrays that are sent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._errors import Error

Keys = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.float32]

RESERVED = np.uint64(2**64 - 1)
"""No row has this key. As int64 it is -1: a missing one."""


def keys_of(given: npt.ArrayLike) -> Keys:
    """Keys as u64, of any integers; int64 are taken bit for bit. @raises Error KEY_TYPE, LENGTH_MISMATCH."""
    array: npt.NDArray[Any] = np.asarray(given)
    if array.ndim != 1:
        raise Error("LENGTH_MISMATCH", f"keys must have one dimension, not {array.ndim}")
    if array.dtype.kind not in "iu" and array.size > 0:
        raise Error("KEY_TYPE", f"keys must be integers, not {array.dtype}")
    if array.dtype.kind != "u":
        array = array.astype(np.int64, copy=False)
    elif array.dtype != np.uint64:
        array = array.astype(np.uint64)
    return np.ascontiguousarray(array).view(np.uint64)


def present(keys: Keys) -> npt.NDArray[np.bool_] | None:
    """Which keys are not missing; None: all."""
    missing = keys == RESERVED
    return ~missing if missing.any() else None


def rows_of(given: npt.ArrayLike, count: int, width: int, what: str) -> Rows:
    """Rows as float32, count x width. @raises Error DIM_MISMATCH, LENGTH_MISMATCH, BAD_ARGUMENT."""
    array: npt.NDArray[Any] = np.asarray(given)
    if array.dtype.kind not in "fiu":
        raise Error("BAD_ARGUMENT", f"{what} must be floats, not {array.dtype}")
    if array.size != count * width:
        row = array.shape[-1] if array.ndim == 2 else width
        code = "LENGTH_MISMATCH" if row == width and array.size % width == 0 else "DIM_MISMATCH"
        shape = " x ".join(map(str, array.shape))
        raise Error(code, f"{count} keys x {width} values do not fit {what} of {shape}")
    return np.ascontiguousarray(array, dtype=np.float32).reshape(count, width)


Rate = float | Sequence[float | None] | None
"""Learning rates of a push: one for all its tables, or one of each; None: that of the table."""


def rates_of(given: Rate, count: int) -> list[float | None]:
    """Of each of `count` tables. @raises Error BAD_ARGUMENT, LENGTH_MISMATCH."""
    if given is None or isinstance(given, (int, float, np.number)):
        return [_rate(given)] * count
    rates = [_rate(each) for each in given]
    if len(rates) != count:
        raise Error("LENGTH_MISMATCH", f"{count} tables need as many learning rates, not {len(rates)}")
    return rates


def _rate(given: float | None) -> float | None:
    if given is None:
        return None
    rate = float(given)
    if not math.isfinite(rate) or rate < 0:
        raise Error("BAD_ARGUMENT", f"lr must be a finite number of at least 0, not {given}")
    return rate


def target_of(out: Any, count: int, width: int) -> Rows:
    """Where rows are to go. @raises Error BAD_ARGUMENT, LENGTH_MISMATCH."""
    if not isinstance(out, np.ndarray) or out.dtype != np.float32:
        raise Error("BAD_ARGUMENT", "out must be an array of float32")
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise Error("BAD_ARGUMENT", "out must be contiguous and writable")
    if out.shape != (count, width):
        raise Error("LENGTH_MISMATCH", f"rows of {count} x {width} do not fit out, which is {out.shape}")
    return out
