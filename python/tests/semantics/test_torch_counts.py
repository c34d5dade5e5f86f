"""Layers that count: a key is seen as often as the batches of a step name it, and otherwise once per step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from ddp_counts import BATCH, KEYS, OVERFLOWS, STEPS, batch_of, lines_of, read
from reference import keys_of, loss_of
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import kintsugi.torch as kt

POLICY = kintsugi.Policy(ttl=1000)
DIM = 2


def layer_of(client: kintsugi.Client, **options: Any) -> kt.KintsugiEmbedding:
    options.setdefault("policy", POLICY)
    options.setdefault("count_duplicates", True)
    name = options.pop("name", f"t-{uuid4()}")
    return kt.KintsugiEmbedding(client, name, DIM, **options)


def seen(table: kintsugi.Table, client: kintsugi.Client) -> list[int]:
    """Sightings of each key at the PS."""
    client.flush()
    words = table.pull(np.arange(KEYS), state=True)[:, -1].copy().view(np.uint32)
    found: list[int] = words.tolist()
    return found


def counted(*keys: Iterable[int]) -> list[int]:
    times = Counter(key for each in keys for key in each)
    return [times[key] for key in range(KEYS)]


def once(steps: Iterable[Iterable[int]]) -> list[int]:
    return counted(*(set(step) for step in steps))


# ---- random programs against counts of a plain model


@dataclass(frozen=True)
class Look:
    """A look-up of a layer, and what becomes of it."""

    layer: int
    keys: tuple[int, ...]
    way: str
    """plain, no_grad, lost (no backward), frozen, detached or checkpoint."""


@dataclass(frozen=True)
class Round:
    """A step: micro-batches, and whether it is made."""

    micro: tuple[tuple[Look, ...], ...]
    twice: bool
    """Each micro-batch has two passes of `backward`."""
    ends: str
    """step, overflow (the step is skipped), drop."""


WAYS = ["plain", "plain", "plain", "no_grad", "lost", "frozen", "detached", "checkpoint"]
looks = st.builds(
    Look,
    st.integers(0, 2),
    st.lists(st.integers(-1, KEYS - 1), max_size=8).map(tuple),
    st.sampled_from(WAYS),
)
rounds = st.builds(
    Round,
    st.lists(st.lists(looks, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple),
    st.booleans(),
    st.sampled_from(["step", "step", "overflow", "drop"]),
)


def micro_loss(layers: list[kt.KintsugiEmbedding], micro: tuple[Look, ...]) -> Tensor:
    total = torch.zeros((), requires_grad=True)
    for look in micro:
        layer = layers[look.layer]

        def looked(total: Tensor, look: Look = look, layer: kt.KintsugiEmbedding = layer) -> Tensor:
            rows = layer(keys_of(*look.keys).to(torch.int64))
            return total + loss_of(rows.detach() if look.way == "detached" else rows)

        if look.way == "no_grad":
            with torch.no_grad():
                looked(total)
        elif look.way == "lost":
            looked(total)
        elif look.way == "checkpoint":
            total = checkpoint(looked, total, use_reentrant=False)
        else:
            layer.requires_grad_(look.way != "frozen")
            total = looked(total)
            layer.requires_grad_(True)
    return total


def run(client: kintsugi.Client, program: list[Round], count: bool) -> None:
    """Two layers of one table, and one of another."""
    first = layer_of(client, count_duplicates=count)
    layers = [first, layer_of(client, name=first.table.name, count_duplicates=count)]
    layers.append(layer_of(client, count_duplicates=count))
    rows = kt.RowOptimizer(layers)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    steps: list[list[list[int]]] = [[], []]
    for given_round in program:
        rows.zero_grad()
        named: list[list[int]] = [[], []]
        for number, micro in enumerate(given_round.micro):
            loss = micro_loss(layers, micro)
            factor = float("inf") if given_round.ends == "overflow" and number == 0 else 1.0
            for left in range(2 if given_round.twice else 1):
                scaler.scale(loss * factor).backward(retain_graph=given_round.twice and left == 0)
            for look in micro:
                if look.way in ("plain", "checkpoint"):
                    named[look.layer // 2] += [key for key in look.keys if key >= 0]
        if given_round.ends == "drop":
            continue
        if not any(each.grad is not None for group in rows.param_groups for each in group["params"]):
            continue
        scaler.unscale_(rows)
        finite = all(
            bool(each.grad.isfinite().all())
            for group in rows.param_groups
            for each in group["params"]
            if each.grad is not None
        )
        scaler.step(rows)
        scaler.update()
        if finite:
            for table in range(2):
                steps[table].append(named[table])
    for layer, of in zip(layers[::2], steps, strict=True):
        assert seen(layer.table, client) == (counted(*of) if count else once(of))


@pytest.mark.parametrize("count", [True, False], ids=["counts", "once"])
def test_random_programs_are_seen_as_a_model_says(client: kintsugi.Client, count: bool) -> None:
    torch.set_num_threads(1)

    @settings(
        max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        derandomize=True,
    )  # fmt: skip
    @given(st.lists(rounds, min_size=1, max_size=3))
    def each(program: list[Round]) -> None:
        run(client, program, count)

    each()


# ---- each rule by itself


def test_a_counter_admits_a_key_that_one_batch_names_often_enough(client: kintsugi.Client) -> None:
    for count, admitted in ((True, [0, 3]), (False, [])):
        layer = layer_of(
            client,
            policy=kintsugi.Policy(counter=3),
            initializer=kintsugi.Zeros(),
            optimizer=kintsugi.SGD(lr=1.0),
            count_duplicates=count,
        )
        rows = kt.RowOptimizer(layer)
        layer(keys_of(0, 1, 0, 3, 3, 0, 3, 3, 1)).sum().backward()
        rows.step()
        client.flush()
        assert np.flatnonzero(layer.table.pull(np.arange(KEYS)).any(1)).tolist() == admitted


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("count", [True, False])
def test_bags_and_collections_count_what_they_are_given(
    client: kintsugi.Client, fused: bool, count: bool
) -> None:
    options: dict[str, Any] = {"fused": fused, "count_duplicates": count}
    bag = kt.KintsugiEmbeddingBag(client, f"t-{uuid4()}", DIM, mode="sum", policy=POLICY, **options)
    both = [(f"t-{uuid4()}", ["a", "b"]), (f"t-{uuid4()}", ["b", "c"])]
    bags = kt.EmbeddingBagCollection(
        client,
        [kt.EmbeddingBagConfig(name, DIM, features, policy=POLICY) for name, features in both],
        **options,
    )
    rows = kt.EmbeddingCollection(
        client, [kt.EmbeddingConfig(f"t-{uuid4()}", DIM, ["a"], policy=POLICY)], **options
    )
    optimizer = None if fused else kt.RowOptimizer([bag, bags, rows])
    # The weight of a key is zero, and so is its gradient: it is pushed, and seen.
    weights = torch.tensor([1.0, 0.0, 0.0, 2.0])
    out = bag(keys_of(1, 2, 1, -1), torch.tensor([0, 3]), weights).sum()
    a, b, c = keys_of(1, 1, 2), keys_of(2, 3, -1, 2), keys_of(4, 4, 4)
    many = bags({"a": (a, torch.tensor([0, 1])), "b": (b, torch.tensor([0, 2])), "c": c.view(3, 1)})
    # Features that the loss leaves out are of the same look-up: their keys are pushed with zeros.
    out = out + many["b@" + both[0][0]].sum() + many["c"].sum()
    out = out + rows({"a": keys_of(5, 5, -1, 0).view(2, 2)})["a"].sum()
    out.backward()
    if optimizer is not None:
        optimizer.step()
    tables = [bag.table, *bags.tables, *rows.tables]
    named = [[1, 2, 1], [1, 1, 2, 2, 3, 2], [2, 3, 2, 4, 4, 4], [5, 5, 0]]
    expected = [counted(each) if count else once([each]) for each in named]
    assert [seen(table, client) for table in tables] == expected


class Three(torch.nn.Module):
    """Three look-ups of a table, by two layers."""

    def __init__(self, client: kintsugi.Client, **options: Any) -> None:
        super().__init__()
        self.one = layer_of(client, **options)
        self.other = layer_of(client, name=self.one.table.name, **options)

    @staticmethod
    def parts(keys: Tensor) -> list[Tensor]:
        return [keys, keys[:2], keys[:1]]

    def forward(self, keys: Tensor) -> Tensor:
        first, second, third = self.parts(keys)
        sums: Tensor = self.one(first).sum() + self.other(second).sum() + self.one(third).sum()
        return sums


@pytest.mark.parametrize("way", ["fused", "step", "batch", "fused batch", "pipeline", "plain pipeline"])
@pytest.mark.parametrize("count", [True, False], ids=["counts", "once"])
def test_several_look_ups_of_a_pass_are_one_step(
    cluster: kintsugi.LocalCluster, tmp_path: Path, way: str, count: bool
) -> None:
    batches = [keys_of(1, 2, 2, -1, 7), keys_of(2, 3), keys_of(2, 2, 2)]
    file = tmp_path / "keys"
    file.write_text("0\n1\n2\n")

    def read(content: bytes, samples: int) -> tuple[Tensor, Tensor]:
        assert samples == 1
        return batches[int(content)], torch.zeros(())

    with kintsugi.connect(cluster.address, timeout=60) as client:
        model = Three(client, fused="fused" in way, count_duplicates=count)
        if way == "fused":
            for keys in batches:
                model(keys).backward()
        elif way == "step":
            for keys in batches:
                with kt.step(client):
                    model(keys).backward()
        elif way == "plain pipeline":
            list(kt.Pipeline(model, None, lambda given, _: given)([(keys, 0) for keys in batches]))
        else:
            data = kintsugi.RangeDataset(client, [file], batch=1, run=f"r-{uuid4()}", reader=read)
            rows = kt.RowOptimizer(model) if way == "batch" else None
            if way == "pipeline":
                list(kt.Pipeline(model, None, lambda given, _: given)(data))
            else:
                for keys, _ in data:
                    model(keys).backward()
                    if rows is not None:
                        rows.step()
                        rows.zero_grad()
        named = [[key for part in Three.parts(keys) for key in part.tolist() if key >= 0] for keys in batches]
        assert seen(model.one.table, client) == (counted(*named) if count else once(named))


def test_batches_that_are_sent_again_are_counted_once(tmp_path: Path) -> None:
    lines = lines_of(40)
    file = tmp_path / "train.tsv"
    file.write_text("".join(f"{' '.join(map(str, keys))}\n" for keys in lines))
    with (
        kintsugi.start_local_cluster(ps=3, code="2+1") as cluster,
        kintsugi.connect(cluster.address) as client,
    ):
        layer = layer_of(client)
        rows = kt.RowOptimizer(layer)
        data = kintsugi.RangeDataset(client, [file], batch=BATCH, run="train", reader=read)
        for number, keys in enumerate(data):
            layer(keys).sum().backward()
            rows.step()
            rows.zero_grad()
            if number == 3:
                cluster.kill(1)
            elif number in (5, 7):
                pid = client._connection.gateway.pid  # type: ignore[union-attr]
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
        assert number >= len(lines) / BATCH
        assert seen(layer.table, client) == counted(*lines)


def test_counts_go_where_gradients_go(client: kintsugi.Client) -> None:
    layer = layer_of(client)
    rows = kt.RowOptimizer(layer)
    # Nobody drops the gradients: they are pushed again, with what they have counted.
    first, second = [8, 8, 8, 1, 1, 2], [2, 3, 3]
    (layer(keys_of(*first[:3])).sum() + layer(keys_of(*first[3:])).sum()).backward()
    rows.step()
    layer(keys_of(*second)).sum().backward()
    rows.step()
    assert seen(layer.table, client) == counted(first, first, second)
    rows.zero_grad()
    # Look-ups whose gradients are dropped count nothing. Zeros in place of gradients are pushed: once.
    layer(keys_of(4, 4, 4)).sum().backward()
    rows.zero_grad(set_to_none=False)
    rows.step()
    layer(keys_of(5, 5)).sum().backward()
    rows.zero_grad()
    # A gradient of a program's own is of no look-up.
    layer(keys_of(6, 6)).sum().backward()
    (parameter,) = rows.param_groups[0]["params"]
    parameter.grad = None
    parameter.grad = torch.ones_like(parameter)
    rows.step()
    # All keys of the step have one then, also that of the zeros before.
    assert seen(layer.table, client) == counted(first, first, second, [4], [4, 5, 6])


def test_layers_of_a_table_of_which_one_counts(client: kintsugi.Client) -> None:
    counts = layer_of(client)
    other = layer_of(client, name=counts.table.name, count_duplicates=False)
    rows = kt.RowOptimizer([counts, other])
    (counts(keys_of(1, 1, 2)).sum() + other(keys_of(2, 2, 3, 3)).sum()).backward()
    rows.step()
    assert seen(counts.table, client) == counted([1, 1, 2, 3])


def test_a_table_without_a_policy_is_sent_no_counts(
    client: kintsugi.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, counts = layer_of(client, policy=None), layer_of(client)
    rows = kt.RowOptimizer([plain, counts])
    sent: list[dict[str, Any]] = []
    push = client.push

    def watched(requests: Any, *, lr: Any, counts: Any) -> Any:
        sent.append({table.name: each for (table, *_), each in zip(requests, counts, strict=True)})
        return push(requests, lr=lr, counts=counts)

    monkeypatch.setattr(client, "push", watched)
    (plain(keys_of(1, 1)).sum() + counts(keys_of(1, 1)).sum()).backward()
    rows.step()
    (only,) = sent
    assert only[plain.table.name] is None
    assert only[counts.table.name].tolist() == [2]


def test_the_option_is_kept_and_checked(client: kintsugi.Client) -> None:
    import copy
    import pickle

    layer = layer_of(client)
    assert copy.deepcopy(layer).count_duplicates
    assert pickle.loads(pickle.dumps(layer)).count_duplicates
    wrong: Any = "yes"
    with pytest.raises(kintsugi.Error, match="count_duplicates") as raised:
        layer_of(client, count_duplicates=wrong)
    assert raised.value.code == "BAD_ARGUMENT"
    for option in ("count_duplicates", "fused"):
        before = getattr(layer, option)
        with pytest.raises(kintsugi.Error, match=f"{option} of a layer stays") as raised:
            setattr(layer, option, not before)
        assert raised.value.code == "BAD_ARGUMENT"
        assert getattr(copy.deepcopy(layer), option) is before


# ---- ranks


def ranks(cluster: kintsugi.LocalCluster, *arguments: str) -> list[Any]:
    program = [sys.executable, str(Path(__file__).with_name("ddp_counts.py")), cluster.address, *arguments]
    running = [
        subprocess.Popen([*program, str(rank), "2"], stdout=subprocess.PIPE, text=True) for rank in range(2)
    ]
    said = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    return [json.loads(each.splitlines()[-1]) for each in said]


def test_ranks_see_what_all_of_them_have_in_their_batches(
    cluster: kintsugi.LocalCluster, client: kintsugi.Client, tmp_path: Path
) -> None:
    names = [f"t-{uuid4()}" for _ in range(3)]
    assert ranks(cluster, "steps", ",".join(names), str(tmp_path / "store")) == ["done"] * 2
    counts, single, plain = (client.table(name) for name in names)
    steps = [
        [key for rank in range(2) for micro in range(2) for key in batch_of(step, micro, rank) if key >= 0]
        for step in range(STEPS)
        if step not in OVERFLOWS
    ]
    assert seen(counts, client) == counted(*steps)
    assert seen(single, client) == once(steps)
    assert plain.policy is None
    assert len(plain) == len(counts)


def test_ranks_of_a_data_set_see_what_one_process_sees(
    cluster: kintsugi.LocalCluster, client: kintsugi.Client, tmp_path: Path
) -> None:
    file = tmp_path / "train.tsv"
    lines = lines_of(11)
    file.write_text("".join(f"{' '.join(map(str, keys))}\n" for keys in lines))
    names = [f"t-{uuid4()}" for _ in range(3)]
    arguments = "data", ",".join(names), str(tmp_path / "store"), str(file)
    assert ranks(cluster, *arguments) == ["done"] * 2
    assert seen(client.table(names[0]), client) == counted(*lines)


def test_ranks_count_what_nobody_counts_once(
    cluster: kintsugi.LocalCluster, client: kintsugi.Client, tmp_path: Path
) -> None:
    names = [f"t-{uuid4()}" for _ in range(3)]
    assert ranks(cluster, "mixed", ",".join(names), str(tmp_path / "store")) == ["done"] * 2
    assert seen(client.table(names[0]), client) == counted([1, 1, 4, 4, 2], [5])


def test_ranks_that_differ_are_an_error_of_all(cluster: kintsugi.LocalCluster, tmp_path: Path) -> None:
    names = ",".join(f"t-{uuid4()}" for _ in range(3))
    said = ranks(cluster, "differ", names, str(tmp_path / "store"))
    assert said == ["ranks have layers that differ in count_duplicates"] * 2
