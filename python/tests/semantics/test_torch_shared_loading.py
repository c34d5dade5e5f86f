"""Values written into the parameters of a `SharedOptimizer` take effect at the job, or are an error."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import KINDS, start_again
from test_torch_shared import Two
from torch import Tensor, nn

import kintsugi.torch as kt

LOADED = dict(Two(seed=9).state_dict())


@pytest.fixture
def second(cluster: kintsugi.LocalCluster) -> Iterator[kintsugi.Client]:
    """Another program."""
    with kintsugi.connect(cluster.address, timeout=60) as client:
        yield client


def shared(client: kintsugi.Client, kind: str = "adam", name: str = "") -> tuple[Two, kt.SharedOptimizer]:
    model = Two()
    return model, kt.SharedOptimizer(client, name or f"t-{uuid4()}", model, KINDS[kind].ours)


def stepped(model: nn.Module, opt: torch.optim.Optimizer, number: int) -> Tensor:
    opt.zero_grad()
    loss: Tensor = model(number)
    loss.backward()
    opt.step()
    return loss.detach()


def same(one: nn.Module, other: nn.Module) -> None:
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), theirs.detach(), rtol=1e-5, atol=1e-6)


def load(model: Two) -> None:
    model.load_state_dict(LOADED)


def copy_(model: Two) -> None:
    model.short.data.copy_(LOADED["short"])


def init(model: Two) -> None:
    nn.init.constant_(model.long, 0.25)


def clamp(model: Two) -> None:
    with torch.no_grad():
        for each in model.parameters():
            each.clamp_(-0.3, 0.3)


def numpy_(model: Two) -> None:
    model.short.data.numpy()[:] = LOADED["short"].numpy()
    model.long.detach().numpy()[:2] = 0.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", [load, copy_, init, clamp, numpy_])
def test_a_change_takes_effect_as_in_torch(
    client: kintsugi.Client, kind: str, change: Callable[[Two], None]
) -> None:
    ours, opt = shared(client, kind)
    theirs = Two()
    pairs: list[Any] = [(ours, opt), (theirs, KINDS[kind].theirs(list(theirs.parameters())))]
    for number in range(6):
        losses = []
        for model, optimizer in pairs:
            # Before the first forward, after steps, and between backward and step.
            if number in (0, 2, 3):
                change(model)
            if number == 4:
                model(0).backward()
                change(model)
                optimizer.step()
            losses.append(stepped(model, optimizer, number))
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)
        # The parameters after a step are those of torch, without a forward.
        same(ours, theirs)


def test_what_is_no_value_is_an_error(client: kintsugi.Client) -> None:
    model, opt = shared(client)
    model.to(torch.bfloat16)
    for use in (lambda: model(1), opt.refresh):
        with pytest.raises(kintsugi.Error, match=r"'long' is of bfloat16.*autocast"):
            use()
    model, opt = shared(client)
    model.short = nn.Parameter(torch.zeros(3))
    with pytest.raises(kintsugi.Error, match="'short' is another object"):
        model(1)
    model, opt = shared(client)
    with pytest.raises(kintsugi.Error, match=r"'long', 'short' is another object.*assign=True"):
        model.load_state_dict(dict(LOADED), assign=True)


def test_a_trainer_that_starts_again_does_not_undo_training(
    client: kintsugi.Client, second: kintsugi.Client
) -> None:
    name = f"t-{uuid4()}"
    model, opt = shared(client, name=name)
    model.load_state_dict(LOADED)
    other, other_opt = shared(second, name=name)
    # A second rank loads at its start, too: the values are there.
    other.load_state_dict(LOADED)
    stepped(model, opt, 1)
    other(1)
    start_again(other_opt.table)
    again, again_opt = shared(second, name=name)
    with pytest.warns(UserWarning, match=r"\d+ of 4 rows have others now"):
        again.load_state_dict(LOADED)
    again_opt.refresh()
    same(again, model)
    start_again(again_opt.table)
    with kt.overwrite():
        again.load_state_dict(LOADED)
    opt.refresh()
    assert torch.equal(model.long, LOADED["long"])


def test_in_a_batch(client: kintsugi.Client) -> None:
    model, opt = shared(client, "sgd")
    plain = Two()
    with kt.step(client):
        stepped(model, opt, 1)
        with torch.no_grad():
            model.short.mul_(2)
        with pytest.raises(kintsugi.Error, match=r"refresh\(\) first"):
            model(1)
    stepped(plain, torch.optim.SGD(plain.parameters(), lr=0.1), 1)
    # The error has said that the change is lost.
    assert sorted(model.state_dict()) == ["long", "short"]
    same(model, plain)
    with kt.step(client):
        stepped(model, opt, 1)
    model.load_state_dict(LOADED)
    model(1)
    assert torch.equal(model.long, LOADED["long"])
    with kt.step(client):
        stepped(model, opt, 1)
    saved = model.state_dict()
    plain.load_state_dict(LOADED)
    stepped(plain, torch.optim.SGD(plain.parameters(), lr=0.1), 1)
    torch.testing.assert_close(saved["long"], plain.long.detach())


class Parts(nn.Module):
    """A part that is loaded on its own, and the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Two()
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, number: int) -> Tensor:
        loss: Tensor = self.part(number) * self.scale.square().sum()
        return loss


