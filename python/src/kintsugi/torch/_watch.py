"""Finds out where PyTorch is about to do something without the rows, so that it is said and not silent.

An anchor is in `model.parameters()`, so helpers of PyTorch look at its gradient: a clip, `zero_grad`, a
constructor of an optimizer. A `GradScaler` is watched by a hook on the loss that it scales.
"""

from __future__ import annotations

import functools
import sys
import warnings
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .._errors import Error
from .._steps import release_all


class Watched(Protocol):
    """An anchor."""

    managed: bool
    left_in: int | None

    def seen(self) -> None:
        """Gradients were looked at or dropped."""

    def clipped(self, parameters: Any) -> bool:
        """A helper of PyTorch is about to clip the gradients of these parameters. Whether it sees rows."""

    def dropped(self, set_to_none: bool) -> None:
        """`zero_grad` of a model drops gradients."""


SCALER: Any = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
"""The class of scalers; that of CUDA is of the same kind since PyTorch 2.3."""

_CLIPS = frozenset({"clip_grad_norm_", "clip_grad_value_", "_clip_grads_with_norm_"})
"""Functions that look at gradients of parameters to clip them; the last one is a part of the first, too."""
_STATELESS = "torch.nn.utils.stateless"
_NOT_PROGRAM = ("torch", __name__.split(".")[0])
_PROGRAM = "a program"
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_scaled: set[int] = set()
"""Passes of `backward` of a loss that a GradScaler has scaled, by the number that autograd gives them."""


def current_pass() -> int:
    """The number of the pass of `backward` that runs in this thread; -1: none."""
    number: int = torch._C._current_graph_task_id()
    return number


def look(anchor: Watched) -> Any:
    """Somebody reads the gradient of an anchor. Who: None for what has no rows, such as an optimizer; for a
    clip the parameters that it has, if it has a list of them.

    @raises Error BAD_ARGUMENT: it clips what has left.
    """  # noqa: D205
    reader = frame = sys._getframe(2)
    # A comprehension has a frame of its own before Python 3.12.
    for _ in range(2):
        name, module = frame.f_code.co_name, frame.f_globals.get("__name__")
        if name == "zero_grad":
            anchor.managed = True
            anchor.left_in = None
            if module == "torch.nn.modules.module":
                anchor.dropped(bool(frame.f_locals.get("set_to_none", True)))
                return None
            break
        if name in _CLIPS and module == "torch.nn.utils.clip_grad":
            parameters = frame.f_locals.get("parameters")
            if not anchor.clipped(parameters):
                return None
            return parameters if isinstance(parameters, list) else _PROGRAM
        if frame.f_back is None:
            break
        frame = frame.f_back
    anchor.seen()
    if _is_in(reader, _NOT_PROGRAM) or _is_in_optimizer(reader) or _is_guard(reader):
        return None
    return _PROGRAM


def _is_in(frame: FrameType, packages: tuple[str, ...]) -> bool:
    return frame.f_globals.get("__name__", "").split(".")[0] in packages


def _is_guard(frame: FrameType) -> bool:
    """Whether torch.compile looks at what it found when it compiled: by an expression without a module."""
    caller = frame.f_back
    return "__name__" not in frame.f_globals and caller is not None and _is_in(caller, _NOT_PROGRAM)


def _is_in_optimizer(frame: FrameType | None) -> bool:
    """Whether this is a method of an optimizer, of whatever package. A closure that it calls is a program."""
    while frame is not None and frame.f_code.co_name in _COMPREHENSIONS:
        frame = frame.f_back
    return frame is not None and isinstance(frame.f_locals.get("self"), torch.optim.Optimizer)


def level_of_program() -> int:
    """The level of a warning of the caller that names the line of the program, and none of PyTorch."""
    level, frame = 2, sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _NOT_PROGRAM:
        level, frame = level + 1, frame.f_back
    return level


def asked(anchor: Watched) -> None:
    """Somebody asks whether an anchor is a leaf: an optimizer that takes it."""
    if sys._getframe(2).f_code.co_name == "add_param_group":
        anchor.managed = True


def is_scaled() -> bool:
    """Whether the pass of `backward` that runs is of a loss that a GradScaler has scaled."""
    return current_pass() in _scaled


def scaled_after(loss: Tensor) -> list[int]:
    """Has the number of the next pass of `backward` of a loss, once it has ended, if it was a scaled one."""
    found: list[int] = []

    def end(number: int) -> None:
        if number in _scaled:
            found.append(number)

    def begin(gradient: Tensor) -> None:  # noqa: ARG001
        # The engine calls this before what `_note` gives it, which is later in the pass.
        torch.autograd.Variable._execution_engine.queue_callback(functools.partial(end, current_pass()))

    register: Any = loss.register_hook
    register(begin)
    return found


def is_traced() -> bool:
    """Whether `make_fx` records what is computed."""
    keys: Any = getattr(torch._C, "_TorchDispatchModeKey", None)
    return keys is not None and torch._C._get_dispatch_mode(keys.PROXY) is not None


def is_functional() -> bool:
    """Whether this is called by a `torch.func.functional_call`, which has other parameters for one call."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_functional_call" and frame.f_globals.get("__name__") == _STATELESS:
            return True
        frame = frame.f_back
    return False


def is_grad_call(node: Any) -> bool:
    """Whether the pass of `backward` that runs is of `torch.autograd.grad`. `node`: the one that runs.

    The engine tells of its own pass in whatever thread it runs nodes, which for a GPU is one of its own. It
    refuses to tell of a leaf that such a pass gives the gradient of.
    """
    for following, _ in node.next_functions:
        if following is None:
            continue
        try:
            torch._C._will_engine_execute_node(following)
        except RuntimeError as error:
            if "autograd.grad()" not in str(error):
                raise
            return True
    return False


@functools.cache
def watch_loops() -> None:
    """From now on scaled losses are known, and gradients that are held leave at a step of any optimizer."""
    register_optimizer_step_pre_hook(lambda *_: release_all())
    original = SCALER.scale

    @functools.wraps(original)
    def scale(self: Any, outputs: Any) -> Any:
        scaled = original(self, outputs)
        if self.is_enabled():
            for each in [scaled] if isinstance(scaled, Tensor) else scaled:
                if isinstance(each, Tensor) and each.requires_grad:
                    register: Any = each.register_hook
                    register(_note)
        return scaled

    SCALER.scale = scale


def _note(gradient: Tensor) -> None:  # noqa: ARG001
    number = current_pass()
    if number in _scaled:
        return
    _scaled.add(number)
    torch.autograd.Variable._execution_engine.queue_callback(functools.partial(_scaled.discard, number))


def note_average(layer: object, trains: bool) -> None:
    """A layer is copied. `trains`: its rows change here. An AveragedModel of PyTorch does not average them.

    @raises Error BAD_ARGUMENT: it is of nothing but the layer. One of a whole model warns.
    """
    frame, level = sys._getframe(2), 3
    while not (frame.f_code.co_name == "__init__" and frame.f_code.co_filename.endswith("swa_utils.py")):
        if frame.f_back is None:
            return
        frame, level = frame.f_back, level + 1
    if frame.f_locals.get("model") is layer:
        text = "rows have no average: a copy of a layer shows them as they are. AveragedModel "
        raise Error("BAD_ARGUMENT", text + "of the whole model averages its dense parameters")
    if trains:
        warnings.warn(
            "AveragedModel averages dense parameters, and no rows: its layers show them as they are. "
            "AveragedModel of the dense part of the model says so",
            stacklevel=level + 1,
        )
