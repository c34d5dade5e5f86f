"""All layers of this package have an anchor, by which models find and freeze them, and an optimizer."""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from .._checks import flag, number
from .._client import Client
from .._errors import Error
from .._steps import steps_of
from .._tables import Table
from . import _watch
from ._configs import refuse_later
from ._inputs import client_of, rate_given
from ._loading import load_rows
from ._row_gradient import RowGradient, Shown, put
from ._step_rows import StepRows

F = TypeVar("F", bound=Callable[..., Any])

Rate = float | Callable[[], float] | None
"""A learning rate, or what gives it whenever gradients are handed over; None: that of the table."""


def rate_of(given: Rate) -> float | None:
    """The rate now."""
    return number(given(), "lr", 0) if callable(given) else given


_GRAD: Any = torch.Tensor.grad
_IS_LEAF: Any = torch.Tensor.is_leaf


class _Weak:
    """A weak reference that copies and pickles as one to nothing."""

    def __init__(self, target: Any = None) -> None:
        self._reference = None if target is None else weakref.ref(target)

    def __call__(self) -> Any:
        return None if self._reference is None else self._reference()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Weak, ()

    def __deepcopy__(self, memo: Any) -> _Weak:
        return _Weak()


class Anchor(nn.Parameter):
    """A parameter without elements that stands for the rows of a layer in `model.parameters()`.

    `requires_grad_` of the model reaches the layer by it. Its gradient is that of the rows in a step for
    programs and clips, and none for optimizers of PyTorch: they have no rows.
    """

    of = _Weak()
    managed = False
    """True once an optimizer of PyTorch has it: `zero_grad` of it says where a step ends."""
    left_in: int | None = None
    """The pass of `backward` in which fused gradients left, until somebody drops gradients."""
    is_copied = False
    """Whether `copy.deepcopy` has frozen the layer, and nobody has said since whether it learns."""
    _shown: Shown

    @property
    def grad(self) -> Tensor | None:
        """None, or the gradients of the rows in a step, flat; then it has more elements than the parameter.

        @raises Error BAD_ARGUMENT.
        """
        reader = _watch.look(self)
        layer, rows = self._rows()
        if rows is None or reader is None:
            found: Tensor | None = _GRAD.__get__(self)
            return found
        names = [table.name for table in layer.tables]
        if isinstance(reader, list):
            # A parameter that PyTorch's layers share is in a list once.
            before = [each._rows() for each in reader[: _place(reader, self)] if isinstance(each, Anchor)]
            theirs = {table.name for other, its in before if its is rows for table in other.tables}
            names = [name for name in names if name not in theirs]
        found = self._shown.of(layer, rows, names, alone=not isinstance(reader, list))
        return found if found is None or isinstance(reader, list) else RowGradient.of(found)

    @grad.setter
    def grad(self, given: Tensor | None) -> None:
        self.left_in = None
        self.seen()
        layer, rows = self._rows()
        if given is None:
            self.dropped(True)
        elif rows is not None and given.numel() == 0:
            self.dropped(False)
            return
        elif rows is not None:
            put(layer, rows, [table.name for table in layer.tables], given)
            return
        _GRAD.__set__(self, given)

    def _rows(self) -> tuple[Any, StepRows | None]:
        """The layer, and the rows whose gradients wait for a step; None: there are none."""
        layer = self.of()
        if layer is None:
            return None, None
        return layer, _rows_of_step(layer) or rows_of(layer)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """As that of a tensor."""
        self.is_copied = False
        return super().requires_grad_(requires_grad)

    def seen(self) -> None:
        """A step is made, or gradients are dropped: what is held leaves. @raises Error, as `Client.push`."""
        layer = self.of()
        if layer is not None:
            steps_of(layer.client).release()

    def clipped(self, parameters: Any) -> bool:
        """PyTorch clips gradients of parameters, this one among them. Whether it is to see those of rows.

        @raises Error BAD_ARGUMENT: the gradients of the rows have left.
        """
        layer, rows = self._rows()
        if layer is None:
            return False
        if rows is None or (self.left_in is not None and optimizer_of(layer) is None):
            if self.left_in is None or not self.requires_grad:
                return False
            text = f"gradients of {layer} leave in backward (fused), and a clip cannot reach them: "
            steps_of(layer.client).drop()
            raise Error("BAD_ARGUMENT", text + "use a RowOptimizer")
        # A program may give parameters of a RowOptimizer beside those of the model.
        own = {id(each.parameter) for each in rows.tables.values()}
        return not isinstance(parameters, list) or own.isdisjoint(id(each) for each in parameters)

    def dropped(self, set_to_none: bool) -> None:
        """`zero_grad` of a model: it drops gradients of rows, too."""
        layer = self.of()
        if layer is None:
            return
        for its in (rows_of(layer), _rows_of_step(layer)):
            if its is not None:
                its.zero(set_to_none, layer.tables)

    def register_hook(self, hook: Any) -> Any:
        """As that of a tensor. It does not see gradients of rows, and a warning says so."""
        _warn_of_hook("register_hook")
        return super().register_hook(hook)

    def register_post_accumulate_grad_hook(self, hook: Any) -> Any:
        """As `register_hook`."""
        _warn_of_hook("register_post_accumulate_grad_hook")
        return super().register_post_accumulate_grad_hook(hook)

    @property
    def is_leaf(self) -> bool:  # type: ignore[override, unused-ignore]
        """True. An optimizer asks when it takes a parameter."""
        _watch.asked(self)
        return bool(_IS_LEAF.__get__(self))


