"""The gradients of a look-up go to a RowOptimizer, to the step of a thread or, fused, to the next push."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from .._client import Client
from .._errors import Error
from .._steps import Request, Step, Steps, steps_of
from .._tables import Table
from ._layer import Anchor, Layer, optimizer_of, rate_of, uncompiled
from ._rows import Ints
from ._sightings import Occurrences
from ._step_rows import StepRows, rows_changed, waiting
from ._watch import (
    current_pass,
    is_functional,
    is_grad_call,
    is_scaled,
    level_of_program,
    watch_loops,
)


def _warn_of_ranks(layer: Layer) -> None:
    """Says once that nobody averages the gradients of a layer within DistributedDataParallel."""
    if layer.is_warned or layer.grad_scale != 1.0 or not distributed.is_available():
        return
    parallel: Any = DistributedDataParallel._get_active_ddp_module()
    if parallel is None or distributed.get_world_size(parallel.process_group) == 1:
        return
    layer.is_warned = True
    warnings.warn(
        f"DistributedDataParallel averages dense gradients, and each rank pushes its own of {layer}: "
        "RowOptimizer(model, group=...) averages those of rows, too. Ranks that are to push on their own "
        "have layers with grad_scale=1/n",
        stacklevel=level_of_program(),
    )


def rows_for(layer: Layer) -> StepRows | None:
    """The rows of the step that a look-up of this layer belongs to; None: it is on its own."""
    optimizer = optimizer_of(layer)
    if optimizer is not None:
        return optimizer.rows
    step = steps_of(layer.client).current
    rows: StepRows | None = None if step is None else step.rows
    return rows


class Looked:
    """The keys of one look-up, for its gradient."""

    def __init__(
        self, layer: Layer, table: Table, unique: Ints, missing: int | None, seen: Occurrences | None
    ) -> None:
        """`seen`: None where the layer does not count, or nobody needs it."""
        self.layer = layer
        self.table = table
        self.unique = unique
        self.missing = missing
        self.seen = seen
        self.at: Ints = np.empty(0, np.int64)
        self.generation = -1
        self.step = steps_of(layer.client).current
        self._pass = current_pass()

    def expect(self, rows: StepRows | None) -> None:
        """A gradient may come: the rows are not forgotten, and the batch names the keys in its push.

        @raises Error BAD_ARGUMENT: ranks average it, and the push of a batch is of one rank.
        """
        if rows is None or not rows.synchronous:
            _warn_of_ranks(self.layer)
        if rows is None:
            if self.step is not None:
                self.step.looked.add(self)
            return
        if rows.synchronous and self.step is not None and self.step.members is None:
            text = (
                "a RowOptimizer of a group averages gradients of ranks, and the push of this batch is of one "
            )
            text += "rank: neither a Pipeline nor kintsugi.torch.step can have them, and a RangeDataset with "
            raise Error("BAD_ARGUMENT", text + "the same group")
        if not rows.synchronous:
            self._refuse_part()
        rows.alive.add(self)
        if self.step is not None and self.step.rows is None:
            keys = self.unique if self.missing is None else np.delete(self.unique, self.missing)
            self.step.expect(self.table, keys.view(np.uint64))

    def deliver(self, node: Any, gradient: Tensor) -> None:
        """The gradient of the rows is there, unique keys x dim. `node`: of autograd, which has it.

        @raises Error BAD_ARGUMENT: nobody takes it, or it would be a wrong one.
        """
        layer = self.layer
        if self.step is not None:
            self.step.looked.discard(self)
        if is_grad_call(node):
            text = (
                "torch.autograd.grad gives no gradients of rows: leave the parameters of layers out of its "
            )
            raise Error("BAD_ARGUMENT", text + "inputs, or call backward(), and step() or zero_grad()")
        if not layer.own_anchor.requires_grad:
            # Frozen since the look-up: autograd adds no gradient to such a parameter, either.
            return
        if gradient.requires_grad:
            text = (
                f"backward(create_graph=True): gradients of the rows of {self.table.name!r} have no graph: "
            )
            text += "take gradients of what layers return, by torch.autograd.grad(..., create_graph=True)"
            raise Error("BAD_ARGUMENT", text)
        gradient = gradient.detach()
        if layer.grad_scale != 1.0:
            gradient = gradient * layer.grad_scale
        gradient = gradient.cpu().contiguous()
        optimizer = optimizer_of(layer)
        if optimizer is not None:
            if optimizer.rows.of(self.table).parameter.requires_grad:
                self._add(optimizer.rows, gradient)
        elif self.step is not None and self.step.rows is not None:
            self._check_scaler()
            self._rate(self.step.rows)
            self._add(self.step.rows, gradient)
        elif layer.fused or (self.step is not None and self.step.fused):
            self._leave(gradient)
        else:
            text = f"nobody takes the gradients of table {self.table.name!r}: make a kintsugi.torch."
            text += "RowOptimizer(model) and call its step(), or make the layer with fused=True"
            raise Error("BAD_ARGUMENT", text)

    def _add(self, rows: StepRows, gradient: Tensor) -> None:
        steps = steps_of(self.layer.client)
        leaving = [steps.fused.get(current_pass()), steps.held, self.step]
        if any(each is not None and each.has_fused(self.table) for each in leaving):
            self._refuse_both()
        if self.step is not None and self.step.rows not in (None, rows):
            self.step.elsewhere.append((rows, self.table.name))
        with rows.lock:
            if rows.before_add is not None:
                rows.before_add()
            if rows.origin is not self.step and self.step is not None and self.step.rows is None:
                if rows.origin is not None:
                    text = "gradients of two batches of a data set in one step: each batch is pushed on its "
                    text += "own; take micro-batches as parts of a batch, and call step() or zero_grad()"
                    raise Error("BAD_ARGUMENT", text)
                rows.origin = self.step
            of_table = rows.of(self.table)
            of_table.layers.add(self.layer)
            of_table.add(self.unique, self.at, self.generation, self.missing, gradient, self.seen)

    def _rate(self, rows: StepRows) -> None:
        of_table, rate = rows.of(self.table), rate_of(self.layer.lr)
        if of_table.rated and of_table.lr != rate:
            text = f"{self.table.name!r} has two learning rates in one step: {of_table.lr} and {rate}"
            raise Error("BAD_ARGUMENT", text)
        of_table.rated, of_table.lr = True, rate

    def _refuse_part(self) -> None:
        """@raises Error BAD_ARGUMENT: the batch is of several ranks, and nobody averages their gradients."""
        if self.step is not None and self.step.members is not None:
            text = (
                f"gradients of table {self.table.name!r} are of one rank, and the batch is of a group: make "
            )
            raise Error("BAD_ARGUMENT", text + "kintsugi.torch.RowOptimizer(model, group=...) of this group")

    # ---- fused

    def _leave(self, gradient: Tensor) -> None:
        """The gradient leaves now, with all others of this pass of `backward`, or with those of its batch."""
        number = current_pass()
        self._refuse_part()
        self._check_scaler()
        if waiting(self.layer.client, [self.table.name]) is not None:
            self._refuse_both()
        self._check_accumulation(number)
        rate = rate_of(self.layer.lr)
        if self.step is not None:
            rate = rate_of(self.step.lr) if self.layer.lr is None else rate
            self._give(self.step, gradient, rate)
            return
        steps = steps_of(self.layer.client)
        steps.refuse_elsewhere()
        step = steps.fused.get(number)
        if step is None:
            # Gradients that are left are those of a pass that has failed.
            steps.fused = {number: Step()}
            step = steps.fused[number]
            torch.autograd.Variable._execution_engine.queue_callback(
                functools.partial(_push_fused, steps, number)
            )
        self._give(step, gradient, rate)
        step.anchors.append(self.layer.own_anchor)

    def _give(self, step: Step, gradient: Tensor, rate: float | None) -> None:
        counts = None if self.seen is None else self.seen.within(step)
        request = Request(self.table, self.unique.view(np.uint64), gradient.numpy(), counts)
        step.add(request, rate, fused=True)

    def _refuse_both(self) -> None:
        steps_of(self.layer.client).drop()
        text = f"table {self.table.name!r} has layers with a RowOptimizer and fused ones: a step of both "
        raise Error("BAD_ARGUMENT", text + "would be two steps of a row. Make all layers of a table alike")

    def _check_scaler(self) -> None:
        if is_scaled():
            text = f"a GradScaler has scaled the gradients of table {self.table.name!r}, and they leave in "
            text += "backward (fused): use a RowOptimizer, and scaler.step(rows)"
            raise Error("BAD_ARGUMENT", text)

    def _check_accumulation(self, number: int) -> None:
        anchor = self.layer.own_anchor
        held = steps_of(self.layer.client).held
        left = anchor.managed and anchor.left_in is not None and anchor.left_in != number
        if left or (held is not None and held.has_fused(self.table)):
            text = (
                f"gradients of table {self.table.name!r} left in the backward before (fused), and this one "
            )
            text += "adds to it without zero_grad(): to accumulate gradients use a RowOptimizer"
            steps_of(self.layer.client).drop()
            raise Error("BAD_ARGUMENT", text)
        if self._pass not in (-1, number):
            text = (
                f"table {self.table.name!r}: fused layers cannot be in a checkpoint with use_reentrant=True"
            )
            raise Error("BAD_ARGUMENT", text)
        anchor.left_in = number


@uncompiled
def _push_fused(steps: Steps, number: int) -> None:
    step = steps.fused.pop(number, None)
    if step is None:
        return
    # The loop may be one that fused layers cannot have. It is found out before anything is sent where an
    # optimizer of PyTorch has the anchors: it looks at them when a step is made, and so does a clip.
    steps.hold(step)
    client = steps.client
    if client is not None:
        rows_changed(client, [each.table.name for each in step.requests()], here=True)
    if not all(anchor.managed for anchor in step.anchors):
        steps.release()


def check_anchor(layer: Layer) -> None:
    """A look-up that is to learn begins. @raises Error BAD_ARGUMENT: a parameter stands for no rows."""
    if isinstance(layer.anchor, Anchor) or is_functional():
        return
    text = f"{type(layer.anchor).__name__} has taken the place of the parameter that stands for rows of "
    text += f"{layer}: zero_grad() and requires_grad_() of the model would not reach them. Leave layers out "
    raise Error(
        "BAD_ARGUMENT", text + "of what replaces parameters (ignored_params, ignored_modules of FSDP)"
    )


def refuse_accumulation(layer: Layer) -> None:
    """A look-up that is to learn begins. @raises Error BAD_ARGUMENT: the gradients before had no step."""
    steps = steps_of(layer.client)
    held = steps.held
    if held is None or not layer.training or not any(held.has_fused(table) for table in layer.tables):
        return
    steps.drop()
    text = (
        f"{layer} is looked up after a backward (fused) that had no step and no zero_grad(): to accumulate "
    )
    text += (
        "gradients use a RowOptimizer, and no_grad() for what is not trained. Nothing of the step was sent"
    )
    raise Error("BAD_ARGUMENT", text)


def _refuse_left(step: Step) -> None:
    """@raises Error BAD_ARGUMENT: a RowOptimizer has gradients of this step, and has not stepped."""
    for rows, name in step.elsewhere:
        # A GradScaler leaves gradients that are not finite without a step.
        if rows.tables[name].is_fresh and rows.is_finite:
            text = f"gradients of table {name!r} would not be pushed: its RowOptimizer has them. Within "
            text += "kintsugi.torch.step call its step(), or have nobody hold it: layers need none here"
            raise Error("BAD_ARGUMENT", text)


@contextmanager
def step(client: Client) -> Iterator[None]:
    """One step of a loop without an optimizer object: look-ups of this thread within it share their rows.

    All gradients that come within it, of any number of passes of `backward`, are one push when it ends: one
    gradient per key and table. Look-ups that follow wait for the push and see it. If it ends by an exception,
    nothing is pushed. It is of this thread: other threads have their own.

    >>> with kintsugi.torch.step(client):
    ...     loss_fn(model(x), y).backward()

    @raises Error BAD_ARGUMENT: one is in another, or in a batch of a RangeDataset, which is a step already;
    a RowOptimizer of a layer has gradients of it, and has made no step.
    """
    steps = steps_of(client)
    if steps.current is not None:
        raise Error("BAD_ARGUMENT", "there is a step already: a batch of a data set is one, and none nests")
    steps.refuse_elsewhere()
    watch_loops()
    mine = Step()
    rows = mine.rows = StepRows(client)
    steps.current = mine
    try:
        yield
        # One push has the gradients of dense parameters, too.
        requests, rates = mine.requests(), mine.rates()
        for name in sorted(rows.tables):
            request = rows.tables[name].request()
            if request is not None:
                requests.append(request)
                rates.append(rows.tables[name].lr)
        rows.refuse_others([each.table.name for each in requests])
        _refuse_left(mine)
        mine.closed = True
        steps.push(requests, rates)
        rows.end()
    finally:
        steps.current = None
