"""Keys that have left a table."""

from __future__ import annotations

from typing import Any, NamedTuple

from ._arrays import Keys


class Evictions(NamedTuple):
    """Some keys whose rows left a table, as `Table.evictions` gives them."""

    keys: Keys
    """uint64, of one shard, in the order in which they left. Empty in the first batch and in some gaps."""
    reasons: list[str]
    """Why each of them left: expired, rare, faint, displaced or deleted."""
    gap: bool
    """True: other keys may have left before these, after the batches so far, which nobody tells any more."""
    position: dict[str, Any]
    """Where to go on after this batch; plain JSON."""
