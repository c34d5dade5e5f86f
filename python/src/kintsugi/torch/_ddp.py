"""Ranks of a process group that average the gradients of rows, and apply them once."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Sequence
from datetime import timedelta
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, distributed

from .._errors import Error
from .._link import Meanwhile
from .._steps import Counted

Ints = npt.NDArray[np.int64]


RANKS_SECONDS = 600.0
"""A rank waits so long for the others at every place of a step where they meet; then it fails."""

LOOK, STEP, AVERAGED, PUSHED = range(4)
"""Places of a step where ranks meet."""

_PLACES = ("a look at gradients", "a step()", "a step() after a look", "the end of a step()")


class Channel:
    """A process group. It has gloo channels of its own, so that nothing of DDP is between its messages.

    Ranks meet at the same places of a step, or all of them fail: nobody averages what is not of one step.
    """

    def __init__(self, group: Any, seconds: float) -> None:
        """@raises Error BAD_ARGUMENT: this process is not in the group."""
        self.world = distributed.get_world_size(group)
        self.rank = distributed.get_rank(group)
        if self.rank < 0:
            raise Error("BAD_ARGUMENT", "this process is not in the group")
        self.members = tuple(distributed.get_process_group_ranks(group))
        self._seconds = seconds
        self.meanwhile: Meanwhile | None = None
        """Called again and again while this rank waits for others."""
        self._broken: Error | None = None
        self._where = "the begin"
        self._group = distributed.new_group(
            list(self.members),
            timeout=timedelta(seconds=seconds),
            backend="gloo",
            use_local_synchronization=True,
        )

    def meet(self, place: int, step: int, numbers: Sequence[int]) -> Tensor:
        """Waits for all ranks at the same place of a step. Numbers of each: ranks x len(numbers).

        @raises Error TIMEOUT, UNREACHABLE; BAD_ARGUMENT: some are elsewhere. Then all ranks raise it.
        """
        self._where = f"{_PLACES[place]} of step {step}"
        every = torch.stack(self.gathered(torch.tensor([place, step, *numbers], device="cpu")))
        if not torch.equal(every[:, :2], every[:1, :2].expand(self.world, 2)):
            where = [f"at {_PLACES[at]} of step {number}" for at, number in every[:, :2].tolist()]
            text = f"rank 0 is {where[0]}"
            text += "".join(f", rank {rank} {each}" for rank, each in enumerate(where) if rank > 0)
            raise Error("BAD_ARGUMENT", f"all ranks look at gradients of rows and step alike: {text}")
        return every[:, 2:]

    def gathered(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all ranks. After a failure the channels are of no use any more."""
        if self._broken is not None:
            raise self._broken
        gathered = [torch.empty_like(tensor) for _ in range(self.world)]
        try:
            work: Any = distributed.all_gather(gathered, tensor, group=self._group, async_op=True)
            if self.meanwhile is not None:
                done = Event()
                work.get_future().add_done_callback(lambda _: done.set())
                while not done.wait(self.meanwhile.seconds):
                    self.meanwhile.act()
            work.wait()
        except RuntimeError as error:
            self._broken = self._failure(str(error))
            raise self._broken from error
        return gathered

    def objects(self, place: str, given: Any) -> list[Any]:
        """An object of each rank, pickled, at the same place of a data set.

        @raises Error TIMEOUT, UNREACHABLE; BAD_ARGUMENT: some are elsewhere. Then all ranks raise it.
        """
        self._where = f"{place} of a RangeDataset"
        content = torch.frombuffer(bytearray(pickle.dumps((place, given))), dtype=torch.uint8)
        sizes = [int(each) for each in self.gathered(torch.tensor([len(content)], device="cpu"))]
        padded = torch.cat([content, content.new_zeros(max(sizes) - len(content))])
        every = zip(self.gathered(padded), sizes, strict=True)
        told = [pickle.loads(each[:size].numpy().tobytes()) for each, size in every]
        if any(other != place for other, _ in told):
            where = [
                f"rank {rank} {'is ' if rank == 0 else ''}at {other}" for rank, (other, _) in enumerate(told)
            ]
            raise Error("BAD_ARGUMENT", f"all ranks ask for the same batches: {', '.join(where)}")
        return [each for _, each in told]

    def _failure(self, text: str) -> Error:
        where = f"at {self._where}"
        if "timed out" in text.lower():
            said = f"rank {self.rank} waited {self._seconds:g} s for the others {where}: all ranks look at "
            return Error("TIMEOUT", said + "gradients of rows and step alike")
        return Error("UNREACHABLE", f"a rank has ended, and rank {self.rank} is {where}: {text}")