def _place(every: list[Any], one: object) -> int:
    return next((at for at, each in enumerate(every) if each is one), len(every))


def _warn_of_hook(name: str) -> None:
    warnings.warn(
        f"{name} of a parameter does not see gradients of rows: they are not in model.parameters(). "
        "register_hook of what a layer returns does, and so does `.grad` in param_groups of a RowOptimizer",
        stacklevel=3,
    )


def uncompiled(forward: F) -> F:
    """For a `forward` and others that ask a job: torch.compile leaves them, and compiles what is around."""
    disable: Any = getattr(torch, "_disable_dynamo", None) or torch.compiler.disable
    wrapped: F = disable(forward)
    return wrapped


class Begun:
    """Pulls that were begun for inputs of a `forward` to come: each is for the very object that it gets."""

    def __init__(self) -> None:
        self._lookups: dict[int, tuple[object, Any]] = {}

    def put(self, given: object, lookup: Any) -> None:
        """Keeps the lookup, and `given`, until `take`."""
        self._lookups[id(given)] = given, lookup

    def take(self, given: object) -> Any:
        """The lookup that was begun for this object; None: there is none."""
        found = self._lookups.pop(id(given), None)
        return None if found is None else found[1]

    def clear(self) -> None:
        """Drops all lookups: no `forward` will ask for them."""
        self._lookups.clear()


_OWN = frozenset({"_begun", "_own_anchor"})
"""Attributes that copies and pickles make anew."""


class _Given:
    """A flag that a layer has from its start: what watches it, and other ranks, look at it once."""

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, layer: Layer | None, _: type) -> bool:
        return layer is not None and bool(layer.__dict__.get(self._name, False))

    def __set__(self, layer: Layer, value: bool) -> None:
        """The first value. @raises Error BAD_ARGUMENT: there is one already."""
        if self._name in layer.__dict__:
            raise Error("BAD_ARGUMENT", f"{self._name} of a layer stays: another layer may have another")
        layer.__dict__[self._name] = value


