"""What goes wrong, with a stable code."""


class Error(Exception):
    """Every failure of this library. Callers branch on `code`, never on the message.

    The codes are those of the TypeScript library (docs/errors.md), and `PUSH_IN_DOUBT`.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __str__(self) -> str:
        return f"{self.code}: {self.args[0]}"

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.code, str(self.args[0]))


class PushInDoubt(Error):
    """The gateway ended while a push was under way: it was applied or not, on each shard as a whole.

    Batches of leased ranges never raise this: they are done again under the same numbers.
    """

    def __init__(self, code: str = "PUSH_IN_DOUBT", message: str = "") -> None:
        super().__init__(code, message or "the gateway ended while the push was under way")


class GatewayLost(Exception):
    """The connection to the gateway broke. Never leaves the library."""
