"""Parts of batches that the ranks of a process group have."""

from __future__ import annotations

import numpy as np

from kintsugi._batches import Batch, Lines, SchemaBatch, Values, part_of, samples_of


def test_parts_of_arrays_are_their_samples() -> None:
    dense = np.arange(8, dtype=np.float32).reshape(4, 2)
    batch = Batch(dense, np.arange(4, dtype=np.int64).reshape(4, 1), np.arange(4, dtype=np.float32))
    parts = [part_of(batch, first, 2) for first in (0, 2)]
    assert [samples_of(part) for part in parts] == [2, 2]
    for joined, whole in zip((np.concatenate(each) for each in zip(*parts, strict=True)), batch, strict=True):
        np.testing.assert_array_equal(joined, whole)


def test_parts_of_lists_have_offsets_from_0() -> None:
    values = Values(np.arange(6), np.array([0, 1, 1, 4, 6]), np.arange(6, dtype=np.float32))
    label = np.zeros(4, np.float32)
    batch = SchemaBatch(np.zeros((4, 0), np.float32), {"tags": values}, None, None, label)
    first, second = (part_of(batch, begin, 2).sparse["tags"] for begin in (0, 2))
    assert [first.offsets.tolist(), first.keys.tolist()] == [[0, 1, 1], [0]]
    assert [second.offsets.tolist(), second.keys.tolist()] == [[0, 3, 5], [1, 2, 3, 4, 5]]
    assert second.weights.tolist() == [1, 2, 3, 4, 5]
    assert part_of(batch, 2, 2).weight is None


def test_parts_of_lines_are_lines_or_all_where_quotes_hold_several() -> None:
    lines = Lines(b"a\nb\nc\nd", 4)
    assert [part_of(lines, first, 2).content for first in (0, 2)] == [b"a\nb\n", b"c\nd"]
    quoted = Lines(b'"a\nb"\nc\n', 2)
    assert part_of(quoted, 0, 1) == quoted
