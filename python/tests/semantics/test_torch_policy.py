"""Layers whose tables have a policy: rows go by themselves, and gradients wait for the first sightings."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch

import kintsugi.torch as kt

POLICY = kintsugi.Policy(counter=2, ttl=50)


Layer = kt.KintsugiEmbedding | kt.KintsugiEmbeddingBag | kt.EmbeddingBagCollection | kt.EmbeddingCollection


def layer_of(client: kintsugi.Client, which: int, name: str, policy: kintsugi.Policy | None) -> Layer:
    if which == 0:
        return kt.KintsugiEmbedding(client, name, 4, policy=policy)
    if which == 1:
        return kt.KintsugiEmbeddingBag(client, name, 4, policy=policy)
    if which == 2:
        return kt.EmbeddingBagCollection(client, [kt.EmbeddingBagConfig(name, 4, policy=policy)])
    return kt.EmbeddingCollection(client, [kt.EmbeddingConfig(name, 4, policy=policy)])


def test_layers_create_tables_with_a_policy(client: kintsugi.Client) -> None:
    for which in range(4):
        assert [table.policy for table in layer_of(client, which, f"t-{uuid4()}", POLICY).tables] == [POLICY]
    name = f"t-{uuid4()}"
    client.create_table(name, 4, policy=POLICY)
    layer = kt.KintsugiEmbedding(client, name, fused=True)
    assert layer.table.policy == POLICY
    keys = torch.tensor([7])
    initial = torch.from_numpy(layer.table.pull(np.array([7])))
    layer(keys).sum().backward()
    assert torch.equal(layer(keys).detach(), initial)
    layer(keys).sum().backward()
    assert not torch.equal(layer(keys).detach(), initial)


def test_layers_hold_a_table_to_its_policy(client: kintsugi.Client) -> None:
    name, plain = f"t-{uuid4()}", f"t-{uuid4()}"
    client.create_table(name, 4, policy=POLICY)
    client.create_table(plain, 4)
    for which in range(4):
        layer_of(client, which, name, POLICY)
        for table, policy in ((name, None), (name, kintsugi.Policy(ttl=50)), (plain, POLICY)):
            with pytest.raises(kintsugi.Error, match=r"TABLE_EXISTS.*policy"):
                layer_of(client, which, table, policy)
    with pytest.raises(kintsugi.Error, match="without dim it is taken as it is"):
        kt.KintsugiEmbedding(client, name, policy=POLICY)
    wrong: list[Any] = ["ttl=5", kintsugi.Adagrad(), {"ttl": 5}]
    for given in wrong:
        with pytest.raises(kintsugi.Error, match=r"kintsugi.Policy\(ttl=2000\)"):
            kt.KintsugiEmbedding(client, f"t-{uuid4()}", 4, policy=given)
