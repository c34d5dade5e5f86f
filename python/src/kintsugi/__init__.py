"""A parameter server for embedding tables that loses machines without losing training."""

from . import schedules
from ._answers import (
    DatasetStatus,
    JobStatus,
    LostShard,
    NodeStatus,
    PoolStatus,
    RangeReport,
    RecoveryStatus,
    ScalingStatus,
    TableStatus,
)
from ._batches import Batch, SchemaBatch, Values
from ._client import Client, connect
from ._cluster import LocalCluster, start_local_cluster
from ._dataset import Dataset, Lease
from ._environment import JobEnvironment, Ranks, from_env
from ._errors import Error, PushesFailed, PushInDoubt
from ._evictions import Evictions
from ._futures import Future, PushFuture
from ._numbered import NumberedSteps
from ._ranges import RangeDataset, read_batches
from ._specs import (
    FTRL,
    SGD,
    Adagrad,
    Adam,
    AdamW,
    Constant,
    Initializer,
    Momentum,
    Normal,
    Optimizer,
    Policy,
    RowwiseAdagrad,
    Uniform,
    Zeros,
)
from ._tables import Table

__all__ = [
    "FTRL",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Batch",
    "Client",
    "Constant",
    "Dataset",
    "DatasetStatus",
    "Error",
    "Evictions",
    "Future",
    "Initializer",
    "JobEnvironment",
    "JobStatus",
    "Lease",
    "LocalCluster",
    "LostShard",
    "Momentum",
    "NodeStatus",
    "Normal",
    "NumberedSteps",
    "Optimizer",
    "Policy",
    "PoolStatus",
    "PushFuture",
    "PushInDoubt",
    "PushesFailed",
    "RangeDataset",
    "RangeReport",
    "Ranks",
    "RecoveryStatus",
    "RowwiseAdagrad",
    "ScalingStatus",
    "SchemaBatch",
    "Table",
    "TableStatus",
    "Uniform",
    "Values",
    "Zeros",
    "connect",
    "from_env",
    "read_batches",
    "schedules",
    "start_local_cluster",
]

__version__ = "0.1.0"
