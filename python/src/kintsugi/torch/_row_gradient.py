"""The gradients of the rows of a layer as a program finds them in `model.parameters()`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._errors import Error
from ._rows import TableRows
from ._step_rows import StepRows


class RowGradient(Tensor):
    """Gradients of rows in a step, one after the other, in the memory that `step` takes them from."""

    @staticmethod
    def of(flat: Tensor) -> RowGradient:
        """The gradient in this memory. It is no view for autograd, which would refuse `detach_` of it."""
        made: RowGradient = Tensor._make_subclass(RowGradient, flat.data)
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As that of a tensor. @raises Error BAD_ARGUMENT: it meets a parameter that has no elements."""
        others = [each for each in args if isinstance(each, Tensor) and not isinstance(each, RowGradient)]
        if any(each.numel() == 0 for each in others):
            text = "gradients of rows meet a parameter without elements: values of rows are not in "
            raise Error(
                "BAD_ARGUMENT", text + "model.parameters(), and step() of a RowOptimizer changes them"
            )
        return super().__torch_function__(func, types, args, kwargs or {})


class Shown:
    """The `.grad` of the parameter that stands for the rows of a layer."""

    def __init__(self) -> None:
        self._flat = torch.empty(0)
        self._parts: list[Tensor] = []

    def of(self, layer: object, rows: StepRows, names: Sequence[str], *, alone: bool) -> Tensor | None:
        """The gradients of these tables, flat; None: there are none. What changes it changes them.

        `alone`: a table that other layers give gradients for, too, is an error: `parameters` of PyTorch has a
        parameter once, and theirs are two. @raises Error BAD_ARGUMENT.
        """
        with rows.lock:
            every = _with_gradients(rows, names)
            if not every:
                return None
            if alone:
                _refuse_shared(layer, every)
            parts = [_gradient(each) for each in every]
            if len(parts) == 1:
                return parts[0].view(-1)
            if len(parts) != len(self._parts) or any(
                one is not other for one, other in zip(parts, self._parts, strict=True)
            ):
                self._flat = torch.cat([part.reshape(-1) for part in parts])
                split = self._flat.split([part.numel() for part in parts])
                self._parts = [mine.view(part.shape) for mine, part in zip(split, parts, strict=True)]
                for each, part in zip(every, self._parts, strict=True):
                    each.gradient = part
            return self._flat


def put(layer: object, rows: StepRows, names: Sequence[str], given: Tensor) -> None:
    """A program sets the gradients of these tables, flat. @raises Error BAD_ARGUMENT: they are others."""
    flat = given.detach().as_subclass(Tensor).to("cpu", torch.float32).reshape(-1)
    with rows.lock:
        every = _with_gradients(rows, names) or [rows.tables[name] for name in names if name in rows.tables]
        _refuse_shared(layer, every)
        sizes = [each.parameter.numel() for each in every]
        if len(flat) != sum(sizes):
            text = f"`.grad` of {layer} has {sum(sizes)} values in this step, not {len(flat)}: those of the "
            raise Error("BAD_ARGUMENT", text + "rows that were looked up, one row after the other")
        for each, part in zip(every, flat.split(sizes), strict=True):
            gradient = each.gradient
            if gradient is None or gradient.data_ptr() != part.data_ptr():
                each.parameter.grad = part.clone().view(-1, each.table.dim)


def _with_gradients(rows: StepRows, names: Sequence[str]) -> list[TableRows]:
    every = [rows.tables[name] for name in names if name in rows.tables]
    # The look of one table has ranks average those of all.
    return [each for each in every if each.parameter.grad is not None and each.parameter.numel() > 0]


def _gradient(of_table: TableRows) -> Tensor:
    gradient = of_table.gradient
    assert gradient is not None
    if not gradient.is_contiguous():
        gradient = of_table.gradient = gradient.contiguous()
    return gradient


def _refuse_shared(layer: object, every: Sequence[TableRows]) -> None:
    for each in every:
        if any(other is not layer for other in each.layers):
            text = f"table {each.table.name!r} has gradients of several layers, so `.grad` of their "
            text += "parameters would have them several times: change those in param_groups of the "
            raise Error("BAD_ARGUMENT", text + "RowOptimizer, and clip by kintsugi.torch.clip_grad_norm_")
