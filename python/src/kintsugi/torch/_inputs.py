"""Arguments of layers: keys, bags, weights and options are converted or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._batches import Values
from .._checks import instance, number, shown
from .._client import Client
from .._errors import Error

_INTEGERS = {
    torch.int8, torch.int16, torch.int32, torch.int64,
    *(getattr(torch, name) for name in ("uint8", "uint16", "uint32", "uint64") if hasattr(torch, name)),
}  # fmt: skip

_OF_TABLES = frozenset({
    "alpha", "amsgrad", "betas", "dampening", "eps", "lr_decay", "maximize", "momentum", "nesterov",
    "weight_decay",
})  # fmt: skip
"""Options of groups of PyTorch's optimizers that a table has in their place."""


def client_of(given: Any) -> Client:
    """@raises Error BAD_ARGUMENT: no client."""
    return instance(given, Client, "client", "what kintsugi.connect(...) gives")


def rate_given(given: Any) -> Any:
    """A learning rate, or a function that gives it. @raises Error BAD_ARGUMENT."""
    if given is None or (callable(given) and not isinstance(given, (type, Tensor))):
        return given
    return number(given, "lr", 0)


def _plain(given: Any, what: str, code: str) -> Tensor:
    """A tensor with values of its own in one piece. @raises Error `code`."""
    if isinstance(given, np.ndarray) and given.dtype.kind in "iuf":
        if isinstance(given, np.ma.MaskedArray):
            raise Error(code, f"{what} are masked: say with `filled(...)` which values are meant")
        native = given.astype(given.dtype.newbyteorder("="), copy=False)
        given = torch.from_numpy(np.ascontiguousarray(native).reshape(native.shape))
    if not isinstance(given, Tensor):
        raise Error(code, f"{what} must be a tensor, not {shown(given)}")
    if given.layout != torch.strided or given.is_nested or given.is_meta:
        raise Error(code, f"{what} must be a dense tensor with values, not {shown(given)}")
    return given


def _own(plain: Tensor, given: Any) -> Tensor:
    """Values for `backward`: autograd does not know when a program changes an array meanwhile."""
    return plain if plain is given else plain.clone()


def keys_given(given: Any) -> Tensor:
    """Keys, a tensor of integers. @raises Error KEY_TYPE."""
    keys = _plain(given, "keys", "KEY_TYPE")
    if keys.dtype not in _INTEGERS:
        raise Error("KEY_TYPE", f"keys must be integers, not {keys.dtype}")
    return keys


def bags_given(keys: Any, offsets: Any, include_last_offset: bool = False) -> tuple[Tensor, Tensor | None]:
    """Keys, and where each bag begins, as `nn.EmbeddingBag` takes them.

    @raises Error KEY_TYPE, BAD_ARGUMENT, LENGTH_MISMATCH.
    """
    keys = keys_given(keys)
    if offsets is None:
        if keys.dim() != 2:
            raise Error("LENGTH_MISMATCH", f"keys without offsets must have two dimensions, not {keys.dim()}")
        return keys, None
    offsets = _own(_plain(offsets, "offsets", "BAD_ARGUMENT"), offsets)
    if offsets.dtype not in _INTEGERS:
        raise Error("BAD_ARGUMENT", f"offsets must be integers, not {offsets.dtype}")
    if (keys.dim(), offsets.dim()) != (1, 1):
        raise Error("LENGTH_MISMATCH", "keys and offsets must have one dimension each")
    offsets = offsets.to(torch.int64)
    check_offsets(offsets, keys.numel(), include_last_offset)
    return keys, offsets.to(keys.device)


def bags_of(values: Values) -> tuple[Tensor, Tensor]:
    """Keys, and where each bag begins, of a column of a schema. @raises Error, as `bags_given`."""
    keys, ends = bags_given(values.keys, values.offsets, include_last_offset=True)
    assert ends is not None
    return keys, ends[:-1]


def check_offsets(offsets: Tensor, count: int, include_last_offset: bool) -> None:
    """Offsets begin with 0, do not fall, and end with the keys. @raises Error LENGTH_MISMATCH."""
    if offsets.numel() == 0:
        if include_last_offset or count > 0:
            raise Error("LENGTH_MISMATCH", f"there is no offset, and {count} keys")
        return
    last = int(offsets[-1])
    falls = bool((offsets[1:] < offsets[:-1]).any())
    if int(offsets[0]) != 0 or falls or last > count or (include_last_offset and last != count):
        ends = f"end with {count}" if include_last_offset else f"be at most {count}"
        raise Error("LENGTH_MISMATCH", f"offsets must begin with 0, must not fall, and must {ends}")


def weights_given(given: Any, keys: Tensor) -> Tensor | None:
    """Weights of keys as float32; gradients go through. @raises Error BAD_ARGUMENT, LENGTH_MISMATCH."""
    if given is None:
        return None
    weights = _own(_plain(given, "weights", "BAD_ARGUMENT"), given)
    if not weights.is_floating_point():
        raise Error("BAD_ARGUMENT", f"weights must be floats, not {weights.dtype}")
    if weights.shape != keys.shape:
        text = f"weights of {tuple(weights.shape)} do not fit keys of {tuple(keys.shape)}"
        raise Error("LENGTH_MISMATCH", text)
    return weights.to(keys.device, torch.float32)


def check_options(group: dict[str, Any]) -> None:
    """@raises Error BAD_ARGUMENT: a group has an option of PyTorch's optimizers beside the learning rate."""
    wrong = sorted(_OF_TABLES.intersection(group))
    if wrong:
        text = (
            f"{wrong[0]} of a group changes nothing: only lr does, and the rest is that of the optimizer of "
        )
        raise Error("BAD_ARGUMENT", text + "the table (create_table, or optimizer= of a layer)")
