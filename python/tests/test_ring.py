"""Shared memory and frames, by properties: nothing overlaps, nothing is lost, whatever the order."""

import gc
import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle as Many
from hypothesis.stateful import RuleBasedStateMachine, consumes, invariant, rule

from kintsugi._arena import ALIGNMENT, Arena, FreeList
from kintsugi._link import Link, Reply

SIZE = 1 << 16


class Ring(RuleBasedStateMachine):
    """Blocks are taken, written, seen through views, and dropped in any order."""

    blocks: Many[Any] = Many("blocks")

    def __init__(self) -> None:
        super().__init__()
        self.arena = Arena(SIZE)
        self.live: dict[int, tuple[int, int]] = {}
        self.next = 1

    @rule(target=blocks, size=st.integers(1, SIZE // 3))
    def take(self, size: int) -> Any:
        block = self.arena.take(size)
        if block is None:
            # Then no free piece is as large: all free bytes together may be.
            return None
        assert block.offset % ALIGNMENT == 0
        assert block.offset >= 0
        assert size <= block.size
        assert block.offset + block.size <= self.arena.size
        for start, end in self.live.values():
            assert block.offset + block.size <= start or end <= block.offset
        number, self.next = self.next, self.next + 1
        self.live[number] = block.offset, block.offset + block.size
        array = block.array(0, (size,), np.uint8)
        array[:] = number % 251
        # The caller may keep a view of a view: the block lives as long as that.
        return number, array[size // 2 :][::1]

    @rule(each=blocks)
    def read(self, each: Any) -> None:
        if each is not None:
            number, view = each
            assert (view == number % 251).all()

    @rule(each=consumes(blocks))
    def drop(self, each: Any) -> None:
        if each is not None:
            self.live.pop(each[0], None)

    @invariant()
    def what_is_used_and_what_is_free_is_all(self) -> None:
        used = sum(end - start for start, end in self.live.values())
        # Arrays that were dropped may wait for the garbage collector, never the other way round.
        assert self.arena.free_bytes <= self.arena.size - used

    def teardown(self) -> None:
        self.arena.close_file()


TestRing = Ring.TestCase
TestRing.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=60))
def test_a_free_list_gives_first_fit_and_takes_back_all(steps: list[tuple[int, bool]]) -> None:
    free = FreeList(256)
    model = [False] * 256
    taken: list[tuple[int, int]] = []
    for size, gives in steps:
        if gives and taken:
            start, length = taken.pop(size % len(taken))
            free.give(start, length)
            model[start : start + length] = [False] * length
        else:
            fits = [i for i in range(257 - size) if not any(model[i : i + size])]
            found = free.take(size)
            assert found == (fits[0] if fits else None)
            if found is not None:
                taken.append((found, size))
                model[found : found + size] = [True] * size
        assert free.free_bytes == model.count(False)
    for start, length in taken:
        free.give(start, length)
    assert free.take(256) == 0


def test_what_is_free_is_not_given_back_twice() -> None:
    free = FreeList(256)
    start = free.take(64)
    assert start is not None
    free.give(start, 64)
    with pytest.raises(AssertionError):
        free.give(start, 64)


def test_arrays_of_others_are_not_taken_for_shared_ones() -> None:
    arena = Arena(SIZE)
    block = arena.take(1024)
    assert block is not None
    inside = block.array(64, (4, 4), np.float32)
    assert arena.offset_of(inside) == block.offset + 64
    assert arena.offset_of(np.zeros(4, np.float32)) is None
    del block, inside
    gc.collect()
    assert arena.free_bytes == arena.size
    arena.close_file()


answers = st.lists(
    st.tuples(st.integers(1, 8), st.one_of(st.none(), st.integers(), st.text()), st.binary(max_size=50)),
    max_size=8,
    unique_by=lambda answer: answer[0],
)


@settings(deadline=None)
@given(answers, st.lists(st.integers(1, 30), min_size=1, max_size=10))
def test_answers_are_put_together_from_pieces_of_any_size(
    given_answers: list[tuple[int, Any, bytes]], sizes: list[int]
) -> None:
    link = Link.__new__(Link)
    link._buffer = bytearray()
    replies = {number: Reply(None) for number, _, _ in given_answers}
    link._pending = dict(replies)
    stream = b""
    for number, value, payload in given_answers:
        body = json.dumps({"id": number, "value": value}).encode()
        stream += struct.pack("<II", len(body), len(payload)) + body + payload
    at = step = 0
    while at < len(stream):
        size = sizes[step % len(sizes)]
        link._take(stream[at : at + size])
        at, step = at + size, step + 1
    for number, value, payload in given_answers:
        assert replies[number].done
        assert replies[number].value == value
        assert replies[number].payload == payload
    assert link._pending == {}
    assert link._buffer == bytearray()
