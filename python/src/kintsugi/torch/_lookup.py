"""Rows of some keys in a graph of autograd, from the pull to where their gradients go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from .._arrays import Rows
from .._errors import Error
from .._futures import Future
from .._steps import steps_of
from .._tables import Table
from ._layer import Layer, uncompiled
from ._rows import MISSING
from ._sightings import Occurrences
from ._takers import Looked, check_anchor, refuse_accumulation, rows_for
from ._watch import is_traced


@dataclass
class Places:
    """Where the rows of a table go: `inverse[i]` is the row of the i-th key among the unique ones."""

    table: Table
    unique: npt.NDArray[np.int64]
    """In their order."""
    inverse: Tensor
    missing: int | None
    """Which of the unique keys is `MISSING`."""
    starts: Tensor
    """Where the keys of each row would begin, if keys were in the order of their rows."""

    def has(self, keys: Tensor) -> bool:
        """Whether these are the keys still: a program may have changed a tensor in place."""
        given = keys.detach().to("cpu", torch.int64).numpy()
        return np.array_equal(self.unique[self.inverse.cpu().numpy()], given)

    def occurrences(self) -> Occurrences:
        """How often each of the unique keys is there."""
        return Occurrences(np.diff(self.starts.numpy(), append=len(self.inverse)))


@dataclass
class Leaf:
    """Rows of a table in a graph, unique keys x dim, float32, and how keys find them."""

    rows: Tensor
    inverse: Tensor
    missing: int | None
    starts: Tensor | None = None
    """As in `Places`; None: `inverse` is only a part of the keys of the rows."""

    def gathered(self) -> Tensor:
        """The rows of the keys, keys x dim."""
        if self.starts is None or not self.rows.requires_grad or self.rows.device.type != "cpu":
            return F.embedding(self.inverse, self.rows, padding_idx=self.missing)
        # The keys of a row stay in their own order, so that sums are the same on every machine.
        places = (self.inverse.numpy() << 32) | np.arange(len(self.inverse))
        places.sort()
        order = torch.from_numpy(places & 0xFFFFFFFF)
        apply: Any = _Gathered.apply
        gathered: Tensor = apply(self.rows, self.inverse, order, self.starts)
        return gathered


class _Gathered(torch.autograd.Function):
    """As `embedding`. The gradient of a row is a sum over the keys that have it, which is a bag of them: in
    a fifth of the time that PyTorch takes for the gradient of `embedding`.
    """  # noqa: D205

    @staticmethod
    def forward(ctx: Any, rows: Tensor, inverse: Tensor, order: Tensor, starts: Tensor) -> Tensor:
        ctx.save_for_backward(order, starts)
        return F.embedding(inverse, rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        order, starts = ctx.saved_tensors
        return F.embedding_bag(order, gradient.contiguous(), starts, mode="sum"), None, None, None


def places_of(table: Table, keys: Tensor) -> Places:
    """Unique keys of a tensor with one dimension.

    @raises Error KEY_TYPE; BAD_ARGUMENT: in a transform, or by make_fx.
    """
    if keys.is_floating_point() or keys.is_complex() or keys.dtype == torch.bool:
        raise Error("KEY_TYPE", f"keys must be integers, not {keys.dtype}")
    if torch._C._functorch.peek_interpreter_stack() is not None:
        text = "a look-up within torch.func.grad, vmap and other transforms: look rows up before, and give "
        raise Error("BAD_ARGUMENT", text + "the transformed function what the layer has returned")
    if is_traced():
        text = "make_fx would keep the rows of these keys for all others: trace the plain module that "
        raise Error("BAD_ARGUMENT", text + "kintsugi.torch.to_embedding_bag(layer, keys=...) gives")
    given = keys.detach().to("cpu", torch.int64).contiguous()
    ordered = np.sort(given.numpy())
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    unique = ordered[starts]
    # Two sorts and a search take a third of the time of `torch.unique`.
    inverse = torch.searchsorted(torch.from_numpy(unique), given)
    at = int(np.searchsorted(unique, MISSING))
    missing = at if at < len(unique) and unique[at] == MISSING else None
    return Places(table, unique, inverse.to(keys.device), missing, torch.from_numpy(starts))


class Lookup:
    """A pull of several tables that is under way."""

    def __init__(self, layer: Layer, places: Sequence[Places], *, ahead: bool = False) -> None:
        """The rows are those of the step where it has them already. Others are those after every push that
        modules of this client have begun, but for `ahead`: a pull for a step to come.
        """  # noqa: D205
        if torch._C._get_tracing_state() is not None:
            text = "a trace would keep the rows of these keys for all others: trace the plain module that "
            raise Error("BAD_ARGUMENT", text + "kintsugi.torch.to_embedding_bag(layer, keys=...) gives")
        self._layer = layer
        self._places = places
        steps = steps_of(layer.client)
        if not ahead and steps.current is not None:
            steps.current.push_now()
        rows = None if ahead else rows_for(layer)
        if not ahead and torch.is_grad_enabled() and layer.anchor.requires_grad:
            check_anchor(layer)
            refuse_accumulation(layer)
        self._wanted = [p.unique if rows is None else rows.unknown(p.table, p.unique) for p in places]
        requests = [(p.table, keys) for p, keys in zip(places, self._wanted, strict=True)]
        self._pulled: Future[list[Rows]] | None = None
        if rows is None or any(len(keys) > 0 for keys in self._wanted):
            if not ahead:
                steps.settle()
            self._pulled = layer.client.pull_async(requests)

    def is_of(self, keys: Sequence[Tensor]) -> bool:
        """Whether these are the keys of its tables, of one dimension."""
        return all(place.has(each) for place, each in zip(self._places, keys, strict=True))

    def leaves(self, devices: Sequence[torch.device]) -> list[Leaf]:
        """The rows, one leaf per table. Their gradients go to whoever takes those of the layer.

        @raises Error as `Client.pull` does.
        """
        layer = self._layer
        if self._pulled is None:
            pulled = [np.empty((0, place.table.dim), np.float32) for place in self._places]
        else:
            pulled = self._pulled.result()
        rows = rows_for(layer)
        active = torch.is_grad_enabled() and layer.anchor.requires_grad
        # A tensor that is made in inference mode could not be changed afterwards.
        register = (active or layer.training) and not torch.is_inference_mode_enabled()
        leaves: list[Leaf] = []
        for place, wanted, values, device in zip(self._places, self._wanted, pulled, devices, strict=True):
            seen = place.occurrences() if active and layer.counts(place.table) else None
            looked = Looked(layer, place.table, place.unique, place.missing, seen)
            if rows is not None:
                with rows.lock:
                    table_rows = rows.of(place.table)
                    values, looked.at = table_rows.take(place.unique, wanted, values, register)
                    if register:
                        looked.generation = table_rows.generation
            if active:
                looked.expect(rows)
            apply: Any = _Looked.apply
            leaf: Tensor = apply(layer.anchor, looked, values, device)
            leaves.append(Leaf(leaf, place.inverse, place.missing, place.starts))
        return leaves


class _Looked(torch.autograd.Function):
    """The rows of a look-up. The gradient goes to whoever takes those of the layer, and not to the anchor."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, looked: Looked, values: Rows, device: torch.device) -> Tensor:  # noqa: ARG004
        ctx.looked = looked
        return torch.from_numpy(values).to(device)

    @staticmethod
    @torch.autograd.function.once_differentiable
    @uncompiled
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None, None]:
        ctx.looked.deliver(ctx, gradient)
        return None, None, None, None
