"""How often the batches of a step name keys, for layers with `count_duplicates`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._extras import MAX_COUNT
from .._steps import Counted

Ints = npt.NDArray[np.int64]


class Occurrences:
    """How often a look-up names each of its keys. A step counts that once, however often gradients come."""

    def __init__(self, counts: Ints) -> None:
        self._counts = counts
        self._step: object = None

    def within(self, step: object) -> Counted:
        """The counts, len(keys); None: this step has asked for them before."""
        if self._step is step:
            return None
        self._step = step
        return self._counts


def pushed(counts: Counted) -> Counted:
    """Counts of a push: what no look-up has counted is seen once. None: all are."""
    return None if counts is None else np.clip(counts, 1, MAX_COUNT)


class Sightings:
    """Counts of the keys of a step, by their positions. They go where gradients go."""

    def __init__(self) -> None:
        self._counts: Counted = None

    def add(self, at: Ints, counts: Counted) -> None:
        """Adds counts of different positions, len(at); None: nobody counts."""
        if counts is None or len(at) == 0:
            return
        mine = self._upto(int(at.max()) + 1)
        mine[at] += counts
        self._counts = mine

    def of(self, touched: npt.NDArray[np.bool_]) -> Counted:
        """Counts of the keys that have a gradient, 0 without a look-up that counts; None: all are."""
        return None if self._counts is None else self._upto(len(touched))[touched]

    def _upto(self, size: int) -> Ints:
        counts = np.empty(0, np.int64) if self._counts is None else self._counts
        more = size - len(counts)
        return np.concatenate([counts, np.zeros(more, np.int64)]) if more > 0 else counts
