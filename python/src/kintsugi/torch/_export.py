"""Rows as plain modules and tensors of PyTorch: for torch.export, ONNX, and programs without a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._arrays import keys_of
from .._batches import Values
from .._checks import instance
from .._errors import Error
from .._steps import steps_of
from .._tables import Table
from ._collection import EmbeddingBagCollection, EmbeddingCollection
from ._configs import Mode
from ._embedding import KintsugiEmbedding, KintsugiEmbeddingBag
from ._layer import Layer
from ._rows import MISSING


class KeyIndex(nn.Module):
    """Places of keys among sorted ones, by operations that every exporter knows; of unknown keys the last."""

    keys: Tensor

    def __init__(self, keys: Tensor) -> None:
        super().__init__()
        self.register_buffer("keys", keys)
        self.count = len(keys)

    def forward(self, keys: Tensor) -> Tensor:
        """Places of `keys`, int64 of any shape; `count` for a key that is not there."""
        keys = keys.to(torch.int64)
        place = torch.zeros_like(keys)
        step = 1 << max(0, self.count.bit_length() - 1)
        while step > 0:
            # So many keys are smaller than the one that is sought.
            reached = place + step
            smaller = self.keys[(reached - 1).clamp(max=self.count - 1)] < keys
            place = torch.where((reached <= self.count) & smaller, reached, place)
            step >>= 1
        found = self.keys[place.clamp(max=self.count - 1)] == keys
        return torch.where(found, place, self.count)


class IndexedEmbedding(nn.Module):
    """Rows of some keys, in place of a `KintsugiEmbedding`. A key that is not there has a row of zeros."""

    def __init__(self, keys: Tensor, rows: Tensor) -> None:
        super().__init__()
        self.index = KeyIndex(keys)
        self.weight = nn.Parameter(torch.cat([rows, rows.new_zeros(1, rows.shape[1])]))

    def forward(self, keys: Tensor) -> Tensor:
        """Rows of `keys`, integers of any shape S: S x dim."""
        return F.embedding(self.index(keys), self.weight, padding_idx=self.index.count)


class IndexedEmbeddingBag(nn.Module):
    """Bags of the rows of some keys, in place of a `KintsugiEmbeddingBag`. No bag counts other keys."""

    def __init__(self, keys: Tensor, rows: Tensor, mode: Mode, include_last_offset: bool = False) -> None:
        super().__init__()
        self.index = KeyIndex(keys)
        self.weight = nn.Parameter(torch.cat([rows, rows.new_zeros(1, rows.shape[1])]))
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(
        self, keys: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Bags x dim, see `KintsugiEmbeddingBag.forward`. ONNX takes bags x keys per bag, without offsets."""
        places = self.index(keys)
        if offsets is not None:
            return F.embedding_bag(
                places,
                self.weight,
                offsets,
                mode=self.mode,
                per_sample_weights=per_sample_weights,
                include_last_offset=self.include_last_offset,
                padding_idx=self.index.count,
            )
        rows = self.weight[places]
        present = (places < self.index.count).unsqueeze(-1)
        if per_sample_weights is not None:
            if self.mode != "sum":
                raise NotImplementedError(f'weights need the mode "sum", not {self.mode!r}')
            if per_sample_weights.shape != keys.shape:
                text = f"weights of shape {tuple(per_sample_weights.shape)} do not fit keys of shape "
                raise ValueError(text + str(tuple(keys.shape)))
        if self.mode == "max":
            most = torch.where(present, rows, torch.full_like(rows, float("-inf"))).amax(1)
            return torch.where(present.any(1), most, torch.zeros_like(most))
        rows = torch.where(present, rows, torch.zeros_like(rows))
        if per_sample_weights is not None:
            rows = rows * per_sample_weights.unsqueeze(-1)
        total = rows.sum(1)
        return total if self.mode == "sum" else total / present.sum(1).clamp(min=1)


class IndexedCollection(nn.Module):
    """Features over tables, in place of a collection: `{feature: ...}` in and out."""

    def __init__(self, tables: dict[str, nn.Module], features: list[tuple[str, str, str]]) -> None:
        super().__init__()
        self.tables = nn.ModuleDict({str(i): each for i, each in enumerate(tables.values())})
        places = {name: str(i) for i, name in enumerate(tables)}
        self.features = [(shown, feature, places[table]) for shown, feature, table in features]

    def forward(self, inputs: dict[str, Any]) -> dict[str, Tensor]:
        """As the collection, of a mapping."""
        results: dict[str, Tensor] = {}
        for shown, feature, table in self.features:
            entry = inputs[feature]
            rows = self.tables[table]
            parts = entry if isinstance(entry, (tuple, list)) else (entry,)
            if isinstance(entry, Values):
                bags = entry.offsets[:-1], entry.weights
                parts = (entry.keys, *(bags if isinstance(rows, IndexedEmbeddingBag) else ()))
            results[shown] = rows(*parts)
        return results


