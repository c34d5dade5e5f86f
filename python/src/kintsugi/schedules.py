"""Learning rates that change with the steps of a row, for `schedule=` of an optimizer.

A factor of `lr` by the steps that the row has had; see docs/optimizers.md.

>>> kintsugi.Adam(lr=1e-3, schedule=kintsugi.schedules.Cosine(steps=1000, warmup=10))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from ._named import Named, arguments

__all__ = ["Constant", "Cosine", "InverseSqrt", "Schedule", "Step"]


@dataclass(frozen=True)
class Schedule(Named):
    """`warmup`: so many steps of a row have the factors 1 / warmup, 2 / warmup, ..., 1."""

    warmup: int = field(default=0, kw_only=True)


@dataclass(frozen=True)
class Constant(Schedule):
    """1 after the warm-up."""

    kind: ClassVar[str] = "constant"


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine from 1 down to `floor` in `steps` steps, and `floor` from then on."""

    kind: ClassVar[str] = "cosine"
    steps: int
    floor: float = 0.0


@dataclass(frozen=True)
class Step(Schedule):
    """Multiplied by `factor` after `every` steps, again and again."""

    kind: ClassVar[str] = "step"
    every: int
    factor: float


@dataclass(frozen=True)
class InverseSqrt(Schedule):
    """sqrt(scale / (scale + n)) after n steps."""

    kind: ClassVar[str] = "inverse_sqrt"
    scale: int


SCHEDULES: dict[str, type[Schedule]] = {each.kind: each for each in (Constant, Cosine, Step, InverseSqrt)}


def schedule_of(spec: dict[str, Any]) -> Schedule:
    """The schedule that a job names so."""
    return SCHEDULES[str(spec["kind"])](**arguments(spec))
