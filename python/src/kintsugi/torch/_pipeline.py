"""Training steps whose pulls, computation and pushes overlap."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._checks import flag, instance, integer, shown
from .._client import Client
from .._errors import Error
from .._futures import PushFuture
from .._range_work import Work
from .._ranges import RangeDataset
from .._steps import Step, parted, steps_of
from ._dense import SharedOptimizer
from ._inputs import rate_given
from ._layer import Layer, Rate, optimizer_of
from ._optimizer import RowOptimizer
from ._watch import scaled_after, watch_loops

Path = tuple[Any, ...]
"""Indexes, one in the other, that lead from a batch to a part of it."""


class _PlainWork:
    """A batch of any iterable."""

    last = False

    def __init__(self, client: Client, batch: Any) -> None:
        self.batch = batch
        self.step = Step()
        self._client = client

    @contextmanager
    def current(self) -> Iterator[None]:
        steps = steps_of(self._client)
        before, steps.current = steps.current, self.step
        try:
            yield
        finally:
            steps.current = before

    def push(self) -> PushFuture:
        given, counts = parted(self.step.requests())
        return self._client.push(given, lr=self.step.rates(), counts=counts)


class Pipeline:
    """Trains a model with layers of this package: rows of coming batches are pulled, and gradients of past
    ones are pushed, while a batch is computed.

    `model`: called with all parts of a batch but the last. `loss_fn`: of its result and the last part, a
    scalar. `opt`: an optimizer, several, or None. Layers without a RowOptimizer among them are fused: their
    gradients leave in `backward`. `before_step`: called between `backward` and the steps, such as for a clip;
    it needs a RowOptimizer for all layers, and a loss that a GradScaler has scaled needs it, to unscale.
    `device`: batches are moved there.
    `prefetch`: batches whose rows are pulled in advance, as far as a layer's input is a part of the batch as
    it is. `in_flight`: pushes that may be on their way; so rows miss at most prefetch + in_flight updates of
    this process. `deterministic`: one after the other, with deterministic algorithms of PyTorch: the same
    samples in the same order give the same rows, bit for bit, whatever is killed meanwhile. `lr`: of the
    layers that have none of their own, as in `KintsugiEmbedding`.

    >>> for loss in kintsugi.torch.Pipeline(model, opt, nn.BCEWithLogitsLoss())(data):
    ...     ...

    @raises Error BAD_ARGUMENT: the model has no layer of this package, or layers of two clients; `lr` or
    `before_step` do not fit the layers; a layer has a RowOptimizer that is not in `opt`.
    """  # noqa: D205

    def __init__(
        self,
        model: nn.Module,
        opt: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None,
        loss_fn: Callable[[Any, Any], Tensor],
        device: torch.device | str | None = None,
        prefetch: int = 2,
        in_flight: int = 4,
        deterministic: bool = False,
        lr: Rate = None,
        before_step: Callable[[], object] | None = None,
    ) -> None:
        instance(model, nn.Module, "model", "nn.Linear(8, 1)")
        optimizers = list(opt) if isinstance(opt, Sequence) else [] if opt is None else [opt]
        for each in optimizers:
            if isinstance(each, type) or not (hasattr(each, "step") and hasattr(each, "zero_grad")):
                raise Error("BAD_ARGUMENT", f"opt must be an optimizer, several or None, not {shown(each)}")
        given: Any = loss_fn
        if not callable(given) or (isinstance(given, type) and issubclass(given, nn.Module)):
            raise Error("BAD_ARGUMENT", f"loss_fn must be a function, not {shown(given)}")
        prefetch, in_flight = integer(prefetch, "prefetch", 0), integer(in_flight, "in_flight", 0)
        deterministic, lr = flag(deterministic, "deterministic"), rate_given(lr)
        self.model = model
        self.optimizers = optimizers
        self.before_step = before_step
        self.loss_fn = loss_fn
        self.device = device
        self.prefetch = 0 if deterministic else prefetch
        self.in_flight = 0 if deterministic else in_flight
        self.deterministic = deterministic
        self._layers: list[Any] = [module for module in model.modules() if isinstance(module, Layer)]
        clients = {id(layer.client): layer.client for layer in self._layers}
        if len(clients) != 1:
            raise Error("BAD_ARGUMENT", f"a model needs layers of one client, not of {len(clients)}")
        self.client: Client = next(iter(clients.values()))
        self._check_takers()
        takers: list[Any] = self.optimizers
        taken = [layer for layer in self._layers if optimizer_of(layer) in takers]
        if before_step is not None and len(taken) < len(self._layers):
            text = (
                "before_step needs a RowOptimizer of all layers in opt: gradients of others leave in backward"
            )
            raise Error("BAD_ARGUMENT", text)
        if lr is not None and taken:
            raise Error(
                "BAD_ARGUMENT", "lr is for layers without a RowOptimizer: set that of its param_groups"
            )
        self.lr = lr
        watch_loops()
        self._paths: dict[int, Path] | None = None
        """Where in a batch the input of a layer is; None: no batch has been seen."""
        self._left: dict[int, deque[Any]] = {}
        """Batches that were read ahead of iterators, by the ids of these, when their loops were left."""
        self._last: Any = None
        """The iterator that came last of those that have no weak references."""

    def _check_takers(self) -> None:
        """@raises Error BAD_ARGUMENT: a RowOptimizer that makes no step here has the gradients of a layer."""
        # Packages such as Accelerate wrap optimizers.
        wrapped = [getattr(each, "optimizer", None) for each in self.optimizers]
        takers: list[Any] = [None, *self.optimizers, *wrapped]
        learning = [layer for layer in self._layers if layer.own_anchor.requires_grad]
        if any(optimizer_of(layer) not in takers for layer in learning):
            gc.collect()  # what nobody has any more, but for cycles, takes nothing
            for layer in learning:
                if optimizer_of(layer) not in takers:
                    text = f"{layer} has a RowOptimizer that is not in opt, so nobody would step its rows: "
                    raise Error("BAD_ARGUMENT", text + "give it in opt, or have nobody hold it")

    def __call__(self, data: RangeDataset | Iterable[Any]) -> Iterator[Tensor]:
        """The loss of each batch, detached, when its gradients are on their way.

        At the end every push is durable. A loop that is left has read some batches ahead: they come first
        when the same iterator is given again. @raises Error, and what the model raises.
        """
        self._check_takers()
        if isinstance(data, RangeDataset) and data.ranks is not None:
            text = "a Pipeline reads ahead, and the ranks of a group go from batch to batch together: "
            raise Error("BAD_ARGUMENT", text + "take the batches in a loop")
        left: deque[Any] = deque()
        works: Iterator[Work | _PlainWork]
        if isinstance(data, RangeDataset):
            works = data.works()
        else:
            left = self._left_of(data)
            works = self._plain(data, left)
        queue: deque[tuple[Work | _PlainWork, Any]] = deque()
        before = torch.are_deterministic_algorithms_enabled()
        pushes: deque[PushFuture] = deque()
        try:
            if self.deterministic:
                torch.use_deterministic_algorithms(True)
            for work, batch in self._ahead(works, queue):
                work.step.fused = True
                work.step.lr = self.lr
                loss = self._step(work, batch, pushes)
                while len(pushes) > self.in_flight:
                    pushes.popleft().result()
                if work.last and isinstance(work, Work):
                    while pushes:
                        pushes.popleft().result()
                    work.finish()
                yield loss
            while pushes:
                pushes.popleft().result()
        except GeneratorExit:
            # The range goes back with the batches that are durable by then.
            while pushes and isinstance(data, RangeDataset):
                pushes.popleft().result()
            raise
        finally:
            torch.use_deterministic_algorithms(before)
            left.extendleft(work.batch for work, _ in reversed(queue))
            for layer in self._layers:
                layer._begun.clear()

    def _left_of(self, data: Iterable[Any]) -> deque[Any]:
        """Batches that were read ahead of an iterator, kept as long as the iterator is. Others begin anew."""
        # `iter` of a DataLoader would start its workers.
        if not isinstance(data, Iterator) or iter(data) is not data:
            return deque()
        key = id(data)
        if key not in self._left:
            try:
                weakref.finalize(data, self._left.pop, key, None).atexit = False
            except TypeError:
                self._left.pop(id(self._last), None)
                self._last = data
        return self._left.setdefault(key, deque())

    def _plain(self, data: Iterable[Any], left: deque[Any]) -> Iterator[_PlainWork]:
        while left:
            yield _PlainWork(self.client, left.popleft())
        for batch in data:
            yield _PlainWork(self.client, batch)

    def _ahead(
        self, works: Iterator[Work | _PlainWork], queue: deque[tuple[Work | _PlainWork, Any]]
    ) -> Iterator[tuple[Work | _PlainWork, Any]]:
        """Batches on the device, with the rows of those that follow on their way, which are in `queue`."""
        while True:
            # A range is finished before another one is asked for: it might be the last one.
            while len(queue) <= self.prefetch and not (queue and queue[-1][0].last):
                work = next(works, None)
                if work is None:
                    break
                batch = _on(self.device, work.batch)
                self._begin(batch)
                queue.append((work, batch))
                if self._paths is None:
                    break
            if not queue:
                return
            yield queue.popleft()

    def _begin(self, batch: Any) -> None:
        if self.prefetch == 0:
            return
        for layer in self._layers:
            path = (self._paths or {}).get(id(layer))
            if path is not None:
                part = batch
                for index in path:
                    part = part[index]
                layer.prefetch(part)

    def _step(self, work: Work | _PlainWork, batch: Any, pushes: deque[PushFuture]) -> Tensor:
        with work.current(), self._traced(batch):
            loss = self.loss_fn(self.model(*batch[:-1]), batch[-1])
        for opt in self.optimizers:
            opt.zero_grad()
        scaled = scaled_after(loss)
        backward: Any = loss.backward
        backward()
        if self.before_step is not None:
            self.before_step()
        elif scaled:
            self._refuse_scaled()
        here = [opt for opt in self.optimizers if not isinstance(opt, (RowOptimizer, SharedOptimizer))]
        # Gradients of the others are a part of the push.
        with work.current():
            for opt in self.optimizers:
                if opt not in here:
                    opt.step()
        pushed = work.push()
        if pushed is not None:
            pushes.append(pushed)
        for opt in here:
            opt.step()
        return loss.detach()

    def _refuse_scaled(self) -> None:
        """@raises Error BAD_ARGUMENT: an optimizer would step gradients that a GradScaler has scaled."""
        # Optimizers that packages such as Accelerate wrap step by the scaler.
        if all(hasattr(each, "optimizer") for each in self.optimizers):
            return
        for opt in self.optimizers:
            opt.zero_grad()
        text = "a GradScaler has scaled the gradients, and a Pipeline steps its optimizers without it: call "
        text += "scaler.unscale_(opt) of each in before_step, and zero_grad() of all where a gradient is not "
        raise Error("BAD_ARGUMENT", text + "finite")

    @contextmanager
    def _traced(self, batch: Any) -> Iterator[None]:
        """Finds out which part of the first batch is the input of which layer."""
        if self._paths is not None:
            yield
            return
        paths: dict[int, Path] = {}

        def see(layer: nn.Module, given: tuple[Any, ...]) -> None:
            if given:
                path = next((path for path, part in _parts(batch) if part is given[0]), None)
                if path is not None:
                    paths[id(layer)] = path

        hooks = [layer.register_forward_pre_hook(see) for layer in self._layers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        self._paths = paths


def _parts(batch: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    yield path, batch
    if isinstance(batch, dict):
        for name, part in batch.items():
            yield from _parts(part, (*path, name))
    elif isinstance(batch, (tuple, list)):
        for index, part in enumerate(batch):
            yield from _parts(part, (*path, index))


def _on(device: torch.device | str | None, part: Any) -> Any:
    """Arrays as tensors, and all of them on the device."""
    if isinstance(part, np.ndarray):
        part = torch.from_numpy(part)
    if isinstance(part, dict):
        return {name: _on(device, each) for name, each in part.items()}
    if isinstance(part, tuple) and hasattr(part, "_fields"):
        return type(part)(*(_on(device, each) for each in part))
    if isinstance(part, (tuple, list)):
        return type(part)(_on(device, each) for each in part)
    return part.to(device, non_blocking=True) if device is not None and hasattr(part, "to") else part