class Layer(nn.Module):
    """A layer whose rows are in tables of a job."""

    tables: list[Table]
    is_warned = False
    """Whether it was said that ranks of DistributedDataParallel push on their own."""
    fused = _Given()
    """Whether gradients are pushed as they come, and not by a `RowOptimizer`."""
    count_duplicates = _Given()
    """Whether a key is seen as often as the batches of a step name it, and not once."""

    def __init__(
        self, client: Client, grad_scale: float, lr: Rate, fused: bool, count_duplicates: bool
    ) -> None:
        super().__init__()
        self.client = client_of(client)
        self.grad_scale = number(grad_scale, "grad_scale")
        self.lr = rate_given(lr)
        self.fused = flag(fused, "fused")
        self.count_duplicates = flag(count_duplicates, "count_duplicates")
        self._anchor_of(torch.empty(0), requires_grad=True)
        if fused:
            _watch.watch_loops()

    def counts(self, table: Table) -> bool:
        """Whether pushes of its gradients say how often keys of this table were seen."""
        return self.count_duplicates and table.policy is not None

    def __getattr__(self, name: str) -> Any:
        """An attribute that a module has. @raises AttributeError: `weight` says where rows are."""
        if name == "weight":
            text = "a layer whose rows are in a job has no weight: client.table(name) has pull(keys) and "
            raise AttributeError(text + "assign(keys, rows), and to_embedding_bag(layer, keys=...) gives one")
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute. @raises Error BAD_ARGUMENT: one of PyTorch's layers that does nothing here."""
        refuse_later(self, name)
        super().__setattr__(name, value)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """As that of a module. @raises Error BAD_ARGUMENT: `weight`."""
        refuse_later(self, name)
        super().register_parameter(name, param)

    def register_buffer(self, name: str, *tensor: Any, **options: Any) -> None:
        """As `register_parameter`."""
        refuse_later(self, name)
        super().register_buffer(name, *tensor, **options)

    @classmethod
    def from_pretrained(cls, *_: Any, **__: Any) -> Any:
        """@raises Error BAD_ARGUMENT: rows are those of a table."""
        text = f"{cls.__name__} takes no rows: load_state_dict of the layer with the weight sets them, and "
        raise Error("BAD_ARGUMENT", text + "requires_grad_(False) freezes it")

    def _anchor_of(self, data: Tensor, requires_grad: bool) -> None:
        self.anchor = Anchor(data, requires_grad=requires_grad)
        self.anchor.of = _Weak(self)
        self.anchor._shown = Shown()
        self._own_anchor = [self.anchor]

    @property
    def own_anchor(self) -> Anchor:
        """The anchor, also while `torch.func.functional_call` has another parameter in its place."""
        return self._own_anchor[0]

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Moves and converts the layer: results have the type of the anchor, and rows stay float32 on the PS.

        PyTorch may put another parameter in the place of the anchor, which would not stand for rows.
        """
        result = super()._apply(fn, recurse)
        if not isinstance(self.anchor, Anchor):
            given: Tensor = self.anchor
            self._anchor_of(given.detach(), given.requires_grad)
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Layer:
        """A copy is frozen, and shows the rows as they are: there is one of each in the job.

        @raises Error BAD_ARGUMENT: AveragedModel of PyTorch would average rows.
        """
        _watch.note_average(self, self.anchor.requires_grad)
        copied = self.__class__.__new__(self.__class__)
        memo[id(self)] = copied
        copied.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self._kept().items()})
        copied._renew(requires_grad=False, dtype=self.anchor.dtype)
        copied.anchor.is_copied = True
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what this process has begun; a client reconnects."""
        return {**self._kept(), "anchored": self.anchor.requires_grad, "dtype": self.anchor.dtype}

    def _kept(self) -> dict[str, Any]:
        """Copies and pickles have all but the anchor, and look-ups that were begun."""
        parts = {name: value for name, value in self.__dict__.items() if name not in _OWN}
        parameters = {name: value for name, value in self._parameters.items() if name != "anchor"}
        return {**parts, "_parameters": parameters}

    def __setstate__(self, state: dict[str, Any]) -> None:
        requires_grad, dtype = state.pop("anchored"), state.pop("dtype", torch.float32)
        restore: Any = super().__setstate__
        restore(state)
        self._renew(requires_grad, dtype)

    def _renew(self, requires_grad: bool, dtype: torch.dtype) -> None:
        """An anchor of its own, and nothing that was begun."""
        self._anchor_of(torch.empty(0, dtype=dtype), requires_grad)
        self._begun = Begun()
        if self.fused:
            _watch.watch_loops()

    def __prepare_scriptable__(self) -> None:
        """torch.jit.script asks. @raises Error BAD_ARGUMENT: TorchScript cannot ask a job."""
        text = "torch.jit.script cannot compile a layer whose rows are in a job: trace the plain module that "
        raise Error("BAD_ARGUMENT", text + "kintsugi.torch.to_embedding_bag(layer, keys=...) gives")

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination.pop(prefix + "anchor", None)

    def _row_places(self) -> list[tuple[Table, list[str]]]:
        """Each table, and what names of its rows in a `state_dict` may begin with."""
        return [(table, [""]) for table in self.tables]

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: list[str], *rest: Any
    ) -> None:
        places = [(table, [prefix + each for each in names]) for table, names in self._row_places()]
        load_rows(self.client, places, state_dict, strict, missing)
        # The anchor has no values. With assign=True another parameter would take its place.
        state_dict.pop(prefix + "anchor", None)
        without: list[str] = []
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, without, *rest)
        missing += [name for name in without if name != prefix + "anchor"]


class Taker(Protocol):
    """An optimizer that takes the gradients of layers."""

    rows: StepRows
    layers: list[Layer]
    param_groups: list[dict[str, Any]]


_optimizers: weakref.WeakKeyDictionary[Layer, weakref.ref[Taker]] = weakref.WeakKeyDictionary()
_taken: weakref.WeakKeyDictionary[Layer, StepRows] = weakref.WeakKeyDictionary()
"""Rows of the optimizers. Gradients stay when nobody has an optimizer any more, as those of PyTorch do."""


def attach(layer: Layer, optimizer: Taker) -> None:
    """Gradients of the layer go to this optimizer from now on, as long as somebody has it."""
    _optimizers[layer] = weakref.ref(optimizer)
    _taken[layer] = optimizer.rows


def optimizer_of(layer: Layer) -> Taker | None:
    """The RowOptimizer that has the rows of a layer."""
    found = _optimizers.get(layer)
    return None if found is None else found()


def rows_of(layer: Layer) -> StepRows | None:
    """The rows that the last RowOptimizer of a layer has, or had when somebody had it."""
    return _taken.get(layer)


def _rows_of_step(layer: Layer) -> StepRows | None:
    """Rows of the `kintsugi.torch.step` of this thread, where no RowOptimizer has those of the layer."""
    step = steps_of(layer.client).current
    found: StepRows | None = None if step is None or optimizer_of(layer) is not None else step.rows
    return found


def layers_with(rows: StepRows) -> list[Layer]:
    """The layers whose last RowOptimizer has these rows."""
    return [layer for layer, its in list(_taken.items()) if its is rows]
