"""Fused: gradients leave in `backward`. What cannot be so is an error, and never a wrong row."""

from __future__ import annotations

from typing import Any

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import KINDS, Net, Pair, keys_of, loss_of

import kintsugi.torch as kt


@pytest.mark.parametrize("kind", KINDS)
def test_two_looks_at_a_key_are_one_step(client: kintsugi.Client, kind: str) -> None:
    pair = Pair(client, kind, fused=True)
    for step in range(3):
        for layer in (pair.layer, pair.torch):
            (loss_of(layer(keys_of(1, 2)), step) + loss_of(layer(keys_of(2, step)))).backward()
        pair.torch.optimizer.step()
        pair.torch.optimizer.zero_grad()
    pair.check()


def test_a_scaler_is_an_error(client: kintsugi.Client) -> None:
    pair = Pair(client, fused=True)
    scaler = torch.amp.GradScaler("cpu")
    with pytest.raises(kintsugi.Error, match="GradScaler"):
        scaler.scale(loss_of(pair.layer(keys_of(1)))).backward()
    with pytest.raises(kintsugi.Error, match="GradScaler"):
        sum(scaler.scale([loss_of(pair.layer(keys_of(1)))])).backward()
    pair.check()
    # A scaler that does nothing is none, and a pass after the others is as any.
    off = torch.amp.GradScaler("cpu", enabled=False)
    for loss in (off.scale(loss_of(pair.layer(keys_of(1)))), loss_of(pair.layer(keys_of(1)))):
        loss.backward()
    client.flush()
    assert pair.layer.table.pull([1], state=True)[0, -1] == 2


@pytest.mark.parametrize("by", ["optimizer", "model", "none"])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_accumulation_is_an_error(client: kintsugi.Client, by: str, set_to_none: bool) -> None:
    net = Net(Pair(client, fused=True).layer)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def zero() -> None:
        if by == "none":
            for parameter in net.parameters():
                parameter.grad = None
        else:
            (optimizer if by == "optimizer" else net).zero_grad(set_to_none=set_to_none)

    for _ in range(3):
        # A layer may be used twice, and `zero_grad` may be anywhere before.
        loss = net(keys_of(1)).sum() + net(keys_of(1, 2)).sum()
        zero()
        loss.backward()
        optimizer.step()
    with pytest.raises(kintsugi.Error, match="to accumulate gradients use a RowOptimizer"):
        net(keys_of(1)).sum().backward()
    assert net.rows.table.pull([1], state=True)[0, -1] == 3


def test_a_loop_that_has_no_zero_grad_for_the_layer_goes_on(client: kintsugi.Client) -> None:
    pair = Pair(client, fused=True)
    net = Net(pair.layer)
    optimizer = torch.optim.SGD(net.top.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(keys_of(1)).sum().backward()
        optimizer.step()
    client.flush()
    assert pair.layer.table.pull([1], state=True)[0, -1] == 3


def test_a_layer_that_no_optimizer_has_makes_a_step_in_each_backward(client: kintsugi.Client) -> None:
    net = Net(Pair(client, fused=True).layer)
    torch.optim.SGD(net.top.parameters(), lr=0.1).zero_grad()
    for _ in range(2):
        net(keys_of(1)).sum().backward()
    with pytest.raises(kintsugi.Error, match="a clip cannot reach them"):
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    client.flush()
    assert net.rows.table.pull([1], state=True)[0, -1] == 2


def trained(net: Net, *keys: int) -> None:
    net(keys_of(*keys)).sum().backward()


@pytest.mark.parametrize("way", ["forward", "backward", "clip", "value", "norm"])
def test_what_cannot_be_is_an_error_before_anything_is_sent(client: kintsugi.Client, way: str) -> None:
    net = Net(Pair(client, fused=True).layer)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer.zero_grad()
    if way == "backward":
        losses = [net(keys_of(1)).sum(), net(keys_of(1, 2)).sum()]
        losses[0].backward()
        with pytest.raises(kintsugi.Error, match="to accumulate gradients use a RowOptimizer"):
            losses[1].backward()
    elif way == "forward":
        trained(net, 1)
        with pytest.raises(kintsugi.Error, match="to accumulate gradients use a RowOptimizer"):
            trained(net, 1, 2)
    else:
        trained(net, 1)
        clips: dict[str, Any] = {
            "clip": torch.nn.utils.clip_grad_norm_,
            "value": torch.nn.utils.clip_grad_value_,
            "norm": kt.clip_grad_norm_,
        }
        with pytest.raises(kintsugi.Error, match=r"a clip cannot reach them|cannot be clipped"):
            clips[way](net.parameters(), 1.0)
    client.flush()
    assert net.rows.table.pull([1, 2], state=True)[:, -1].tolist() == [0, 0]
    # The loop goes on without the rest of that step.
    optimizer.zero_grad()
    trained(net, 1)
    optimizer.step()
    client.flush()
    assert net.rows.table.pull([1], state=True)[0, -1] == 1


@pytest.mark.parametrize("by", ["step", "zero", "none", "look", "pull", "push", "flush", "eval", "other"])
def test_a_gradient_leaves_when_anybody_could_see_it(client: kintsugi.Client, by: str) -> None:
    net, other = Net(Pair(client, fused=True).layer), Net(Pair(client, fused=True).layer)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    before = net(keys_of(1, 2)).detach().clone()
    trained(net, 1, 2)
    with kintsugi.connect(client._connection.gateway.scheduler, timeout=60) as seen:  # type: ignore[union-attr]
        if by == "step":
            optimizer.step()
        elif by == "zero":
            optimizer.zero_grad()
        elif by == "none":
            net.rows.anchor.grad = None
        elif by == "look":
            assert [each.grad is None for each in net.rows.parameters()] == [True]
        elif by == "pull":
            other.rows.table.pull([1])
        elif by == "push":
            other.rows.table.push([1], torch.ones(1, 4).numpy())
        elif by == "flush":
            client.flush()
        elif by == "eval":
            with torch.no_grad():
                assert (net(keys_of(1, 2)) != before).any()
        elif by == "other":
            trained(other, 1)
        client._connection.before_use = None
        client.flush()
        assert seen.table(net.rows.table.name).pull([1, 2], state=True)[:, -1].tolist() == [1, 1]