def to_embedding_bag(layer: Layer, keys: Any) -> nn.Module:
    """A plain module with the rows that a layer has now: it needs no job, and goes to any exporter.

    `layer`: one of this package. `keys`: the integers whose rows it gets; of a collection `{table: keys}`.
    Other keys are missing ones there: their rows are zero, and no bag counts them.

    The module takes what the layer takes, and its `weight` has the rows in the order of their keys, with a
    row of zeros at the end. `torch.export.export`, `torch.onnx.export(..., dynamo=True)` and AOTInductor take
    it.

    @raises Error BAD_ARGUMENT, KEY_TYPE, LENGTH_MISMATCH, UNRECOVERABLE, and what pushes before it raise.
    """
    instance(layer, Layer, "layer", "kintsugi.torch.KintsugiEmbedding(client, 'items', 64)")
    by_table = _by_table(layer, keys)
    parts = {table.name: _rows(layer, table, by_table[table.name]) for table in layer.tables}
    if isinstance(layer, KintsugiEmbedding):
        return IndexedEmbedding(*parts[layer.table.name])
    if isinstance(layer, KintsugiEmbeddingBag):
        return IndexedEmbeddingBag(*parts[layer.table.name], layer.mode, layer.include_last_offset)
    tables: dict[str, nn.Module] = {}
    if isinstance(layer, EmbeddingBagCollection):
        tables = {each.name: IndexedEmbeddingBag(*parts[each.name], each.mode) for each in layer.configs}
    elif isinstance(layer, EmbeddingCollection):
        tables = {each.name: IndexedEmbedding(*parts[each.name]) for each in layer.configs}
    else:
        raise Error("BAD_ARGUMENT", f"{type(layer).__name__} has no plain module")
    return IndexedCollection(tables, _features(layer))


def torchrec_state_dict(layer: Layer, keys: Any) -> dict[str, Tensor]:
    """Rows of a collection with the names of TorchRec, such as `embedding_bags.items.weight`: keys x dim.

    `keys`: `{table: keys}`; for a table as TorchRec has it, `range(num_embeddings)`. Row i is that of key i
    there, so other keys come with it as `embedding_bags.items.keys`, int64. `load_state_dict` of a collection
    takes both.

    @raises Error, as `to_embedding_bag`.
    """
    bags = isinstance(layer, EmbeddingBagCollection)
    kind: type[Any] = EmbeddingBagCollection if bags else EmbeddingCollection
    instance(layer, kind, "layer", "kintsugi.torch.EmbeddingBagCollection(client, [...])")
    return _state(layer, _by_table(layer, keys), has_all_keys=False)


def _state(layer: Layer, by_table: Mapping[str, Any], has_all_keys: bool) -> dict[str, Tensor]:
    """Rows of each table by their names in a state of the layer, and their keys.

    `has_all_keys`: also keys that are the numbers of their rows.
    """
    prefix = ""
    if isinstance(layer, (EmbeddingBagCollection, EmbeddingCollection)):
        prefix = f"{layer.state_prefix}."
    state: dict[str, Tensor] = {}
    for table in layer.tables:
        given = keys_of(by_table[table.name])
        begin = f"{prefix}{table.name}." if prefix else ""
        state[f"{begin}weight"] = _pulled(layer, table, given)
        if has_all_keys or not np.array_equal(given, np.arange(len(given))):
            state[f"{begin}keys"] = torch.from_numpy(given.view(np.int64).copy())
    return state


class RowState:
    """Rows of some keys as a `Stateful` of `torch.distributed.checkpoint`, beside what else a model has.

    `layer`: one of this package. `keys`: the integers whose rows are saved; of a collection `{table: keys}`.
    Whoever reads a checkpoint gives as many keys of each table; they may be others, and the rows that are set
    are those of the keys that were saved. Setting follows the rules of `load_state_dict` of the layer.

    >>> state = {"model": model, "rows": kintsugi.torch.RowState(bags, {"items": range(1000)})}
    >>> torch.distributed.checkpoint.save(state, checkpoint_id="folder")

    @raises Error BAD_ARGUMENT.
    """

    def __init__(self, layer: Layer, keys: Any) -> None:
        instance(layer, Layer, "layer", "kintsugi.torch.KintsugiEmbedding(client, 'items', 64)")
        self._layer = layer
        self._keys = _by_table(layer, keys)

    def state_dict(self) -> dict[str, Tensor]:
        """Rows and keys of each table: keys x dim, and int64. @raises Error, as `to_embedding_bag`."""
        return _state(self._layer, self._keys, has_all_keys=True)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Sets the rows. @raises Error, as `load_state_dict` of the layer."""
        self._layer.load_state_dict(dict(state_dict))


def _features(layer: EmbeddingBagCollection | EmbeddingCollection) -> list[tuple[str, str, str]]:
    names = iter(layer.embedding_names())
    return [(next(names), feature, config.name) for config in layer.configs for feature in config.features]


def _by_table(layer: Layer, keys: Any) -> Mapping[str, Any]:
    if isinstance(layer, (KintsugiEmbedding, KintsugiEmbeddingBag)) and not isinstance(keys, Mapping):
        return {layer.table.name: keys}
    names = [table.name for table in layer.tables]
    if not isinstance(keys, Mapping) or set(keys) != set(names):
        raise Error("BAD_ARGUMENT", f"keys must be a mapping with a list of keys for each of {names}")
    return keys


def _pulled(layer: Layer, table: Table, keys: npt.NDArray[np.uint64]) -> Tensor:
    steps_of(layer.client).catch_up()
    return torch.from_numpy(table.pull(keys).copy()).to(layer.anchor.dtype)


def _rows(layer: Layer, table: Table, keys: Any) -> tuple[Tensor, Tensor]:
    """Sorted keys, each once, and their rows."""
    distinct = np.unique(keys_of(keys).view(np.int64))
    distinct = distinct[distinct != MISSING]
    if len(distinct) == 0:
        raise Error("BAD_ARGUMENT", f"table {table.name!r} needs at least one key")
    return torch.from_numpy(distinct), _pulled(layer, table, distinct.view(np.uint64))
