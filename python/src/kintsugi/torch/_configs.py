"""Tables and features of collections, and options of PyTorch's layers that layers here do not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .._checks import integer, text, texts
from .._client import Client
from .._errors import Error
from .._specs import Initializer, Optimizer, Policy
from .._tables import Table

Mode = Literal["sum", "mean", "max"]

_REFUSED = {
    "max_norm": "look-ups change no rows here: norms are cut in the model, or gradients by clip_norm of the "
    "optimizer",
    "norm_type": "it belongs to max_norm, which is not there",
    "scale_grad_by_freq": "gradients of a key are summed, as often as it was looked up",
    "padding_idx": "the key -1 is the missing one: its row is zero, and no bag counts it",
    "sparse": "gradients always go by key: leave it out",
    "num_embeddings": "there is no number of rows: every 64-bit key has one",
    "device": "rows are on the PS, and results where the keys are",
    "dtype": "rows are float32 on the PS; convert the result",
    "pooling": 'it is mode="sum", "mean" or "max" here',
    "data_type": "rows are float32 on the PS; convert the result",
    "init_fn": "first values are those of initializer=, such as kintsugi.Uniform(-0.05, 0.05)",
    "weight_init_max": "first values are those of initializer=kintsugi.Uniform(low, high)",
    "weight_init_min": "first values are those of initializer=kintsugi.Uniform(low, high)",
    "_weight": "rows are those of the table: set them with client.table(name).assign(keys, rows)",
}


_LATER = {
    **{name: _REFUSED[name] for name in ("max_norm", "norm_type", "num_embeddings", "padding_idx")},
    **{name: _REFUSED[name] for name in ("scale_grad_by_freq", "sparse")},
    "embedding_dim": "it is dim, that of the table, for good",
    "mode": "a bag has one, and a table of a collection that of its configuration",
    "weight": "rows are those of the table: set them with client.table(name).assign(keys, rows), or by "
    "load_state_dict of the layer",
}
"""Attributes of PyTorch's layers that a program may set later."""


def refuse_later(layer: object, name: str) -> None:
    """A program sets an attribute. @raises Error BAD_ARGUMENT: PyTorch's layers have it, and this one not."""
    if name in _LATER and not hasattr(type(layer), name):
        raise Error("BAD_ARGUMENT", f"{type(layer).__name__} has no {name}: {_LATER[name]}")


def refuse(where: str, others: dict[str, Any]) -> None:
    """Says of options of PyTorch's layers why they are not here. @raises Error BAD_ARGUMENT, TypeError."""
    for name in others:
        if name not in _REFUSED:
            raise TypeError(f"{where} got an unexpected keyword argument {name!r}")
        raise Error("BAD_ARGUMENT", f"{where} has no {name}: {_REFUSED[name]}")


def checked_mode(mode: Any) -> None:
    """@raises Error BAD_ARGUMENT."""
    if not isinstance(mode, str) or mode not in ("sum", "mean", "max"):
        raise Error("BAD_ARGUMENT", f'mode must be "sum", "mean" or "max", not {mode!r}')


def table_for(
    client: Client,
    name: str,
    dim: int | None,
    optimizer: Optimizer | None,
    initializer: Initializer | None,
    seed: int,
    pool: str,
    policy: Policy | None,
) -> Table:
    """The table of a layer: created or found, and without `dim` one that exists.

    @raises Error TABLE_EXISTS, UNKNOWN_TABLE, BAD_ARGUMENT.
    """
    if dim is not None:
        return client.create_table(
            name, dim, optimizer=optimizer, initializer=initializer, seed=seed, pool=pool, policy=policy
        )
    given = optimizer is not None or initializer is not None or policy is not None
    if given or seed != 0 or pool != "embedding":
        raise Error(
            "BAD_ARGUMENT", f"table {name!r}: without dim it is taken as it is, so leave out the rest"
        )
    return client.table(name)


def _same(first: Any, second: Any, names: str, default: Any) -> Any:
    """The one of two spellings that is given. @raises Error BAD_ARGUMENT."""
    if second is None:
        return default if first is None else first
    if first is not None and first != second:
        raise Error("BAD_ARGUMENT", f"{names} are two names of one thing, and differ: {first} and {second}")
    return second


@dataclass(frozen=True, init=False)
class _Config:
    name: str
    dim: int | None
    features: tuple[str, ...]
    optimizer: Optimizer | None
    initializer: Initializer | None
    seed: int
    pool: str
    policy: Policy | None

    def _set(
        self,
        name: str,
        dims: tuple[int | None, int | None],
        features: tuple[Sequence[str] | None, Sequence[str] | None],
        *rest: Any,
        mode: Any = None,
    ) -> None:
        dim = _same(*dims, "dim and embedding_dim", None)
        given = [None if each is None else texts(each, f"features of {name!r}", "names") for each in features]
        names = _same(given[0] or None, given[1], "features and feature_names", [])
        values: list[Any] = [
            text(name, "the name of a table"),
            None if dim is None else integer(dim, "dim", 1),
        ]
        values += [tuple(names) or (name,), *rest]
        fields = ("name", "dim", "features", "optimizer", "initializer", "seed", "pool", "policy")
        for field, value in zip(fields, values, strict=True):
            object.__setattr__(self, field, value)
        if mode is not None:
            checked_mode(mode)
            object.__setattr__(self, "mode", mode)

    @property
    def feature_names(self) -> list[str]:
        """Names of the features, in order."""
        return list(self.features)

    @property
    def embedding_dim(self) -> int | None:
        """As `dim`."""
        return self.dim


@dataclass(frozen=True, init=False)
class EmbeddingBagConfig(_Config):
    """A table and the features that have their rows in it. For its fields see `Client.create_table`.

    `dim`: None for a table that exists. `features`: names in the input; default: that of the table.
    `embedding_dim`, `feature_names`: the same, as TorchRec spells them. `mode`: of bags, "sum", "mean" or
    "max".

    @raises Error BAD_ARGUMENT.
    """

    mode: Mode

    def __init__(
        self,
        name: str,
        dim: int | None = None,
        features: Sequence[str] | None = None,
        mode: Mode = "sum",
        optimizer: Optimizer | None = None,
        initializer: Initializer | None = None,
        seed: int = 0,
        pool: str = "embedding",
        *,
        policy: Policy | None = None,
        embedding_dim: int | None = None,
        feature_names: Sequence[str] | None = None,
        **others: Any,
    ) -> None:
        refuse("EmbeddingBagConfig", others)
        rest = optimizer, initializer, seed, pool, policy
        self._set(name, (dim, embedding_dim), (features, feature_names), *rest, mode=mode)


@dataclass(frozen=True, init=False)
class EmbeddingConfig(_Config):
    """A table and the features whose keys have their rows in it, see `EmbeddingBagConfig`; without bags."""

    def __init__(
        self,
        name: str,
        dim: int | None = None,
        features: Sequence[str] | None = None,
        optimizer: Optimizer | None = None,
        initializer: Initializer | None = None,
        seed: int = 0,
        pool: str = "embedding",
        *,
        policy: Policy | None = None,
        embedding_dim: int | None = None,
        feature_names: Sequence[str] | None = None,
        **others: Any,
    ) -> None:
        refuse("EmbeddingConfig", others)
        rest = optimizer, initializer, seed, pool, policy
        self._set(name, (dim, embedding_dim), (features, feature_names), *rest)