def test_a_load_of_a_part_in_a_batch(second: kintsugi.Client, tmp_path: Path) -> None:
    client = second
    model = Parts()
    opt = kt.SharedOptimizer(client, f"t-{uuid4()}", model, KINDS["adam"].ours)
    plain = Parts()
    theirs = KINDS["adam"].theirs(list(plain.parameters()))
    path = tmp_path / "train.tsv"
    path.write_text("1\n" * 6)
    for number, _ in enumerate(kintsugi.RangeDataset(client, [path], batch=2, run=f"r-{uuid4()}")):
        stepped(model, opt, number)
        model.part.load_state_dict({"short": LOADED["short"]}, strict=False)
        stepped(plain, theirs, number)
        plain.part.load_state_dict({"short": LOADED["short"]}, strict=False)
    opt.refresh()
    same(model, plain)


def test_what_is_pushed_at_an_end_is_not_seen_before_it(client: kintsugi.Client) -> None:
    model, opt = shared(client, "sgd")
    plain = Two()
    theirs = torch.optim.SGD(plain.parameters(), lr=0.1)
    uses: list[Callable[[], object]] = [
        lambda: model(1), opt.refresh, model.state_dict, lambda: model.load_state_dict(LOADED)
    ]  # fmt: skip
    for use in uses:
        with kt.step(client):
            stepped(model, opt, 1)
            with pytest.raises(kintsugi.Error, match=r"is pushed at the end of kintsugi\.torch\.step"):
                use()
        stepped(plain, theirs, 1)
        opt.refresh()
        same(model, plain)


def test_a_functional_call_has_the_values_that_it_is_given(client: kintsugi.Client) -> None:
    model, opt = shared(client)
    plain = Two()
    theirs = KINDS["adam"].theirs(list(plain.parameters()))
    for number in range(3):
        results = []
        for each in (model, plain):
            given = {name: value.detach().clone().requires_grad_() for name, value in LOADED.items()}
            loss = torch.func.functional_call(each, given, (number,))
            loss.backward()
            some = torch.func.functional_call(each, {"short": given["short"]}, (number,))
            results.append([loss, some, *(value.grad for value in given.values())])
        torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)
        stepped(model, opt, number)
        stepped(plain, theirs, number)
        same(model, plain)


def test_load_of_the_job_leaves_what_the_job_has(client: kintsugi.Client) -> None:
    name = f"t-{uuid4()}"
    model, opt = shared(client)
    stepped(model, opt, 1)
    kt.save(client, model, opt, name=name, checkpoint=False)
    stepped(model, opt, 2)
    before = copy.deepcopy(model)
    assert kt.load(client, model, opt, name=name) == 1
    model(1)
    same(model, before)


