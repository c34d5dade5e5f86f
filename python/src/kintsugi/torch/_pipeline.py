"""Training steps whose pulls, computation and pushes overlap."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._client import Client
from .._errors import Error
from .._futures import PushFuture
from .._ranges import RangeDataset, Work
from .._steps import Step, steps_of
from ._collection import EmbeddingBagCollection
from ._dense import SharedOptimizer
from ._embedding import _Layer
from ._lookup import Rate

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
        return self._client.push(self.step.requests(), lr=self.step.rates())


class Pipeline:
    """Trains a model with layers of this package: rows of coming batches are pulled, and gradients of past
    ones are pushed, while a batch is computed.

    `model`: called with all parts of a batch but the last. `loss_fn`: of its result and the last part, a
    scalar. `opt`: the optimizer of the dense parameters, or None. `device`: batches are moved there.
    `prefetch`: batches whose rows are pulled in advance, as far as a layer's input is a part of the batch as
    it is. `in_flight`: pushes that may be on their way; so rows miss at most prefetch + in_flight updates of
    this process. `deterministic`: one after the other, with deterministic algorithms of PyTorch: the same
    samples in the same order give the same rows, bit for bit, whatever is killed meanwhile. `lr`: of the
    layers that have none of their own, as in `KintsugiEmbedding`.

    >>> for loss in kintsugi.torch.Pipeline(model, opt, nn.BCEWithLogitsLoss())(data):
    ...     ...

    @raises Error BAD_ARGUMENT: the model has no layer of this package, or layers of two clients.
    """  # noqa: D205

    def __init__(
        self,
        model: nn.Module,
        opt: torch.optim.Optimizer | SharedOptimizer | None,
        loss_fn: Callable[[Any, Any], Tensor],
        device: torch.device | str | None = None,
        prefetch: int = 2,
        in_flight: int = 4,
        deterministic: bool = False,
        lr: Rate = None,
    ) -> None:
        self.model = model
        self.opt = opt
        self.loss_fn = loss_fn
        self.device = device
        self.prefetch = 0 if deterministic else prefetch
        self.in_flight = 0 if deterministic else in_flight
        self.deterministic = deterministic
        if min(self.prefetch, self.in_flight) < 0:
            raise Error("BAD_ARGUMENT", "prefetch and in_flight must be at least 0")
        self._layers: list[Any] = [
            module for module in model.modules() if isinstance(module, (_Layer, EmbeddingBagCollection))
        ]
        clients = {id(layer.client): layer.client for layer in self._layers}
        if len(clients) != 1:
            raise Error("BAD_ARGUMENT", f"a model needs layers of one client, not of {len(clients)}")
        self.client: Client = next(iter(clients.values()))
        if lr is not None:
            for layer in self._layers:
                layer.lr = lr if layer.lr is None else layer.lr
        self._paths: dict[int, Path] | None = None
        """Where in a batch the input of a layer is; None: no batch has been seen."""

    def __call__(self, data: RangeDataset | Iterable[Any]) -> Iterator[Tensor]:
        """The loss of each batch, detached, when its gradients are on their way.

        At the end every push is durable. @raises Error, and what the model raises.
        """
        works: Iterator[Work | _PlainWork] = (
            data.works() if isinstance(data, RangeDataset) else (_PlainWork(self.client, b) for b in data)
        )
        before = torch.are_deterministic_algorithms_enabled()
        pushes: deque[PushFuture] = deque()
        try:
            if self.deterministic:
                torch.use_deterministic_algorithms(True)
            for work, batch in self._ahead(works):
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
        finally:
            torch.use_deterministic_algorithms(before)
            for layer in self._layers:
                layer._begun.clear()

    def _ahead(self, works: Iterator[Work | _PlainWork]) -> Iterator[tuple[Work | _PlainWork, Any]]:
        """Batches on the device, with the rows of those that follow on their way."""
        queue: deque[tuple[Work | _PlainWork, Any]] = deque()
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
        if self.opt is not None:
            self.opt.zero_grad()
        loss.backward()
        if isinstance(self.opt, SharedOptimizer):
            # Its gradients are a part of the push.
            with work.current():
                self.opt.step()
        pushed = work.push()
        if pushed is not None:
            pushes.append(pushed)
        if self.opt is not None and not isinstance(self.opt, SharedOptimizer):
            self.opt.step()
        return loss.detach()

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
