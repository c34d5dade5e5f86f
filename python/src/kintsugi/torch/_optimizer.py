"""An optimizer of PyTorch whose parameters are rows."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from .._checks import number
from .._client import Client
from .._errors import Error
from .._specs import FTRL
from .._steps import Counted, Request, steps_of
from .._tables import Table
from ._ddp import AVERAGED, LOOK, RANKS_SECONDS, STEP, Ranks
from ._inputs import check_options
from ._layer import Anchor, Layer, attach, layers_with, optimizer_of, rate_of, rows_of, uncompiled
from ._rows import Ints, TableRows
from ._step_rows import StepRows


class RowOptimizer(torch.optim.Optimizer):
    """Rows change at `step`, once: its parameters are the rows that were looked up since the last `step`.

    `model_or_layers`: a model, or layers; those with `fused=True` are left out. Each table is a group of
    `param_groups` with one parameter, keys x dim, whose gradient is what autograd has summed over all
    look-ups since `zero_grad`. `step` pushes one gradient per key, all tables in one push, and the optimizer
    of each table applies it. A key that no gradient has come for is not pushed, and keeps its state. Look-ups
    that follow wait for the push and see it. Until then a key has one value.

    The `lr` of a group is the learning rate of its pushes; it begins with that of the layer, or of the table.
    `table_lr` is the rate of the table when the optimizer began. A group whose `lr` is the same pushes by the
    rate that the table has by then. Everything else is in the tables. `group`: ranks of this process group
    average their gradients per key, as DistributedDataParallel does (sum by the number of ranks), at the
    first look at a gradient or at `step`, so all ranks look and step alike. They sum counts of layers with
    `count_duplicates`, too. Each pushes its share of the keys, and all are durable when `step` returns.
    `timeout`: seconds that a rank waits for the others at these places.

    Gradients that an earlier RowOptimizer of the layers has are those of this one from now on.

    >>> rows = kintsugi.torch.RowOptimizer(model)
    >>> loss_fn(model(x), y).backward()
    >>> rows.step()
    >>> rows.zero_grad()

    @raises Error UNKNOWN_TABLE: a table was dropped. BAD_ARGUMENT: there is no layer, or layers of two
    clients; ranks have other tables, or differ in what they count; an earlier one has gradients that are of
    other layers, too, or of ranks. With a group looks at gradients and `step`
    raise BAD_ARGUMENT where ranks do not the same, TIMEOUT where one does not come, and UNREACHABLE where one
    has ended. Nothing of the step was pushed then, unless it is said at "the end of a step()". A RowOptimizer
    that has raised one of the last two is of no use any more.
    """

    def __init__(
        self,
        model_or_layers: nn.Module | Iterable[nn.Module],
        *,
        group: ProcessGroup | None = None,
        timeout: float = RANKS_SECONDS,
    ) -> None:
        layers = layers_of(model_or_layers)
        clients = {id(layer.client): layer.client for layer in layers}
        if len(clients) != 1:
            raise Error("BAD_ARGUMENT", f"a RowOptimizer needs layers of one client, not of {len(clients)}")
        self.client = next(iter(clients.values()))
        self.rows = StepRows(self.client)
        self.rows.owner = weakref.ref(self)
        self.layers = layers
        groups: dict[str, dict[str, Any]] = {}
        _renew({table for layer in layers for table in layer.tables}, self.client)
        for layer in layers:
            if callable(layer.lr):
                raise Error("BAD_ARGUMENT", "lr of a layer must be a number: schedulers set that of a group")
            for table in layer.tables:
                lr = rate_of(layer.lr)
                own = float(getattr(table.optimizer, "lr"))  # noqa: B009
                lr = own if lr is None else lr
                of_table = self.rows.of(table)
                group_of = {"params": [of_table.parameter], "name": table.name, "lr": lr, "table_lr": own}
                its = groups.setdefault(table.name, group_of)
                if its["lr"] != lr:
                    text = f"layers of {table.name!r} have two learning rates: {its['lr']} and {lr}"
                    raise Error("BAD_ARGUMENT", text)
        super().__init__([groups[name] for name in sorted(groups)], {"lr": 0.0})
        self._complete = True
        for its in self.param_groups:
            # torch.distributed.checkpoint steps optimizers without state, with gradients of zero.
            self.state[its["params"][0]]["step"] = torch.zeros(())
        self._ranks: Ranks | None = None
        self._counted = {table.name for layer in layers for table in layer.tables if layer.counts(table)}
        self._averaged = False
        self._steps = 0
        timeout = number(timeout, "timeout")
        if timeout <= 0:
            raise Error("BAD_ARGUMENT", "timeout must be above 0")
        if group is not None:
            self._ranks = Ranks(group, sorted(self.rows.tables), sorted(self._counted), timeout)
            self.rows.synchronous = True
            # Rows outlive this object where gradients are left.
            self.rows.before_add = _weakly(self._refuse_late)
            self.rows.on_dropped = _weakly(self._begin)
            self.rows.before_look = _weakly(self._average, LOOK)
        self._take_over()
        for layer in layers:
            attach(layer, self)
        copies = [layer for layer in layers if layer.own_anchor.is_copied]
        if copies:
            text = (
                f"{copies[0]} is a copy, and copies are frozen: this RowOptimizer does not change its rows. "
            )
            warnings.warn(text + "requires_grad_() of it has it learn, on the same rows", stacklevel=2)

    def _take_over(self) -> None:
        """Has the gradients that other RowOptimizers have of these layers. @raises Error BAD_ARGUMENT."""
        others = {id(rows): rows for rows in map(rows_of, self.layers) if rows is not None}
        for other in others.values():
            its = [layer for layer in self.layers if rows_of(layer) is other]
            names = {table.name for layer in its for table in layer.tables}
            mixed = {table.name for layer in layers_with(other) if layer not in its for table in layer.tables}
            with other.lock:
                for name in sorted(names & other.tables.keys()):
                    rows = other.tables[name]
                    reason = ""
                    if name in mixed:
                        reason = "has gradients of other layers, too"
                    elif self.rows.synchronous or other.synchronous:
                        reason = "has gradients, and ranks average those of one RowOptimizer"
                    if reason and rows.is_fresh:
                        text = f"the RowOptimizer that table {name!r} has already {reason}: "
                        left = "nobody has it any more, so call zero_grad() of the model before"
                        text += left if other.is_left else "call its step() or zero_grad() before"
                        raise Error("BAD_ARGUMENT", text)
                    if not reason:
                        self.rows.tables[name].take_over(rows)
                        self.rows.origin = self.rows.origin or other.origin
                        other.zero(True, [rows.table])

    def _refuse_late(self) -> None:
        if self._averaged:
            text = "a backward after the gradients of its step were averaged: call zero_grad() after step(), "
            raise Error("BAD_ARGUMENT", text + "and look at gradients after the last backward of a step")

    def _average(self, place: int) -> None:
        """Averages gradients between ranks, once per step. Every rank comes here at the same moment of it."""
        if self._ranks is None:
            return
        step = steps_of(self.client).current
        self._ranks.meanwhile = None if step is None else step.meanwhile
        tables = [self.rows.tables[name] for name in sorted(self.rows.tables)]
        if self._averaged:
            if place == STEP:
                # Nobody pushes before all are here.
                self._ranks.meet(AVERAGED, self._steps, [0] * len(tables))
            return
        # One rank counts samples that all of them have.
        counts = step is None or not step.alike or self._ranks.rank == 0
        averaged = self._ranks.averaged(place, self._steps, [self._mine(table, counts) for table in tables])
        if averaged is None:
            return
        for table, (keys, gradient, sums) in zip(tables, averaged, strict=True):
            table.put(keys, gradient, sums)
        self._averaged = True

    def _mine(self, table: TableRows, counts: bool) -> tuple[Ints, Tensor, Counted]:
        """Keys, gradients and counts of this rank. `counts`: False where another one counts the same."""
        keys, gradient, counted = table.gradients()
        if table.table.name not in self._counted:
            return keys, gradient, None
        if counts and counted is not None:
            return keys, gradient, counted
        return keys, gradient, np.zeros(len(keys), np.int64)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Sets groups and numbers of steps. @raises Error BAD_ARGUMENT: they are of other tables."""
        names = [group.get("name") for group in state_dict["param_groups"]]
        own = [group["name"] for group in self.param_groups]
        if names != own:
            raise Error("BAD_ARGUMENT", f"the state is of tables {names}, and this one of {own}")
        rates = [group["table_lr"] for group in self.param_groups]
        super().load_state_dict(state_dict)
        for group, rate in zip(self.param_groups, rates, strict=True):
            group.setdefault("table_lr", rate)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies and pickles. @raises Error BAD_ARGUMENT: rows have one optimizer, and are in the job."""
        text = "a RowOptimizer is neither copied nor pickled: make another one, and give its load_state_dict "
        raise Error("BAD_ARGUMENT", text + "the state_dict() of this one")

    @uncompiled
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops all gradients. Rows that were looked up keep their values until `step`."""
        self.rows.zero(set_to_none)

    def _begin(self) -> None:
        """No gradient is left of those that ranks have averaged."""
        self._averaged = False

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """The groups of its tables. @raises Error BAD_ARGUMENT for another one: it has no rows."""
        if getattr(self, "_complete", False):
            text = "a RowOptimizer has one group for each table: give it all layers, and other parameters an "
            raise Error("BAD_ARGUMENT", text + "optimizer of torch.optim")
        super().add_param_group(param_group)

    @uncompiled
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Pushes the gradients: one numbered push, one gradient per key and table.

        In a batch of a `RangeDataset` they are a part of the push of the batch. `closure`: computes the loss
        and calls `backward`; its result is returned.

        @raises Error BAD_ARGUMENT: another lr for FTRL; a second step in a batch; and as `Client.push`.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad(), self.rows.lock:
            self._step()
        return loss

    def _step(self) -> None:
        taken = [layer for layer in self.layers if optimizer_of(layer) not in (self, None)]
        if taken:
            text = f"a RowOptimizer that was made later has the gradients of {taken[0]}: call its step()"
            raise Error("BAD_ARGUMENT", text)
        for group in self.param_groups:
            if self.rows.tables[group["name"]].is_fresh:
                self.rows.refuse_others([group["name"]])
        self._average(STEP)
        requests, rates = [], []
        steps = steps_of(self.client)
        # The push of a batch is made later, but for that of ranks.
        kept = steps.current is not None and self._ranks is None
        for group in self.param_groups:
            rows = self.rows.tables[group["name"]]
            request = rows.request(kept=kept)
            if request is None:
                continue
            requests.append(request)
            rates.append(_rate(group, rows.table.optimizer))
            self.state[group["params"][0]]["step"] += 1
        if self._ranks is not None:
            self._push_together(self._ranks, requests, rates)
        elif steps.current is None:
            steps.push(requests, rates)
        else:
            steps.current.add_stepped(requests, rates)
        self._steps += 1
        self.rows.end()

    def _push_together(self, ranks: Ranks, requests: list[Request], rates: list[float | None]) -> None:
        """All is durable when any rank goes on."""
        error: BaseException | None = None
        try:
            steps = steps_of(self.client)
            if steps.current is None:
                # Each rank pushes its share of the keys.
                shares = []
                for table, keys, rows, counts in requests:
                    mine = ranks.share(keys)
                    share = keys[mine], rows[mine], None if counts is None else counts[mine]
                    shares.append(Request(table, *share))
                steps.push(shares, rates)
                steps.settle()
            elif steps.current.members != ranks.members:
                raise Error("BAD_ARGUMENT", "the batch is of another process group than the RowOptimizer")
            else:
                # The push of a batch is of the rank that has leased its range.
                steps.current.add_stepped(requests, rates)
                steps.current.push_now()
            for request in requests:
                # Ranks train it together, whoever pushes.
                request.table.trained = True
        except Exception as raised:
            error = raised
        ranks.agree(self._steps, error)


