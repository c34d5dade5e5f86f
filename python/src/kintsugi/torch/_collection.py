"""Many features over several tables at once, as in TorchRec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .._client import Client
from .._errors import Error
from .._specs import Initializer, Optimizer
from .._tables import Table
from ._embedding import Mode, check_bags, checked_mode, pooled
from ._lookup import Begun, Leaf, Lookup, Rate, places_of

Bags = tuple[Tensor, Tensor]
"""Keys, and where each bag begins."""


@dataclass(frozen=True)
class EmbeddingBagConfig:
    """A table and the features that have their rows in it. For its fields see `Client.create_table`."""

    name: str
    dim: int
    features: Sequence[str] = field(default=())
    """Names in the input; default: that of the table."""
    mode: Mode = "sum"
    optimizer: Optimizer | None = None
    initializer: Initializer | None = None
    seed: int = 0
    pool: str = "embedding"

    @property
    def feature_names(self) -> list[str]:
        """Of the features, in order."""
        return list(self.features) or [self.name]


class EmbeddingBagCollection(nn.Module):
    """Bags of many features, pulled in one request and pushed in one.

    `tables`: their configurations; no feature is in two of them. `grad_scale`, `lr`: see `KintsugiEmbedding`,
    also for what a `backward` does.

    @raises Error TABLE_EXISTS, BAD_ARGUMENT.
    """

    def __init__(
        self,
        client: Client,
        tables: Sequence[EmbeddingBagConfig],
        *,
        grad_scale: float = 1.0,
        lr: Rate = None,
    ) -> None:
        super().__init__()
        self.client = client
        self.configs = list(tables)
        self.grad_scale = grad_scale
        self.lr = lr
        self._begun = Begun()
        self.features = [name for config in self.configs for name in config.feature_names]
        for config in self.configs:
            checked_mode(config.mode)
        if len(set(self.features)) != len(self.features):
            raise Error("BAD_ARGUMENT", "a feature is in two tables, or twice in one")
        self.tables: list[Table] = [
            client.create_table(
                config.name,
                config.dim,
                optimizer=config.optimizer,
                initializer=config.initializer,
                seed=config.seed,
                pool=config.pool,
            )
            for config in self.configs
        ]

    def extra_repr(self) -> str:
        """What `print(model)` says."""
        return ", ".join(f"{config.name!r}: {config.feature_names}" for config in self.configs)

    def prefetch(self, inputs: Any) -> None:
        """Begins the pull of a `forward` to come of this very object. Pushes under way may not be in it."""
        self._begun.put(inputs, self._lookup(self._bags(inputs), settle=False))

    def forward(self, inputs: Any) -> Any:
        """`{feature: bags x dim, float32}`.

        `inputs`: `{feature: (keys, offsets)}` with integers of one dimension each, or `{feature: keys}` with
        bags x keys per bag; or a KeyedJaggedTensor of torchrec, and a KeyedTensor comes back. Features may
        have different numbers of bags. Those that no table has are left alone. -1 is missing: no bag counts
        it.

        @raises Error BAD_ARGUMENT (a feature is not there), LENGTH_MISMATCH, KEY_TYPE, UNRECOVERABLE, CLOSED,
        and what the pushes before it raise.
        """
        bags = self._bags(inputs)
        lookup = self._begun.take(inputs) or self._lookup(bags, settle=True)
        devices = [bags[config.feature_names[0]][0].device for config in self.configs]
        results: dict[str, Tensor] = {}
        for config, leaf in zip(self.configs, lookup.leaves(self.grad_scale, devices, self.lr), strict=True):
            at = 0
            for name in config.feature_names:
                keys, offsets = bags[name]
                part = Leaf(leaf.rows, leaf.inverse[at : at + keys.numel()], leaf.missing)
                results[name] = pooled(part, keys.shape, offsets, mode=config.mode)
                at += keys.numel()
        return results if isinstance(inputs, Mapping) else _keyed_tensor(self.features, results)

    def _bags(self, inputs: Any) -> dict[str, tuple[Tensor, Tensor | None]]:
        """Keys and offsets of every feature. @raises Error BAD_ARGUMENT, LENGTH_MISMATCH."""
        given = inputs if isinstance(inputs, Mapping) else _of_jagged(inputs)
        bags: dict[str, tuple[Tensor, Tensor | None]] = {}
        for name in self.features:
            if name not in given:
                raise Error("BAD_ARGUMENT", f"there is no feature {name!r}, only {sorted(given)}")
            entry = given[name]
            keys, offsets = (entry, None) if isinstance(entry, Tensor) else entry
            check_bags(keys, offsets)
            bags[name] = keys, offsets
        return bags

    def _lookup(self, bags: Mapping[str, tuple[Tensor, Tensor | None]], *, settle: bool) -> Lookup:
        places = []
        for config, table in zip(self.configs, self.tables, strict=True):
            keys = [bags[name][0].reshape(-1) for name in config.feature_names]
            places.append(places_of(table, keys[0] if len(keys) == 1 else torch.cat(keys)))
        return Lookup(self.client, places, settle=settle)


def _of_jagged(inputs: Any) -> dict[str, Bags]:
    """Of a KeyedJaggedTensor. @raises Error BAD_ARGUMENT."""
    if not hasattr(inputs, "to_dict"):
        text = f"{{feature: (keys, offsets)}} or a KeyedJaggedTensor is expected, not {type(inputs).__name__}"
        raise Error("BAD_ARGUMENT", text)
    # The offsets of torchrec have the end of the last bag.
    return {name: (each.values(), each.offsets()[:-1]) for name, each in inputs.to_dict().items()}


def _keyed_tensor(features: Sequence[str], results: Mapping[str, Tensor]) -> Any:
    from torchrec.sparse.jagged_tensor import KeyedTensor

    return KeyedTensor.from_tensor_list(list(features), [results[name] for name in features])
