"""Optimizers and initializers of tables."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from datetime import timedelta
from enum import Enum
from typing import Any, ClassVar

from ._checks import bad, flag, instance, integer, number, shown
from ._named import Named, arguments
from .schedules import Schedule, schedule_of


@dataclass(frozen=True)
class Optimizer(Named):
    """How gradients change rows; see docs/optimizers.md.

    `clip_norm`: the gradient of a row is scaled down to this norm where its own is larger. `schedule`: `lr`
    is multiplied by a factor that changes with the steps of each row (`kintsugi.schedules`).
    """

    clip_norm: float | None = field(default=None, kw_only=True)
    schedule: Schedule | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule is not None:
            _checked_schedule(self.schedule)


def _checked_schedule(given: Any) -> Schedule:
    return instance(given, Schedule, "schedule", "kintsugi.schedules.Cosine(steps=1000)")


@dataclass(frozen=True)
class SGD(Optimizer):
    """w -= lr * g."""

    kind: ClassVar[str] = "sgd"
    lr: float


@dataclass(frozen=True)
class Momentum(Optimizer):
    """v = momentum * v + g; w -= lr * v."""

    kind: ClassVar[str] = "momentum"
    lr: float
    momentum: float = 0.9


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """s += g^2; w -= lr * g / (sqrt(s) + eps)."""

    kind: ClassVar[str] = "adagrad"
    lr: float = 0.05
    eps: float = 1e-10
    initial_accumulator: float = 0.0


@dataclass(frozen=True)
class RowwiseAdagrad(Optimizer):
    """s += mean(g^2), one s per row; w -= lr * g / (sqrt(s) + eps)."""

    kind: ClassVar[str] = "rowwise_adagrad"
    lr: float = 0.05
    eps: float = 1e-10
    initial_accumulator: float = 0.0


@dataclass(frozen=True)
class Adam(Optimizer):
    """Moving averages of g and g^2, corrected for the start; each row counts its own steps."""

    kind: ClassVar[str] = "adam"
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


@dataclass(frozen=True)
class AdamW(Optimizer):
    """w -= lr * weight_decay * w, then as `Adam`: decay that the moving averages do not see."""

    kind: ClassVar[str] = "adamw"
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01


@dataclass(frozen=True)
class FTRL(Optimizer):
    """FTRL-Proximal with L1 and L2; for tables that begin with `Zeros()`. It takes no schedule."""

    kind: ClassVar[str] = "ftrl"
    lr: float = 0.05
    beta: float = 1.0
    l1: float = 0.0
    l2: float = 0.0
    initial_accumulator: float = 0.0


@dataclass(frozen=True)
class Initializer(Named):
    """Values of a row that was never pushed; they depend on the table's seed and the key only."""


@dataclass(frozen=True)
class Zeros(Initializer):
    """All zero."""

    kind: ClassVar[str] = "zeros"


@dataclass(frozen=True)
class Constant(Initializer):
    """All the same value."""

    kind: ClassVar[str] = "constant"
    value: float


@dataclass(frozen=True)
class Uniform(Initializer):
    """Uniform in [low, high)."""

    kind: ClassVar[str] = "uniform"
    low: float = -0.05
    high: float = 0.05


@dataclass(frozen=True)
class Normal(Initializer):
    """About normal with this mean and standard deviation: a sum of twelve uniforms, none beyond 6 `std`."""

    kind: ClassVar[str] = "normal"
    mean: float = 0.0
    std: float = 0.01


OPTIMIZERS: dict[str, type[Optimizer]] = {
    each.kind: each for each in (SGD, Momentum, Adagrad, RowwiseAdagrad, Adam, AdamW, FTRL)
}
INITIALIZERS: dict[str, type[Initializer]] = {each.kind: each for each in (Zeros, Constant, Uniform, Normal)}


MOST_LIFE = 2**29 - 1
MOST_ROWS = 2**48
ADMISSIONS = ("counter", "bloom", "probability", "likely")
LEAST_CHANCE = 1e-9
# The least and the largest positive float32, which a norm may be.
LEAST_NORM, MOST_NORM = 2.0**-149, 2.0**128 - 2.0**104
# The highest counter of a filter, the most sightings that it counts, and bounds of its error.
MOST_COUNTER = 255
MOST_CAPACITY = 2**32 - 1
LEAST_ERROR, MOST_ERROR = 1e-6, 0.5
# A factor by which sightings decay is so many parts of 1.
DECAY_PARTS = 65_536


# Steps, or time of the job.
Ttl = int | timedelta