def test_copies_and_pickles_are_models_of_torch(client: kintsugi.Client) -> None:
    model, opt = shared(client)
    stepped(model, opt, 1)
    copied = copy.deepcopy(model)
    with io.BytesIO() as file:
        torch.save(model, file)
        file.seek(0)
        read = torch.load(file, weights_only=False)
    before = copied.short.detach().clone()
    stepped(model, opt, 2)
    for each in (copied, read):
        each(1)
        assert torch.equal(each.short, before)
        load(each)
    model(1)
    assert not torch.equal(model.short, LOADED["short"])


@pytest.mark.filterwarnings("default")
def test_a_compiled_model(client: kintsugi.Client) -> None:
    ours, opt = shared(client, "sgd")
    theirs = Two()
    plain = torch.optim.SGD(theirs.parameters(), lr=0.1)
    compiled = torch.compile(ours, backend="eager")
    for number in range(4):
        for model, optimizer, called in ((ours, opt, compiled), (theirs, plain, theirs)):
            if number == 2:
                load(model)
            optimizer.zero_grad()
            called(number).backward()
            optimizer.step()
        same(ours, theirs)


@pytest.mark.parametrize("names", [["long", "short"], ["long"], ["short"]])
@pytest.mark.parametrize("trained", [["long"], ["long", "short"]])
def test_a_load_again_undoes_nothing_whatever_was_trained(
    client: kintsugi.Client, second: kintsugi.Client, names: list[str], trained: list[str]
) -> None:
    name = f"t-{uuid4()}"
    # The load gives one parameter the value that it has at first.
    state = {**LOADED, "short": Two().short.detach()}
    state = {each: state[each] for each in names}
    model, opt = shared(client, name=name)
    model.load_state_dict(state, strict=False)
    opt.zero_grad()
    model(1, both="short" in trained).backward()
    opt.step()
    again, again_opt = shared(second, name=name)
    # The program has looked at the parameters of the job before.
    again.state_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again.load_state_dict(state, strict=False)
    opt.refresh()
    again_opt.refresh()
    same(model, again)
    assert ("long" not in names) or not torch.equal(model.long, state["long"])
    assert ("short" not in set(names) & set(trained)) or not torch.equal(model.short, state["short"])


def test_an_init_again_undoes_nothing(client: kintsugi.Client, second: kintsugi.Client) -> None:
    name = f"t-{uuid4()}"
    first = Two().short.detach()
    model, opt = shared(client, name=name)

    def begun(model: Two) -> None:
        init(model)
        model.short.data.copy_(first)

    begun(model)
    stepped(model, opt, 1)
    again, _ = shared(second, name=name)
    again.state_dict()
    begun(again)
    with pytest.warns(UserWarning, match="they stay"):
        again(1)
    opt.refresh()
    same(model, again)
    assert not torch.equal(model.short, first)
    assert not torch.equal(model.long, torch.full_like(model.long, 0.25))


def test_a_change_that_could_not_be_set_is_set_later(
    client: kintsugi.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, opt = shared(client)
    copy_(model)
    with monkeypatch.context() as patch:
        patch.setattr("kintsugi.torch._once._assign", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(1)
    model(1)
    opt.refresh()
    assert torch.equal(model.short, LOADED["short"])


def test_another_optimizer_takes_the_place_of_the_first(client: kintsugi.Client) -> None:
    model, _ = shared(client)
    model.short = nn.Parameter(torch.zeros(3))
    opt = kt.SharedOptimizer(client, f"t-{uuid4()}", model, KINDS["sgd"].ours)
    plain = Two()
    plain.short = nn.Parameter(torch.zeros(3))
    theirs = torch.optim.SGD(plain.parameters(), lr=0.1)
    for number in range(3):
        stepped(model, opt, number)
        stepped(plain, theirs, number)
    same(model, plain)
