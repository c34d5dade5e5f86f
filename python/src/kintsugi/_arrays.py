"""Keys and rows of callers, as the arrays that are sent."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._checks import is_truth, shown
from ._errors import Error

Keys = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.float32]

RESERVED = np.uint64(2**64 - 1)
"""No row has this key. As int64 it is -1: a missing one."""


def _of_tensor(given: Any) -> Any:
    """The array of a tensor of PyTorch; anything else as it is."""
    if not (hasattr(given, "detach") and hasattr(given, "resolve_conj")):
        return given
    given = given.detach().resolve_conj().resolve_neg().cpu()
    # numpy has no bfloat16. float32 holds all of its values.
    return (given.float() if str(given.dtype) == "torch.bfloat16" else given).numpy()


def array_of(given: Any, what: str, code: str) -> npt.NDArray[Any]:
    """An array of anything that has values: lists, arrays, and tensors of any device, with autograd or not.

    @raises Error `code`: it has none, or some are masked.
    """
    try:
        if isinstance(given, (list, tuple)):
            given = [_of_tensor(each) for each in given]
            masked = any(isinstance(each, np.ma.MaskedArray) for each in given)
        else:
            given = _of_tensor(given)
            masked = isinstance(given, np.ma.MaskedArray) and bool(np.ma.getmaskarray(given).any())
        if masked:
            raise Error(code, f"{what} are masked: say with `filled(...)` which values are meant")
        array: npt.NDArray[Any] = np.asarray(given)
        return array
    except (TypeError, ValueError, RuntimeError, OverflowError, NotImplementedError) as error:
        reason = " ".join(str(error).split())
        raise Error(code, f"{what} cannot be read as an array: {reason[:200]}") from None


def _integers(given: Sequence[Any], array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Signed and unsigned 64-bit integers of one list, for which numpy has no common type; else `array`."""
    try:
        values = [operator.index(each) for each in given if not is_truth(each)]
    except TypeError:
        return array
    if len(values) < len(given) or not all(-(1 << 63) <= value < 1 << 64 for value in values):
        return array
    return np.array([value & ((1 << 64) - 1) for value in values], np.uint64)


def keys_of(given: npt.ArrayLike) -> Keys:
    """Keys as u64, of any integers; int64 are taken bit for bit. @raises Error KEY_TYPE, LENGTH_MISMATCH."""
    array = array_of(given, "keys", "KEY_TYPE")
    if isinstance(given, (list, tuple)):
        if array.dtype.kind in "iu" and any(is_truth(each) for each in given):
            raise Error("KEY_TYPE", "keys must be integers of at most 64 bits, not True or False")
        if array.dtype.kind in "fO":
            array = _integers(given, array)
    if array.dtype.kind not in "iu" and (array.size > 0 or array.ndim == 0 or array.dtype.kind != "f"):
        raise Error("KEY_TYPE", f"keys must be integers of at most 64 bits, not {array.dtype}")
    if array.ndim != 1:
        raise Error("LENGTH_MISMATCH", f"keys must have one dimension, not {array.ndim}")
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
    """Rows as float32, count x width, of as many numbers: with two dimensions, or one after the other in one.

    @raises Error DIM_MISMATCH, LENGTH_MISMATCH, BAD_ARGUMENT.
    """
    array = array_of(given, what, "BAD_ARGUMENT")
    _check_floats(array, what)
    if array.shape != (count, width) and array.shape != (count * width,):
        row = array.shape[1] if array.ndim == 2 else width
        fits = array.ndim in (1, 2) and row == width and array.size % width == 0
        shape = " x ".join(map(str, array.shape)) or "one number"
        text = f"{count} keys x {width} values do not fit {what} of {shape}"
        raise Error("LENGTH_MISMATCH" if fits else "DIM_MISMATCH", text)
    return _floats(array, what).reshape(count, width)


def numbers_of(given: npt.ArrayLike, count: int, what: str) -> Rows:
    """One float32 for each of `count` keys. @raises Error LENGTH_MISMATCH, BAD_ARGUMENT."""
    array = array_of(given, what, "BAD_ARGUMENT")
    _check_floats(array, what)
    check_each(array, count, what)
    return _floats(array, what)


def check_each(array: npt.NDArray[Any], count: int, what: str) -> None:
    """There is one of `count` keys each. @raises Error LENGTH_MISMATCH."""
    if array.shape != (count,):
        shape = " x ".join(map(str, array.shape)) or "one number"
        raise Error("LENGTH_MISMATCH", f"{count} keys need as many {what}, not {shape}")


def _check_floats(array: npt.NDArray[Any], what: str) -> None:
    if array.dtype.kind not in "fiu" and not (array.dtype.kind == "V" and array.dtype.name == "bfloat16"):
        raise Error("BAD_ARGUMENT", f"{what} must be floats, not {array.dtype}")


def _floats(array: npt.NDArray[Any], what: str) -> Rows:
    if array.dtype.kind == "f" and array.dtype.itemsize > 4:
        try:
            with np.errstate(over="raise"):
                array = array.astype(np.float32)
        except FloatingPointError:
            raise Error("BAD_ARGUMENT", f"{what} have a number that float32 cannot hold") from None
    return np.ascontiguousarray(array, dtype=np.float32)


def target_of(out: Any, count: int, width: int) -> Rows:
    """Where rows are to go. @raises Error BAD_ARGUMENT, LENGTH_MISMATCH."""
    if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray) or out.dtype != np.float32:
        raise Error("BAD_ARGUMENT", f"out must be an array of numpy of float32, not {shown(out)}")
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise Error("BAD_ARGUMENT", "out must be contiguous and writable")
    if out.shape != (count, width):
        raise Error("LENGTH_MISMATCH", f"rows of {count} x {width} do not fit out, which is {out.shape}")
    return out
