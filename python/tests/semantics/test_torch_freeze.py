"""`requires_grad_(False)` and `torch.no_grad()`: such rows have no gradient, and their state stays."""

from __future__ import annotations

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import DIM, KINDS, Net, Pair, keys_of, loss_of

import kintsugi.torch as kt


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_frozen_between_forward_and_backward_get_no_gradient(
    client: kintsugi.Client, kind: str
) -> None:
    pair = Pair(client, kind)
    rows = pair.rows()
    for layer, optimizer in ((pair.layer, rows), (pair.torch, pair.torch.optimizer)):
        for number in range(4):
            optimizer.zero_grad()
            loss = loss_of(layer(keys_of(number, 3)), number)
            layer.requires_grad_(number % 2 == 0)
            loss.backward()
            layer.requires_grad_(True)
            optimizer.step()
    pair.check()


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_models_and_looks_without_gradients(client: kintsugi.Client, kind: str) -> None:
    pair = Pair(client, kind)
    other = kt.KintsugiEmbedding(client, pair.layer.table.name, DIM, optimizer=KINDS[kind].ours)
    rows = kt.RowOptimizer([pair.layer, other])
    nets = [Net(pair.layer), Net(pair.torch)]
    for step in range(5):
        rows.zero_grad()
        pair.torch.optimizer.zero_grad()
        nets[0].requires_grad_(step % 2 == 0)
        nets[1].top.requires_grad_(step % 2 == 0)
        keys = keys_of(step, 1)
        ours, theirs = nets[0](keys), nets[1](keys).detach() if step % 2 else nets[1](keys)
        if step % 2 == 0:
            ours.sum().backward()
            theirs.sum().backward()
        assert ours.requires_grad == theirs.requires_grad
        # The other layer of the table is not frozen.
        loss_of(other(keys_of(2, 3))).backward()
        loss_of(pair.torch(keys_of(2, 3))).backward()
        with torch.no_grad():
            other(keys_of(7, 8))
        other(keys_of(9, 10))
        rows.step()
        pair.torch.optimizer.step()
    pair.check()
    # Not even a count of steps.
    assert not pair.layer.table.pull([7, 8, 9, 10], state=True)[:, DIM:].any()


def test_a_parameter_without_elements_is_no_row(client: kintsugi.Client) -> None:
    net = Net(Pair(client).layer)
    assert [each.numel() for each in net.rows.parameters()] == [0]
    assert list(net.state_dict()) == ["top.weight", "top.bias"]
    net.load_state_dict(net.state_dict())
    optimizer = torch.optim.AdamW(net.parameters())
    rows = kt.RowOptimizer(net)
    net(keys_of(1)).sum().backward()
    optimizer.step()
    rows.step()
    rows.zero_grad()
    assert net.rows.anchor.grad is None


def test_sums_over_parameters_have_no_rows_and_what_layers_return_has(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    for layer, optimizer in ((pair.layer, rows), (pair.torch, pair.torch.optimizer)):
        looked = layer(keys_of(1, 2))
        (loss_of(looked) + 0.1 * looked.square().sum()).backward()
        if layer is pair.layer:
            assert sum(each.square().sum() for each in layer.parameters()) == 0
            ours = [each.grad.norm() for group in rows.param_groups for each in group["params"]]
        optimizer.step()
    theirs = torch.stack([each.grad.norm() for each in pair.torch.rows if each.grad is not None]).norm()
    torch.testing.assert_close(ours[0], theirs)
    pair.check()


def test_looks_without_gradients_in_eval_are_no_part_of_a_step(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    pair.layer.eval()
    with torch.no_grad():
        pair.layer(keys_of(1, 2))
    assert len(rows.param_groups[0]["params"][0]) == 0
    pair.layer.train()
    pair.layer(keys_of(3))
    assert len(rows.param_groups[0]["params"][0]) == 1


def test_a_step_has_a_limit(client: kintsugi.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(client)
    rows = pair.rows()
    monkeypatch.setattr("kintsugi.torch._rows.MAX_STEP_BYTES", 3 * 4 * DIM)
    for first in range(4):
        # These are not needed any more.
        pair.layer(keys_of(first, first + 1))
    loss = loss_of(pair.layer(keys_of(1, 2)))
    with pytest.raises(kintsugi.Error, match=r"LIMIT.*maxStepBytes = 48"):
        pair.layer(keys_of(5, 6, 7))
    loss.backward()
    loss_of(pair.torch(keys_of(1, 2))).backward()
    rows.step()
    pair.torch.optimizer.step()
    pair.check()


def test_a_parameter_of_rows_that_is_frozen_gets_no_gradient(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    (parameter,) = rows.param_groups[0]["params"]
    for number in range(3):
        for layer, optimizer in ((pair.layer, rows), (pair.torch, pair.torch.optimizer)):
            optimizer.zero_grad()
            loss = loss_of(layer(keys_of(number, 3)), number)
            parameter.requires_grad_(number != 1)
            pair.torch.requires_grad_(number != 1)
            loss.backward()
            pair.torch.requires_grad_(True)
            optimizer.step()
    pair.check()
