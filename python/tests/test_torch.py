"""Layers for PyTorch against PyTorch's own, with the same rows."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from torch import Tensor, nn

import kintsugi.torch as kt
from kintsugi.torch._lookup import Leaf, places_of

DIM = 6


def name() -> str:
    return f"t-{uuid4()}"


def grid(*shape: int, missing: float = 0.0) -> Tensor:
    keys = torch.randint(0, 40, shape)
    return torch.where(torch.rand(shape) < missing, -1, keys)


def reference(table: kintsugi.Table, mode: str) -> nn.EmbeddingBag:
    """PyTorch's own layer with the rows of the table; key 40 stands for the missing one."""
    weights = np.zeros((41, DIM), np.float32)
    weights[:40] = table.pull(np.arange(40))
    bag = nn.EmbeddingBag(41, DIM, mode=mode, padding_idx=40)
    bag.weight.data = torch.from_numpy(weights)
    return bag


def known(keys: Tensor) -> Tensor:
    return torch.where(keys == -1, 40, keys)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_a_bag_learns_as_the_one_of_torch(client: kintsugi.Client, mode: Any) -> None:
    torch.manual_seed(3)
    layer = kt.KintsugiEmbeddingBag(
        client, name(), DIM, mode=mode, optimizer=kintsugi.Adagrad(lr=0.1), fused=True
    )
    other = reference(layer.table, mode)
    optimizer = torch.optim.Adagrad(other.parameters(), lr=0.1)
    for step in range(6):
        keys = grid(70, missing=0.2) if step % 2 else grid(12, 5, missing=0.2)
        offsets = torch.tensor([0, 3, 3, 20, 69]) if step % 2 else None
        ours, theirs = layer(keys, offsets), other(known(keys), offsets)
        torch.testing.assert_close(ours, theirs)
        target = torch.randn_like(ours)
        (ours * target).sum().backward()
        optimizer.zero_grad()
        (theirs * target).sum().backward()
        optimizer.step()
    client.flush()
    torch.testing.assert_close(
        torch.from_numpy(layer.table.pull(np.arange(40))), other.weight.detach()[:40], rtol=1e-4, atol=1e-6
    )


