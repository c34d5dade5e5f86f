"""Arguments of public calls: each is converted where that loses nothing, or refused with a sentence."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from ._errors import Error

T = TypeVar("T")


def bad(text: str) -> Error:
    """The error for an argument of a wrong type, form or range."""
    return Error("BAD_ARGUMENT", text)


def shown(given: object) -> str:
    """A value in an error: short, on one line, and never the content of an array."""
    if isinstance(given, type):
        return f"the class {given.__name__}"
    if hasattr(given, "shape") and hasattr(given, "dtype"):
        return f"{type(given).__name__} of shape {tuple(given.shape)} and type {given.dtype}"
    text = " ".join(repr(given).split())
    return f"{type(given).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def is_truth(given: object) -> bool:
    """Whether a value is true or false, of Python, numpy or PyTorch. It is no number then."""
    return isinstance(given, bool) or str(getattr(given, "dtype", "")) in ("bool", "torch.bool")


def _is_scalar(given: object) -> bool:
    return tuple(getattr(given, "shape", ())) == ()


def integer(given: Any, what: str, least: int | None = None, most: int | None = None) -> int:
    """An integer, also one of numpy or PyTorch. @raises Error BAD_ARGUMENT."""
    value = None
    if not is_truth(given) and not isinstance(given, type) and _is_scalar(given):
        try:
            value = operator.index(given)
        except (TypeError, ValueError, RuntimeError):
            value = None
    if value is None:
        raise bad(f"{what} must be an integer, not {shown(given)}")
    if (least is not None and value < least) or (most is not None and value > most):
        limits = f"at least {least}" if most is None else f"from {least} to {most}"
        raise bad(f"{what} must be an integer {'of ' if most is None else ''}{limits}, not {value}")
    return value


def number(given: Any, what: str, least: float | None = None) -> float:
    """A finite number, also one of numpy or PyTorch. @raises Error BAD_ARGUMENT."""
    value = None
    if not isinstance(given, (str, bytes, type)) and not is_truth(given) and _is_scalar(given):
        try:
            value = float(given)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            value = None
    if value is None or not math.isfinite(value) or (least is not None and value < least):
        limit = "" if least is None else f" of at least {least:g}"
        raise bad(f"{what} must be a finite number{limit}, not {shown(given) if value is None else value}")
    return value


def seconds(given: Any, what: str) -> float | None:
    """A time to wait, at least 0; None: without an end. @raises Error BAD_ARGUMENT."""
    return None if given is None or given == math.inf else number(given, what, 0)


def flag(given: Any, what: str) -> bool:
    """True or False, also that of numpy or PyTorch. @raises Error BAD_ARGUMENT."""
    if is_truth(given) and _is_scalar(given):
        return bool(given)
    raise bad(f"{what} must be True or False, not {shown(given)}")


def text(given: Any, what: str) -> str:
    """A text that is not empty. @raises Error BAD_ARGUMENT."""
    if isinstance(given, str) and given:
        return str(given)
    raise bad(f"{what} must be a text that is not empty, not {shown(given)}")


def path(given: Any, what: str) -> str:
    """The path of a file or place, of a text or a `Path`. @raises Error BAD_ARGUMENT."""
    if isinstance(given, (str, os.PathLike)) and isinstance(found := os.fspath(given), str):
        return text(found, what)
    raise bad(f"{what} must be a path, not {shown(given)}")


def instance(given: Any, kind: type[T], what: str, such_as: str) -> T:
    """An object of this class. @raises Error BAD_ARGUMENT: also for a class in place of an object."""
    if isinstance(given, kind):
        return given
    raise bad(f"{what} must be an object such as {such_as}, not {shown(given)}")


def listed(given: Any, what: str, of: str) -> list[Any]:
    """The entries of a list, a tuple or an iterator. @raises Error BAD_ARGUMENT: a text, a mapping."""
    if isinstance(given, Iterable) and not isinstance(given, (str, bytes, dict, type, os.PathLike)):
        try:
            return list(given)
        except TypeError:
            # An array without dimensions.
            pass
    raise bad(f"{what} must be a list of {of}, not {shown(given)}")


def texts(given: Any, what: str, of: str) -> list[str]:
    """A list of texts. @raises Error BAD_ARGUMENT: also for a single text."""
    return [text(each, f"each of {what}") for each in listed(given, what, of)]


def entries(given: Any, size: int, of: str, what: str = "requests") -> list[tuple[Any, ...]]:
    """A list of tuples, such as requests for tables. @raises Error BAD_ARGUMENT."""
    found = []
    for each in listed(given, what, of):
        if not isinstance(each, Sequence) or isinstance(each, (str, bytes)) or len(each) != size:
            raise bad(f"each of {what} must be {of}, not {shown(each)}")
        found.append(tuple(each))
    return found
