"""Layers of one table, in place of `nn.Embedding` and `nn.EmbeddingBag`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._checks import flag
from .._client import Client
from .._errors import Error
from .._specs import Initializer, Optimizer, Policy
from ._configs import Mode, checked_mode, refuse, table_for
from ._inputs import bags_given, keys_given, weights_given
from ._layer import Begun, Layer, Rate, uncompiled
from ._lookup import Leaf, Lookup, places_of


class _Layer(Layer):
    def __init__(
        self,
        client: Client,
        name: str,
        dim: int | None,
        optimizer: Optimizer | None,
        initializer: Initializer | None,
        seed: int,
        pool: str,
        policy: Policy | None,
        grad_scale: float,
        lr: Rate,
        fused: bool,
        count_duplicates: bool,
    ) -> None:
        super().__init__(client, grad_scale, lr, fused, count_duplicates)
        self.table = table_for(self.client, name, dim, optimizer, initializer, seed, pool, policy)
        self.tables = [self.table]
        self._begun = Begun()

    if TYPE_CHECKING:

        def __call__(self, *inputs: Any, **options: Any) -> Tensor:
            """Tensors come out of these layers."""

    def extra_repr(self) -> str:
        """The text of this module in `print(model)`."""
        return f"{self.table.name!r}, {self.table.dim}, optimizer={self.table.optimizer}"

    def prefetch(self, keys: Tensor) -> None:
        """Begins the pull of a `forward` to come of this very tensor. Pushes under way may not be in it."""
        self._begun.put(keys, self._lookup(keys, ahead=True))

    def _lookup(self, keys: Tensor, *, ahead: bool) -> Lookup:
        return Lookup(self, [places_of(self.table, keys.reshape(-1))], ahead=ahead)

    def _leaf(self, keys: Tensor) -> Leaf:
        lookup = self._begun.take(keys)
        if lookup is None or not lookup.is_of([keys.reshape(-1)]):
            lookup = self._lookup(keys, ahead=False)
        return lookup.leaves([keys.device])[0]


class KintsugiEmbedding(_Layer):
    """One row per key, in place of `nn.Embedding`. There is no number of rows: any key has one.

    `client`: of `kintsugi.connect`. Without `dim` the table exists, and is taken as it is.
    `name`, `dim`, `optimizer`, `initializer`, `seed`, `pool`, `policy`: see
    `Client.create_table`. `grad_scale`: factor of all gradients before they are pushed; with DDP on n
    processes 1/n, since DDP averages the gradients of dense parameters. `lr`: the learning rate of the
    pushes in place of the table's; of fused layers also what gives it at each `backward`, such as
    `lambda: opt.param_groups[0]["lr"]`. `fused`: gradients leave in `backward`, one push for each pass of it,
    and not at the `step` of an optimizer. `count_duplicates`: the policy of the table sees a key as often as
    the batches of a step name it, in all look-ups that gradients come for, and with a `group` of all ranks;
    otherwise once per step. Without a policy it changes nothing.

    Gradients go to the `RowOptimizer` of the layer, and a `step` of it pushes them. The optimizer of the
    table applies them. Without a RowOptimizer, `fused`, a `Pipeline` or `kintsugi.torch.step`, a `backward`
    raises BAD_ARGUMENT. The next `forward` of this client waits for a push and sees it.
    `model.parameters()` has one parameter without elements for the layer, which `requires_grad_` freezes, and
    not the rows.

    @raises Error TABLE_EXISTS, BAD_ARGUMENT.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        dim: int | None = None,
        *,
        optimizer: Optimizer | None = None,
        initializer: Initializer | None = None,
        seed: int = 0,
        pool: str = "embedding",
        policy: Policy | None = None,
        grad_scale: float = 1.0,
        lr: Rate = None,
        fused: bool = False,
        count_duplicates: bool = False,
        **others: Any,
    ) -> None:
        refuse("KintsugiEmbedding", others)
        table = name, dim, optimizer, initializer, seed, pool, policy
        super().__init__(client, *table, grad_scale, lr, fused, count_duplicates)

    @uncompiled
    def forward(self, keys: Tensor) -> Tensor:
        """Rows of `keys`, integers of any shape S: S x dim. The row of -1 is zero.

        They are float32, or what `to(dtype)` of the layer has asked for.

        @raises Error KEY_TYPE, UNRECOVERABLE, CLOSED, and what the pushes before it raise.
        """
        keys = keys_given(keys)
        return self._leaf(keys).gathered().view(*keys.shape, self.table.dim).to(self.anchor.dtype)


class KintsugiEmbeddingBag(_Layer):
    """The sum, mean or maximum of the rows of each bag of keys, in place of `nn.EmbeddingBag`.

    `mode`: "mean", "sum" or "max". `include_last_offset`: the last offset is the end of the last bag. For the
    others, and what a `backward` does, see `KintsugiEmbedding`.

    @raises Error TABLE_EXISTS, BAD_ARGUMENT.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        dim: int | None = None,
        *,
        mode: Mode = "mean",
        optimizer: Optimizer | None = None,
        initializer: Initializer | None = None,
        seed: int = 0,
        pool: str = "embedding",
        policy: Policy | None = None,
        grad_scale: float = 1.0,
        lr: Rate = None,
        include_last_offset: bool = False,
        fused: bool = False,
        count_duplicates: bool = False,
        **others: Any,
    ) -> None:
        refuse("KintsugiEmbeddingBag", others)
        table = name, dim, optimizer, initializer, seed, pool, policy
        checked_mode(mode)
        super().__init__(client, *table, grad_scale, lr, fused, count_duplicates)
        self.mode = mode
        self.include_last_offset = flag(include_last_offset, "include_last_offset")

    @property
    def mode(self) -> Mode:
        """The mode of all bags. @raises Error BAD_ARGUMENT: another one is set."""
        return self._mode

    @mode.setter
    def mode(self, given: Mode) -> None:
        checked_mode(given)
        self._mode: Mode = given

    @uncompiled
    def forward(
        self, keys: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Bags x dim, float32 or of the type of the layer. A bag without keys, or with -1 only, is zero.

        `keys`: integers, of one dimension with `offsets` (where each bag begins, int64), or bags x keys per
        bag without. -1 is missing: it does not count, in a mean neither. `per_sample_weights`: float32, of
        the shape of `keys`, with mode "sum" only; it gets gradients, too.

        @raises Error LENGTH_MISMATCH, KEY_TYPE, BAD_ARGUMENT, UNRECOVERABLE, CLOSED, and what the pushes
        before it raise.
        """
        keys, offsets = bags_given(keys, offsets, self.include_last_offset)
        weights = weights_given(per_sample_weights, keys)
        if weights is not None and self.mode != "sum":
            raise Error("BAD_ARGUMENT", 'weights need the mode "sum"')
        leaf = self._leaf(keys)
        return pooled(
            leaf,
            keys.shape,
            offsets,
            mode=self.mode,
            weights=weights,
            include_last_offset=self.include_last_offset,
        ).to(self.anchor.dtype)


def pooled(
    leaf: Leaf,
    shape: torch.Size,
    offsets: Tensor | None,
    *,
    mode: str,
    weights: Tensor | None = None,
    include_last_offset: bool = False,
) -> Tensor:
    """Bags x dim from the rows of a leaf."""
    return F.embedding_bag(
        leaf.inverse if offsets is not None else leaf.inverse.view(shape),
        leaf.rows,
        offsets,
        mode=mode,
        per_sample_weights=weights,
        include_last_offset=include_last_offset,
        padding_idx=leaf.missing,
    )
