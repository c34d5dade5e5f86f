"""The dense parameters of a trainer and its optimizer, kept in the job beside the rows.

They are bytes in rows of a table, so that they are in the same checkpoint as the tables and the queue of
samples, and survive what the tables survive. Two places are written in turns, and a row says which counts.
"""

from __future__ import annotations

import io
import json
import zlib
from typing import Any

import numpy as np
import torch
from torch import nn

from .._arrays import Keys, Rows
from .._client import Client
from .._errors import Error
from .._ranges import RangeDataset
from .._specs import SGD, Zeros
from .._steps import steps_of
from .._tables import Table
from ._dense import SharedOptimizer

DIM = 256
BYTES = 3
"""Of a float: whole numbers up to 2^24 are exact."""
ROW_BYTES = DIM * BYTES
BATCH = 8192
"""Rows of a request."""
_HEAD = np.array([1 << 62], np.uint64)


def _rows_of(content: bytes) -> Rows:
    rows = -(-len(content) // ROW_BYTES)
    padded = np.frombuffer(content.ljust(rows * ROW_BYTES, b"\0"), np.uint8).reshape(-1, BYTES)
    floats = padded[:, 0] + padded[:, 1] * np.float32(1 << 8) + padded[:, 2] * np.float32(1 << 16)
    return floats.astype(np.float32).reshape(rows, DIM)


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


def save(
    client: Client,
    model: nn.Module,
    opt: torch.optim.Optimizer | SharedOptimizer | None = None,
    data: RangeDataset | None = None,
    *,
    name: str = "model",
    every: int | None = None,
    checkpoint: bool = True,
) -> dict[str, Any] | None:
    """Keeps `model` and `opt` in the job, and has a checkpoint of the job made with them in it.

    Without `every` it does so now, and returns `{"number", "bytes", "checkpoint"}`. With `every` and `data`
    it does so whenever this process has finished so many ranges of `data`, from now on. Nothing of this
    process is under way then, so tables, queue of samples, parameters and optimizer are those of one instant
    where it is the only trainer. Of several trainers one saves; what others had under way may be seen twice
    by the dense parameters after `load`, and never by the rows.

    `name`: of what is kept; the table is `NAME-saved`. `checkpoint`: without, it survives lost PS only.

    @raises Error BAD_ARGUMENT (the job has no place for checkpoints), and as `Client.push` and
    `Client.checkpoint`.
    """
    if every is None:
        return _save(client, model, opt, name, checkpoint)
    if data is None or every < 1:
        raise Error("BAD_ARGUMENT", "every needs data, and must be at least 1")
    finished = 0

    def on_range() -> None:
        nonlocal finished
        finished += 1
        if finished % every == 0:
            _save(client, model, opt, name, checkpoint)

    data.on_range = on_range
    return None


def _save(
    client: Client,
    model: nn.Module,
    opt: torch.optim.Optimizer | SharedOptimizer | None,
    name: str,
    checkpoint: bool,
) -> dict[str, Any]:
    steps_of(client).settle()
    client.flush()
    table = _table(client, name)
    before = _head(table)
    buffer = io.BytesIO()
    state = {"model": model.state_dict(), "opt": opt and opt.state_dict(), "random": torch.get_rng_state()}
    torch.save(state, buffer)
    content = buffer.getvalue()
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


def load(
    client: Client,
    model: nn.Module,
    opt: torch.optim.Optimizer | SharedOptimizer | None = None,
    *,
    name: str = "model",
) -> int | None:
    """Sets `model` and `opt` to what `save` kept last in this job, or in the checkpoint that it began with.

    Returns the number of the save; None: there is none, and nothing is changed. The state of PyTorch's random
    numbers (of the CPU) is set, too.

    @raises Error BAD_CHECKPOINT (another trainer saved meanwhile), and as `Client.pull`; what
    `load_state_dict` raises for another model.
    """
    table = _table(client, name)
    head = _head(table)
    if head is None:
        return None
    count = -(-head["bytes"] // ROW_BYTES)
    parts = []
    for first in range(0, count, BATCH):
        keys = _keys_of(head["number"] % 2, first, min(BATCH, count - first))
        parts.append(_bytes_of(table.pull(keys)))
    content = b"".join(parts)[: head["bytes"]]
    if zlib.crc32(content) != head["crc"]:
        raise Error("BAD_CHECKPOINT", f"save {head['number']} of {name} was written over meanwhile")
    state = torch.load(io.BytesIO(content), weights_only=True)
    model.load_state_dict(state["model"])
    if opt is not None and state["opt"] is not None:
        opt.load_state_dict(state["opt"])
    torch.set_rng_state(state["random"])
    number: int = head["number"]
    return number
