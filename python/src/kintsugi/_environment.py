"""The job of a process, as the operator of Kubernetes tells it by variables of the environment."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ._checks import bad
from ._client import Client, connect
from ._errors import Error

_PATIENCE = 600.0
"""Seconds. A Pod may run long before the job has formed."""
_MOST_BYTES = 4096
"""Kubernetes keeps so many bytes of the last words of a container."""


@dataclass(frozen=True)
class Ranks:
    """Place of this process among those of a process group of PyTorch."""

    rank: int
    """From 0."""
    world_size: int
    local_rank: int
    """Place among the processes of its machine, or 0."""
    master: str
    """host:port where the process of rank 0 listens."""


@dataclass(frozen=True)
class JobEnvironment:
    """The job of a process, as `from_env` has found it."""

    scheduler: str
    """host:port; of several schedulers all of them, with commas between."""
    job: str | None
    """Name of the TrainingJob."""
    name: str | None
    """Name of this worker, which is that of its Pod."""
    run: str
    """Name of the data set that the operator looks at: `RangeDataset(..., run=env.run)`."""
    token: str | None = field(repr=False)
    tls_ca: str | None
    """File with the authority of the job's certificates; None: it speaks no TLS."""
    tls_name: str | None
    """Name in those certificates."""
    ranks: Ranks | None
    """None: nothing has set RANK, WORLD_SIZE and MASTER_ADDR. Then every worker is a trainer of its own."""
    results: str | None
    """File for `report`."""

    def connect(self, **options: Any) -> Client:
        """A client of the job; `options` are those of `kintsugi.connect`. Default timeout: ten minutes.

        @raises Error: what `kintsugi.connect` raises.
        """
        given = {"token": self.token, "tls_ca": self.tls_ca, "timeout": _PATIENCE, **options}
        return connect(self.scheduler, **given)

    def report(self, **values: Any) -> None:
        """Leaves results for the status of the job: `auc`, `logloss`, `samples`, `train_loss` of this worker.

        Other values go into the report. The last call counts, and does nothing where nobody reads it.

        @raises Error BAD_ARGUMENT: a value is not for JSON, or all have more than 4,096 bytes.
        """
        named = {"trainLoss" if name == "train_loss" else name: plain(each) for name, each in values.items()}
        try:
            line = json.dumps(named, allow_nan=False) + "\n"
        except (TypeError, ValueError) as error:
            raise bad(f"report: {error}") from None
        if len(line.encode()) > _MOST_BYTES:
            raise bad(f"report: the values have more than {_MOST_BYTES} bytes")
        if self.results is not None:
            with open(self.results, "w", encoding="utf-8") as file:
                file.write(line)


def plain(value: Any) -> Any:
    """Numbers of numpy and PyTorch as Python's own; a number that is none becomes null."""
    item = getattr(value, "item", None)
    own = item() if callable(item) else value
    return None if isinstance(own, float) and not math.isfinite(own) else own


def _number(variables: Mapping[str, str], name: str, otherwise: str | None = None) -> int:
    given = variables.get(name) or otherwise
    try:
        found = int(given or "")
    except ValueError:
        found = -1
    if found < 0:
        raise bad(f"{name} must be a number from 0, not {given!r}")
    return found


def _ranks_of(variables: Mapping[str, str]) -> Ranks | None:
    wanted = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    there = [name for name in wanted if variables.get(name)]
    if not there:
        return None
    missing = [name for name in wanted if name not in there]
    if missing:
        raise bad(f"{', '.join(there)} are set, and {', '.join(missing)} are not")
    rank, size = _number(variables, "RANK"), _number(variables, "WORLD_SIZE")
    if rank >= size:
        raise bad(f"RANK {rank} is not below WORLD_SIZE {size}")
    master = f"{variables['MASTER_ADDR']}:{_number(variables, 'MASTER_PORT')}"
    return Ranks(rank, size, _number(variables, "LOCAL_RANK", "0"), master)


def from_env(variables: Mapping[str, str] | None = None) -> JobEnvironment:
    """Finds the job of this process: a worker of a TrainingJob whose `command` is a program of your own.

    Ranks are there only where something sets them, such as `torchrun` or the template of the job.

    >>> env = kintsugi.from_env()
    >>> client = env.connect()
    >>> data = kintsugi.RangeDataset(client, ["/data/*.tsv"], batch=4096, run=env.run, ...)
    >>> env.report(auc=0.79, samples=90_000)

    @raises Error BAD_ARGUMENT: there is no KINTSUGI_SCHEDULER, or ranks are set in part.
    """
    found = os.environ if variables is None else variables
    scheduler = found.get("KINTSUGI_SCHEDULER")
    if not scheduler:
        text = "KINTSUGI_SCHEDULER is not set: the operator sets it in Pods, and elsewhere it is host:port"
        raise Error("BAD_ARGUMENT", text)
    return JobEnvironment(
        scheduler=scheduler,
        job=found.get("KINTSUGI_JOB") or None,
        name=found.get("POD_NAME") or None,
        run=found.get("KINTSUGI_RUN") or "train",
        token=found.get("KINTSUGI_TOKEN") or None,
        tls_ca=found.get("KINTSUGI_TLS_CA") or None,
        tls_name=found.get("KINTSUGI_TLS_NAME") or None,
        ranks=_ranks_of(found),
        results=found.get("KINTSUGI_RESULTS") or None,
    )