class _Times:
    """Ttls of a policy, which are all steps or all times."""

    def __init__(self) -> None:
        self.clocks: set[str] = set()

    def of(self, given: Any, what: str) -> int:
        """@raises Error BAD_ARGUMENT."""
        if not isinstance(given, timedelta):
            self.clocks.add("steps")
            return integer(given, what, 1, MOST_LIFE)
        self.clocks.add("seconds")
        seconds, rest = divmod(given, timedelta(seconds=1))
        if rest or not 1 <= seconds <= MOST_LIFE:
            raise bad(f"{what} must be whole seconds, from 1 to {MOST_LIFE}, not {given}")
        return int(seconds)

    def spec(self) -> dict[str, Any]:
        """@raises Error BAD_ARGUMENT."""
        if len(self.clocks) == 2:
            raise bad("all ttls of a policy are datetime.timedelta, or none is, and they are steps")
        return {"clock": "seconds"} if "seconds" in self.clocks else {}


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The policy of a table: which rows go by themselves; see docs/tables.md.

    `ttl`: a row is gone when its shard has applied more pushes of gradients since the row's last, or when
    more time of the job has passed: a `datetime.timedelta` of whole seconds. All times of a policy are such,
    or none is, from the creation of a table on. `min_frequency`: (sightings, ttl), the ttl of rows that were
    seen fewer times, or (sightings, ttl, factor, every): at each multiple of `every`, sightings are
    multiplied by `factor`, between 0 and 1; what is left is rounded to the nearest number when the row is
    seen again or looked at. `l2_below`: (norm, ttl), the ttl of rows whose values have a lower Euclidean
    norm. `keep`: so many rows of all shards together, those that were seen last, stay in spite of `ttl`.
    `max_rows`: the rows of all shards together; new rows displace those that were not seen for long.
    `memory`: the same where nearly all of a PS's --memory is used. `score`: pushes may give rows scores, and
    those of the lowest go first for `max_rows` or `memory`, of which it needs one; from the creation of a
    table on, or never. `counter`: gradients change a row from this sighting on. `bloom`: the same without a
    row before; (sightings, capacity, error) of a filter, or the sightings alone. `probability`: each sighting
    of a key without a row makes it one with this chance. `likely`: the chance that lets 95 of 100 keys have a
    row after so many sightings. A policy has at most one of the last four.
    """

    ttl: Ttl | None = None
    min_frequency: tuple[int, Ttl] | tuple[int, Ttl, float, Ttl] | None = None
    l2_below: tuple[float, Ttl] | None = None
    keep: int | None = None
    max_rows: int | None = None
    memory: bool = False
    score: bool = False
    counter: int | None = None
    bloom: int | tuple[int, int, float] | None = None
    probability: float | None = None
    likely: int | None = None

    def spec(self) -> dict[str, Any]:
        """As the job names it. @raises Error BAD_ARGUMENT."""
        spec: dict[str, Any] = {}
        times = _Times()
        if self.ttl is not None:
            spec["ttl"] = times.of(self.ttl, "ttl")
        if self.min_frequency is not None:
            spec["minFrequency"] = frequency_of(self.min_frequency, times)
        if self.l2_below is not None:
            given: Any = self.l2_below
            if not isinstance(given, tuple) or len(given) != 2:
                raise bad(f"l2_below must be (norm, ttl), not {shown(given)}")
            spec["l2Below"] = {
                "norm": number(given[0], "norm of l2_below"),
                "ttl": times.of(given[1], "ttl of l2_below"),
            }
            if not LEAST_NORM <= spec["l2Below"]["norm"] <= MOST_NORM:
                raise bad(f"norm of l2_below must be a positive float32, not {shown(given[0])}")
        spec |= times.spec()
        if self.keep is not None:
            spec["keep"] = integer(self.keep, "keep", 1, MOST_ROWS)
            if self.ttl is None:
                raise bad("keep says how many rows stay in spite of ttl: it needs one")
        if self.max_rows is not None:
            spec["maxRows"] = integer(self.max_rows, "max_rows", 1, MOST_ROWS)
        for name, value in (("memory", self.memory), ("score", self.score)):
            if flag(value, name):
                spec[name] = True
        if self.score and "maxRows" not in spec and not self.memory:
            raise bad("score says which rows go for max_rows or memory: it needs one of them")
        if self.counter is not None:
            spec["counter"] = integer(self.counter, "counter", 1, MOST_LIFE)
        if self.bloom is not None:
            spec["bloom"] = filter_of(self.bloom)
        if self.probability is not None:
            spec["probability"] = number(self.probability, "probability")
            if not LEAST_CHANCE <= spec["probability"] <= 1:
                raise bad(f"probability must be from {LEAST_CHANCE} to 1, not {shown(self.probability)}")
        if self.likely is not None:
            spec["likely"] = integer(self.likely, "likely", 1, MOST_LIFE)
        if not spec:
            names = ", ".join(field.name for field in fields(self))
            raise bad(f"a policy has at least one of {names}")
        admissions = [name for name in ADMISSIONS if name in spec]
        if len(admissions) > 1:
            raise bad(f"a policy has one of {', '.join(ADMISSIONS)}, not {' and '.join(admissions)}")
        if "counter" in spec and "decay" in spec.get("minFrequency", {}):
            raise bad("with a factor of min_frequency a row that counter admitted would lose its admission")
        return spec


def frequency_of(given: Any, times: _Times) -> dict[str, Any]:
    """`min_frequency` of a policy, as a job names it. @raises Error BAD_ARGUMENT."""
    if not isinstance(given, tuple) or len(given) not in (2, 4):
        forms = "(sightings, ttl) or (sightings, ttl, factor, every)"
        raise bad(f"min_frequency must be {forms}, not {shown(given)}")
    spec: dict[str, Any] = {
        "sightings": integer(given[0], "sightings of min_frequency", 1, MOST_LIFE),
        "ttl": times.of(given[1], "ttl of min_frequency"),
    }
    if len(given) == 4:
        factor = number(given[2], "factor of min_frequency")
        if not 1 <= math.floor(factor * DECAY_PARTS + 0.5) < DECAY_PARTS:
            limits = f"above 0 and below 1 in steps of 1/{DECAY_PARTS}"
            raise bad(f"factor of min_frequency must be {limits}, not {shown(given[2])}")
        spec["decay"] = {"factor": factor, "every": times.of(given[3], "every of min_frequency")}
    return spec


def filter_of(given: Any) -> dict[str, Any]:
    """`bloom` of a policy, as a job names it. @raises Error BAD_ARGUMENT."""
    parts = given if isinstance(given, tuple) else (given,)
    if len(parts) not in (1, 3):
        raise bad(f"bloom must be sightings or (sightings, capacity, error), not {shown(given)}")
    spec: dict[str, Any] = {"sightings": integer(parts[0], "sightings of bloom", 2, MOST_COUNTER)}
    if len(parts) == 3:
        spec["capacity"] = integer(parts[1], "capacity of bloom", 2, MOST_CAPACITY)
        spec["error"] = number(parts[2], "error of bloom")
        if not LEAST_ERROR <= spec["error"] <= MOST_ERROR:
            raise bad(f"error of bloom must be from {LEAST_ERROR} to {MOST_ERROR}, not {shown(parts[2])}")
    return spec


def checked_policy(given: Any) -> Policy:
    """@raises Error BAD_ARGUMENT: no policy."""
    return instance(given, Policy, "policy", "kintsugi.Policy(ttl=2000)")


def policy_of(spec: dict[str, Any]) -> Policy:
    """The policy that a job names so."""
    faint, bloom = spec.get("l2Below"), spec.get("bloom")

    def time(value: int) -> Ttl:
        return timedelta(seconds=value) if "clock" in spec else value

    def frequency(given: dict[str, Any]) -> tuple[int, Ttl] | tuple[int, Ttl, float, Ttl]:
        sightings, ttl, decay = given["sightings"], time(given["ttl"]), given.get("decay")
        return (sightings, ttl) if decay is None else (sightings, ttl, decay["factor"], time(decay["every"]))

    return Policy(
        ttl=time(spec["ttl"]) if "ttl" in spec else None,
        min_frequency=frequency(spec["minFrequency"]) if "minFrequency" in spec else None,
        l2_below=None if faint is None else (faint["norm"], time(faint["ttl"])),
        keep=spec.get("keep"),
        max_rows=spec.get("maxRows"),
        memory=spec.get("memory", False),
        score=spec.get("score", False),
        counter=spec.get("counter"),
        bloom=None if bloom is None else (bloom["sightings"], bloom["capacity"], bloom["error"]),
        probability=spec.get("probability"),
        likely=spec.get("likely"),
    )


def checked_optimizer(given: Any) -> Optimizer:
    """@raises Error BAD_ARGUMENT: no optimizer of this package, or its class."""
    return instance(given, Optimizer, "optimizer", "kintsugi.Adagrad(lr=0.05)")


def checked_initializer(given: Any) -> Initializer:
    """@raises Error BAD_ARGUMENT: no initializer of this package, or its class."""
    return instance(given, Initializer, "initializer", "kintsugi.Uniform(-0.05, 0.05)")


def optimizer_of(spec: dict[str, Any]) -> Optimizer:
    """The optimizer that a job names so."""
    given = arguments(spec)
    if "schedule" in given:
        given["schedule"] = schedule_of(given["schedule"])
    return OPTIMIZERS[str(spec["kind"])](**given)


class Unchanged(Enum):
    """A setting stays as it is."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED


def changes_of(lr: Any, clip_norm: Any, schedule: Any, policy: Any) -> dict[str, Any]:
    """Changes of a table, as a job names them. @raises Error BAD_ARGUMENT."""
    changes: dict[str, Any] = {}
    if lr is not UNCHANGED:
        changes["lr"] = number(lr, "lr")
    if clip_norm is not UNCHANGED:
        changes["clipNorm"] = None if clip_norm is None else number(clip_norm, "clip_norm")
    if schedule is not UNCHANGED:
        changes["schedule"] = None if schedule is None else _checked_schedule(schedule).spec()
    if policy is not UNCHANGED:
        changes["policy"] = checked_policy(policy).spec()
    return changes


def initializer_of(spec: dict[str, Any]) -> Initializer:
    """The initializer that a job names so."""
    return INITIALIZERS[str(spec["kind"])](**arguments(spec))
