"""Dataclasses that a job names by a kind and fields: optimizers, schedules, initializers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from ._checks import integer, number


@dataclass(frozen=True)
class Named:
    """A specification with a kind. Fields have the job's names, in snake case; None is left out."""

    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for each in fields(self):
            given, kind = getattr(self, each.name), str(each.type)
            what = f"{each.name} of {type(self).__name__}"
            if given is None and "None" in kind:
                continue
            value: Any = given
            if kind.startswith("float"):
                value = number(given, what)
            elif kind.startswith("int"):
                value = integer(given, what)
            # Numbers of numpy and PyTorch are those of Python from here on.
            object.__setattr__(self, each.name, value)

    def spec(self) -> dict[str, Any]:
        """As the job names it."""
        spec: dict[str, Any] = {"kind": self.kind}
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None:
                spec[_camel(each.name)] = value.spec() if isinstance(value, Named) else value
        return spec


def arguments(spec: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the class of this kind."""
    return {_snake(name): value for name, value in spec.items() if name != "kind"}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
