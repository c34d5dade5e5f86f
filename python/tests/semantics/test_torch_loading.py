"""`load_state_dict` of a checkpoint with rows: of nn.Embedding, of TorchRec, of `to_embedding_bag`."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import kintsugi
from kintsugi import Error

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import DIM, KINDS, Net, Pair, keys_of, loss_of
from torch import Tensor, nn

import kintsugi.torch as kt

KEYS = [2**62 + 1, -5, 0, 7]


def collection(client: kintsugi.Client, names: list[str]) -> kt.EmbeddingBagCollection:
    return kt.EmbeddingBagCollection(
        client,
        [kt.EmbeddingBagConfig(name, 4, [f"f{i}"], mode="sum") for i, name in enumerate(names)],
    )


def test_a_state_of_ours_round_trips(client: kintsugi.Client) -> None:
    net = Net(Pair(client).layer)
    saved = {name: value.clone() for name, value in net.state_dict().items()}
    assert sorted(saved) == ["top.bias", "top.weight"]
    before = net.rows.table.pull(range(4))
    nn.init.zeros_(net.top.weight)
    assert str(net.load_state_dict(saved)) == "<All keys matched successfully>"
    torch.testing.assert_close(net.top.weight.detach(), saved["top.weight"])
    assert (net.rows.table.pull(range(4)) == before).all()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_an_embedding_are_loaded_and_states_stay(client: kintsugi.Client, kind: str) -> None:
    pair = Pair(client, kind)
    net, plain = Net(pair.layer), Net(nn.Embedding(3, 4))
    rows = kt.RowOptimizer(net)
    for number in range(3):
        for layer, optimizer in ((pair.layer, rows), (pair.torch, pair.torch.optimizer)):
            optimizer.zero_grad()
            loss_of(layer(keys_of(1, 2, 5)), number).backward()
            optimizer.step()
        if number == 1:
            # A look-up before the load shows nothing of it, and one after it does.
            pair.layer(keys_of(1))
            net.load_state_dict(plain.state_dict())
            shown = pair.layer(keys_of(0, 1, 2)).detach()
            torch.testing.assert_close(shown, plain.rows.weight.detach())
            with torch.no_grad():
                for key in range(3):
                    pair.torch.rows[key].copy_(plain.rows.weight[key])
    pair.check()


@pytest.mark.parametrize("bag", [False, True])
def test_what_to_embedding_bag_gave_is_loaded(client: kintsugi.Client, bag: bool) -> None:
    def made() -> Any:
        kind: Any = kt.KintsugiEmbeddingBag if bag else kt.KintsugiEmbedding
        return kind(client, f"t-{uuid4()}", 4, seed=int(np.random.default_rng().integers(1 << 30)))

    old, new = made(), made()
    saved = kt.to_embedding_bag(old, keys=KEYS).state_dict()
    new.load_state_dict(saved)
    assert (new.table.pull(KEYS) == old.table.pull(KEYS)).all()
    # The plain module has a row of zeros at the end, which is of no key.
    assert len(new.table) == len(KEYS)
    both = [collection(client, [f"t{uuid4().hex}", f"t{uuid4().hex}"]) for _ in range(2)]
    keys = {table.name: KEYS[i:] for i, table in enumerate(both[0].tables)}
    both[1].load_state_dict(kt.to_embedding_bag(both[0], keys=keys).state_dict())
    for i, (mine, other) in enumerate(zip(both[1].tables, both[0].tables, strict=True)):
        assert (mine.pull(KEYS[i:]) == other.pull(KEYS[i:])).all()


@pytest.mark.parametrize("keys", [range(5), [9, 4]])
def test_names_of_torchrec(client: kintsugi.Client, keys: Any) -> None:
    names = [f"t{uuid4().hex}", f"t{uuid4().hex}"]
    bags = nn.ModuleDict({"sparse": collection(client, names), "top": nn.Linear(4, 1)})
    saved: dict[str, Tensor] = {
        f"sparse.{name}": rows
        for name, rows in kt.torchrec_state_dict(bags["sparse"], dict.fromkeys(names, keys)).items()
    }
    assert [name for name in saved if name.endswith(".weight")] == [
        f"sparse.embedding_bags.{name}.weight" for name in names
    ]
    saved = {**{name: rows * 2 for name, rows in saved.items() if rows.is_floating_point()}, **{
        name: rows for name, rows in saved.items() if not rows.is_floating_point()
    }}  # fmt: skip
    saved.update({f"top.{name}": value for name, value in bags["top"].state_dict().items()})
    before = [table.pull(keys) for table in bags["sparse"].tables]
    bags.load_state_dict(saved)
    for table, rows in zip(bags["sparse"].tables, before, strict=True):
        assert (table.pull(keys) == rows * 2).all()
    with pytest.raises(RuntimeError, match=rf"Missing key.*sparse.embedding_bags.{names[1]}.weight"):
        bags.load_state_dict({name: rows for name, rows in saved.items() if names[1] not in name})
    with pytest.raises(RuntimeError, match=r"Unexpected key.*sparse.embedding_bags.other.weight"):
        bags.load_state_dict({**saved, "sparse.embedding_bags.other.weight": torch.zeros(1, 4)})


def test_a_shard_of_a_tensor_is_an_error(client: kintsugi.Client, tmp_path: Path) -> None:
    tensor = pytest.importorskip("torch.distributed.tensor")
    net = Net(Pair(client).layer)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (1,))
        shard = tensor.distribute_tensor(torch.ones(3, 4), mesh, [tensor.Shard(0)])
        with pytest.raises(Error, match=r"rows.weight is a DTensor: gather it into a plain tensor"):
            net.load_state_dict({**net.state_dict(), "rows.weight": shard})
    finally:
        torch.distributed.destroy_process_group()


def test_initial_values_are_those_of_the_table(client: kintsugi.Client) -> None:
    def set_up(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.zeros_(module.weight)
        for each in module.parameters(recurse=False):
            nn.init.zeros_(each)

    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        net = Net(Pair(client).layer).apply(set_up)
        found.append(net.rows(keys_of(0, 1, 2)).detach())
    assert torch.equal(*found)
    assert 0 < float(found[0].abs().max()) <= 0.05


def test_what_does_not_fit_is_an_error_and_changes_nothing(client: kintsugi.Client) -> None:
    names = [f"t{uuid4().hex}", f"t{uuid4().hex}"]
    bags = collection(client, names)
    before = [table.pull(range(4)) for table in bags.tables]
    good = torch.ones(4, 4)
    wrong: list[tuple[str, str, Any]] = [
        ("DIM_MISMATCH", r"weight is 4 x 3, and rows of table '.*' have 4 values", torch.ones(4, 3)),
        ("DIM_MISMATCH", "weight is 4, and rows", torch.ones(4)),
        ("BAD_ARGUMENT", "must be a tensor of floats, not Tensor of shape", torch.ones(4, 4).long()),
        ("BAD_ARGUMENT", "must be a tensor of floats, not ndarray", np.ones((4, 4))),
    ]
    for code, match, given in wrong:
        for strict in (True, False):
            with pytest.raises(Error, match=match) as raised:
                bags.load_state_dict({
                    f"embedding_bags.{names[0]}.weight": good, f"embedding_bags.{names[1]}.weight": given
                }, strict=strict)  # fmt: skip
            assert raised.value.code == code
    ids = [
        ("LENGTH_MISMATCH", "has 4 rows for 2 keys", torch.tensor([1, 2])),
        ("BAD_ARGUMENT", "has a key twice", torch.tensor([1, 2, 2, 3])),
        ("KEY_TYPE", "must be integers", torch.ones(4)),
    ]
    for code, match, given in ids:
        with pytest.raises(Error, match=match) as raised:
            bags.load_state_dict({
                f"embedding_bags.{names[0]}.weight": good, f"embedding_bags.{names[0]}.keys": given
            })  # fmt: skip
        assert raised.value.code == code
    with pytest.raises(RuntimeError, match="Unexpected key"):
        bags.load_state_dict({f"embedding_bags.{names[0]}.keys": torch.tensor([1])})
    for table, rows in zip(bags.tables, before, strict=True):
        assert (table.pull(range(4)) == rows).all()
    sparse = kt.KintsugiEmbedding(
        client, f"t-{uuid4()}", 4, optimizer=kintsugi.FTRL(), initializer=kintsugi.Zeros()
    )
    with pytest.raises(Error, match="FTRL computes rows from its state"):
        sparse.load_state_dict({"weight": good})


def test_a_load_that_assigns_keeps_the_parameter_that_stands_for_rows(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    net = nn.Sequential(pair.layer, nn.Linear(DIM, 1))
    anchor = pair.layer.anchor
    net.load_state_dict(net.state_dict(), assign=True)
    net.load_state_dict(dict(net.named_parameters()), assign=True)
    assert pair.layer.anchor is anchor
    missing = net.load_state_dict({}, strict=False, assign=True).missing_keys
    assert missing == ["1.weight", "1.bias"]
    # The rows take what a model says of its parameters.
    loss_of(pair.layer(keys_of(1, 2))).backward()
    net.zero_grad()
    looked = pair.layer(keys_of(1, 3))
    net.requires_grad_(False)
    loss_of(looked).backward()
    rows.step()
    pair.check()
