"""Dataclasses that a job names by a kind and fields: optimizers, schedules, initializers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar


@dataclass(frozen=True)
class Named:
    """Of a kind; its fields are those of the job, in snake case. What is None is left out."""

    kind: ClassVar[str] = ""

    def spec(self) -> dict[str, Any]:
        """As the job names it."""
        spec: dict[str, Any] = {"kind": self.kind}
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None:
                spec[_camel(each.name)] = value.spec() if isinstance(value, Named) else value
        return spec


def arguments(spec: dict[str, Any]) -> dict[str, Any]:
    """What the class of this kind is made with."""
    return {_snake(name): value for name, value in spec.items() if name != "kind"}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
