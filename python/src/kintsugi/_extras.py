"""A push brings more than keys and gradients: a learning rate, counts of its keys, and their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays import Rows, array_of, check_each, numbers_of
from ._checks import listed, number
from ._errors import Error
from ._specs import Policy

Rate = float | Sequence[float | None] | None
"""Learning rates of a push: one for all its tables, or one of each; None: that of the table."""

Counts = Sequence[npt.ArrayLike | None] | None
"""How often the keys of a push were seen, for each of its tables; None: once each."""

Scores = Sequence[npt.ArrayLike | None] | None
"""Scores of the keys of a push, for each of its tables; None: rows keep those that they have."""

MAX_COUNT = 2**32 - 1


@dataclass(frozen=True)
class Extras:
    """A push brings these for the keys of one table."""

    lr: float | None = None
    """Learning rate, in place of the table's."""
    counts: npt.NDArray[np.uint32] | None = None
    """How often each key was seen; None: once."""
    scores: Rows | None = None
    """Score of each key; None: each keeps its own."""

    @property
    def arrays(self) -> list[npt.NDArray[Any]]:
        """Arrays that follow the rows, in order."""
        return [array for array in (self.counts, self.scores) if array is not None]

    def of(self, where: npt.NDArray[np.bool_]) -> Extras:
        """The extras of some of the keys."""
        counts = None if self.counts is None else self.counts[where]
        return Extras(self.lr, counts, None if self.scores is None else self.scores[where])

    def summed(self, inverse: npt.NDArray[Any], distinct: int, policy: Policy | None) -> Extras:
        """The extras of `distinct` keys, seen as often as they come. `inverse`: places of all keys."""
        counts = scores = None
        if policy is not None:
            sums = np.bincount(inverse, self.counts, distinct)
            counts = np.minimum(sums, MAX_COUNT).astype(np.uint32)
        if self.scores is not None:
            scores = np.full(distinct, -np.inf, np.float32)
            np.maximum.at(scores, inverse, self.scores)
        return Extras(self.lr, counts, scores)


@dataclass(frozen=True)
class Given:
    """A caller gives these for one table."""

    lr: float | None
    counts: npt.ArrayLike | None
    scores: npt.ArrayLike | None

    def checked(self, table: str, policy: Policy | None, count: int) -> Extras:
        """The extras of `count` keys. @raises Error BAD_ARGUMENT, LENGTH_MISMATCH."""
        counts, scores = _counts_of(self.counts, count), _scores_of(self.scores, count)
        if scores is not None and (policy is None or not policy.score):
            text = "its rows have no scores: it takes them where it was created with Policy(score=True)"
            raise Error("BAD_ARGUMENT", f'table "{table}": {text}')
        # A table without a policy has no use for counts.
        return Extras(self.lr, None if policy is None else counts, scores)


def each_of(lr: Rate, counts: Counts, scores: Scores, tables: int) -> list[Given]:
    """The extras that are given for some tables, of each. @raises Error BAD_ARGUMENT, LENGTH_MISMATCH."""
    each = zip(
        _rates_of(lr, tables),
        _listed(counts, "counts", tables),
        _listed(scores, "scores", tables),
        strict=True,
    )
    return [Given(*one) for one in each]


def _rates_of(given: Rate, count: int) -> list[float | None]:
    each: Any = given
    if not isinstance(given, (list, tuple)) and not getattr(given, "shape", ()):
        return [_rate(each)] * count
    rates = [_rate(each) for each in listed(given, "lr", "numbers")]
    if len(rates) != count:
        raise Error("LENGTH_MISMATCH", f"{count} tables need as many learning rates, not {len(rates)}")
    return rates


def _rate(given: float | None) -> float | None:
    return None if given is None else number(given, "lr", 0)


def _listed(given: Counts | Scores, what: str, tables: int) -> list[npt.ArrayLike | None]:
    if given is None:
        return [None] * tables
    each: list[npt.ArrayLike | None] = list(listed(given, what, "arrays"))
    if len(each) != tables:
        raise Error("LENGTH_MISMATCH", f"{tables} tables need as many arrays of {what}, not {len(each)}")
    return each


def _counts_of(given: npt.ArrayLike | None, count: int) -> npt.NDArray[np.uint32] | None:
    if given is None:
        return None
    array = array_of(given, "counts", "BAD_ARGUMENT")
    if array.dtype.kind not in "iu" and array.size > 0:
        raise Error("BAD_ARGUMENT", f"counts must be integers, not {array.dtype}")
    check_each(array, count, "counts")
    wrong = np.flatnonzero((array < 1) | (array > MAX_COUNT))
    if len(wrong) > 0:
        text = (
            f"counts[{wrong[0]}] is {array[wrong[0]]}: a key that is pushed was seen 1 to {MAX_COUNT} times"
        )
        raise Error("BAD_ARGUMENT", text)
    return np.ascontiguousarray(array, np.uint32)


def _scores_of(given: npt.ArrayLike | None, count: int) -> Rows | None:
    if given is None:
        return None
    scores = numbers_of(given, count, "scores")
    wrong = np.flatnonzero(~np.isfinite(scores))
    if len(wrong) > 0:
        raise Error("BAD_ARGUMENT", f"scores[{wrong[0]}] is {scores[wrong[0]]}: a score is a finite number")
    return scores
