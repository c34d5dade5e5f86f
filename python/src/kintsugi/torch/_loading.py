"""Rows in a `state_dict`: of nn.Embedding and nn.EmbeddingBag, of TorchRec, and of `to_embedding_bag`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._arrays import Keys, Rows
from .._checks import shown
from .._client import Client
from .._errors import Error
from .._specs import FTRL
from .._steps import steps_of
from .._tables import Table
from ._inputs import keys_given
from ._once import set_values
from ._step_rows import rows_changed


def load_rows(
    client: Client,
    places: Iterable[tuple[Table, Iterable[str]]],
    state_dict: dict[str, Any],
    strict: bool,
    missing: list[str],
) -> None:
    """Takes rows out of a `state_dict`, and sets those of the tables; the state of optimizers stays.

    What a program loads before it trains a table is set once per job and content, see `set_values`.

    `places`: of each table the beginnings of names that its rows may have. `BEGINNING.weight` is keys x dim:
    row i is that of key i, or of `keys` or `index.keys` beside it, int64. `missing` gets the names of tables
    that have no rows there while others have.

    @raises Error DIM_MISMATCH, LENGTH_MISMATCH, KEY_TYPE, BAD_ARGUMENT: then nothing has changed.
    """
    found: list[tuple[Table, Keys, Rows]] = []
    absent = []
    for table, beginnings in places:
        beginnings = list(beginnings)
        given = [each for each in beginnings if each + "weight" in state_dict]
        if not given:
            absent.append(beginnings[0] + "weight")
        for each in given:
            found.append((table, *_taken(table, each, state_dict)))
    if not found:
        return
    if strict:
        missing.extend(absent)
    steps_of(client).catch_up()
    client.flush()
    try:
        for table, keys, rows in found:
            set_values(client, table, keys, rows)
    finally:
        rows_changed(client, [table.name for table, _, _ in found])


def _taken(table: Table, beginning: str, state_dict: dict[str, Any]) -> tuple[Keys, Rows]:
    name = beginning + "weight"
    weight = state_dict.pop(name)
    named = [each for each in (beginning + "index.keys", beginning + "keys") if each in state_dict]
    keys = state_dict.pop(named[0]) if named else None
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        raise Error("BAD_ARGUMENT", f"{name} must be a tensor of floats, not {shown(weight)}")
    if hasattr(weight, "to_local") or hasattr(weight, "local_shards"):
        raise Error("BAD_ARGUMENT", f"{name} is a {type(weight).__name__}: gather it into a plain tensor")
    if weight.ndim != 2 or weight.shape[1] != table.dim:
        shape = " x ".join(str(size) for size in weight.shape)
        text = f"{name} is {shape}, and rows of table {table.name!r} have {table.dim} values"
        raise Error("DIM_MISMATCH", text)
    if isinstance(table.optimizer, FTRL):
        text = f"{name} cannot be loaded into table {table.name!r}: FTRL computes rows from its state; "
        raise Error("BAD_ARGUMENT", text + "Table.assign sets both")
    rows = weight.detach().to("cpu", torch.float32).numpy()
    if keys is None:
        return np.arange(len(rows), dtype=np.uint64), rows
    # The plain module of a layer has a row of zeros at the end, for keys that are not there.
    rows = rows[:-1] if named[0].endswith("index.keys") else rows
    whole = keys_given(keys).reshape(-1).cpu().to(torch.int64).numpy()
    if len(whole) != len(rows):
        raise Error("LENGTH_MISMATCH", f"{name} has {len(rows)} rows for {len(whole)} keys")
    if len(np.unique(whole)) != len(whole):
        raise Error("BAD_ARGUMENT", f"{named[0]} has a key twice")
    return whole.view(np.uint64), rows
