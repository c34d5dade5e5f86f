"""Gradient accumulation: any number of `backward` is one step of each row that they named."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
from reference import KINDS, Pair, keys_of, loss_of


@pytest.mark.parametrize("kind", KINDS)
def test_micro_batches_are_one_step(client: kintsugi.Client, kind: str) -> None:
    pair = Pair(client, kind)
    rows = pair.rows()
    for step in range(4):
        rows.zero_grad()
        pair.torch.optimizer.zero_grad()
        for micro in range(3):
            keys = keys_of(micro, 1, micro + step, 1, -1)
            pair.backward(keys, step + micro)
        rows.step()
        pair.torch.optimizer.step()
    pair.check()


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_between_forward_and_backward(client: kintsugi.Client, set_to_none: bool) -> None:
    pair = Pair(client)
    rows = pair.rows()
    for step in range(3):
        losses = [loss_of(layer(keys_of(1, 2, 2)), step) for layer in (pair.layer, pair.torch)]
        rows.zero_grad(set_to_none)
        pair.torch.optimizer.zero_grad(set_to_none)
        for loss in losses:
            loss.backward()
        rows.step()
        pair.torch.optimizer.step()
    pair.check()


@pytest.mark.parametrize("by", ["optimizer", "model"])
@pytest.mark.parametrize("when", ["before the look-up", "after it"])
def test_zeros_are_gradients_until_the_next_step(
    client: kintsugi.Client, monkeypatch: pytest.MonkeyPatch, by: str, when: str
) -> None:
    pair = Pair(client)
    rows = pair.rows()
    zeroed: Any = rows if by == "optimizer" else pair.layer
    pushed: list[list[int]] = []
    push = client.push

    def noted(requests: Any, **options: Any) -> Any:
        pushed.append(sorted(requests[0][1].tolist()))
        return push(requests, **options)

    monkeypatch.setattr(client, "push", noted)
    for step in range(4):
        keys = keys_of(2 * step, 2 * step + 1)
        if when == "before the look-up":
            zeroed.zero_grad(set_to_none=False)
        found = pair.layer(keys)
        if when == "after it":
            zeroed.zero_grad(set_to_none=False)
        loss_of(found, step).backward()
        # Zeros of this step are gradients, as in PyTorch.
        zeroed.zero_grad(set_to_none=False)
        pair.torch.optimizer.zero_grad()
        loss_of(pair.torch(keys), step).backward()
        pair.torch.optimizer.zero_grad(set_to_none=False)
        for _ in range(step % 2):
            loss_of(pair.layer(keys[:1]), step).backward()
            loss_of(pair.torch(keys[:1]), step).backward()
        rows.step()
        pair.torch.optimizer.step()
    assert pushed == [[2 * step, 2 * step + 1] for step in range(4)]
    pair.check()


def test_gradients_that_nobody_drops_go_on(client: kintsugi.Client) -> None:
    """Without `zero_grad` PyTorch adds to the gradients of the step before, and steps their rows again."""
    pair = Pair(client)
    rows = pair.rows()
    for step, keys in enumerate((keys_of(1, 2), keys_of(2, 3), keys_of(5))):
        pair.backward(keys, step)
        for _ in range(2):
            rows.step()
            pair.torch.optimizer.step()
        pair.check()


def test_gradients_that_go_on_are_seen_after_a_look_up(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    for layer, optimizer in ((pair.layer, rows), (pair.torch, pair.torch.optimizer)):
        loss_of(layer(keys_of(1, 2))).backward()
        optimizer.step()
        layer(keys_of(2, 3))
        if optimizer is rows:
            gradient = rows.param_groups[0]["params"][0].grad
            assert gradient is not None
            assert gradient.abs().sum(1).count_nonzero() == 2
        optimizer.step()
    pair.check()


def test_a_key_has_one_value_in_a_step(client: kintsugi.Client) -> None:
    pair = Pair(client, "sgd")
    rows = pair.rows()
    before = pair.layer(keys_of(1)).detach()
    # Another trainer.
    pair.layer.table.push([1], before.numpy() * 0 + 5).result()
    assert pair.layer(keys_of(1, 2))[0].tolist() == before[0].tolist()
    rows.step()
    assert pair.layer(keys_of(1)).tolist() != before.tolist()


def test_a_graph_of_the_step_before_gives_its_gradient_to_the_next(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    late = [loss_of(layer(keys_of(3, 4)), 9) for layer in (pair.layer, pair.torch)]
    pair.backward(keys_of(1, 3))
    rows.step()
    pair.torch.optimizer.step()
    rows.zero_grad()
    pair.torch.optimizer.zero_grad()
    for loss in late:
        loss.backward()
    rows.step()
    pair.torch.optimizer.step()
    pair.check()


def test_threads_give_their_gradients_to_one_step(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    looks = [(1, 2), (1, 3), (4, 1), (5, 6, 7), (7, 8), (9, 1)]
    for _ in range(3):
        rows.zero_grad()
        pair.torch.optimizer.zero_grad()
        ready = threading.Barrier(len(looks))

        def look(keys: tuple[int, ...], ready: threading.Barrier = ready) -> None:
            ready.wait()
            loss_of(pair.layer(keys_of(*keys))).backward()

        threads = [threading.Thread(target=look, args=(keys,)) for keys in looks]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        for keys in looks:
            loss_of(pair.torch(keys_of(*keys))).backward()
        rows.step()
        pair.torch.optimizer.step()
    # Sums are in the order in which the threads came.
    pair.torch.check(client, atol=1e-5)
