"""Failures, with a stable code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Error(Exception):
    """Every failure of this library. Callers branch on `code`, never on the message.

    The codes are those of the TypeScript library (docs/errors.md), and `PUSH_IN_DOUBT`.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.batch: int | None = None
        """The batch of a leased range that could not be read."""

    def __str__(self) -> str:
        return f"{self.code}: {self.args[0]}"

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.code, str(self.args[0]))


class PushesFailed(Error):
    """Several pushes failed. `code` is that of the first one, `errors` are all, one for each of `pushes`."""

    def __init__(
        self, code: str, message: str, pushes: Sequence[str] = (), errors: Sequence[Error] = ()
    ) -> None:
        super().__init__(code, message)
        self.pushes = tuple(pushes)
        """Their names, such as `push 7 (items: 100 keys)`: pushes of a client count from 1."""
        self.errors = tuple(errors)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.code, str(self.args[0]), self.pushes, self.errors)


class PushInDoubt(Error):
    """The gateway ended while a push was under way: it was applied or not, on each shard as a whole.

    Batches of leased ranges never raise this: they are done again under the same numbers.
    """

    def __init__(self, code: str = "PUSH_IN_DOUBT", message: str = "", pushes: Sequence[str] = ()) -> None:
        super().__init__(code, message or "the gateway ended while the push was under way")
        self.pushes = tuple(pushes)
        """Names of the pushes, such as `push 7 (items: 100 keys)`: pushes of a client count from 1."""

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.code, str(self.args[0]), self.pushes)


NAMED = 8
"""Most pushes that the text of an error names; `pushes` has all."""


def joined(failed: Sequence[tuple[str, Error]]) -> Error:
    """One error for pushes that failed, by their names."""
    if len(failed) == 1:
        return failed[0][1]
    pushes, errors = [name for name, _ in failed], [error for _, error in failed]
    named = ", ".join(pushes[:NAMED])
    if len(pushes) > NAMED:
        named += f" and {len(pushes) - NAMED} others"
    if all(isinstance(error, PushInDoubt) for error in errors):
        text = f"the gateway ended while {len(pushes)} pushes were under way: {named}"
        return PushInDoubt(message=text, pushes=pushes)
    what = "; ".join(dict.fromkeys(str(error) for error in errors[:NAMED]))
    return PushesFailed(errors[0].code, f"{len(pushes)} pushes failed, {named}: {what}", pushes, errors)


class GatewayLost(Exception):
    """The connection to the gateway broke. Never leaves the library."""