def _weakly(method: Callable[..., None], *given: Any) -> Callable[[], None]:
    """A call of a method that does not keep its object."""
    found = weakref.WeakMethod(method)

    def call() -> None:
        bound = found()
        if bound is not None:
            bound(*given)

    return call


def _renew(tables: Iterable[Table], client: Client) -> None:
    """Has these tables know the settings that they have now. @raises Error UNKNOWN_TABLE."""
    for table in tables:
        found = client.table(table.name)
        if found.id != table.id:
            text = f"table {table.name!r} was dropped, and another one has its name: make the layer anew"
            raise Error("UNKNOWN_TABLE", text)
        table.optimizer, table.policy = found.optimizer, found.policy


def _rate(group: dict[str, Any], optimizer: Any) -> float | None:
    """The rate of a push; None: that of the table. @raises Error BAD_ARGUMENT."""
    check_options(group)
    lr = float(group["lr"])
    if lr == group["table_lr"]:
        return None
    if isinstance(optimizer, FTRL):
        text = f"table {group['name']!r} is of FTRL: its lr cannot change, from {optimizer.lr} to {lr}"
        raise Error("BAD_ARGUMENT", text)
    return lr


def layers_of(model_or_layers: nn.Module | Iterable[nn.Module]) -> list[Layer]:
    """Layers of this package that are not fused, each once."""
    given = [model_or_layers] if isinstance(model_or_layers, nn.Module) else list(model_or_layers)
    found: dict[int, Layer] = {}
    for model in given:
        if not isinstance(model, nn.Module):
            raise Error("BAD_ARGUMENT", f"a model or layers are expected, not {type(model).__name__}")
        for module in model.modules():
            if isinstance(module, Layer) and not module.fused:
                found[id(module)] = module
    return list(found.values())


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """As `torch.nn.utils.clip_grad_norm_`, over dense parameters and rows together. Returns the total norm.

    `parameters`: `model.parameters()`; the rows of its layers that a RowOptimizer has are counted with them.

    @raises Error BAD_ARGUMENT: a layer is fused, so its gradients are gone.
    """
    every: dict[int, Tensor] = {}
    for parameter in [parameters] if isinstance(parameters, Tensor) else parameters:
        if not isinstance(parameter, Anchor):
            every[id(parameter)] = parameter
            continue
        layer = parameter.of()
        if layer is None:
            continue
        optimizer = optimizer_of(layer)
        if optimizer is None and not parameter.requires_grad:
            continue
        if optimizer is None:
            text = f"{layer} has no RowOptimizer: its gradients cannot be clipped"
            steps_of(layer.client).drop()
            raise Error("BAD_ARGUMENT", text)
        for table in layer.tables:
            rows = optimizer.rows.of(table).parameter
            every[id(rows)] = rows
    return torch.nn.utils.clip_grad_norm_(
        list(every.values()), max_norm, norm_type, error_if_nonfinite, foreach
    )
