"""Memory that this process shares with its gateway, and who uses which part of it.

Blocks are given first fit, lowest address first: a program that needs little touches little, and touches it
again while it is in a cache. Only this process gives and takes blocks; the gateway is told offsets.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from bisect import bisect_left
from collections import deque
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64
"""Bytes: of a cache line, so that blocks of different requests never share one."""

_NONCE_BYTES = 16


class FreeList:
    """Which parts of `size` bytes are free. Knows nothing of memory."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._starts: list[int] = [0] if size > 0 else []
        self._ends: list[int] = [size] if size > 0 else []

    @property
    def free_bytes(self) -> int:
        """Bytes of all free parts together."""
        return sum(self._ends) - sum(self._starts)

    def take(self, size: int) -> int | None:
        """The start of `size` bytes that are now taken; None: no free part is as large."""
        for i, (start, end) in enumerate(zip(self._starts, self._ends, strict=True)):
            if end - start < size:
                continue
            if end - start == size:
                del self._starts[i], self._ends[i]
            else:
                self._starts[i] = start + size
            return start
        return None

    def give(self, start: int, size: int) -> None:
        """Frees what `take` gave."""
        end = start + size
        i = bisect_left(self._starts, start)
        if (i > 0 and self._ends[i - 1] > start) or (i < len(self._starts) and self._starts[i] < end):
            raise AssertionError(f"{size} bytes at {start} are free already")
        joins_left = i > 0 and self._ends[i - 1] == start
        joins_right = i < len(self._starts) and self._starts[i] == end
        if joins_left and joins_right:
            self._ends[i - 1] = self._ends[i]
            del self._starts[i], self._ends[i]
        elif joins_left:
            self._ends[i - 1] = end
        elif joins_right:
            self._starts[i] = start
        else:
            self._starts.insert(i, start)
            self._ends.insert(i, end)


class Block:
    """A part of an arena. It is free when nothing refers to it any more: no array, and no request."""

    __slots__ = ("arena", "offset", "size")

    def __init__(self, arena: Arena, offset: int, size: int) -> None:
        self.arena = arena
        self.offset = offset
        self.size = size

    def __del__(self) -> None:
        # Any thread, at any moment, also while it holds the lock: so it is only noted here.
        self.arena.returned.append((self.offset, self.size))

    def array(self, at: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array at byte `at` of the block; it, and every view of it, keeps the block."""
        return np.asarray(_Holder(self, self.arena.address + self.offset + at, shape, np.dtype(dtype).str))


class _Holder:
    """Owner of an array for numpy: the array keeps its block alive."""

    __slots__ = ("__array_interface__", "block")

    def __init__(self, block: Block, address: int, shape: tuple[int, ...], typestr: str) -> None:
        self.block = block
        self.__array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "typestr": typestr,
            "version": 3,
        }


class Arena:
    """Shared memory: anonymous, so nothing of it is left when the processes end."""

    def __init__(self, size: int, directory: str | None = None) -> None:
        """`directory`: on a volume that is memory, which a gateway in another container has, too."""
        self.size = max(mmap.PAGESIZE, size - size % mmap.PAGESIZE)
        self.path: str | None = None
        if directory is None:
            self.fd = os.memfd_create("kintsugi", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        else:
            self.fd, self.path = tempfile.mkstemp(prefix="kintsugi-", dir=directory)
        os.ftruncate(self.fd, self.size)
        if directory is None:
            # The gateway takes only memory that cannot shrink under it.
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
        self._map = mmap.mmap(self.fd, self.size)
        self.address: int = np.frombuffer(self._map, np.uint8).ctypes.data
        self.returned: deque[tuple[int, int]] = deque()
        self._free = FreeList(self.size)
        self._lock = Lock()

    def close_file(self) -> None:
        """The gateway has mapped it, or never will."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        if self.path is not None:
            os.unlink(self.path)
            self.path = None

    def place(self) -> tuple[dict[str, Any], Block]:
        """Where the gateway finds the arena, and bytes that it finds there.

        In the gateway's container another process may have the same number. Keep the block until the gateway
        has looked.
        """
        block = self.take(_NONCE_BYTES)
        assert block is not None
        nonce = os.urandom(_NONCE_BYTES)
        block.array(0, (_NONCE_BYTES,), np.uint8)[:] = list(nonce)
        where = {"pid": os.getpid(), "fd": self.fd} if self.path is None else {"path": self.path}
        return {**where, "bytes": self.size, "nonce": nonce.hex(), "nonceAt": block.offset}, block

    def take(self, size: int) -> Block | None:
        """A block of at least `size` bytes; None: there is no room now."""
        rounded = max(ALIGNMENT, size + (-size % ALIGNMENT))
        with self._lock:
            while self.returned:
                self._free.give(*self.returned.popleft())
            start = self._free.take(rounded)
        return None if start is None else Block(self, start, rounded)

    def offset_of(self, array: npt.NDArray[Any]) -> int | None:
        """Where an array lies in the arena; None: elsewhere."""
        at = array.__array_interface__["data"][0] - self.address
        return at if at >= 0 and at + array.nbytes <= self.size else None

    @property
    def free_bytes(self) -> int:
        """Bytes that may be taken, in one piece or several."""
        with self._lock:
            while self.returned:
                self._free.give(*self.returned.popleft())
            return self._free.free_bytes
