"""`SharedOptimizer` is an optimizer of PyTorch: groups, schedulers, scalers, and gradients that are None."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import KINDS, start_again
from torch import nn

import kintsugi.torch as kt


class Two(nn.Module):
    """A parameter of some rows of the table, and one of a part of a row."""

    def __init__(self, seed: int = 3) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.long = nn.Parameter(torch.randn(300, 2))
        self.short = nn.Parameter(torch.randn(3))

    def forward(self, number: int, both: bool = True) -> torch.Tensor:
        loss = (self.long.square() * (number + 1)).mean().sin()
        return loss + (self.short * number).cos().sum() if both else loss


def compared(opt: kt.SharedOptimizer, ours: Two, theirs: Two) -> None:
    opt.refresh()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), other.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_parameter_without_a_gradient_stays(client: kintsugi.Client, kind: str, set_to_none: bool) -> None:
    ours, theirs = Two(), Two()
    opt = kt.SharedOptimizer(client, f"t-{uuid4()}", ours, KINDS[kind].ours)
    assert isinstance(opt, torch.optim.Optimizer)
    pairs: list[Any] = [(ours, opt), (theirs, KINDS[kind].theirs(list(theirs.parameters())))]
    schedules = [torch.optim.lr_scheduler.LambdaLR(each, lambda n: 1 / (n + 1)) for _, each in pairs]
    for step in range(5):
        for (model, optimizer), schedule in zip(pairs, schedules, strict=True):
            optimizer.zero_grad(set_to_none=set_to_none)
            model(step, both=step % 2 == 1).backward()
            optimizer.step()
            schedule.step()
    compared(opt, ours, theirs)


def test_adam_with_one_gradient_of_three(client: kintsugi.Client) -> None:
    values = []
    for shared in (False, True):
        model = nn.Module()
        model.used, model.other = nn.Parameter(torch.tensor([-0.52])), nn.Parameter(torch.ones(1))
        optimizer: Any = torch.optim.Adam(model.parameters(), lr=0.1)
        if shared:
            optimizer = kt.SharedOptimizer(client, f"t-{uuid4()}", model, kintsugi.Adam(lr=0.1))
        for step in range(3):
            optimizer.zero_grad()
            (model.other + (model.used if step == 0 else 0)).sum().backward()
            optimizer.step()
        if shared:
            optimizer.refresh()
        values.append(float(model.used.detach()))
    assert values == pytest.approx([-0.62, -0.62], abs=1e-6)


def test_a_scaler_that_overflows_changes_nothing(client: kintsugi.Client) -> None:
    ours, theirs = Two(), Two()
    opt = kt.SharedOptimizer(client, f"t-{uuid4()}", ours, kintsugi.AdamW(lr=0.1, weight_decay=0.5))
    other = torch.optim.AdamW(theirs.parameters(), lr=0.1, weight_decay=0.5)
    pairs: list[Any] = [(ours, opt), (theirs, other)]
    scalers = [torch.amp.GradScaler("cpu", init_scale=256.0) for _ in pairs]
    for step in range(4):
        for (model, optimizer), scaler in zip(pairs, scalers, strict=True):
            optimizer.zero_grad()
            scaler.scale(model(step) * (float("inf") if step == 1 else 1)).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    compared(opt, ours, theirs)


def test_a_closure_and_the_state(client: kintsugi.Client) -> None:
    model = Two()
    opt = kt.SharedOptimizer(client, f"t-{uuid4()}", model, kintsugi.SGD(lr=0.1))
    assert opt.state

    def closure() -> torch.Tensor:
        opt.zero_grad()
        loss = model(1)
        loss.backward()
        return loss

    assert float(opt.step(closure).detach()) == pytest.approx(float(Two()(1).detach()))
    opt.param_groups[0]["lr"] = 0.5
    saved = opt.state_dict()
    opt.param_groups[0]["lr"] = 0.1
    opt.load_state_dict(saved)
    assert opt.param_groups[0]["lr"] == 0.5
    with pytest.raises(kintsugi.Error, match="has one group"):
        opt.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    with pytest.raises(kintsugi.Error, match="FTRL"):
        kt.SharedOptimizer(client, f"t-{uuid4()}", model, kintsugi.FTRL())


def test_trainers_that_begin_at_once_have_one_model(client: kintsugi.Client) -> None:
    name = f"t-{uuid4()}"

    # Here, because all threads share the random numbers.
    models = [Two() for _ in range(4)]
    before = models[0].short.detach().clone()

    def trained(model: Two) -> kt.SharedOptimizer:
        opt = kt.SharedOptimizer(client, name, model, kintsugi.SGD(lr=0.1))
        model.short.grad = torch.ones(3)
        opt.step()
        return opt

    with ThreadPoolExecutor(4) as pool:
        optimizers = list(pool.map(trained, models))
    client.flush()
    assert len({opt.table.name for opt in optimizers}) == 1
    torch.testing.assert_close(
        torch.from_numpy(optimizers[0].table.pull(np.array([1 << 32]))[0, :3]), before - 0.4
    )
    with pytest.raises(kintsugi.Error, match="TABLE_EXISTS"):
        kt.SharedOptimizer(client, name, Two(seed=4), kintsugi.SGD(lr=0.1))


def test_a_table_of_something_else_is_not_overwritten(client: kintsugi.Client) -> None:
    name = f"t-{uuid4()}"
    table = client.create_table(name, 256, optimizer=kintsugi.Adam(), initializer=kintsugi.Zeros())
    table.assign(np.arange(2, dtype=np.uint64), np.ones((2, table.width), np.float32)).result()
    for _ in range(2):
        with pytest.raises(kintsugi.Error) as raised:
            kt.SharedOptimizer(client, name, Two(), kintsugi.Adam())
        assert raised.value.code == "TABLE_EXISTS"
    assert (table.pull([0, 1]) == 1).all()


def test_a_first_trainer_that_ends_is_not_waited_for(
    client: kintsugi.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"t-{uuid4()}"
    with monkeypatch.context() as patch:
        patch.setattr("kintsugi.torch._once._assign", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            kt.SharedOptimizer(client, name, Two(), kintsugi.SGD(lr=0.1))
    table = client.table(name)
    # Another program does not know that the first one has failed.
    start_again(table)
    monkeypatch.setattr("kintsugi.torch._once.LOAD_SECONDS", 0.0)
    models = [Two() for _ in range(2)]
    optimizers = [kt.SharedOptimizer(client, name, each, kintsugi.SGD(lr=0.1)) for each in models]
    assert {opt.table.name for opt in optimizers} == {name}
    for model in models:
        assert same_values(model, Two())


def same_values(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


def begun(client: kintsugi.Client, name: str) -> tuple[Two, kt.SharedOptimizer]:
    """A trainer that begins, with the parameters of the job."""
    model = Two()
    opt = kt.SharedOptimizer(client, name, model, kintsugi.SGD(lr=0.1))
    opt.refresh()
    return model, opt


def trained(client: kintsugi.Client, name: str) -> tuple[Two, kt.SharedOptimizer]:
    model, opt = begun(client, name)
    model(1).backward()
    opt.step()
    return model, opt


@pytest.mark.parametrize("mine", [True, False], ids=["here", "elsewhere"])
def test_a_table_that_is_made_anew_has_the_first_values(
    cluster: kintsugi.LocalCluster, client: kintsugi.Client, mine: bool
) -> None:
    name = f"t-{uuid4()}"
    for _ in range(2):
        model, _ = trained(client, name)
        assert not same_values(model, Two())
        # A trainer that begins later goes on with what was trained.
        assert same_values(begun(client, name)[0], model)
        with kintsugi.connect(cluster.address, timeout=60) as other:
            (client if mine else other).table(name).drop()
        assert same_values(begun(client, name)[0], Two())


def test_all_trainers_of_a_table_that_is_made_anew_have_one_model(
    cluster: kintsugi.LocalCluster, client: kintsugi.Client
) -> None:
    name = f"t-{uuid4()}"
    trained(client, name)
    with ExitStack() as stack, ThreadPoolExecutor(3) as pool:
        clients = [stack.enter_context(kintsugi.connect(cluster.address, timeout=60)) for _ in range(3)]
        for each in clients:
            each.table(name)
        client.table(name).drop()
        # Here, because all threads share the random numbers.
        models = [Two() for _ in clients]

        def stepped(client: kintsugi.Client, model: Two) -> kt.SharedOptimizer:
            opt = kt.SharedOptimizer(client, name, model, kintsugi.SGD(lr=0.1))
            model.short.grad = torch.ones(3)
            opt.step()
            client.flush()
            return opt

        for opt in list(pool.map(stepped, clients, models)):
            opt.refresh()
        for model in models:
            torch.testing.assert_close(model.short, Two().short - 0.3)
            assert torch.equal(model.long, Two().long)


def test_parameters_of_an_earlier_version_are_not_overwritten(client: kintsugi.Client) -> None:
    name = f"t-{uuid4()}"
    client.create_table(f"{name}-ready", 1, optimizer=kintsugi.SGD(lr=0.0), initializer=kintsugi.Zeros())
    with pytest.raises(kintsugi.Error, match="of an earlier version"):
        begun(client, name)


def test_a_parameter_that_is_unfrozen_later_is_said_to_be_of_nobody(client: kintsugi.Client) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].requires_grad_(False)
    opt = kt.SharedOptimizer(client, f"t-{uuid4()}", model, kintsugi.SGD(lr=0.1))
    for unfrozen in (False, True):
        model[0].requires_grad_(unfrozen)
        opt.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        if unfrozen:
            with pytest.warns(UserWarning, match="does not train parameter '0.weight', '0.bias'") as seen:
                opt.step()
            assert [each.filename for each in seen] == [__file__]
        opt.step()


def test_a_shared_optimizer_is_not_copied(client: kintsugi.Client) -> None:
    model = nn.Linear(4, 1)
    shared = kt.SharedOptimizer(client, f"t-{uuid4()}", model)
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(kintsugi.Error, match="a SharedOptimizer is neither copied nor pickled"):
            make(shared)
    with pytest.raises(kintsugi.Error, match="a SharedOptimizer is neither copied nor pickled"):
        copy.deepcopy((model, shared))
