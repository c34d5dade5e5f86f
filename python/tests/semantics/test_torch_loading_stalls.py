"""A program that stalls while it loads does not undo what others do meanwhile, and loads take no tables."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import start_again
from test_torch_loading_again import STATE, layer_of, rows_of, stepped


@pytest.fixture
def second(cluster: kintsugi.LocalCluster) -> Iterator[kintsugi.Client]:
    """Another program."""
    with kintsugi.connect(cluster.address, timeout=60) as client:
        yield client


def stall(
    monkeypatch: pytest.MonkeyPatch, table: kintsugi.Table, name: str, meanwhile: Callable[[], None]
) -> None:
    """The second call of a method begins when `meanwhile` has ended, which takes longer than any patience."""
    method = getattr(table, name)
    calls = 0

    def stalls(*given: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            meanwhile()
        return method(*given, **options)

    monkeypatch.setattr(table, name, stalls)
    monkeypatch.setattr("kintsugi.torch._once.CHUNK_BYTES", 1)
    monkeypatch.setattr("kintsugi.torch._once.LOAD_SECONDS", 0.0)


class Training:
    """Another program that loads the same values and trains; `moved`: its rows then."""

    def __init__(self, client: kintsugi.Client, name: str) -> None:
        self.layer = layer_of(client, name)
        self.moved = torch.empty(0)

    def __call__(self) -> None:
        self.layer.load_state_dict(STATE)
        stepped(self.layer, 1, 2, 3)
        self.moved = rows_of(self.layer)


def test_who_stalls_before_rows_are_set_sets_none_of_them(
    client: kintsugi.Client, second: kintsugi.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"t-{uuid4()}"
    layer, other = layer_of(client, name), Training(second, name)
    stall(monkeypatch, layer.table, "pull", other)
    with pytest.warns(UserWarning, match="3 of 5 rows have others now, and they stay"):
        layer.load_state_dict(STATE)
    assert torch.equal(rows_of(other.layer), other.moved)


def test_who_stalls_after_its_look_at_the_clock_sets_nothing(
    client: kintsugi.Client, second: kintsugi.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"t-{uuid4()}"
    layer, other = layer_of(client, name), Training(second, name)
    monkeypatch.setattr("kintsugi.torch._once.SEND_SECONDS", 0.2)
    now = layer.table._gateway_clock

    def meanwhile() -> None:
        _, looked = now()
        other()
        while now()[1] <= looked + 200:
            pass

    stall(monkeypatch, layer.table, "_assign_until", meanwhile)
    with pytest.warns(UserWarning, match="3 of 5 rows have others now, and they stay"):
        layer.load_state_dict(STATE)
    assert torch.equal(rows_of(other.layer), other.moved)


def test_who_stalls_while_rows_are_sent_says_so(
    client: kintsugi.Client, second: kintsugi.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"t-{uuid4()}"
    layer, other = layer_of(client, name), Training(second, name)
    # The gateway takes rows in time, and they are on their way for longer than others wait.
    monkeypatch.setattr(layer.table, "_assign_until", lambda keys, rows, _: layer.table.assign(keys, rows))
    stall(monkeypatch, layer.table, "assign", other)
    with pytest.warns(UserWarning, match="they stay|took its place") as warned:
        layer.load_state_dict(STATE)
    said = [str(each.message) for each in warned]
    assert any("another one took its place: what training had moved" in each for each in said), said
    assert torch.equal(rows_of(other.layer)[2:], other.moved[2:])


def test_who_stalls_alone_goes_on(client: kintsugi.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = layer_of(client, f"t-{uuid4()}")
    stall(monkeypatch, layer.table, "pull", lambda: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer.load_state_dict(STATE)
    assert torch.equal(rows_of(layer), STATE["weight"])


def test_loads_take_no_tables(client: kintsugi.Client) -> None:
    layer = layer_of(client, f"t-{uuid4()}")
    layer.load_state_dict(STATE)
    before = len(client.tables())
    for number in range(8):
        # Programs that begin one after the other, each with another checkpoint.
        start_again(layer.table)
        layer.load_state_dict({"weight": STATE["weight"] + number + 1})
    assert torch.equal(rows_of(layer), STATE["weight"] + 8)
    assert len(client.tables()) == before
