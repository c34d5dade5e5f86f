"""Layers of one table, in place of `nn.Embedding` and `nn.EmbeddingBag`."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._client import Client
from .._errors import Error
from .._specs import Initializer, Optimizer
from ._lookup import Begun, Leaf, Lookup, Rate, places_of

Mode = Literal["sum", "mean"]


class _Layer(nn.Module):
    def __init__(
        self,
        client: Client,
        name: str,
        dim: int,
        optimizer: Optimizer | None,
        initializer: Initializer | None,
        seed: int,
        pool: str,
        grad_scale: float,
        lr: Rate,
    ) -> None:
        super().__init__()
        self.client = client
        self.table = client.create_table(
            name, dim, optimizer=optimizer, initializer=initializer, seed=seed, pool=pool
        )
        self.grad_scale = grad_scale
        self.lr = lr
        self._begun = Begun()

    def extra_repr(self) -> str:
        """What `print(model)` says."""
        return f"{self.table.name!r}, {self.table.dim}, optimizer={self.table.optimizer}"

    def prefetch(self, keys: Tensor) -> None:
        """Begins the pull of a `forward` to come of this very tensor. Pushes under way may not be in it."""
        self._begun.put(keys, self._lookup(keys, settle=False))

    def _lookup(self, keys: Tensor, *, settle: bool) -> Lookup:
        return Lookup(self.client, [places_of(self.table, keys.reshape(-1))], settle=settle)

    def _leaf(self, keys: Tensor) -> Leaf:
        lookup = self._begun.take(keys) or self._lookup(keys, settle=True)
        return lookup.leaves(self.grad_scale, [keys.device], self.lr)[0]


class KintsugiEmbedding(_Layer):
    """One row per key, in place of `nn.Embedding`. There is no number of rows: any key has one.

    `client`: of `kintsugi.connect`. `name`, `dim`, `optimizer`, `initializer`, `seed`, `pool`: see
    `Client.create_table`. `grad_scale`: factor of all gradients before they are pushed; with DDP on n
    processes 1/n, since DDP averages the gradients of dense parameters. `lr`: the learning rate of the
    pushes in place of the table's, or what gives it at each `backward`, such as
    `lambda: opt.param_groups[0]["lr"]`.

    A `backward` pushes the gradients, and the optimizer of the table applies them. The next `forward` of this
    client waits for that and sees it. The rows are no parameters: no torch optimizer and no `state_dict` has
    them.

    @raises Error TABLE_EXISTS, BAD_ARGUMENT.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        dim: int,
        *,
        optimizer: Optimizer | None = None,
        initializer: Initializer | None = None,
        seed: int = 0,
        pool: str = "embedding",
        grad_scale: float = 1.0,
        lr: Rate = None,
    ) -> None:
        super().__init__(client, name, dim, optimizer, initializer, seed, pool, grad_scale, lr)

    def forward(self, keys: Tensor) -> Tensor:
        """Rows of `keys`, integers of any shape S: S x dim, float32. The row of -1 is zero.

        @raises Error KEY_TYPE, UNRECOVERABLE, CLOSED, and what the pushes before it raise.
        """
        return self._leaf(keys).gathered().view(*keys.shape, self.table.dim)


class KintsugiEmbeddingBag(_Layer):
    """The sum or mean of the rows of each bag of keys, in place of `nn.EmbeddingBag`.

    `mode`: "mean" or "sum". `include_last_offset`: the last offset is the end of the last bag. For the
    others, and what a `backward` does, see `KintsugiEmbedding`.

    @raises Error TABLE_EXISTS, BAD_ARGUMENT.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        dim: int,
        *,
        mode: Mode = "mean",
        optimizer: Optimizer | None = None,
        initializer: Initializer | None = None,
        seed: int = 0,
        pool: str = "embedding",
        grad_scale: float = 1.0,
        lr: Rate = None,
        include_last_offset: bool = False,
    ) -> None:
        checked_mode(mode)
        super().__init__(client, name, dim, optimizer, initializer, seed, pool, grad_scale, lr)
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(
        self, keys: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Bags x dim, float32. A bag without keys, or with -1 only, is zero.

        `keys`: integers, of one dimension with `offsets` (where each bag begins, int64), or bags x keys per
        bag without. -1 is missing: it does not count, in a mean neither. `per_sample_weights`: float32, of
        the shape of `keys`, with mode "sum" only; it gets gradients, too.

        @raises Error LENGTH_MISMATCH, KEY_TYPE, BAD_ARGUMENT, UNRECOVERABLE, CLOSED, and what the pushes
        before it raise.
        """
        check_bags(keys, offsets)
        leaf = self._leaf(keys)
        return pooled(
            leaf,
            keys.shape,
            offsets,
            mode=self.mode,
            weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
        )


def checked_mode(mode: str) -> None:
    """@raises Error BAD_ARGUMENT."""
    if mode not in ("sum", "mean"):
        raise Error("BAD_ARGUMENT", f'mode must be "sum" or "mean", not {mode!r}')


def check_bags(keys: Tensor, offsets: Tensor | None) -> None:
    """@raises Error LENGTH_MISMATCH."""
    if offsets is None and keys.dim() != 2:
        raise Error("LENGTH_MISMATCH", f"keys without offsets must have two dimensions, not {keys.dim()}")
    if offsets is not None and (keys.dim(), offsets.dim()) != (1, 1):
        raise Error("LENGTH_MISMATCH", "keys and offsets must have one dimension each")


def pooled(
    leaf: Leaf,
    shape: torch.Size,
    offsets: Tensor | None,
    *,
    mode: str,
    weights: Tensor | None = None,
    include_last_offset: bool = False,
) -> Tensor:
    """Bags x dim from the rows of a leaf. @raises Error BAD_ARGUMENT."""
    if weights is not None and mode != "sum":
        raise Error("BAD_ARGUMENT", 'weights need the mode "sum"')
    return F.embedding_bag(
        leaf.inverse if offsets is not None else leaf.inverse.view(shape),
        leaf.rows,
        offsets,
        mode=mode,
        per_sample_weights=weights,
        include_last_offset=include_last_offset,
        padding_idx=leaf.missing,
    )
