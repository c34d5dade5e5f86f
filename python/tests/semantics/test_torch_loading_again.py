"""`load_state_dict` by a second rank, or by a trainer that was started again, does not undo training."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import keys_of, start_again

import kintsugi.torch as kt

STATE = {"weight": torch.arange(20.0).view(5, 4)}
OTHER = {"weight": -torch.arange(20.0).view(5, 4)}


@pytest.fixture
def second(cluster: kintsugi.LocalCluster) -> Iterator[kintsugi.Client]:
    """Another program."""
    with kintsugi.connect(cluster.address, timeout=60) as client:
        yield client


def layer_of(client: kintsugi.Client, name: str) -> kt.KintsugiEmbedding:
    return kt.KintsugiEmbedding(client, name, 4, optimizer=kintsugi.Adam(lr=0.1))


def stepped(layer: kt.KintsugiEmbedding, *keys: int) -> None:
    rows = kt.RowOptimizer(layer)
    layer(keys_of(*keys)).square().sum().backward()
    rows.step()
    layer.client.flush()


def rows_of(layer: kt.KintsugiEmbedding) -> torch.Tensor:
    return torch.from_numpy(layer.table.pull(np.arange(5)).copy())


def test_what_training_has_moved_stays_and_a_warning_says_so(
    client: kintsugi.Client, second: kintsugi.Client
) -> None:
    name = f"t-{uuid4()}"
    layer = layer_of(client, name)
    layer.load_state_dict(STATE)
    again = layer_of(second, name)
    # A second rank whose values are there already: nothing to say.
    again.load_state_dict(STATE)
    stepped(layer, 1, 2)
    moved = rows_of(layer)
    assert not torch.equal(moved, STATE["weight"])
    restarted = second
    for strict in (True, False):
        table = layer_of(restarted, name)
        start_again(table.table)
        with pytest.warns(UserWarning, match=r"2 of 5 rows have others now, and they stay.*overwrite"):
            table.load_state_dict(STATE, strict=strict)
        assert torch.equal(rows_of(layer), moved)
    # A program that asks for it sets them. Other content is set anyway.
    start_again(layer_of(restarted, name).table)
    with kt.overwrite():
        layer_of(restarted, name).load_state_dict(STATE)
    assert torch.equal(rows_of(layer), STATE["weight"])
    start_again(layer_of(restarted, name).table)
    layer_of(restarted, name).load_state_dict(OTHER)
    assert torch.equal(rows_of(layer), OTHER["weight"])


def test_the_program_that_trains_sets_rows_as_often_as_it_likes(client: kintsugi.Client) -> None:
    layer = layer_of(client, f"t-{uuid4()}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for state in (STATE, OTHER, STATE):
            layer.load_state_dict(state)
            assert torch.equal(rows_of(layer), state["weight"])
        for _ in range(2):
            stepped(layer, 1, 2)
            layer.load_state_dict(STATE)
            assert torch.equal(rows_of(layer), STATE["weight"])


def test_programs_that_load_at_once_set_rows_once(
    client: kintsugi.Client, second: kintsugi.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kintsugi.torch._once.CHUNK_BYTES", 1)
    name = f"t-{uuid4()}"
    layers = [layer_of(each, name) for each in (client, second)]

    def loaded(layer: kt.KintsugiEmbedding) -> None:
        layer.load_state_dict(STATE)
        # The load of the other program ends before this step.
        stepped(layer, 1)

    with ThreadPoolExecutor(2) as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        list(pool.map(loaded, layers))
    whole = layers[0].table.pull([1], state=True)
    assert whole[0, -1] == 2  # steps of Adam
    assert (whole[0, :4] < np.arange(4, 8) - 0.15).all()


def test_one_that_ends_while_it_loads_is_not_waited_for(
    client: kintsugi.Client, second: kintsugi.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"t-{uuid4()}"
    layer = layer_of(client, name)

    def fails(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kintsugi.torch._once._assign", fails)
        with pytest.raises(KeyboardInterrupt):
            layer.load_state_dict(STATE)
    with monkeypatch.context() as patch:
        patch.setattr("kintsugi.torch._once.LOAD_SECONDS", 0.0)
        layer_of(second, name).load_state_dict(STATE)
    assert torch.equal(rows_of(layer), STATE["weight"])
    stepped(layer_of(second, name), 1)
    # A third one does not wait for the first, either.
    start_again(layer.table)
    with pytest.warns(UserWarning, match="1 of 5 rows have others"):
        layer.load_state_dict(STATE)


def test_two_layers_on_one_table_load_as_one(client: kintsugi.Client, second: kintsugi.Client) -> None:
    name = f"t-{uuid4()}"
    state = {f"{i}.weight": STATE["weight"] for i in range(2)}
    layer = layer_of(client, name)
    torch.nn.ModuleList([layer, layer_of(client, name)]).load_state_dict(state)
    stepped(layer, 1, 2)
    moved = rows_of(layer)
    with pytest.warns(UserWarning, match="2 of 5 rows have others"):
        torch.nn.ModuleList([layer_of(second, name), layer_of(second, name)]).load_state_dict(state)
    assert torch.equal(rows_of(layer), moved)


def test_a_program_that_loads_twice_at_its_start(client: kintsugi.Client, second: kintsugi.Client) -> None:
    name = f"t-{uuid4()}"
    layer = layer_of(client, name)
    for state in (STATE, OTHER):
        layer.load_state_dict(state)
    stepped(layer, 1)
    moved = rows_of(layer)
    again = layer_of(second, name)
    for state in (STATE, OTHER):
        with pytest.warns(UserWarning, match="they stay"):
            again.load_state_dict(state)
    assert torch.equal(rows_of(layer), moved)


def test_a_load_that_failed_does_not_wait_for_itself(
    client: kintsugi.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = layer_of(client, f"t-{uuid4()}")
    stalled: list[object] = []
    monkeypatch.setattr("kintsugi.torch._once._Mark.is_finished", lambda *_: stalled.append(1))
    with monkeypatch.context() as patch:
        patch.setattr("kintsugi.torch._once._assign", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            layer.load_state_dict(STATE)
    layer.load_state_dict(STATE)
    assert not stalled
    assert torch.equal(rows_of(layer), STATE["weight"])


@pytest.mark.parametrize("mine", [True, False], ids=["here", "elsewhere"])
def test_a_table_that_is_made_anew_is_loaded(
    client: kintsugi.Client, second: kintsugi.Client, mine: bool
) -> None:
    name = f"t-{uuid4()}"
    for _ in range(3):
        layer = layer_of(client, name)
        layer.load_state_dict(STATE)
        assert torch.equal(rows_of(layer), STATE["weight"])
        # Rows of the new table that training has moved stay, too.
        stepped(layer, 1, 2)
        moved = rows_of(layer)
        with pytest.warns(UserWarning, match="2 of 5 rows have others"):
            layer_of(second, name).load_state_dict(STATE)
        assert torch.equal(rows_of(layer), moved)
        (client if mine else second).table(name).drop()


def test_rows_that_were_deleted_stay_and_a_warning_says_so(
    client: kintsugi.Client, second: kintsugi.Client
) -> None:
    name = f"t-{uuid4()}"
    layer = layer_of(client, name)
    initial = rows_of(layer)
    layer.load_state_dict(STATE)
    layer.table.delete([1, 2]).result()
    with pytest.warns(UserWarning, match="or they were deleted, or went by a policy.*overwrite"):
        layer_of(second, name).load_state_dict(STATE)
    assert torch.equal(rows_of(layer)[1:3], initial[1:3])
    with kt.overwrite():
        layer_of(second, name).load_state_dict(STATE)
    assert torch.equal(rows_of(layer), STATE["weight"])


@pytest.mark.long
def test_a_job_that_begins_with_a_checkpoint_knows_what_was_loaded(tmp_path: Path) -> None:
    place = str(tmp_path)
    with (
        kintsugi.start_local_cluster(ps=3, code="2+1", checkpoint=place) as cluster,
        kintsugi.connect(cluster.address, timeout=60) as client,
    ):
        # The other job gives tables other numbers.
        layer_of(client, "gone").table.drop()
        for name in ("items", "again", "late"):
            layer_of(client, name).load_state_dict(STATE)
        client.table("again").drop()
        layer = layer_of(client, "again")
        layer.load_state_dict(STATE)
        for name in ("items", "again"):
            stepped(layer_of(client, name), 1, 2)
        moved = rows_of(layer)
        client.table("late").drop()
        client.checkpoint()
        first = layer.table.id
    with (
        kintsugi.start_local_cluster(ps=3, code="2+1", restore=place, checkpoint=place) as cluster,
        kintsugi.connect(cluster.address, timeout=60) as client,
        kintsugi.connect(cluster.address, timeout=60) as second,
    ):
        for each in (client, second):
            for name in ("items", "again"):
                layer = layer_of(each, name)
                assert layer.table.id != first
                with pytest.warns(UserWarning, match="2 of 5 rows have others"):
                    layer.load_state_dict(STATE)
                assert torch.equal(rows_of(layer), moved)
        # The table of this name is a new one.
        late = layer_of(client, "late")
        late.load_state_dict(STATE)
        stepped(late, 1, 2)
        with pytest.warns(UserWarning, match="2 of 5 rows have others"):
            layer_of(second, "late").load_state_dict(STATE)
        client.table("items").drop()
        layer = layer_of(client, "items")
        layer.load_state_dict(STATE)
        assert torch.equal(rows_of(layer), STATE["weight"])
