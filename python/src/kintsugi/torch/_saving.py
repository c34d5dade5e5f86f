"""The dense parameters of a trainer and its optimizer, kept in the job beside the rows.

They are bytes in rows of a table, so that they are in the same checkpoint as the tables and the queue of
samples, and survive what the tables survive. Two places are written in turns, and a row says which counts.
"""

from __future__ import annotations

import io
import json
import pickle
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import lr_scheduler

from .._arrays import Keys, Rows
from .._checks import flag, instance, integer, listed, shown, text
from .._client import Client
from .._errors import Error
from .._ranges import RangeDataset
from .._specs import SGD, Zeros
from .._steps import steps_of
from .._tables import Table
from ._dense import shared_kept
from ._inputs import client_of
from ._watch import SCALER

DIM = 256
BYTES = 3
"""Bytes that a float holds: whole numbers up to 2^24 are exact."""
ROW_BYTES = DIM * BYTES
BATCH = 8192
"""Rows of a request."""
_HEAD = np.array([1 << 62], np.uint64)


def _rows_of(content: bytes) -> Rows:
    rows = -(-len(content) // ROW_BYTES)
    padded = np.frombuffer(content.ljust(rows * ROW_BYTES, b"\0"), np.uint8).reshape(-1, BYTES)
    floats = padded[:, 0] + padded[:, 1] * np.float32(1 << 8) + padded[:, 2] * np.float32(1 << 16)
    found: Rows = floats.astype(np.float32).reshape(rows, DIM)
    return found


def _bytes_of(rows: Rows) -> bytes:
    numbers = rows.reshape(-1).astype(np.uint32)
    return np.stack([numbers & 255, numbers >> 8 & 255, numbers >> 16], 1).astype(np.uint8).tobytes()


def _keys_of(slot: int, first: int, count: int) -> Keys:
    return np.arange(first, first + count, dtype=np.uint64) | np.uint64(slot << 40)


def _table(client: Client, name: str) -> Table:
    return client.create_table(f"{name}-saved", DIM, optimizer=SGD(lr=0.0), initializer=Zeros())


def _head(table: Table) -> dict[str, int] | None:
    text = _bytes_of(table.pull(_HEAD)).rstrip(b"\0")
    return json.loads(text) if text else None


class _Parts:
    """Objects that are kept beside the model: each has `state_dict` and `load_state_dict`."""

    def __init__(self, opt: Any, optimizers: Any, schedulers: Any, scaler: Any) -> None:
        """@raises Error BAD_ARGUMENT: an object is none of these."""
        if opt is not None and optimizers:
            raise Error("BAD_ARGUMENT", "opt and optimizers are the same: give one of them")
        if opt is not None:
            instance(opt, torch.optim.Optimizer, "opt", _SUCH_AS["optimizers"])
        self._of: dict[str, list[Any]] = {
            "optimizers": listed(optimizers, "optimizers", "optimizers") if opt is None else [opt],
            "schedulers": listed(schedulers, "schedulers", "schedulers"),
            "scaler": [] if scaler is None else [scaler],
        }
        for name, kinds in _KINDS.items():
            for each in self._of[name]:
                if not isinstance(each, kinds):
                    what = name if name == "scaler" else f"each of {name}"
                    text = f"{what} must be an object such as {_SUCH_AS[name]}, not {shown(each)}"
                    raise Error("BAD_ARGUMENT", text)

    def states(self) -> dict[str, Any]:
        """The state of each with the name of its class."""
        return {
            name: [[type(each).__name__, each.state_dict()] for each in parts]
            for name, parts in self._of.items()
        }

    def check(self, state: dict[str, Any], where: str) -> None:
        """@raises Error BAD_ARGUMENT: these are not what was kept."""
        for name, parts in self._of.items():
            saved = [kind for kind, _ in state.get(name, [])]
            given = [type(each).__name__ for each in parts]
            if given and not saved:
                raise Error("BAD_ARGUMENT", f"{where} has no {name}")
            if given and given != saved:
                text = f"{where} has the {name} {', '.join(saved)}, and not {', '.join(given)}"
                raise Error("BAD_ARGUMENT", text)

    def load(self, state: dict[str, Any]) -> None:
        """Sets what was given; what was not is left out."""
        for name, parts in self._of.items():
            for each, (_, saved) in zip(parts, state.get(name, []), strict=False):
                each.load_state_dict(saved)


_KINDS: dict[str, tuple[type, ...]] = {
    "optimizers": (torch.optim.Optimizer,),
    "schedulers": (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau),
    "scaler": (SCALER,),
}
_SUCH_AS = {
    "optimizers": "torch.optim.Adam(model.parameters())",
    "schedulers": "torch.optim.lr_scheduler.StepLR(opt, 10)",
    "scaler": 'torch.amp.GradScaler("cuda")',
}


def save(
    client: Client,
    model: nn.Module,
    opt: torch.optim.Optimizer | None = None,
    data: RangeDataset | None = None,
    *,
    optimizers: Sequence[torch.optim.Optimizer] = (),
    schedulers: Sequence[Any] = (),
    scaler: Any = None,
    name: str = "model",
    every: int | None = None,
    checkpoint: bool = True,
) -> dict[str, Any] | None:
    """Keeps a model and what trains it in the job, and has a checkpoint of the job made with them in it.

    `opt`: an optimizer; of several, `optimizers`. `schedulers`: those of `torch.optim.lr_scheduler`.
    `scaler`: a `torch.amp.GradScaler`. Rows and their states are in the checkpoint; a `RowOptimizer` keeps
    its groups and numbers of steps here. Gradients that no `step` has taken are not kept.

    Without `every` it does so now, and returns `{"number", "bytes", "checkpoint"}`. With `every` and `data`
    it does so whenever this process has finished so many ranges of `data`, from now on. Nothing of this
    process is under way then, so tables, queue of samples, parameters and optimizers are those of one instant
    where it is the only trainer. Of several trainers one saves; what others had under way may be seen twice
    by the dense parameters after `load`, and never by the rows.

    `name`: of what is kept; the table is `NAME-saved`. The last call with `every` of a name counts.
    `checkpoint`: without, it survives lost PS only.

    @raises Error BAD_ARGUMENT (the job has no place for checkpoints; an object is of another kind, or holds
    what `load` does not read), and as `Client.push` and `Client.checkpoint`.
    """
    client_of(client)
    instance(model, nn.Module, "model", "nn.Linear(8, 1)")
    text(name, "name")
    checkpoint = flag(checkpoint, "checkpoint")
    parts = _Parts(opt, optimizers, schedulers, scaler)
    if data is not None or every is not None:
        what = "data" if every is None else "every needs data: that"
        instance(data, RangeDataset, what, "kintsugi.RangeDataset(client, ...)")
    if every is None:
        return _save(client, model, parts, name, checkpoint)
    every = integer(every, "every", 1)
    assert data is not None
    finished = 0

    def on_range() -> None:
        nonlocal finished
        finished += 1
        if finished % every == 0:
            _save(client, model, parts, name, checkpoint)

    data.on_range[name] = on_range
    return None


def _save(client: Client, model: nn.Module, parts: _Parts, name: str, checkpoint: bool) -> dict[str, Any]:
    steps_of(client).catch_up()
    client.flush()
    content = _content(model, parts)
    table = _table(client, name)
    before = _head(table)
    number = before["number"] + 1 if before else 1
    rows = _rows_of(content)
    for first in range(0, len(rows), BATCH):
        part = rows[first : first + BATCH]
        table.assign(_keys_of(number % 2, first, len(part)), part).result()
    head = {"number": number, "bytes": len(content), "crc": zlib.crc32(content)}
    # Only now: until it is durable, what was saved before counts.
    table.assign(_HEAD, _rows_of(json.dumps(head).encode())).result()
    return {
        "number": number,
        "bytes": len(content),
        "checkpoint": client.checkpoint() if checkpoint else None,
    }


def _content(model: nn.Module, parts: _Parts) -> bytes:
    """@raises Error BAD_ARGUMENT: `load` would not read it."""
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "random": torch.get_rng_state(), **parts.states()}, buffer)
    buffer.seek(0)
    try:
        torch.load(buffer, weights_only=True, map_location="meta")
    except pickle.UnpicklingError as error:
        text = f"the state of a model, optimizer or scheduler holds objects that load does not read: {error}"
        raise Error("BAD_ARGUMENT", text) from None
    return buffer.getvalue()


