"""Types of what a job answers about itself. `JobStatus` and its parts have the names of `kintsugi status`."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

Redundancy = Literal["forming", "full", "recovering", "degraded", "lost"]


class _NodeParts(TypedDict, total=False):
    overloaded: bool
    reported: bool


class NodeStatus(_NodeParts):
    """A PS node, by its newest report. `bytes`: memory of its engine."""

    id: str
    name: str
    host: str
    address: str
    alive: bool
    life: str
    standby: bool
    inc: int
    dataShards: int
    parityShards: int
    bytes: int
    rows: int


class PoolStatus(TypedDict):
    """A pool with its code (`k+r`) and numbers of groups and of data shards."""

    name: str
    code: str
    groups: int
    shards: int


class _TableParts(TypedDict, total=False):
    policy: dict[str, Any]


class TableStatus(_TableParts):
    """A table with float32 values per row (`dim`), kind of optimizer, and policy, if it has one."""

    name: str
    pool: str
    dim: int
    optimizer: str


class _RecoveryParts(TypedDict, total=False):
    keysReady: bool


class RecoveryStatus(_RecoveryParts):
    """The recovery of data shard `m` of group `g`, in blocks of about 4 KiB."""

    g: int
    m: int
    gen: int
    blocksLost: int
    blocksPresent: int
    blocksOnDemand: int


class _LostParts(TypedDict, total=False):
    checkpoint: dict[str, Any]


class LostShard(_LostParts):
    """Data shard `m` of group `g`, which is beyond repair."""

    g: int
    m: int
    blocks: int
    rows: int


class ScalingStatus(TypedDict):
    """PS that are to serve, PS that serve now, and the newest changes, oldest first."""

    wanted: int
    serving: int
    changes: list[dict[str, Any]]


class _JobParts(TypedDict, total=False):
    saving: list[dict[str, Any]]
    restoring: dict[str, Any]
    replicas: list[dict[str, Any]]


class JobStatus(_JobParts):
    """A job, as its scheduler knows it. `saving`, `restoring` and `replicas` may be absent."""

    job: str
    epoch: int
    redundancy: Redundancy
    reasons: list[str]
    warnings: list[str]
    nodes: list[NodeStatus]
    pools: list[PoolStatus]
    tables: list[TableStatus]
    recoveries: list[RecoveryStatus]
    unrecoverable: list[LostShard]
    scaling: ScalingStatus


class DatasetStatus(TypedDict):
    """A data set: ranges of all epochs, and samples of the finished ranges of each epoch.

    `redone`: samples of batches that were begun again after a worker was lost. `complete`: every range is
    finished or set aside.
    """

    name: str
    epochs: int
    ranges: int
    finished: int
    open: int
    samples: list[int]
    redone: int
    setAside: list[dict[str, Any]]
    complete: bool


class _ReportParts(TypedDict, total=False):
    lost: int
    duplicated: int


class RangeReport(_ReportParts):
    """Samples of all files and epochs, and those trained. With `audit` `lost` and `duplicated` are there."""

    samples: int
    trained: int
