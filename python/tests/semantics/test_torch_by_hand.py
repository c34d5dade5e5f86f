"""Gradients that a program changes by hand in `model.parameters()`, and what a collected optimizer leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import DIM, KINDS, Net, Pair, keys_of, loss_of
from torch import nn

import kintsugi.torch as kt


def halved(model: nn.Module) -> None:
    for each in model.parameters():
        if each.grad is not None:
            each.grad.mul_(0.5)


def assigned(model: nn.Module) -> None:
    for each in model.parameters():
        if each.grad is not None:
            each.grad = each.grad * 0.5


def in_place(model: nn.Module) -> None:
    for each in model.parameters():
        if each.grad is not None:
            each.grad /= 2


def by_data(model: nn.Module) -> None:
    for each in model.parameters():
        if each.grad is not None:
            each.grad.data.clamp_(-0.1, 0.1)


def by_list(model: nn.Module) -> None:
    torch._foreach_mul_([each.grad for each in model.parameters() if each.grad is not None], 0.25)


def norm(model: nn.Module) -> None:
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    total = torch.stack([each.norm() for each in gradients]).norm()
    for each in gradients:
        each.mul_(0.1 / total)


def zeroed(model: nn.Module) -> None:
    for each in model.parameters():
        if each.grad is not None:
            each.grad.zero_()


def zero_grad(model: nn.Module) -> None:
    for each in model.parameters():
        if each.grad is not None:
            each.grad.detach_().zero_()


def zeros(model: nn.Module) -> None:
    for each in model.parameters():
        if each.grad is not None or each.numel() == 0:
            each.grad = torch.zeros_like(each)


def clipped(model: nn.Module) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def clipped_by_list(model: nn.Module) -> None:
    torch.nn.utils.clip_grad_norm_(list(model.parameters()), 0.1, foreach=True)


def clipped_by_value(model: nn.Module) -> None:
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.1)


WAYS: list[Callable[[nn.Module], None]] = [
    halved, assigned, in_place, by_data, by_list, norm, zeroed, zero_grad, zeros, clipped, clipped_by_list,
    clipped_by_value,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("taker", ["rows", "step"])
def test_gradients_that_are_changed_by_hand(client: kintsugi.Client, way: Any, taker: str) -> None:
    pair = Pair(client)
    nets = [Net(pair.layer), Net(pair.torch)]
    rows = pair.rows() if taker == "rows" else None
    dense = [torch.optim.SGD(net.top.parameters(), lr=0.1) for net in nets]
    for step in range(3):
        keys = keys_of(step, 1, 1, -1)
        for net, optimizer in zip(nets, dense, strict=True):
            optimizer.zero_grad()
            if net is nets[1]:
                pair.torch.optimizer.zero_grad()
            elif rows is not None:
                rows.zero_grad()

        def train(net: Net, keys: torch.Tensor = keys) -> None:
            (net(keys) - 3).square().sum().backward()
            way(net)

        if rows is not None:
            train(nets[0])
            rows.step()
        else:
            with kt.step(client):
                train(nets[0])
        train(nets[1])
        for optimizer in (*dense, pair.torch.optimizer):
            optimizer.step()
    pair.check()
    torch.testing.assert_close(nets[0].top.weight, nets[1].top.weight)


@pytest.mark.parametrize("way", [halved, assigned, in_place, norm, clipped, clipped_by_list])
def test_gradients_of_several_tables_that_are_changed_by_hand(client: kintsugi.Client, way: Any) -> None:
    pairs = [Pair(client) for _ in range(2)]
    names = [pair.layer.table.name for pair in pairs]
    collection = kt.EmbeddingBagCollection(client, [kt.EmbeddingBagConfig(name) for name in names])
    rows = kt.RowOptimizer(collection)
    theirs = nn.ModuleList([pair.torch for pair in pairs])
    for step in range(3):
        rows.zero_grad()
        keys = [keys_of(step, 1, 2), keys_of(3, step, 5, 6)]
        for name, pair, of_table in zip(names, pairs, keys, strict=True):
            given = {other: torch.full((len(of_table), 1), -1) for other in names}
            given[name] = of_table.view(-1, 1)
            loss_of(collection(given)[name], step).backward()
            pair.torch.optimizer.zero_grad()
            loss_of(pair.torch(of_table), step).backward()
        for model in (collection, theirs):
            way(model)
        # A gradient that comes afterwards is not changed.
        first = {name: torch.full((1, 1), -1) for name in names}
        first[names[0]] = keys_of(8).view(1, 1)
        loss_of(collection(first)[names[0]]).backward()
        loss_of(pairs[0].torch(keys_of(8))).backward()
        rows.step()
        for pair in pairs:
            pair.torch.optimizer.step()
    for pair in pairs:
        pair.check()


@pytest.mark.parametrize("way", [clipped, clipped_by_list, clipped_by_value, halved])
def test_gradients_of_two_layers_of_a_table_count_once_or_are_an_error(
    client: kintsugi.Client, way: Any
) -> None:
    pair = Pair(client)
    model = nn.ModuleList([pair.layer, kt.KintsugiEmbedding(client, pair.layer.table.name)])
    rows = kt.RowOptimizer(model)
    for number, layer in enumerate(model):
        loss_of(layer(keys_of(1, 2 + number))).backward()
        loss_of(pair.torch(keys_of(1, 2 + number))).backward()
    if way in (halved, clipped_by_value):
        with pytest.raises(kintsugi.Error, match="has gradients of several layers"):
            way(model)
        return
    way(model)
    way(pair.torch)
    rows.step()
    pair.torch.optimizer.step()
    pair.check()


@pytest.mark.parametrize("at", ["key without a gradient", "after step"])
def test_a_gradient_that_is_written_in_place(client: kintsugi.Client, at: str) -> None:
    pair = Pair(client)
    rows = pair.rows()
    (parameter,) = rows.param_groups[0]["params"]
    pair.backward(keys_of(1, 2))
    if at == "after step":
        rows.step()
        pair.torch.optimizer.step()
    else:
        with torch.no_grad():
            pair.layer(keys_of(5, 6))
        # Keys 1, 2, 5 and 6.
        parameter.grad[2] = 3
        pair.torch.rows[5].grad = torch.full((DIM,), 3.0)
    parameter.grad[0] = 4
    pair.torch.rows[1].grad = torch.full((DIM,), 4.0)
    rows.step()
    pair.torch.optimizer.step()
    pair.check()


@pytest.mark.parametrize("way", [halved, clipped, zero_grad])
def test_gradients_that_are_changed_in_a_closure(client: kintsugi.Client, way: Any) -> None:
    pair = Pair(client)
    rows = pair.rows()
    both: list[Any] = [(pair.layer, rows), (pair.torch, pair.torch.optimizer)]
    for model, optimizer in both:

        def closure(model: nn.Module = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = loss_of(model(keys_of(1, 2)))
            loss.backward()
            way(model)
            return loss

        optimizer.step(closure)
    pair.check()


def test_parameters_without_elements_do_not_meet_gradients_of_rows(client: kintsugi.Client) -> None:
    net = Net(Pair(client).layer)
    rows = kt.RowOptimizer(net)
    net(keys_of(1, 2)).sum().backward()
    (anchor,) = net.rows.parameters()
    changes: list[Callable[[], Any]] = [
        lambda: anchor.data.add_(anchor.grad, alpha=-0.1),
        lambda: anchor.data.sub_(0.1 * anchor.grad),
        lambda: anchor.grad.add_(anchor.data),
    ]
    for change in changes:
        with pytest.raises(kintsugi.Error, match=r"values of rows are not in model\.parameters\(\)"):
            change()
    with pytest.raises(kintsugi.Error, match=r"`\.grad` of .* has 8 values in this step, not 3"):
        anchor.grad = torch.ones(3)
    rows.step()


def test_optimizers_see_no_gradients_of_rows(client: kintsugi.Client) -> None:
    pair = Pair(client)
    nets = [Net(pair.layer), Net(pair.torch)]
    rows = pair.rows()

    class Plain(torch.optim.Optimizer):
        """As one of another package."""

        def step(self, closure: Any = None) -> Any:  # noqa: ARG002
            with torch.no_grad():
                for each in self.param_groups[0]["params"]:
                    if each.grad is not None:
                        each.sub_(each.grad, alpha=0.1)

    kinds: list[Any] = [torch.optim.Adam, torch.optim.SGD, Plain]
    for kind in kinds:
        options = {} if kind is Plain else {"lr": 0.1}
        dense = kind(nets[0].parameters(), *([{}] if kind is Plain else []), **options)
        other = kind(nets[1].top.parameters(), *([{}] if kind is Plain else []), **options)
        for net, optimizers in zip(nets, ([dense, rows], [other, pair.torch.optimizer]), strict=True):
            for each in optimizers:
                each.zero_grad()
            net(keys_of(1, 2)).square().sum().backward()
            for each in optimizers:
                each.step()
    pair.check()
    torch.testing.assert_close(nets[0].top.weight, nets[1].top.weight)


# ---- an optimizer that nobody has any more


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stepped", [False, True])
def test_gradients_stay_when_their_optimizer_is_gone(
    client: kintsugi.Client, kind: str, stepped: bool
) -> None:
    pair = Pair(client, kind)
    rows = pair.rows()
    for number in range(3):
        pair.backward(keys_of(1, 2 + number), number)
        if stepped:
            rows.step()
            pair.torch.optimizer.step()
        del rows
        if number == 1:
            pair.layer.zero_grad()
            pair.torch.zero_grad()
        elif number == 2:
            halved(pair.layer)
            halved(pair.torch)
        rows = pair.rows()
        rows.step()
        pair.torch.optimizer.step()
    pair.check()


@pytest.mark.parametrize("way", ["step", "pipeline"])
def test_gradients_of_an_optimizer_that_is_gone_are_not_lost(client: kintsugi.Client, way: str) -> None:
    pair = Pair(client)
    rows = pair.rows()
    pair.backward(keys_of(1, 2))
    del rows

    def train() -> None:
        if way == "pipeline":
            list(kt.Pipeline(pair.layer, None, lambda out, _: loss_of(out))([(keys_of(1), torch.zeros(1))]))
        else:
            with kt.step(client):
                loss_of(pair.layer(keys_of(1))).backward()

    with pytest.raises(kintsugi.Error, match="gradients of a RowOptimizer that nobody has any more"):
        train()
    pair.rows().step()
    pair.torch.optimizer.step()
    pair.torch.optimizer.zero_grad()
    pair.check()
    pair.layer.zero_grad()
    train()
    loss_of(pair.torch(keys_of(1))).backward()
    pair.torch.optimizer.step()
    pair.check()
