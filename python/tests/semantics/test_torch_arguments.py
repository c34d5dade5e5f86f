"""Arguments of layers give the answer of PyTorch's own layer for the same values, or an error with a code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import kintsugi
from kintsugi import Error

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from torch import nn

import kintsugi.torch as kt

DIM = 3
KEYS = [5, 2, 2, 0]


def name() -> str:
    return f"t-{uuid4()}"


def strided() -> Any:
    return torch.tensor([5, 9, 2, 9, 2, 9, 0, 9])[::2]


KEYS_TAKEN: dict[str, Any] = {
    "int64": torch.tensor(KEYS),
    "int32": torch.tensor(KEYS, dtype=torch.int32),
    "uint8": torch.tensor(KEYS, dtype=torch.uint8),
    "strided": strided(),
    "expanded": torch.tensor([KEYS, KEYS])[1],
    "numpy": np.array(KEYS),
    "numpy, big endian": np.array(KEYS, ">i4"),
    "numpy, strided": np.array([5, 9, 2, 9, 2, 9, 0, 9])[::2],
}
KEYS_REFUSED: dict[str, Any] = {
    "floats": torch.tensor(KEYS, dtype=torch.float32),
    "float16": torch.tensor(KEYS, dtype=torch.float16),
    "truths": torch.tensor([True, False]),
    "complex": torch.tensor([1j]),
    "sparse": torch.tensor(KEYS).to_sparse(),
    "without values": torch.ones(4, dtype=torch.int64, device="meta"),
    "a list": KEYS,
    "a number": 5,
    "a text": "5",
    "a class": torch.Tensor,
    "none": None,
    "masked": np.ma.MaskedArray(KEYS, [True, False, False, False]),
    "numpy floats": np.array(KEYS, np.float32),
    "objects": np.array(KEYS, object),
}


def refused(code: str, call: Callable[[], object], what: object) -> None:
    with pytest.raises(Error) as error:
        call()
    assert error.value.code == code, what


def test_keys(client: kintsugi.Client) -> None:
    layer = kt.KintsugiEmbedding(client, name(), DIM)
    bag = kt.KintsugiEmbeddingBag(client, layer.table.name, DIM, mode="sum")
    collection = kt.EmbeddingBagCollection(client, [kt.EmbeddingBagConfig(layer.table.name, DIM)])
    feature = layer.table.name
    theirs = nn.Embedding(6, DIM, _weight=torch.from_numpy(layer.table.pull(np.arange(6))))
    offsets = torch.tensor([0, 3])
    for what, given in KEYS_TAKEN.items():
        expected = theirs(torch.tensor(KEYS))
        pooled = torch.stack([expected[:3].sum(0), expected[3]])
        torch.testing.assert_close(layer(given), expected, msg=what)
        torch.testing.assert_close(bag(given, offsets), pooled, msg=what)
        torch.testing.assert_close(collection({feature: (given, offsets)})[feature], pooled, msg=what)
    for what, given in KEYS_REFUSED.items():
        refused("KEY_TYPE", lambda given=given: layer(given), what)  # type: ignore[misc]
        refused("KEY_TYPE", lambda given=given: bag(given, offsets), what)  # type: ignore[misc]
        if not isinstance(given, list):
            refused("KEY_TYPE", lambda given=given: collection({feature: (given, offsets)}), what)  # type: ignore[misc]


def test_offsets(client: kintsugi.Client) -> None:
    bag = kt.KintsugiEmbeddingBag(client, name(), DIM)
    closed = kt.KintsugiEmbeddingBag(client, bag.table.name, DIM, include_last_offset=True)
    keys = torch.tensor(KEYS)
    expected = bag(keys, torch.tensor([0, 1, 1]))
    taken: list[Any] = [
        torch.tensor([0, 1, 1], dtype=torch.int32),
        np.array([0, 1, 1]),
        torch.tensor([0, 9, 1, 9, 1])[::2],
    ]
    for given in taken:
        torch.testing.assert_close(bag(keys, given), expected)
    torch.testing.assert_close(closed(keys, torch.tensor([0, 1, 1, 4])), expected)
    cases: list[tuple[str, Any]] = [
        ("BAD_ARGUMENT", torch.tensor([0.0, 1.0])), ("BAD_ARGUMENT", torch.tensor([False, True])),
        ("BAD_ARGUMENT", [0, 1]), ("BAD_ARGUMENT", 0), ("BAD_ARGUMENT", "01"),
        ("LENGTH_MISMATCH", torch.tensor([[0, 1]])), ("LENGTH_MISMATCH", torch.tensor([1, 2])),
        ("LENGTH_MISMATCH", torch.tensor([0, 3, 2])), ("LENGTH_MISMATCH", torch.tensor([0, 5])),
        ("LENGTH_MISMATCH", torch.tensor([0, -1])), ("LENGTH_MISMATCH", torch.tensor([], dtype=torch.int64)),
    ]  # fmt: skip
    for code, given in cases:
        refused(code, lambda given=given: bag(keys, given), given)  # type: ignore[misc]
    for given in (torch.tensor([0, 1, 3]), torch.tensor([], dtype=torch.int64)):
        refused("LENGTH_MISMATCH", lambda given=given: closed(keys, given), given)  # type: ignore[misc]


def test_arrays_that_change_before_backward(client: kintsugi.Client) -> None:
    bag = kt.KintsugiEmbeddingBag(
        client, name(), DIM, mode="sum", optimizer=kintsugi.SGD(lr=1.0), initializer=kintsugi.Zeros()
    )
    rows = kt.RowOptimizer(bag)
    keys, offsets, weights = np.array(KEYS), np.array([0, 3]), np.ones(4, np.float32)
    out = bag(keys, offsets, weights)
    keys[:], offsets[1], weights[:] = 9, 1, 7
    (out * torch.tensor([[1.0], [10.0]])).sum().backward()
    rows.step()
    client.flush()
    assert bag.table.pull(np.array([5, 0, 2, 9]))[:, 0].tolist() == [-1, -10, -2, 0]


def test_keys_that_change_after_a_prefetch(client: kintsugi.Client) -> None:
    layer = kt.KintsugiEmbedding(client, name(), DIM)
    feature = layer.table.name
    collection = kt.EmbeddingBagCollection(client, [kt.EmbeddingBagConfig(feature, DIM)])
    with torch.no_grad():
        for keys in (torch.tensor(KEYS), torch.tensor(KEYS, dtype=torch.int32)):
            layer.prefetch(keys)
            keys.add_(10)
            torch.testing.assert_close(layer(keys), layer(keys.clone()))
        array = np.array([[1, 2], [3, 4]])
        given = {feature: array}
        for change in (lambda: array.__iadd__(10), lambda: given.update({feature: np.array([[7, 8]])})):
            collection.prefetch(given)
            change()
            expected = collection({feature: given[feature].copy()})
            torch.testing.assert_close(collection(given)[feature], expected[feature])


def test_attributes_of_torch_that_are_set_later(client: kintsugi.Client) -> None:
    layer = kt.KintsugiEmbedding(client, name(), DIM)
    bag = kt.KintsugiEmbeddingBag(client, name(), DIM)
    collection = kt.EmbeddingBagCollection(client, [kt.EmbeddingBagConfig(name(), DIM)])
    weight = nn.Parameter(torch.ones(6, DIM))
    values: dict[str, Any] = {
        "weight": weight, "padding_idx": 0, "max_norm": 1.0, "norm_type": 1.0, "scale_grad_by_freq": True,
        "sparse": True, "num_embeddings": 6, "embedding_dim": 2 * DIM,
    }  # fmt: skip
    modules: list[nn.Module] = [layer, bag, collection]
    for module in modules:
        for attribute, value in values.items():
            refused("BAD_ARGUMENT", lambda m=module, a=attribute, v=value: setattr(m, a, v), attribute)  # type: ignore[misc]
        refused("BAD_ARGUMENT", lambda m=module: m.register_parameter("weight", weight), "weight")  # type: ignore[misc]
        refused("BAD_ARGUMENT", lambda m=module: m.register_buffer("weight", weight), "weight")  # type: ignore[misc]
        assert [each for each, _ in module.named_parameters()] == ["anchor"]
        if module is not bag:
            refused("BAD_ARGUMENT", lambda m=module: setattr(m, "mode", "sum"), "mode")  # type: ignore[misc]
    keys = torch.tensor([KEYS])
    mean = bag(keys)
    bag.mode = "sum"
    torch.testing.assert_close(bag(keys), mean * len(KEYS))
    odd: Any
    for odd in ("avg", None, 0):
        refused("BAD_ARGUMENT", lambda odd=odd: setattr(bag, "mode", odd), odd)  # type: ignore[misc]


def test_weights(client: kintsugi.Client) -> None:
    bag = kt.KintsugiEmbeddingBag(client, name(), DIM, mode="sum", lr=0, fused=True)
    keys, offsets = torch.tensor(KEYS), torch.tensor([0, 3])
    weights = torch.tensor([1.0, 0.5, 2.0, -1.0])
    expected = bag(keys, offsets, weights)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        given = weights.to(dtype).requires_grad_()
        out = bag(keys, offsets, given)
        torch.testing.assert_close(out, expected)
        assert out.dtype == torch.float32
        out.sum().backward()
        assert given.grad is not None
        assert given.grad.dtype == dtype
    torch.testing.assert_close(bag(keys, offsets, weights.repeat_interleave(2)[::2]), expected)
    torch.testing.assert_close(bag(keys, offsets, weights.numpy()), expected)
    refused("LENGTH_MISMATCH", lambda: bag(keys, offsets, weights[:3]), "too few")
    refused("LENGTH_MISMATCH", lambda: bag(keys, offsets, weights.view(2, 2)), "another shape")
    odd: Any
    for odd in (torch.tensor(KEYS), weights > 0, weights.tolist(), 1.0, weights.to_sparse(), "w"):
        refused("BAD_ARGUMENT", lambda odd=odd: bag(keys, offsets, odd), odd)  # type: ignore[misc]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_gradients_of_every_type_arrive(client: kintsugi.Client, dtype: torch.dtype) -> None:
    layer = kt.KintsugiEmbedding(
        client, name(), DIM, optimizer=kintsugi.SGD(lr=1.0), initializer=kintsugi.Zeros(), fused=True
    )
    keys = torch.tensor(KEYS)
    factor = torch.tensor([[1.0, 2.0, 0.5]] * 4, dtype=dtype)
    # A gradient that is transposed on its way, and of another type.
    (layer(keys).to(dtype).t() * factor.t()).t().sum().backward()
    client.flush()
    assert torch.from_numpy(layer.table.pull([5, 2])).tolist() == [[-1.0, -2.0, -0.5], [-2.0, -4.0, -1.0]]


def test_options(client: kintsugi.Client) -> None:
    odd: Any
    model = nn.Sequential(kt.KintsugiEmbedding(client, name(), DIM))
    dim: Any = np.int64(DIM)
    half: Any = np.float32(0.5)
    for make in (kt.KintsugiEmbedding, kt.KintsugiEmbeddingBag):
        assert make(client, name(), dim, grad_scale=half, lr=torch.tensor(0.25)).lr == 0.25
        for odd in (None, kintsugi.Client, "host:1"):
            refused("BAD_ARGUMENT", lambda make=make, odd=odd: make(odd, name(), DIM), odd)  # type: ignore[misc]
        for odd in ("1", True, None, float("nan"), torch.ones(2)):
            refused("BAD_ARGUMENT", lambda m=make, odd=odd: m(client, name(), DIM, grad_scale=odd), odd)  # type: ignore[misc]
        for odd in ("1", True, -1, torch.ones(2), torch.optim.SGD):
            refused("BAD_ARGUMENT", lambda m=make, odd=odd: m(client, name(), DIM, lr=odd), odd)  # type: ignore[misc]
        for odd in (torch.optim.Adagrad, torch.optim.SGD([torch.ones(1)], 0.1), "adagrad", kintsugi.Adam):
            refused("BAD_ARGUMENT", lambda m=make, odd=odd: m(client, name(), DIM, optimizer=odd), odd)  # type: ignore[misc]
    for odd in ("item", ["item", 5], 5, {"item": 1}):
        refused("BAD_ARGUMENT", lambda odd=odd: kt.EmbeddingBagConfig(name(), DIM, odd), odd)  # type: ignore[misc]
    config = kt.EmbeddingBagConfig(name(), DIM)
    for odd in (config, [kt.EmbeddingBagConfig], ["items"], None):
        refused("BAD_ARGUMENT", lambda odd=odd: kt.EmbeddingBagCollection(client, odd), odd)  # type: ignore[misc]
    collection = kt.EmbeddingBagCollection(client, [config])
    keys = torch.tensor(KEYS)
    for odd in (keys, [keys], None, {config.name: ()}, {config.name: (keys,)}):
        refused("BAD_ARGUMENT", lambda odd=odd: collection(odd), odd)  # type: ignore[misc]
    for odd in (torch.optim.SGD, "sgd", 0.1):
        refused("BAD_ARGUMENT", lambda odd=odd: kt.Pipeline(model, odd, nn.MSELoss()), odd)  # type: ignore[misc]
    for odd in (nn.MSELoss, None, "mse"):
        refused("BAD_ARGUMENT", lambda odd=odd: kt.Pipeline(model, None, odd), odd)  # type: ignore[misc]
    for odd in (kt.KintsugiEmbedding, None, [model]):
        refused("BAD_ARGUMENT", lambda odd=odd: kt.Pipeline(odd, None, nn.MSELoss()), odd)  # type: ignore[misc]
        refused("BAD_ARGUMENT", lambda odd=odd: kt.SharedOptimizer(client, name(), odd), odd)  # type: ignore[misc]
        refused("BAD_ARGUMENT", lambda odd=odd: kt.save(client, odd), odd)  # type: ignore[misc]
        refused("BAD_ARGUMENT", lambda odd=odd: kt.load(client, odd), odd)  # type: ignore[misc]
    for odd in (-1, 1.5, True, "2"):
        refused("BAD_ARGUMENT", lambda odd=odd: kt.Pipeline(model, None, nn.MSELoss(), in_flight=odd), odd)  # type: ignore[misc]
