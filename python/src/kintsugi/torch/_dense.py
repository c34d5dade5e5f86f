"""Dense parameters on the PS: one model for all trainers, and no update of it is lost or applied twice."""

from __future__ import annotations

import warnings
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._arrays import Rows
from .._checks import instance, number
from .._client import Client
from .._errors import Error
from .._specs import FTRL, Adam, Optimizer, Zeros
from .._steps import Request, steps_of
from .._tables import Table
from ._inputs import check_options, client_of, rate_given
from ._layer import Rate, rate_of, uncompiled
from ._once import set_first, set_values
from ._watch import is_functional, level_of_program

DIM = 256
"""Floats of a row: each parameter is cut into rows of so many, and shares none with another."""

READY = 1 << 63
"""The row of this key says that the table has the first values."""


class SharedOptimizer(torch.optim.Optimizer):
    """The dense parameters of a model are in a table of the job, and its optimizer applies the gradients.

    With batches of a `RangeDataset` they are in the same push as those of the rows, so they are applied
    exactly once, whoever is killed. A `step` ends with the parameters of the job, which other trainers
    change, too; in a batch the next `forward`, `state_dict` or batch gets them. A parameter without a
    gradient stays as it is, with its state.

    What a program writes into the parameters, such as by `load_state_dict`, is set at the job before the next
    `forward` or `step`; see `overwrite` for what is set once. Other trainers see it then. In a batch, after
    its `step`, it is BAD_ARGUMENT, but for a `load_state_dict`.

    `model`: all its parameters that need gradients are taken, float32. Every trainer begins with the same
    values: call `torch.manual_seed` before the model is made. `name`: of the table; one that is made anew
    under the name of one that was dropped begins with these values, too. `optimizer`: default Adam(); not
    FTRL. `grad_scale`: factor of gradients; 1/n makes n trainers together take steps of the size of one.
    `lr`: the learning rate in place of the table's, which schedulers change in `param_groups`, or what gives
    it at each `step`.

    >>> opt = kintsugi.torch.SharedOptimizer(client, "dense", model, kintsugi.Adam(lr=1e-3))

    @raises Error TABLE_EXISTS (others began with other values, or with another optimizer), BAD_ARGUMENT.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        *,
        grad_scale: float = 1.0,
        lr: Rate = None,
        pool: str = "embedding",
    ) -> None:
        self.client = client_of(client)
        self.grad_scale = number(grad_scale, "grad_scale")
        lr = rate_given(lr)
        instance(model, nn.Module, "model", "nn.Linear(8, 1)")
        every = [(name, each) for name, each in model.named_parameters() if each.numel() > 0]
        named = [(name, each) for name, each in every if each.requires_grad]
        self._names = [name for name, _ in named]
        self._frozen = [(name, each) for name, each in every if not each.requires_grad]
        parameters = [each for _, each in named]
        if not parameters or any(each.dtype != torch.float32 for each in parameters):
            raise Error("BAD_ARGUMENT", "a model needs parameters, and all of them float32")
        if isinstance(optimizer, FTRL):
            raise Error("BAD_ARGUMENT", "FTRL is for values that begin with zero, as those of a model do not")
        counts = [-(-each.numel() // DIM) for each in parameters]
        self._keys = [
            np.arange(count, dtype=np.uint64) | np.uint64(number << 32) for number, count in enumerate(counts)
        ]
        self._all_keys = np.concatenate(self._keys)
        self._counts = counts
        initial = np.concatenate([_rows_of(each) for each in parameters])
        # The seed stands for the first values: a trainer that begins with other ones is refused.
        spec: dict[str, Any] = {
            "optimizer": optimizer or Adam(),
            "initializer": Zeros(),
            "seed": zlib.crc32(initial.tobytes()) >> 1,
            "pool": pool,
        }
        self.table = self._started(name, spec, initial)
        self._rate = lr if callable(lr) else None
        rate = rate_of(lr)
        own = float(getattr(self.table.optimizer, "lr"))  # noqa: B009
        # A group that has the rate that the table had when this began pushes by that of the table.
        super().__init__([{"params": parameters}], {"lr": own if rate is None else rate, "table_lr": own})
        for each in parameters:
            # torch.distributed.checkpoint steps optimizers without state, with gradients of zero.
            self.state[each]["step"] = torch.zeros(())
        self._current = False
        """Whether the parameters are those of the job, as far as this process knows."""
        self._stepped = False
        """Whether a step was made since they were."""
        self._known = [each.detach().cpu().clone() for each in parameters]
        """Values that this object has seen or set; others are of the program."""
        self._first = [_rows_of(each) for each in parameters]
        self._loaded: list[int] = []
        """Places of parameters that a load has written, until they are set."""
        self._kept = False
        """True while what is loaded is not to reach the job."""
        _Hooks(self).register(model)

    # ---- the first values

    def _started(self, name: str, spec: dict[str, Any], initial: Rows) -> Table:
        """The table, with the first values of some trainer. @raises Error TABLE_EXISTS."""
        if self._is_there(f"{name}-ready"):
            text = f"table {name!r} is of a SharedOptimizer of an earlier version, as {name}-ready says"
            raise Error("TABLE_EXISTS", f"{text}: choose another name")
        table = self.client.create_table(name, DIM, **spec)
        set_first(self.client, table, self._all_keys, initial, READY)
        return table

    def _is_there(self, name: str) -> bool:
        try:
            self.client.table(name)
        except Error as error:
            if error.code != "UNKNOWN_TABLE":
                raise
            return False
        return True

    # ---- steps

    def before_forward(self) -> None:
        """Sets what the program has changed, and has the parameters be those of the job."""
        step = steps_of(self.client).current
        if step is not None:
            step.expect(self.table, self._all_keys)
        self.publish()
        if not self._current:
            self._pull()

    def before_batch(self) -> None:
        """A batch begins: what uses parameters without a call of the model has those of the job, too.

        What the program has changed is left to the next `forward`, `step` or `refresh`.
        """
        if self._current or self._kept:
            return
        every = zip(self._parameters, self._known, strict=True)
        if all(
            each.dtype == torch.float32 and _same_bits(each.detach().cpu(), known) for each, known in every
        ):
            self._pull()

    def before_load(self, loaded: set[int]) -> None:
        """A load of parameters, by their ids, changes them as they are after the last step."""
        if self._kept:
            return
        if self._stepped:
            self._pull()
        self._loaded = [at for at, each in enumerate(self._parameters) if id(each) in loaded]

    def is_replaced(self, model: nn.Module, by: SharedOptimizer) -> bool:
        """Whether `by` trains one of these parameters, or the model has one of them no more."""
        own = {id(each) for each in self._parameters}
        there = {id(each) for each in model.parameters()}
        return not own.isdisjoint(id(each) for each in by._parameters) or not own <= there

    def before_state(self) -> None:
        """A `state_dict` has what the job has."""
        if not self._kept:
            self.publish()
            if not self._current:
                self._pull()

    def keep(self, kept: bool) -> None:
        """`kept`: from now on nothing that is written reaches the job; at the end its values are here."""
        if kept:
            self.publish()
        self._kept = kept
        if not kept:
            self._pull()

    def refresh(self) -> None:
        """Has the parameters of the model be those of the job now. What was written to them is set before.

        @raises Error BAD_ARGUMENT (see `SharedOptimizer`), and as `Client.pull`.
        """
        self.publish()
        self._pull()

    def check_model(self, model: nn.Module) -> None:
        """@raises Error BAD_ARGUMENT: the model has other objects in place of its parameters, to stay."""
        there = {id(each) for each in model.parameters()}
        gone = [
            name for name, each in zip(self._names, self._parameters, strict=True) if id(each) not in there
        ]
        if gone and not is_functional():
            text = f"parameter {', '.join(map(repr, gone))} is another object than when the SharedOptimizer "
            text += "was made, so nobody trains it: copy_ into the parameter, load without assign=True, or "
            raise Error("BAD_ARGUMENT", text + "make another SharedOptimizer")

    def publish(self) -> None:
        """Sets what the program has written into parameters at the job. @raises Error BAD_ARGUMENT."""
        if self._kept:
            return
        changed = []
        for at, (each, known) in enumerate(zip(self._parameters, self._known, strict=True)):
            if each.dtype != torch.float32:
                text = f"parameter {self._names[at]!r} is of {str(each.dtype)[6:]}, and those of a "
                text += "SharedOptimizer are float32: torch.autocast computes with other types"
                raise Error("BAD_ARGUMENT", text)
            if not _same_bits(each.detach().cpu(), known):
                changed.append(at)
        loaded, self._loaded = self._loaded, []
        if not changed and (not loaded or self.table.trained):
            return
        if self._stepped and changed:
            for at in changed:
                self._known[at] = self._parameters[at].detach().cpu().clone()
            text = (
                f"parameter {self._names[changed[0]]!r} was changed after a step() in a batch, when it had "
            )
            text += "not the value after that step yet. The change is lost. Call refresh() first"
            raise Error("BAD_ARGUMENT", text)
        steps_of(self.client).settle()
        # A load is one set of values, whatever it changes: that depends on what training has moved.
        sets = [loaded] if loaded else []
        sets += [[at] for at in changed if at not in loaded]
        try:
            for some in sets:
                self._set(some)
        except BaseException:
            self._loaded = loaded
            raise
        self._current = False

    def _set(self, some: list[int]) -> None:
        """Sets parameters at the job, by their places."""
        values = [self._parameters[at].detach().cpu().clone() for at in some]
        set_values(
            self.client,
            self.table,
            np.concatenate([self._keys[at] for at in some]),
            np.concatenate([_rows_of(each) for each in values]),
            first=np.concatenate([self._first[at] for at in some]),
        )
        for at, value in zip(some, values, strict=True):
            self._known[at] = value

    def _pull(self) -> None:
        steps = steps_of(self.client)
        if steps.current is not None:
            steps.current.push_now()
        steps.settle()
        rows = torch.from_numpy(self.table.pull(self._all_keys))
        with torch.no_grad():
            for at, part in enumerate(rows.split(self._counts)):
                parameter = self._parameters[at]
                value = part.reshape(-1)[: parameter.numel()].view(parameter.shape).clone()
                parameter.copy_(value)
                self._known[at] = value
        self._current, self._stepped = True, False

    @property
    def _parameters(self) -> list[Tensor]:
        return [each for group in self.param_groups for each in group["params"]]

    @uncompiled
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Hands the gradients over: to the push of the current batch, or to one of their own.

        `closure`: computes the loss and calls `backward`; its result is returned.

        @raises Error BAD_ARGUMENT (a second step in a batch), and as `Client.push`.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._warn_of_others()
        self.publish()
        keys, rows = [], []
        for parameter, own in zip(self._parameters, self._keys, strict=True):
            if parameter.grad is not None:
                keys.append(own)
                rows.append(_rows_of(parameter.grad))
                self.state[parameter]["step"] += 1
        if keys:
            gradients = np.concatenate(rows) * np.float32(self.grad_scale)
            self._push([Request(self.table, np.concatenate(keys), gradients)])
            self._stepped = True
        self._current = False
        if steps_of(self.client).current is None:
            self._pull()
        return loss

    def _warn_of_others(self) -> None:
        """Says once which parameters have gradients that this object does not take."""
        others = [name for name, each in self._frozen if each.requires_grad and each.grad is not None]
        if others:
            self._frozen = []
            text = f"a SharedOptimizer does not train parameter {', '.join(map(repr, others))}: it needed no "
            text += "gradient when the SharedOptimizer was made. An optimizer of torch.optim can, or make "
            text += "another SharedOptimizer"
            warnings.warn(text, stacklevel=level_of_program())

    def _push(self, requests: list[Request]) -> None:
        check_options(self.param_groups[0])
        rate = rate_of(self._rate) if self._rate is not None else float(self.param_groups[0]["lr"])
        rates = [None if rate == self.param_groups[0]["table_lr"] else rate]
        steps = steps_of(self.client)
        if steps.current is not None and steps.current.members is not None:
            text = (
                "the batch is of a process group, whose ranks have dense parameters of their own: train them "
            )
            raise Error("BAD_ARGUMENT", text + "by DistributedDataParallel and an optimizer of torch.optim")
        if steps.current is None:
            steps.push(requests, rates)
        else:
            steps.current.add_stepped(requests, rates)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Sets the group and the numbers of steps, as that of `torch.optim`."""
        rate = self.param_groups[0]["table_lr"]
        super().load_state_dict(state_dict)
        self.param_groups[0].setdefault("table_lr", rate)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies and pickles. @raises Error BAD_ARGUMENT: parameters have one optimizer, in the job."""
        text = "a SharedOptimizer is neither copied nor pickled: its parameters are in a table of the job. "
        raise Error("BAD_ARGUMENT", text + "Make another one, of a name of its own, for a copy of the model")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """The group of the model. @raises Error BAD_ARGUMENT for another one: its rows are in no table."""
        if self.param_groups:
            raise Error("BAD_ARGUMENT", "a SharedOptimizer has one group: make another one for another model")
        super().add_param_group(param_group)


class _Hooks:
    """The calls of a model. Copies and pickles of the model are models of PyTorch, without them."""

    def __init__(self, optimizer: SharedOptimizer | None = None) -> None:
        self.optimizer = optimizer
        self._model: Callable[[], nn.Module | None] = lambda: None
        self._loading: int | None = None
        """Id of the module whose `load_state_dict` was called: the model, or a part of it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _Hooks, ()

    def __deepcopy__(self, memo: Any) -> _Hooks:
        return _Hooks()

    def register(self, model: nn.Module) -> None:
        """Has the model call this, and no optimizer whose place it takes."""
        self._model = weakref.ref(model)
        if self.optimizer is not None:
            steps_of(self.optimizer.client).dense.add(self)
        for each in _hooks_of(model):
            old, new = each.optimizer, self.optimizer
            if old is not None and new is not None and old.is_replaced(model, new):
                each.optimizer = None
        model.register_forward_pre_hook(self.before_forward)
        for module in model.modules():
            module._register_load_state_dict_pre_hook(self.before_load, with_module=True)
            module.register_load_state_dict_post_hook(self.after_load)
            module.register_state_dict_pre_hook(self.before_state)

    @uncompiled
    def before_forward(self, module: nn.Module, *_: Any) -> None:
        """A `forward` begins."""
        if self.optimizer is not None:
            self.optimizer.check_model(module)
            self.optimizer.before_forward()

    def before_batch(self) -> None:
        """A batch begins."""
        if self.optimizer is not None:
            self.optimizer.before_batch()

    def before_load(self, module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        """A `load_state_dict` begins. That of a part has no prefix, or is one of the model."""
        if self.optimizer is None or (prefix and module is not self._model()):
            return
        self._loading = id(module)
        every = module.named_parameters(remove_duplicate=False)
        self.optimizer.before_load({id(each) for name, each in every if prefix + name in state_dict})

    def after_load(self, module: nn.Module, *_: Any) -> None:
        """A `load_state_dict` has ended."""
        model = self._model()
        if self.optimizer is None or model is None or self._loading != id(module):
            return
        self._loading = None
        self.optimizer.check_model(model)
        self.optimizer.publish()

    def before_state(self, *_: Any) -> None:
        """A `state_dict` begins: it has what the job has."""
        if self.optimizer is not None:
            self.optimizer.before_state()


@contextmanager
def shared_kept(model: nn.Module) -> Iterator[None]:
    """A load within this changes no parameters that a SharedOptimizer has: the job has them."""
    found = {id(each.optimizer): each.optimizer for each in _hooks_of(model) if each.optimizer is not None}
    for each in found.values():
        each.keep(True)
    try:
        yield
    finally:
        for each in found.values():
            each.keep(False)


def _hooks_of(model: nn.Module) -> list[_Hooks]:
    found = [
        getattr(hook, "__self__", None)
        for module in model.modules()
        for hook in module._forward_pre_hooks.values()
    ]
    return [each for each in found if isinstance(each, _Hooks)]


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.contiguous().view(torch.int32), other.contiguous().view(torch.int32))


def _rows_of(part: Tensor) -> Rows:
    """Rows of a parameter, or of its gradient, x DIM; the rest of the last one is zero."""
    values = part.detach().cpu().to(torch.float32).numpy().reshape(-1)
    rows = np.zeros((-(-len(values) // DIM), DIM), np.float32)
    rows.reshape(-1)[: len(values)] = values
    return rows
