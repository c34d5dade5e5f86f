"""`torch.distributed.checkpoint` steps optimizers without state, with gradients of zero: these have some."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import KINDS, Net, Pair, keys_of
from torch.distributed import checkpoint
from torch.distributed.checkpoint import state_dict as of_dcp

import kintsugi.torch as kt


def test_a_shared_optimizer_is_not_stepped(client: kintsugi.Client) -> None:
    net = Net(Pair(client).layer)
    opt: Any = kt.SharedOptimizer(client, f"t-{uuid4()}", net, kintsugi.Adam(lr=0.1))
    before = opt.table.pull(opt._all_keys, state=True)
    opt.param_groups[0]["lr"] = 0.5
    saved = of_dcp.get_optimizer_state_dict(net, opt)
    opt.param_groups[0]["lr"] = 0.1
    of_dcp.set_optimizer_state_dict(net, opt, saved)
    assert opt.param_groups[0]["lr"] == 0.5
    client.flush()
    assert (opt.table.pull(opt._all_keys, state=True) == before).all()


def test_the_state_of_a_row_optimizer(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    assert rows.state
    of_dcp._init_optim_state(rows)
    for _ in range(2):
        pair.layer(keys_of(1)).sum().backward()
        rows.step()
        rows.zero_grad()
    of_dcp._init_optim_state(rows)
    client.flush()
    assert pair.layer.table.pull([1], state=True)[0, -1] == 2
    saved = rows.state_dict()
    assert [float(each["step"]) for each in saved["state"].values()] == [2]
    other = pair.rows()
    other.load_state_dict(saved)
    assert [float(each["step"]) for each in other.state.values()] == [2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_row_optimizer_goes_on_with_the_moments(client: kintsugi.Client, kind: str) -> None:
    pair = Pair(client, kind)
    for step in range(4):
        rows = pair.rows()
        for optimizer in (rows, pair.torch.optimizer):
            optimizer.zero_grad()
        pair.backward(keys_of(1, 2, step), step)
        for optimizer in (rows, pair.torch.optimizer):
            optimizer.step()
    pair.check()


def test_dense_optimizers_save_and_load_beside_layers(client: kintsugi.Client) -> None:
    net = Net(Pair(client).layer)
    dense = torch.optim.Adam(net.parameters())
    of_dcp.set_optimizer_state_dict(net, dense, of_dcp.get_optimizer_state_dict(net, dense))
    assert net.rows.anchor.numel() == 0


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("collection", [False, True])
def test_rows_in_a_distributed_checkpoint(client: kintsugi.Client, tmp_path: Path, collection: bool) -> None:
    table = client.create_table(f"t-{uuid4()}", 4, optimizer=kintsugi.Adam(lr=0.1))
    layer: Any = (
        kt.EmbeddingBagCollection(client, [kt.EmbeddingBagConfig(table.name)])
        if collection
        else kt.KintsugiEmbedding(client, table.name)
    )

    def state_of(keys: list[int]) -> dict[str, Any]:
        rows = kt.RowState(layer, {table.name: keys} if collection else keys)
        assert isinstance(rows, checkpoint.stateful.Stateful)
        return {"rows": rows, "top": torch.nn.Linear(2, 2)}

    saved = table.pull(range(8)).copy()
    checkpoint.save(state_of([5, 1, 7]), checkpoint_id=tmp_path)
    table.push([5, 1, 2], [[1.0] * 4] * 3).result()
    moved = table.pull(range(8), state=True).copy()
    # The checkpoint says which keys are set, and the state of optimizers stays.
    checkpoint.load(state_of([0, 3, 4]), checkpoint_id=tmp_path)
    found = table.pull(range(8), state=True)
    expected = moved
    expected[[5, 1, 7], :4] = saved[[5, 1, 7]]
    assert (found == expected).all()


def test_what_has_no_row_state_is_an_error() -> None:
    odd: list[Any] = [torch.nn.Linear(2, 2), kt.KintsugiEmbedding]
    for each in odd:
        with pytest.raises(kintsugi.Error, match="layer must be"):
            kt.RowState(each, [1])
