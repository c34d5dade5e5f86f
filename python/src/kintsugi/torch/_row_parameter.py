"""The parameter of an optimizer that stands for the rows of a table in a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from .._errors import Error

Ints = npt.NDArray[np.int64]

GRAD: Any = torch.Tensor.grad
_DATA: Any = torch.Tensor.data

CHANGE = "they change by gradients alone. load_state_dict of a layer and Table.assign set rows"
"""Programs are told this that have written values into rows."""


class RowParameter(nn.Parameter):
    """The rows of a table in a step, keys x dim. The first look at its gradient brings it up to date."""

    before_look: Callable[[], None] | None = None
    on_given: Callable[[Tensor | None], None] | None = None
    """Told of a gradient that a program has put in the place of the sum."""
    _given_out: tuple[tuple[Tensor, Tensor], ...] = ()
    """Values that `data` or `detach` has given in this step, each with a copy of them."""

    @property
    def data(self) -> Tensor:  # type: ignore[override, unused-ignore]
        """The values, keys x dim, to read."""
        if not self._given_out or len(self._given_out[-1][0]) != len(self):
            values: Tensor = _DATA.__get__(self)
            self._given_out = (*self._given_out, (values, values.clone()))
        return self._given_out[-1][0].detach()

    @data.setter
    def data(self, given: Tensor) -> None:  # noqa: ARG002
        raise Error("BAD_ARGUMENT", f"`data` of a parameter of rows cannot be set: {CHANGE}")

    def detach(self) -> Tensor:
        """As `data`."""
        return self.data

    @property
    def is_written(self) -> bool:
        """Whether a program has written into what `data` gave, by whatever way."""
        return any(not torch.equal(*(each.view(torch.int32) for each in pair)) for pair in self._given_out)

    def forget(self) -> None:
        """Values that `data` gave are of no step any more."""
        self._given_out = ()

    def found(self, at: Ints) -> None:
        """Values have come from the job, at these positions."""
        for values, copy in self._given_out:
            inside = torch.from_numpy(at[at < len(values)])
            copy[inside] = values[inside]

    def hold(self, values: Tensor, *, first: bool) -> None:
        """Has these values, keys x dim. `first`: of another step, so that what `data` gave is of none."""
        if first:
            self.forget()
        _DATA.__set__(self, values)

    @property
    def grad(self) -> Tensor | None:
        """The gradient, of the same shape; None: no gradient has come."""
        if self.before_look is not None:
            self.before_look()
        found: Tensor | None = GRAD.__get__(self)
        return found

    @grad.setter
    def grad(self, given: Tensor | None) -> None:
        if self.on_given is not None:
            self.on_given(given)
        GRAD.__set__(self, given)

    def register_hook(self, hook: Any) -> Any:  # noqa: ARG002
        """@raises Error BAD_ARGUMENT: no hook of it would be called."""
        text = (
            "autograd does not know the parameter of rows, and calls no hook of it: register_hook of what a "
        )
        raise Error("BAD_ARGUMENT", text + "layer returns, or change `.grad` between backward and step")

    register_post_accumulate_grad_hook = register_hook
