"""Parameters and modules as PyTorch has them: gradients that are set, hooks, types, traces, defaults."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

import kintsugi
from kintsugi import Error

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from reference import DIM, KINDS, Pair, keys_of, loss_of
from torch import Tensor, nn

import kintsugi.torch as kt


def layer_of(client: kintsugi.Client, **options: Any) -> kt.KintsugiEmbedding:
    return kt.KintsugiEmbedding(client, f"t-{uuid4()}", DIM, optimizer=KINDS["adam"].ours, **options)


def test_zero_grad_of_the_model_drops_gradients_of_rows(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    for set_to_none in (True, False, True):
        for layer, optimizer in ((pair.layer, rows), (pair.torch, pair.torch.optimizer)):
            for number in range(2):
                loss_of(layer(keys_of(number, 5)), number).backward()
                if number == 0:
                    nn.Sequential(layer).zero_grad(set_to_none=set_to_none)
            optimizer.step()
            layer.zero_grad()
    pair.check()


def test_gradients_that_a_program_sets(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    (parameter,) = rows.param_groups[0]["params"]
    loss_of(pair.layer(keys_of(0, 1, 2))).backward()
    parameter.grad = None
    for each in pair.torch.rows:
        each.grad = None
    loss_of(pair.layer(keys_of(2, 3))).backward()
    loss_of(pair.torch(keys_of(2, 3))).backward()
    pair.layer(keys_of(9))
    # A gradient in place of another one: key 9 has none, and gets none.
    parameter.grad = parameter.grad * 2
    for each in pair.torch.rows:
        if each.grad is not None:
            each.grad = each.grad * 2
    rows.step()
    pair.torch.optimizer.step()
    rows.zero_grad()
    pair.torch.optimizer.zero_grad()
    # Where there was none, it is one of every key.
    pair.layer(keys_of(4, 6))
    parameter.grad = torch.ones_like(parameter)
    for key in (4, 6):
        pair.torch.rows[key].grad = torch.ones(DIM)
    rows.step()
    pair.torch.optimizer.step()
    pair.check()


@pytest.mark.parametrize("at", ["look-up", "step", "next step"])
def test_values_that_are_written_into_rows_are_an_error(client: kintsugi.Client, at: str) -> None:
    pair = Pair(client)
    rows = pair.rows()
    (parameter,) = rows.param_groups[0]["params"]
    loss_of(pair.layer(keys_of(1, 2))).backward()
    loss_of(pair.torch(keys_of(1, 2))).backward()
    if at == "next step":
        rows.step()
    with torch.no_grad():
        parameter.clamp_(-0.01, 0.01)
    with pytest.raises(Error, match=r"values were written into the rows of .* They are lost"):
        rows.step() if at == "step" else pair.layer(keys_of(1))
    if at != "next step":
        # The error has been given once.
        rows.step()
    pair.torch.optimizer.step()
    torch.testing.assert_close(pair.layer(keys_of(1, 2)), pair.torch(keys_of(1, 2)), rtol=1e-5, atol=1e-6)
    pair.check()


@pytest.mark.parametrize("at", ["look-up", "step", "numpy", "next step"])
def test_values_that_are_written_into_data_of_rows_are_an_error(client: kintsugi.Client, at: str) -> None:
    pair = Pair(client)
    rows = pair.rows()
    (parameter,) = rows.param_groups[0]["params"]
    loss_of(pair.layer(keys_of(1, 2))).backward()
    loss_of(pair.torch(keys_of(1, 2))).backward()
    read = parameter.data
    assert read.tolist() == pair.layer(keys_of(1, 2)).tolist()
    # A look-up of other keys moves rows.
    pair.layer(keys_of(7, 8, 9))
    if at == "next step":
        rows.step()
        parameter.data.clamp_(-0.01, 0.01)
    elif at == "step":
        read.mul_(0.5)
    elif at == "numpy":
        parameter.detach().numpy()[:] = 0
    else:
        parameter.data[0] = 0
    with pytest.raises(Error, match=r"values were written into the rows of .* They are lost"):
        rows.step() if at == "step" else pair.layer(keys_of(1))
    with pytest.raises(Error, match=r"`data` of a parameter of rows cannot be set"):
        parameter.data = torch.zeros_like(parameter)
    if at != "next step":
        # The error has been given once.
        rows.step()
    pair.torch.optimizer.step()
    torch.testing.assert_close(pair.layer(keys_of(1, 2)), pair.torch(keys_of(1, 2)), rtol=1e-5, atol=1e-6)
    pair.check()


def test_values_that_come_after_a_look_at_data_are_not_written(client: kintsugi.Client) -> None:
    layer = layer_of(client)
    rows = kt.RowOptimizer(layer)
    # Keys that other ranks have looked up have gradients here, and no values.
    rows.rows.of(layer.table).put(keys_of(1, 2, 3).numpy(), torch.ones(3, DIM))
    (parameter,) = rows.param_groups[0]["params"]
    assert parameter.data.isnan().all()
    found = layer(keys_of(2))
    assert torch.equal(parameter.data[1:2], found)
    rows.step()


def test_hooks_of_parameters_do_not_see_rows(client: kintsugi.Client) -> None:
    layer = layer_of(client)
    rows = kt.RowOptimizer(layer)
    (parameter,) = rows.param_groups[0]["params"]
    for name in ("register_hook", "register_post_accumulate_grad_hook"):
        with pytest.raises(Error, match="autograd does not know the parameter of rows"):
            getattr(parameter, name)(lambda _: None)
        (anchor,) = layer.parameters()
        with pytest.warns(UserWarning, match=rf"{name} of a parameter does not see gradients of rows"):
            getattr(anchor, name)(lambda _: None)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_hooks_of_results_and_modules(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    seen: list[Any] = []
    for layer in (pair.layer, pair.torch):
        layer.register_full_backward_hook(lambda _, given, got: seen.append((given, got[0].shape)))
        result = layer(keys_of(1, 2))
        result.register_hook(lambda gradient: gradient.clamp(-0.5, 0.5))
        loss_of(result).backward()
    assert seen[0] == seen[1]
    rows.step()
    pair.torch.optimizer.step()
    pair.check()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_results_have_the_type_of_the_layer(client: kintsugi.Client, dtype: torch.dtype) -> None:
    layer = layer_of(client)
    bag = kt.KintsugiEmbeddingBag(client, layer.table.name, mode="sum")
    bags = kt.EmbeddingBagCollection(client, [kt.EmbeddingBagConfig(layer.table.name)])
    model = nn.ModuleList([layer, bag, bags, nn.Linear(DIM, 1)])
    rows = kt.RowOptimizer(model)
    plain = nn.Embedding(5, DIM)
    plain.weight.data.copy_(torch.from_numpy(layer.table.pull(range(5))))
    model.to(dtype)
    plain.to(dtype)
    keys = torch.tensor([[1, 2], [2, 2]])
    torch.testing.assert_close(layer(keys), plain(keys))
    weights = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=dtype, requires_grad=True)
    pooled = bag(keys, None, weights)
    (features,) = bags({layer.table.name: keys}).values()
    torch.testing.assert_close(features, plain(keys).sum(1), rtol=1e-2, atol=1e-3)
    assert pooled.dtype == features.dtype == kt.to_embedding_bag(layer, keys=[1])(keys).dtype == dtype
    copies = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))]
    assert [each(keys).dtype for each in copies] == [dtype] * 2
    # The network above takes it as it is.
    model[3](pooled + layer(keys).sum(1)).sum().backward()
    assert weights.grad is not None
    assert weights.grad.dtype == dtype
    rows.step()
    client.flush()
    assert layer.table.pull([2], state=True)[0, -1] == 1


@contextmanager
def defaults(dtype: torch.dtype, device: str) -> Iterator[None]:
    torch.set_default_dtype(dtype)
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)  # type: ignore[no-untyped-call, unused-ignore]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_defaults_of_torch_change_no_rows(client: kintsugi.Client, device: str) -> None:
    pair = Pair(client)
    keys = [torch.tensor(each) for each in ([0, 1], [1, 2])]
    with defaults(torch.float64, device):
        layer = kt.KintsugiEmbedding(client, pair.layer.table.name)
        rows = kt.RowOptimizer(layer)
        for _ in range(2):
            rows.zero_grad()
            result = torch.cat([layer(each) for each in keys])
            assert result.dtype == torch.float64
            assert result.device.type == "cpu"
            (result * (1 + result)).sum().backward()
            rows.step()
    for _ in range(2):
        pair.torch.optimizer.zero_grad()
        result = torch.cat([pair.torch(each) for each in keys])
        (result * (1 + result)).sum().backward()
        pair.torch.optimizer.step()
    pair.check()


def meta(model: nn.Module) -> None:
    model.to("meta")


def overwritten(model: nn.Module) -> None:
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        model.double()
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)


def swapped(model: nn.Module) -> None:
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.mark.parametrize("convert", [meta, overwritten, swapped])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_clip_sees_rows_after_a_conversion(
    client: kintsugi.Client, convert: Callable[[nn.Module], None], frozen: bool
) -> None:
    pair = Pair(client)
    layer = copy.deepcopy(pair.layer).requires_grad_()
    layer.requires_grad_(not frozen)
    convert(layer)
    rows = kt.RowOptimizer(layer)
    assert [each.requires_grad for each in layer.parameters()] == [not frozen]
    if frozen:
        assert not layer(keys_of(1)).requires_grad
        return
    loss_of(layer(keys_of(1, 2)).float()).backward()
    loss_of(pair.torch(keys_of(1, 2))).backward()
    norm = kt.clip_grad_norm_(layer.parameters(), 0.1)
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(pair.torch.parameters(), 0.1))
    rows.step()
    pair.torch.optimizer.step()
    pair.check()


def test_a_trace_is_an_error(client: kintsugi.Client) -> None:
    layer = layer_of(client)
    plain = kt.to_embedding_bag(layer, keys=range(5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Error, match=r"trace the plain module that kintsugi\.torch\.to_embedding_bag"):
            torch.jit.trace(layer, keys_of(1, 2), check_trace=False)
        traced = torch.jit.trace(plain, keys_of(1, 2))
    assert torch.equal(traced(keys_of(4, 0)), layer(keys_of(4, 0)))


def test_a_script_is_an_error(client: kintsugi.Client) -> None:
    layer = layer_of(client)
    collection = kt.EmbeddingBagCollection(client, [kt.EmbeddingBagConfig(f"t-{uuid4()}", DIM)])
    for each in (layer, nn.Sequential(layer, nn.Linear(DIM, 1)), nn.Sequential(collection)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(
                Error, match=r"torch\.jit\.script cannot compile a layer whose rows are"
            ) as error:
                torch.jit.script(each)
        assert error.value.code == "BAD_ARGUMENT"


def test_gradients_by_autograd_grad_are_an_error(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    result = pair.layer(keys_of(1, 2))
    with pytest.raises(Error, match=r"torch\.autograd\.grad gives no gradients of rows"):
        torch.autograd.grad(loss_of(result), list(pair.layer.parameters()), allow_unused=True)
    # Gradients of results are as ever, also for a penalty on them.
    for layer in (pair.layer, pair.torch):
        result = layer(keys_of(1, 2))
        (gradient,) = torch.autograd.grad((result**3).sum(), result, create_graph=True)
        (gradient**2).sum().backward()
    rows.step()
    pair.torch.optimizer.step()
    pair.check()


def test_gradients_of_parameters_are_an_error_in_every_thread(client: kintsugi.Client) -> None:
    """Gradients on a GPU come in a thread of the engine, whose frames do not tell who has called it."""
    pair = Pair(client)
    rows = pair.rows()
    for pass_, layer in enumerate((pair.layer, nn.Sequential(pair.layer, nn.Identity()))):
        (anchor,) = layer.parameters()
        loss = loss_of(layer(keys_of(1, 2)), pass_)
        run: Any = torch.autograd.Variable._execution_engine.run_backward
        options = {"allow_unreachable": True, "accumulate_grad": False}
        with pytest.raises(Error, match=r"torch\.autograd\.grad gives no gradients of rows"):
            run((loss,), (torch.ones(()),), True, False, (anchor,), **options)
        loss.backward(inputs=[anchor])
        loss_of(pair.torch(keys_of(1, 2)), pass_).backward()
    rows.step()
    pair.torch.optimizer.step()
    pair.check()


def test_inference_mode_between_look_ups(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    for layer, optimizer in ((pair.layer, rows), (pair.torch, pair.torch.optimizer)):
        for number in range(2):
            with torch.inference_mode():
                layer(keys_of(1, 2))
            loss_of(layer(keys_of(number, 3))).backward()
            with torch.inference_mode():
                layer(keys_of(4, 3))
            loss_of(layer(keys_of(4, 5))).backward()
            optimizer.step()
            optimizer.zero_grad()
    pair.check()


@pytest.mark.parametrize("fused", [False, True])
def test_a_functional_call_leaves_rows_as_they_are(client: kintsugi.Client, fused: bool) -> None:
    pair = Pair(client, fused=fused)
    optimizers = [] if fused else [pair.rows()]
    top = nn.Linear(DIM, 1)
    results: list[list[Tensor | None]] = []
    for layer in (pair.layer, pair.torch):
        model = nn.Sequential(layer, top)
        given = {f"1.{name}": each.detach().clone().requires_grad_() for name, each in top.named_parameters()}
        if layer is pair.layer:
            given["0.anchor"] = torch.empty(0, requires_grad=True)
        torch.func.functional_call(model, given, (keys_of(1, 2),)).square().sum().backward()
        results.append([given["1.weight"].grad, given["1.bias"].grad])
    torch.testing.assert_close(*results)
    for optimizer in (*optimizers, pair.torch.optimizer):
        optimizer.step()
    pair.check()


def test_a_look_up_within_a_transform_is_an_error(client: kintsugi.Client) -> None:
    layer = layer_of(client)
    transforms: list[Callable[[], object]] = [
        lambda: torch.func.vmap(layer)(keys_of(1, 2)),
        lambda: torch.func.grad(lambda factor: (factor * layer(keys_of(1, 2))).sum())(torch.ones(())),
    ]
    for each in transforms:
        with pytest.raises(Error, match=r"look rows up before, and give the transformed function"):
            each()
    found = layer(keys_of(1, 2)).detach()
    assert torch.equal(torch.func.grad(lambda rows: (rows * rows).sum())(found), 2 * found)


def test_a_row_optimizer_is_not_copied(client: kintsugi.Client) -> None:
    rows = kt.RowOptimizer(layer_of(client))
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(Error, match="a RowOptimizer is neither copied nor pickled"):
            make(rows)


def test_what_a_row_optimizer_cannot_be_is_an_error(client: kintsugi.Client) -> None:
    layer = layer_of(client)
    rows = kt.RowOptimizer(layer)
    with pytest.raises(Error, match="has one group for each table"):
        rows.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    rows.param_groups[0]["weight_decay"] = 0.1
    layer(keys_of(1)).sum().backward()
    with pytest.raises(Error, match="weight_decay of a group changes nothing: only lr does"):
        rows.step()
    top = nn.Linear(DIM, 1)
    shared = kt.SharedOptimizer(client, f"t-{uuid4()}", top)
    shared.param_groups[0]["betas"] = (0.5, 0.5)
    top(torch.ones(1, DIM)).sum().backward()
    with pytest.raises(Error, match="betas of a group changes nothing: only lr does"):
        shared.step()
    later = kt.RowOptimizer(layer)
    layer(keys_of(1)).sum().backward()
    with pytest.raises(Error, match=r"a RowOptimizer that was made later has the gradients of .*: call its"):
        rows.step()
    rows.zero_grad()
    later.step()
    client.flush()
    assert layer.table.pull([1], state=True)[0, -1] == 1


def test_a_graph_of_gradients_is_an_error(client: kintsugi.Client) -> None:
    pair = Pair(client)
    rows = pair.rows()
    looked = pair.layer(keys_of(1, 2))
    with (
        warnings.catch_warnings(action="ignore"),
        pytest.raises(Error, match=r"gradients of the rows of .* have no graph"),
    ):
        loss_of(looked).backward(create_graph=True)
    for layer, optimizer in ((pair.layer, rows), (pair.torch, pair.torch.optimizer)):
        optimizer.zero_grad()
        looked = layer(keys_of(1, 2))
        (gradient,) = torch.autograd.grad(loss_of(looked), looked, create_graph=True)
        gradient.square().sum().backward()
        optimizer.step()
    pair.check()


def test_another_parameter_in_the_place_of_that_of_rows_is_an_error(client: kintsugi.Client) -> None:
    layer = layer_of(client)
    rows = kt.RowOptimizer(layer)
    layer.anchor = nn.Parameter(torch.empty(0))  # type: ignore[assignment, unused-ignore]
    with pytest.raises(Error, match="Parameter has taken the place of the parameter that stands for"):
        layer(keys_of(1))
    with torch.no_grad():
        assert layer(keys_of(1)).shape == (1, DIM)
    assert rows.param_groups[0]["params"][0].grad is None


def test_a_weight_says_where_rows_are(client: kintsugi.Client) -> None:
    layer = layer_of(client)
    assert not hasattr(layer, "weight")
    with pytest.raises(AttributeError, match=r"has no weight: client.table\(name\)"):
        layer.weight  # noqa: B018
    with pytest.raises(Error, match="KintsugiEmbedding takes no rows: load_state_dict"):
        kt.KintsugiEmbedding.from_pretrained(torch.zeros(2, DIM))
