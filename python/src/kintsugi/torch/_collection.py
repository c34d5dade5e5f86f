"""Many features over several tables at once, as in TorchRec."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from .._batches import Values
from .._checks import flag, instance, listed
from .._client import Client
from .._errors import Error
from .._tables import Table
from ._configs import EmbeddingBagConfig, EmbeddingConfig, refuse, table_for
from ._embedding import pooled
from ._inputs import bags_given, bags_of, keys_given, weights_given
from ._layer import Begun, Layer, Rate, uncompiled
from ._lookup import Leaf, Lookup, places_of

C = TypeVar("C", EmbeddingBagConfig, EmbeddingConfig)


@dataclass
class _Feature:
    """Keys of one feature, with its bags and weights."""

    name: str
    keys: Tensor
    offsets: Tensor | None = None
    weights: Tensor | None = None
    jagged: Any = None
    """The JaggedTensor of torchrec that it comes from."""


class _Collection(Layer, Generic[C]):
    state_prefix: str
    """Names of rows in a `state_dict` of TorchRec begin with this."""

    def __init__(
        self,
        client: Client,
        tables: Sequence[C],
        kind: type[C],
        grad_scale: float,
        lr: Rate,
        fused: bool,
        count_duplicates: bool,
    ) -> None:
        super().__init__(client, grad_scale, lr, fused, count_duplicates)
        self.configs: list[C] = [
            instance(each, kind, "each of tables", f"{kind.__name__}('items', 64)")
            for each in listed(tables, "tables", "configurations")
        ]
        self._begun = Begun()
        names = Counter(config.name for config in self.configs)
        if max(names.values(), default=1) > 1:
            raise Error("BAD_ARGUMENT", f"table {names.most_common(1)[0][0]!r} has two configurations")
        for config in self.configs:
            if len(set(config.features)) != len(config.features):
                raise Error("BAD_ARGUMENT", f"table {config.name!r} has a feature twice")
        counts = Counter(name for config in self.configs for name in config.features)
        self._names = [
            [f"{name}@{config.name}" if counts[name] > 1 else name for name in config.features]
            for config in self.configs
        ]
        names = Counter(self.embedding_names())
        if max(names.values(), default=1) > 1:
            raise Error("BAD_ARGUMENT", f"two results would be called {names.most_common(1)[0][0]!r}")
        self.features = list(counts)
        """Names in the input."""
        self.tables = [
            table_for(
                self.client,
                each.name,
                each.dim,
                optimizer=each.optimizer,
                initializer=each.initializer,
                seed=each.seed,
                pool=each.pool,
                policy=each.policy,
            )
            for each in self.configs
        ]

    def _row_places(self) -> list[tuple[Table, list[str]]]:
        # The second is what `to_embedding_bag` makes.
        return [
            (table, [f"{self.state_prefix}.{table.name}.", f"tables.{i}."])
            for i, table in enumerate(self.tables)
        ]

    def embedding_names(self) -> list[str]:
        """Names in the result: of features, and `feature@table` where a feature is in several tables."""
        return [name for names in self._names for name in names]

    def extra_repr(self) -> str:
        """The text of this module in `print(model)`."""
        return ", ".join(f"{config.name!r}: {config.feature_names}" for config in self.configs)

    def prefetch(self, inputs: Any) -> None:
        """Begins the pull of a `forward` to come of this very object. Pushes under way may not be in it."""
        self._begun.put(inputs, self._lookup(self._keys(self._given(inputs)), ahead=True))

    def _feature(self, name: str, entry: Any, jagged: bool) -> _Feature:
        """A feature as `forward` takes it. @raises Error."""
        raise NotImplementedError

    def _given(self, inputs: Any) -> dict[str, _Feature]:
        """Every feature of the input that a table has. @raises Error."""
        jagged = not isinstance(inputs, Mapping)
        if jagged and not hasattr(inputs, "to_dict"):
            text = "{feature: (keys, offsets)} or a KeyedJaggedTensor is expected, not "
            raise Error("BAD_ARGUMENT", text + type(inputs).__name__)
        given = inputs.to_dict() if jagged else inputs
        for name in self.features:
            if name not in given:
                raise Error("BAD_ARGUMENT", f"there is no feature {name!r}, only {sorted(given)}")
        return {name: self._feature(name, given[name], jagged) for name in self.features}

    def _keys(self, given: Mapping[str, _Feature]) -> list[Tensor]:
        """The keys of each table."""
        joined = []
        for config in self.configs:
            keys = [given[name].keys.reshape(-1) for name in config.features]
            # PyTorch joins no unsigned integers with signed ones.
            joined.append(keys[0] if len(keys) == 1 else torch.cat([each.to(torch.int64) for each in keys]))
        return joined

    def _lookup(self, keys: Sequence[Tensor], *, ahead: bool) -> Lookup:
        places = [places_of(table, each) for table, each in zip(self.tables, keys, strict=True)]
        return Lookup(self, places, ahead=ahead)

    def _parts(self, inputs: Any, given: Mapping[str, _Feature]) -> list[tuple[str, C, _Feature, Leaf]]:
        """Name in the result, configuration, input and rows of each feature of each table."""
        keys = self._keys(given)
        lookup = self._begun.take(inputs)
        if lookup is None or not lookup.is_of(keys):
            lookup = self._lookup(keys, ahead=False)
        devices = [given[config.features[0]].keys.device for config in self.configs]
        parts = []
        leaves = lookup.leaves(devices)
        for config, names, leaf in zip(self.configs, self._names, leaves, strict=True):
            at = 0
            for name, shown in zip(config.features, names, strict=True):
                feature = given[name]
                count = feature.keys.numel()
                alone = len(names) == 1
                inverse = leaf.inverse[at : at + count]
                part = leaf if alone else Leaf(leaf.rows, inverse, leaf.missing)
                parts.append((shown, config, feature, part))
                at += count
        return parts


def _parted(name: str, entry: Any, most: int) -> list[Any]:
    """Keys, offsets and weights of a feature; None: not given. @raises Error BAD_ARGUMENT."""
    if not isinstance(entry, (tuple, list)):
        return [entry] + [None] * (most - 1)
    if not 2 <= len(entry) <= most:
        forms = "keys, (keys, offsets)" + (" or (keys, offsets, weights)" if most == 3 else "")
        raise Error("BAD_ARGUMENT", f"feature {name!r} must be {forms}, not {len(entry)} parts")
    return [*entry] + [None] * (most - len(entry))


class EmbeddingBagCollection(_Collection[EmbeddingBagConfig]):
    """Bags of many features, pulled in one request and pushed in one.

    `tables`: their configurations. A feature may be in several: its results are `feature@table` then, as in
    TorchRec. `is_weighted`: every feature has a weight for each key, and every mode is "sum". `grad_scale`,
    `lr`, `fused`, `count_duplicates`: see `KintsugiEmbedding`, also for where gradients go. Keys are counted
    as they stand in the input: `inverse_indices` of a KeyedJaggedTensor repeat results, and no keys.

    @raises Error TABLE_EXISTS, UNKNOWN_TABLE, BAD_ARGUMENT.
    """

    state_prefix = "embedding_bags"

    def __init__(
        self,
        client: Client,
        tables: Sequence[EmbeddingBagConfig],
        *,
        is_weighted: bool = False,
        grad_scale: float = 1.0,
        lr: Rate = None,
        fused: bool = False,
        count_duplicates: bool = False,
        **others: Any,
    ) -> None:
        refuse("EmbeddingBagCollection", others)
        super().__init__(client, tables, EmbeddingBagConfig, grad_scale, lr, fused, count_duplicates)
        self._is_weighted = flag(is_weighted, "is_weighted")
        wrong = [config.name for config in self.configs if config.mode != "sum"]
        if self._is_weighted and wrong:
            raise Error("BAD_ARGUMENT", f'weights need the mode "sum", and {wrong[0]!r} has another one')

    def is_weighted(self) -> bool:
        """Whether every key of an input has a weight."""
        return self._is_weighted

    @uncompiled
    def forward(self, inputs: Any) -> Any:
        """`{feature: bags x dim, float32}`.

        `inputs`: `{feature: (keys, offsets)}` with integers of one dimension each, with `is_weighted`
        `(keys, offsets, weights)`, `{feature: keys}` with bags x keys per bag, or `{feature: Values}` of a
        batch by a schema; or a KeyedJaggedTensor of torchrec, and a KeyedTensor comes back. Its weights are
        taken with `is_weighted` only, as in TorchRec.
        Features may have different numbers of bags: a KeyedJaggedTensor has `inverse_indices` then. Those
        that no table has are left alone. -1 is missing: no bag counts it.

        @raises Error BAD_ARGUMENT (a feature is not there), LENGTH_MISMATCH, KEY_TYPE, UNRECOVERABLE, CLOSED,
        and what the pushes before it raise.
        """
        given = self._given(inputs)
        results: dict[str, Tensor] = {}
        inverse = None if isinstance(inputs, Mapping) else inputs.inverse_indices_or_none()
        for name, config, feature, leaf in self._parts(inputs, given):
            shape, weights = feature.keys.shape, feature.weights
            result = pooled(leaf, shape, feature.offsets, mode=config.mode, weights=weights)
            result = result.to(self.anchor.dtype)
            if inverse is not None:
                result = result[inverse[1][inverse[0].index(feature.name)]]
            results[name] = result
        return results if isinstance(inputs, Mapping) else _keyed_tensor(results)

    def _feature(self, name: str, entry: Any, jagged: bool) -> _Feature:
        if jagged:
            # The offsets of torchrec have the end of the last bag.
            weights = entry.weights_or_none() if self._is_weighted else None
            keys, offsets = bags_given(entry.values(), entry.offsets()[:-1])
        elif isinstance(entry, Values):
            (keys, offsets), weights = bags_of(entry), entry.weights
        else:
            keys, offsets, weights = _parted(name, entry, 3)
            keys, offsets = bags_given(keys, offsets)
        if weights is None and self._is_weighted:
            raise Error("BAD_ARGUMENT", f"feature {name!r} has no weights, and the collection is_weighted")
        if weights is not None and not self._is_weighted:
            raise Error("BAD_ARGUMENT", f"feature {name!r} has weights: say is_weighted=True")
        return _Feature(name, keys, offsets, weights_given(weights, keys))


class EmbeddingCollection(_Collection[EmbeddingConfig]):
    """Rows of the keys of many features, for sequences: pulled in one request and pushed in one.

    `tables`: their configurations, of any `dim` each. `need_indices`: a JaggedTensor of a result has the keys
    as its weights. For the others see `EmbeddingBagCollection`.

    @raises Error TABLE_EXISTS, UNKNOWN_TABLE, BAD_ARGUMENT.
    """

    state_prefix = "embeddings"

    def __init__(
        self,
        client: Client,
        tables: Sequence[EmbeddingConfig],
        *,
        need_indices: bool = False,
        grad_scale: float = 1.0,
        lr: Rate = None,
        fused: bool = False,
        count_duplicates: bool = False,
        **others: Any,
    ) -> None:
        refuse("EmbeddingCollection", others)
        super().__init__(client, tables, EmbeddingConfig, grad_scale, lr, fused, count_duplicates)
        self._need_indices = flag(need_indices, "need_indices")

    def need_indices(self) -> bool:
        """Whether results have their keys."""
        return self._need_indices

    @uncompiled
    def forward(self, inputs: Any) -> dict[str, Any]:
        """`{feature: rows}`, float32; the row of -1 is zero.

        `inputs`: `{feature: keys}` with integers of any shape S: S x dim comes back, and keys x dim of
        `Values` of a batch by a schema; or a KeyedJaggedTensor of torchrec: a JaggedTensor for each feature,
        whose values are keys x dim.

        @raises Error, as `EmbeddingBagCollection.forward`.
        """
        results = {}
        for name, _, feature, leaf in self._parts(inputs, self._given(inputs)):
            rows = leaf.gathered().view(*feature.keys.shape, leaf.rows.shape[1]).to(self.anchor.dtype)
            results[name] = rows if feature.jagged is None else self._jagged(feature, rows)
        return results

    def _jagged(self, feature: _Feature, rows: Tensor) -> Any:
        keys = feature.keys if self._need_indices else None
        return type(feature.jagged)(values=rows, lengths=feature.jagged.lengths(), weights=keys)

    def _feature(self, name: str, entry: Any, jagged: bool) -> _Feature:
        if jagged:
            return _Feature(name, keys_given(entry.values()), jagged=entry)
        if isinstance(entry, Values):
            return _Feature(name, bags_of(entry)[0])
        if isinstance(entry, (tuple, list)):
            raise Error("BAD_ARGUMENT", f"feature {name!r} must be keys of any shape: it has no bags")
        return _Feature(name, keys_given(entry))


def _keyed_tensor(results: Mapping[str, Tensor]) -> Any:
    from torchrec.sparse.jagged_tensor import KeyedTensor

    return KeyedTensor.from_tensor_list(list(results), list(results.values()))