class Ranks(Channel):
    """Ranks that average gradients."""

    def __init__(self, group: Any, tables: Sequence[str], counted: Sequence[str], seconds: float) -> None:
        """`tables`: names, sorted. `counted`: those of them that have counts.

        @raises Error BAD_ARGUMENT: other ranks have others.
        """
        super().__init__(group, seconds)
        for names, text in ((tables, "of different tables"), (counted, "that differ in count_duplicates")):
            mine = torch.tensor([zlib.crc32("\n".join(names).encode())], device="cpu")
            if any(not torch.equal(mine, other) for other in self.gathered(mine)):
                raise Error("BAD_ARGUMENT", f"ranks have layers {text}")

    def averaged(
        self, place: int, step: int, mine: Sequence[tuple[Ints, Tensor, Counted]]
    ) -> list[tuple[Ints, Tensor, Counted]] | None:
        """Per table the keys that any rank has a gradient of, sorted, and their mean: sum by number of ranks.

        `mine`: per table keys, each once, their gradients, len(keys) x dim, float32, and counts, which are
        summed; None for a table on all ranks, or on none. The sums are in the order of the ranks, so all
        ranks get the same bits. None: no rank has a gradient.

        @raises Error, as `meet`.
        """
        of_ranks = self.meet(place, step, [len(keys) for keys, _, _ in mine])
        if not of_ranks.any():
            return None
        # The counts of a table are behind its keys.
        named = np.concatenate(
            [each for keys, _, counts in mine for each in (keys, counts) if each is not None]
        )
        widths = [1 if counts is None else 2 for _, _, counts in mine]
        keys = self._parts(torch.from_numpy(named), of_ranks, widths)
        dims = [gradient.shape[1] for _, gradient, _ in mine]
        flat = torch.cat([gradient.reshape(-1) for _, gradient, _ in mine])
        gradients = self._parts(flat, of_ranks, dims)
        averaged = []
        for table, (dim, width) in enumerate(zip(dims, widths, strict=True)):
            every = [part[table].view(width, -1).numpy() for part in keys]
            union = np.unique(np.concatenate([of_rank[0] for of_rank in every]))
            total = torch.zeros(len(union), dim, dtype=torch.float32, device="cpu")
            counts = np.zeros(len(union), np.int64) if width == 2 else None
            for of_rank, part in zip(every, gradients, strict=True):
                at = np.searchsorted(union, of_rank[0])
                total.index_add_(0, torch.from_numpy(at), part[table].view(-1, dim))
                if counts is not None:
                    counts[at] += of_rank[1]
            averaged.append((union, total / self.world, counts))
        return averaged

    def _parts(self, flat: Tensor, of_ranks: Tensor, dims: list[int]) -> list[tuple[Tensor, ...]]:
        """The parts of each rank, cut into its tables."""
        sizes = of_ranks * torch.tensor(dims, device="cpu")
        most = int(sizes.sum(1).max())
        padded = torch.cat([flat, flat.new_zeros(most - len(flat))])
        return [
            whole[: int(size.sum())].split(size.tolist())
            for whole, size in zip(self.gathered(padded), sizes, strict=True)
        ]

    def share(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Keys that this rank pushes."""
        mine: npt.NDArray[np.bool_] = keys % np.uint64(self.world) == self.rank
        return mine

    def agree(self, step: int, error: BaseException | None) -> None:
        """Waits until all ranks have pushed. @raises Error: `error`, UNREACHABLE where others have one."""
        failed = self.meet(PUSHED, step, [int(error is not None)])
        if error is not None:
            raise error
        if failed.any():
            raise Error("UNREACHABLE", "another rank could not push its share of this step")