OPTIMIZERS = [
    (kintsugi.SGD(lr=0.1), lambda w: torch.optim.SGD([w], lr=0.1)),
    (kintsugi.Momentum(lr=0.1), lambda w: torch.optim.SGD([w], lr=0.1, momentum=0.9)),
    (kintsugi.Adagrad(lr=0.1), lambda w: torch.optim.Adagrad([w], lr=0.1)),
    (kintsugi.Adam(lr=0.01), lambda w: torch.optim.Adam([w], lr=0.01)),
    (kintsugi.AdamW(lr=0.01, weight_decay=0.3), lambda w: torch.optim.AdamW([w], lr=0.01, weight_decay=0.3)),
]
SCHEDULES = [
    (None, lambda _: 1.0),
    (kintsugi.schedules.Cosine(steps=9), lambda n: (1 + np.cos(np.pi * min(n, 9) / 9)) / 2),
    (kintsugi.schedules.Step(every=4, factor=0.5), lambda n: 0.5 ** (n // 4)),
    (
        kintsugi.schedules.InverseSqrt(scale=3, warmup=3),
        lambda n: (n + 1) / 3 if n < 3 else (3 / n) ** 0.5,
    ),
]


@pytest.mark.parametrize("pair", OPTIMIZERS, ids=lambda pair: pair[0].kind)
@pytest.mark.parametrize("scheduled", SCHEDULES, ids=lambda pair: pair[0].kind if pair[0] else "none")
def test_a_row_that_every_batch_has_learns_as_a_parameter_of_torch(
    client: kintsugi.Client, pair: Any, scheduled: Any
) -> None:
    (optimizer, theirs), (schedule, factor) = pair, scheduled
    table = client.create_table(name(), DIM, optimizer=dataclasses.replace(optimizer, schedule=schedule))
    weight = nn.Parameter(torch.from_numpy(table.pull([7]).copy()))
    other = theirs(weight)
    rates = torch.optim.lr_scheduler.LambdaLR(other, factor)
    generator = torch.Generator().manual_seed(5)
    for _ in range(12):
        weight.grad = torch.randn(weight.shape, generator=generator)
        table.push([7], weight.grad.numpy()).result()
        other.step()
        rates.step()
    torch.testing.assert_close(torch.from_numpy(table.pull([7])), weight.detach(), rtol=1e-4, atol=1e-6)


def test_an_embedding_has_one_row_per_key_of_any_shape(client: kintsugi.Client) -> None:
    layer = kt.KintsugiEmbedding(client, name(), DIM, optimizer=kintsugi.SGD(lr=1.0), fused=True)
    keys = torch.tensor([[2**62 + 1, -2, -1], [5, 5, 7]])
    before = layer(keys)
    assert before.shape == (2, 3, DIM)
    assert (before[0, 2] == 0).all()
    assert (before[1, 0] == before[1, 1]).all()
    before.sum().backward()
    with torch.no_grad():
        after = layer(keys)
    change = (before - after)[..., 0].tolist()
    # 5 is there twice, and -1 has no row.
    assert np.allclose(change, [[1, 1, 0], [2, 2, 1]], atol=1e-6)
    assert layer(torch.empty(0, dtype=torch.int64)).shape == (0, DIM)
    # A model freezes the layer by a parameter without elements.
    assert [each.numel() for each in layer.parameters()] == [0]
    assert not layer.state_dict()


def test_weights_of_samples_and_the_scale_of_gradients(client: kintsugi.Client) -> None:
    layer = kt.KintsugiEmbeddingBag(
        client,
        name(),
        DIM,
        mode="sum",
        optimizer=kintsugi.SGD(lr=1.0),
        initializer=kintsugi.Constant(1.0),
        grad_scale=0.5,
        fused=True,
    )
    weights = torch.tensor([2.0, 3.0], requires_grad=True)
    out = layer(torch.tensor([1, 2]), torch.tensor([0]), weights)
    assert out.tolist() == [[5.0] * DIM]
    out.sum().backward()
    assert weights.grad is not None
    assert weights.grad.tolist() == [DIM, DIM]
    client.flush()
    assert layer.table.pull([1, 2])[:, 0].tolist() == [0.0, -0.5]


def test_a_collection_is_its_bags(client: kintsugi.Client) -> None:
    torch.manual_seed(5)
    items, users = name(), name()
    collection = kt.EmbeddingBagCollection(
        client,
        [
            kt.EmbeddingBagConfig(items, DIM, ["item", "liked"], mode="mean", optimizer=kintsugi.SGD(lr=1.0)),
            kt.EmbeddingBagConfig(users, DIM, optimizer=kintsugi.SGD(lr=1.0)),
        ],
        fused=True,
    )
    bags = {"item": grid(4, 1), "liked": (grid(9), torch.tensor([0, 2, 2, 7])), users: grid(4, 2)}
    before = client.table(items).pull(np.arange(40))
    alone = reference(client.table(items), "mean")
    out = collection(bags)
    assert list(out) == ["item", "liked", users]
    torch.testing.assert_close(out["liked"], alone(*bags["liked"]))
    (out["item"].sum() + out["liked"].sum()).backward()
    (alone(bags["item"]).sum() + alone(*bags["liked"]).sum()).backward()
    client.flush()
    assert alone.weight.grad is not None
    change = before - client.table(items).pull(np.arange(40))
    assert np.allclose(change, alone.weight.grad[:40].numpy(), atol=1e-5)
    with pytest.raises(kintsugi.Error, match="no feature 'item'"):
        collection({"liked": grid(3, 3)})
    with pytest.raises(kintsugi.Error, match="has two configurations"):
        kt.EmbeddingBagCollection(client, [kt.EmbeddingBagConfig("a", 4), kt.EmbeddingBagConfig("a", 4)])


def test_errors_have_codes(client: kintsugi.Client) -> None:
    bag = kt.KintsugiEmbeddingBag(client, name(), DIM)
    wrong: Any = "min"
    cases: list[tuple[str, Callable[[], object]]] = [
        ("LENGTH_MISMATCH", lambda: bag(grid(4))),
        ("LENGTH_MISMATCH", lambda: bag(grid(4, 2), torch.tensor([0]))),
        ("KEY_TYPE", lambda: bag(torch.rand(4, 2))),
        ("BAD_ARGUMENT", lambda: bag(grid(4), torch.tensor([0]), torch.ones(4))),
        ("BAD_ARGUMENT", lambda: kt.KintsugiEmbeddingBag(client, name(), 4, mode=wrong)),
    ]
    for code, call in cases:
        with pytest.raises(kintsugi.Error) as error:
            call()
        assert error.value.code == code


def test_without_torch_the_import_says_what_to_install() -> None:
    program = "import sys; sys.modules['torch'] = None; import kintsugi; import kintsugi.torch"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "pip install 'kintsugi-ps[torch]'" in result.stderr


def test_gathered_rows_and_their_gradients_are_those_of_embedding(client: kintsugi.Client) -> None:
    table = client.create_table(name(), DIM)
    for given in ([], [5], [2**62, -1, 7, -5, 7, -1, 7, -(2**63)], [3, 3, 3]):
        keys = torch.tensor(given, dtype=torch.int64)
        places = places_of(table, keys)
        unique, inverse = torch.unique(keys, return_inverse=True)
        assert (places.unique == unique.numpy()).all()
        assert (places.inverse == inverse).all()
        assert places.missing == (unique.tolist().index(-1) if -1 in given else None)
        values = torch.randn(len(unique), DIM)
        weights = torch.randn(len(given), DIM)
        gradients = []
        for starts in (places.starts, None):
            leaf = Leaf(values.clone().requires_grad_(), places.inverse, None, starts)
            gathered = leaf.gathered()
            assert (gathered == values[inverse]).all()
            (gathered * weights).sum().backward()
            gradients.append(leaf.rows.grad)
        assert torch.allclose(*gradients)
