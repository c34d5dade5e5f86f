"""`step(closure)` computes the loss and its gradients, and returns the loss."""

from __future__ import annotations

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import KINDS, Pair, keys_of, loss_of


@pytest.mark.parametrize("kind", KINDS)
def test_a_closure(client: kintsugi.Client, kind: str) -> None:
    pair = Pair(client, kind)
    results = []
    for layer, optimizer in ((pair.layer, pair.rows()), (pair.torch, pair.torch.optimizer)):
        for step in range(3):

            def closure(layer=layer, optimizer=optimizer, step=step):  # type: ignore[no-untyped-def]
                optimizer.zero_grad()
                loss = loss_of(layer(keys_of(step, 1)), step)
                loss.backward()
                return loss

            with torch.no_grad():
                results.append(float(optimizer.step(closure)))
    assert results[:3] == pytest.approx(results[3:], rel=1e-5)
    pair.check()