def load(
    client: Client,
    model: nn.Module,
    opt: torch.optim.Optimizer | None = None,
    *,
    optimizers: Sequence[torch.optim.Optimizer] = (),
    schedulers: Sequence[Any] = (),
    scaler: Any = None,
    name: str = "model",
) -> int | None:
    """Sets a model and what trains it to what `save` kept last in this job, or before its start.

    `optimizers`, `schedulers`: of the kinds that were kept, in their order. What is left out here is not set.
    Parameters of a `SharedOptimizer` are those that the job has, and rows are, too.

    Returns the number of the save; None: there is none, and nothing is changed. The state of PyTorch's random
    numbers (of the CPU) is set, too.

    @raises Error BAD_ARGUMENT (what is given was not kept), BAD_CHECKPOINT (another trainer saved meanwhile),
    and as `Client.pull`; what `load_state_dict` raises for another model.
    """
    client_of(client)
    instance(model, nn.Module, "model", "nn.Linear(8, 1)")
    parts = _Parts(opt, optimizers, schedulers, scaler)
    table = _table(client, text(name, "name"))
    head = _head(table)
    if head is None:
        return None
    count = -(-head["bytes"] // ROW_BYTES)
    pieces = []
    for first in range(0, count, BATCH):
        keys = _keys_of(head["number"] % 2, first, min(BATCH, count - first))
        pieces.append(_bytes_of(table.pull(keys)))
    content = b"".join(pieces)[: head["bytes"]]
    where = f"save {head['number']} of {name!r}"
    if zlib.crc32(content) != head["crc"]:
        raise Error("BAD_CHECKPOINT", f"{where} was written over meanwhile")
    state = torch.load(io.BytesIO(content), weights_only=True)
    parts.check(state, where)
    with shared_kept(model):
        model.load_state_dict(state["model"])
    parts.load(state)
    torch.set_rng_state(state["random"])
    number: int = head["number"]
    return number
