"""Columns of files: as callers say them, and as the reader of files is told."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ._checks import integer, listed, path, shown
from ._errors import Error

KeyKind = Literal["hex", "integer", "text"]

Schema = Mapping[str, Any] | str | os.PathLike[str]
"""A schema as `kintsugi worker` takes it: its fields, or the path of a file of JSON."""


@dataclass(frozen=True)
class Columns:
    """Columns of samples, by position or name, or by a schema."""

    dense: Sequence[Any]
    sparse: Sequence[Any]
    label: int | str
    keys: KeyKind
    schema: Schema | None

    def layout(self) -> dict[str, Any]:
        """The columns in the words of the reader of files. @raises Error BAD_ARGUMENT."""
        dense, sparse = listed(self.dense, "dense", "columns"), listed(self.sparse, "sparse", "columns")
        label = self.label if isinstance(self.label, str) else integer(self.label, "label")
        if self.keys not in ("hex", "integer", "text"):
            raise Error("BAD_ARGUMENT", f'keys must be "hex", "integer" or "text", not {shown(self.keys)}')
        if self.schema is not None:
            if dense or sparse or label != 0 or self.keys != "hex":
                raise Error("BAD_ARGUMENT", "a schema says what all columns are: leave the others out")
            return {"schema": _schema(self.schema)}
        columns = {
            "dense": [_column(each, label) for each in dense],
            "sparse": [_column(each, label) for each in sparse],
            "label": label,
            "keys": self.keys,
        }
        return {"columns": columns}


def _column(given: Any, label: int | str) -> int | str:
    if isinstance(given, str) != isinstance(label, str):
        raise Error("BAD_ARGUMENT", "columns are all positions, or all names")
    return given if isinstance(given, str) else integer(given, "a column")


def _schema(given: Any) -> dict[str, Any]:
    if isinstance(given, Mapping):
        try:
            return dict(json.loads(json.dumps(dict(given), allow_nan=False)))
        except (TypeError, ValueError) as error:
            raise Error("BAD_ARGUMENT", f"a schema must be JSON: {error}") from None
    file = path(given, "schema")
    try:
        with open(file, encoding="utf-8") as content:
            found = json.load(content)
    except (OSError, ValueError) as error:
        raise Error("BAD_ARGUMENT", f"schema {file} must be a file of JSON: {error}") from None
    if not isinstance(found, dict):
        raise Error("BAD_ARGUMENT", f"schema {file} must be an object of JSON, not {shown(found)}")
    return found
