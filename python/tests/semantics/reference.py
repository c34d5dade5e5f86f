"""PyTorch has one `nn.Parameter` for each key, whose gradient is None where it was not looked up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor, nn

import kintsugi
import kintsugi.torch as kt

DIM = 4
KEYS = 12


@dataclass(frozen=True)
class Kind:
    """An optimizer here and in PyTorch, and the state of a parameter in the order in which a row has it."""

    ours: kintsugi.Optimizer
    theirs: Callable[[list[nn.Parameter]], torch.optim.Optimizer]
    state: tuple[str, ...] = ()


KINDS = {
    "sgd": Kind(kintsugi.SGD(lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
    "momentum": Kind(
        kintsugi.Momentum(lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        ("momentum_buffer",),
    ),
    "adagrad": Kind(kintsugi.Adagrad(lr=0.1), lambda p: torch.optim.Adagrad(p, lr=0.1), ("sum",)),
    "adam": Kind(
        kintsugi.Adam(lr=0.01),
        lambda p: torch.optim.Adam(p, lr=0.01),
        ("exp_avg", "exp_avg_sq", "step"),
    ),
    "adamw": Kind(
        kintsugi.AdamW(lr=0.01, weight_decay=0.3),
        lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.3),
        ("exp_avg", "exp_avg_sq", "step"),
    ),
}


class Rows(nn.Module):
    """The rows of a table as parameters of PyTorch, with an optimizer."""

    def __init__(self, table: kintsugi.Table, kind: Kind) -> None:
        super().__init__()
        self.table = table
        self.kind = kind
        self.rows = nn.ParameterList(
            nn.Parameter(torch.from_numpy(row.copy())) for row in table.pull(np.arange(KEYS))
        )
        self.optimizer = kind.theirs(list(self.rows))

    def forward(self, keys: Tensor) -> Tensor:
        zero = torch.zeros(self.table.dim)
        # Times one: the gradients of `stack` may share memory, and PyTorch then adds to all of them at once.
        rows = [zero if key == -1 else self.rows[key] * 1 for key in keys.reshape(-1).tolist()]
        return torch.stack(rows).view(*keys.shape, self.table.dim)

    def states(self) -> Tensor:
        """Values and state of every key, keys x width."""
        whole = []
        for row in self.rows:
            state = self.optimizer.state.get(row, {})
            parts = [row.detach()]
            for name in self.kind.state:
                size = 1 if name == "step" else self.table.dim
                value = state.get(name)
                parts.append(torch.zeros(size) if value is None else value.reshape(size))
            whole.append(torch.cat(parts))
        return torch.stack(whole)

    def check(self, client: kintsugi.Client, atol: float = 1e-6) -> None:
        """The table has the same rows and states."""
        client.flush()
        whole = torch.from_numpy(self.table.pull(np.arange(KEYS), state=True))
        torch.testing.assert_close(whole, self.states(), rtol=1e-5, atol=atol)


class Pair:
    """A layer, and what it is compared with."""

    def __init__(self, client: kintsugi.Client, kind: str = "adam", **options: Any) -> None:
        self.client = client
        self.layer = kt.KintsugiEmbedding(client, f"t-{uuid4()}", DIM, optimizer=KINDS[kind].ours, **options)
        self.torch = Rows(self.layer.table, KINDS[kind])

    def rows(self) -> kt.RowOptimizer:
        return kt.RowOptimizer(self.layer)

    def backward(self, keys: Tensor, number: int = 0) -> None:
        """Both look up these keys, and get gradients of `loss_of`."""
        for layer in (self.layer, self.torch):
            loss_of(layer(keys), number).backward()

    def check(self) -> None:
        self.torch.check(self.client)


def loss_of(rows: Tensor, number: int = 0) -> Tensor:
    """A loss that gives every element of every row its own gradient."""
    weights = torch.arange(1, rows.numel() + 1, dtype=torch.float32).view(rows.shape)
    loss: Tensor = (torch.sin(weights + number) * rows * (1 + rows)).sum()
    return loss


def keys_of(*keys: int) -> Tensor:
    return torch.tensor(keys)


class Net(nn.Module):
    """Rows and a dense layer above them. Two with the same seed begin alike."""

    def __init__(self, rows: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.rows = rows
        self.top = nn.Linear(DIM, 1)

    def forward(self, keys: Tensor) -> Tensor:
        result: Tensor = self.top(self.rows(keys)).squeeze(-1)
        return result


def start_again(table: kintsugi.Table) -> None:
    """The table is that of a program that begins."""
    table.trained = False
    table.loads.clear()
    table.given_up.clear()


def drop_by_parameters(_: Pair, rows: kt.RowOptimizer) -> None:
    for group in rows.param_groups:
        for each in group["params"]:
            each.grad = None


def drop_by_anchors(pair: Pair, _: kt.RowOptimizer) -> None:
    for each in pair.layer.parameters():
        each.grad = None


# Ways to drop the gradients of a step.
DROPS: dict[str, Callable[[Pair, kt.RowOptimizer], object]] = {
    "None": drop_by_parameters,
    "zeros": lambda _, rows: rows.zero_grad(set_to_none=False),
    "model": lambda pair, _: pair.layer.zero_grad(),
    "None of the model": drop_by_anchors,
    "zeros of the model": lambda pair, _: pair.layer.zero_grad(set_to_none=False),
}


LINES = 60
CONTENT = "".join(f"{n % 2}\t{n % KEYS}\t{n * n % KEYS}\n" for n in range(LINES))
"""Samples of a file: a label and two keys."""


def opened(
    client: kintsugi.Client, file: Path, *, epochs: int = 1, run: str | None = None
) -> kintsugi.RangeDataset:
    def read(content: bytes, samples: int) -> tuple[Tensor, Tensor]:
        rows = [line.split(b"\t") for line in content.splitlines()]
        assert len(rows) == samples
        return (
            torch.tensor([[int(key) for key in row[1:]] for row in rows]),
            torch.tensor([float(row[0]) for row in rows]),
        )

    run = run or f"r-{uuid4()}"
    return kintsugi.RangeDataset(client, [file], batch=10, epochs=epochs, run=run, reader=read, audit=True)
