"""Files of samples that the trainers of a run share: each sample is trained exactly once per epoch."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._answers import RangeReport
from ._batches import Batch, Lines, SchemaBatch, tensors_of
from ._checks import flag, integer, listed, number, path, shown, text
from ._columns import Columns, KeyKind, Schema
from ._dataset import Dataset, Lease, kept
from ._errors import Error
from ._range_work import Named, Work, after, wait
from ._reader import Source
from ._steps import steps_of

if TYPE_CHECKING:
    from ._arrays import Keys
    from ._client import Client
    from ._range_ranks import RangeRanks
    from ._tables import Table

RANGE_BATCHES = 32
"""Batches of a range, about: it is what a lost trainer's successor may have to read again."""

LEFT_RANGES = 8
"""Ranges that were left or lost whose batches are known as trained here, at most: their keys are kept."""

FOLLOW_SECONDS = 0.2
"""Files that grow are looked at so often while nothing of them is left to train."""


def read_batches(
    files: Sequence[str | os.PathLike[str]],
    *,
    dense: Sequence[int] | Sequence[str] = (),
    sparse: Sequence[int] | Sequence[str] = (),
    label: int | str = 0,
    batch: int,
    keys: KeyKind = "hex",
    schema: Schema | None = None,
    tensors: bool = False,
) -> Iterator[Any]:
    """The batches of files as `RangeDataset` gives them, without a job: to test what was trained.

    The files are read by a process beside this one, some batches ahead.

    @raises Error BAD_DATA, BAD_ARGUMENT, DEPENDENCY_MISSING, SYSTEM_LIMIT, UNREACHABLE.
    """
    batch, tensors = integer(batch, "batch", 1), flag(tensors, "tensors")
    return _batches(_paths(files), Columns(dense, sparse, label, keys, schema), batch, tensors)


def _paths(files: Any) -> list[str]:
    return [path(file, "each of files") for file in listed(files, "files", "paths")]


def _batches(files: list[str], columns: Columns, batch: int, tensors: bool) -> Iterator[Any]:
    for each in Source(files, columns.layout()).batches(batch):
        yield tensors_of(each) if tensors else each


def _ranks_of(group: Any, timeout: float, batch: int, follow: bool) -> RangeRanks | None:
    """@raises Error BAD_ARGUMENT."""
    timeout = number(timeout, "timeout")
    if timeout <= 0:
        raise Error("BAD_ARGUMENT", "timeout must be above 0")
    if group is None:
        return None
    from ._range_ranks import RangeRanks

    ranks = RangeRanks(group, timeout)
    if batch % ranks.world != 0:
        text = (
            f"batch must be a multiple of the {ranks.world} ranks of the group, which share it, not {batch}"
        )
        raise Error("BAD_ARGUMENT", text)
    if follow:
        raise Error("BAD_ARGUMENT", "files that grow are for trainers without a group")
    return ranks


class RangeDataset:
    """Samples of files, each trained exactly once per epoch, however many trainers there are.

    Iterating gives batches, `(dense, sparse, label)`: float32 of samples x dense columns, int64 keys of
    samples x sparse columns, float32 of samples. With a `schema` they are `SchemaBatch`. What layers of
    `kintsugi.torch` over the same client look up for a batch is its gradient, pushed when the next batch is
    asked for; where the loop is left, if optimizers have stepped all of it. A batch is trained in the thread
    that takes it. A batch that was made durable by a trainer that is gone may be given once more; its
    gradients are dropped then. A loop that is left and begun again goes on with the batch after those that
    this object has had trained; one that was given and not pushed is given again.

    `client`: works on one data set. `files`: the same in every trainer: files, folders and patterns, on disk
    or in an object store (s3://). Their endings say the format: .csv, .jsonl, .ndjson, .json, .parquet, else
    TSV, and .gz or .zst behind it. `dense`, `sparse`, `label` (default: 0): columns, by name, or in CSV and
    TSV files without a header by position from 0. `keys`: what sparse columns hold: "hex" (the default; up to
    8 digits), "integer" (up to 9 digits) or "text", which is hashed. Each column has keys of its own, and an
    empty field one, too: those of `kintsugi worker` for the Criteo layout. `schema`: in place of these
    four, what `--schema` of `kintsugi worker` takes, with the same keys. `batch`: samples. `run`: trainers
    that give the same one share the samples. `shuffle`: ranges in an order that `seed` chooses. `tensors`:
    give PyTorch's tensors. `reader`: takes the bytes of whole lines and their number and gives the batch, any
    object, in place of the columns. `follow`: the files grow, and batches come without an end, as
    whole lines do; some have fewer samples. Leave the loop, and close the client. `audit`: a table
    `RUN-audit` counts how often each batch was applied, for `report`. `group`: the ranks of this process
    group of `torch.distributed` are one trainer. Each gets its part of every batch, whose samples are a
    multiple of the ranks; where that of the end of a range is none, all ranks get it in whole. Rows need a
    `RowOptimizer` of the same group. `timeout`: seconds that a rank waits for the others.

    @raises Error BAD_DATA, BAD_ARGUMENT (registered with other files or another batch); with a group TIMEOUT
    and UNREACHABLE, where ranks do not the same.
    """

    def __init__(
        self,
        client: Client,
        files: Sequence[str | os.PathLike[str]],
        *,
        dense: Sequence[int] | Sequence[str] = (),
        sparse: Sequence[int] | Sequence[str] = (),
        label: int | str = 0,
        batch: int,
        epochs: int = 1,
        run: str = "train",
        seed: int = 0,
        shuffle: bool = False,
        keys: KeyKind = "hex",
        schema: Schema | None = None,
        tensors: bool = False,
        reader: Callable[[bytes, int], Any] | None = None,
        follow: bool = False,
        audit: bool = False,
        group: Any = None,
        timeout: float = 600.0,
    ) -> None:
        from ._specs import SGD, Zeros

        self.client = client
        self.epochs = epochs
        self.on_batch: Callable[[int], None] | None = None
        """Is told the samples of each batch when its gradients are on their way."""
        self.on_range: dict[str, Callable[[], None]] = {}
        """Called, by their names, when a range is finished, and nothing of this process is under way."""
        self._ended: dict[int, list[Named]] = {}
        """Keys that batches of ranges have named which were trained here, by the number of the range."""
        self._follow = follow
        paths = _paths(files)
        if not paths:
            raise Error("BAD_ARGUMENT", "a data set needs files")
        batch, epochs, seed = (
            integer(batch, "batch", 1), integer(epochs, "epochs", 1), integer(seed, "seed", 0),
        )  # fmt: skip
        follow, shuffle = flag(follow, "follow"), flag(shuffle, "shuffle")
        tensors, audit = flag(tensors, "tensors"), flag(audit, "audit")
        run = text(run, "run")
        if reader is not None and not callable(reader):
            raise Error("BAD_ARGUMENT", f"reader must be a function, not {shown(reader)}")
        if follow and (epochs != 1 or shuffle):
            raise Error("BAD_ARGUMENT", "files that grow are trained once, in their order")
        self.ranks = _ranks_of(group, timeout, batch, follow)
        self._tensors = tensors
        self._reader = reader
        columns = Columns(dense, sparse, label, keys, schema)
        self._source = Source(
            paths, columns.layout() if reader is None else {"header": isinstance(label, str)}
        )
        self.audit = (
            client.create_table(
                f"{run}-audit", 2, optimizer=SGD(lr=-1), initializer=Zeros(), pool="embedding"
            )
            if audit
            else None
        )
        parts = self._source.parts
        self._sizes = [0] * len(parts)
        """Place up to which each growing file is known to have whole lines."""
        self.dataset = Dataset(
            client._tables,
            {
                "name": run,
                "files": [[part["name"], part["size"], part["mark"]] for part in parts],
                "rangeBytes": [
                    max(part.get("least", 1), math.ceil(RANGE_BATCHES * batch * part.get("perSample", 1)) + 1)
                    for part in parts
                ],
                "batch": batch,
                "epochs": epochs,
                "seed": seed,
                "shuffle": shuffle,
                "follow": follow,
                **({} if self._source.meaning is None else {"schema": self._source.meaning}),
            },
        )

    def __iter__(self) -> Iterator[Any]:
        """Batches, until all ranges of all epochs are finished. A batch is pushed when the next is asked for.

        @raises Error BAD_DATA, and what pushes raise.
        """
        if self.ranks is not None:
            yield from self._together(self.ranks)
            return
        works = self.works()
        work = next(works, None)
        steps = steps_of(self.client)
        while work is not None:
            with work.current():
                steps.begin()
                try:
                    yield work.batch
                except GeneratorExit:
                    work.leave()
                    raise
                pushed = work.push()
            if work.last:
                wait(pushed)
                work.finish()
                work = next(works, None)
                continue
            try:
                # Read while the push is on its way.
                following = next(works, None)
            finally:
                wait(pushed)
            # The remaining batches of a range that another trainer has by now are not this trainer's.
            while following is not None and following.lease.lost:
                following = next(works, None)
            work = following
        steps.begin()

    def _together(self, ranks: RangeRanks) -> Iterator[Any]:
        """Batches of this rank. All ranks come to the next one when the push of that before is durable."""
        while (lease := ranks.lease(self.dataset)) is not None:
            works = self._range(lease)
            work = ranks.agreed(lease, "the begin", functools.partial(next, works, None))
            while work is not None and not lease.lost:
                with work.current():
                    yield work.batch
                    place = f"batch {work.index}"
                    following = ranks.agreed(lease, place, functools.partial(after, work, works))
                if work.last and not lease.lost:
                    ranks.agreed(lease, "the end", work.finish)
                    # The range ends here, so that a generator that is closed has none to give back.
                    next(works, None)
                work = following

    def works(self) -> Iterator[Work]:
        """Batches with their ranges. The caller pushes each, in order, and ends its range."""
        while (lease := self._acquire()) is not None:
            yield from self._range(lease)

    def _acquire(self) -> Lease | None:
        if not self._follow:
            return self.dataset.acquire()
        while True:
            # Another trainer may have told the job of lines that this one has not seen.
            self._sizes = [max(pair) for pair in zip(self._sizes, self._seen(), strict=True)]
            try:
                return self.dataset.acquire(FOLLOW_SECONDS)
            except TimeoutError:
                continue

    def _seen(self) -> list[int]:
        sizes = [max(pair) for pair in zip(self._sizes, self._source.sizes(), strict=True)]
        return self.dataset.extend(sizes) if sizes != self._sizes else sizes

    def _range(self, lease: Lease) -> Iterator[Work]:
        waiting = None
        index = 0
        trained = self._ended.get(lease.number, [])
        try:
            span = lease.file, lease.begin, lease.end
            share = (0, 1) if self.ranks is None else (self.ranks.rank, self.ranks.world)
            # A packed file is read from its begin, and a store may be slow.
            for read, samples in self._source.shares(self.dataset.batch, span, share, kept(lease)):
                if waiting is not None:
                    yield waiting
                    if lease.lost:
                        return
                elif index < min(lease.done, len(trained)):
                    # The dense parameters of this process have seen it, too.
                    lease.skip(trained[index], samples)
                    index += 1
                    continue
                batch = self._given(read)
                key = (lease.epoch << 52) | (lease.file << 44) | (lease.begin + index)
                waiting = Work(self, lease, index, batch, samples, key, last=False)
                index += 1
            if waiting is not None:
                waiting.last = True
                yield waiting
            else:
                self.finish(lease)
        except GeneratorExit:
            if not lease.finished:
                lease.give_back()
            raise
        except Error as error:
            if error.code == "BAD_DATA":
                error.batch = index
                lease.fail(index, str(error), error.code)
            raise

    def ended(self, lease: Lease, index: int, named: Named) -> None:
        """A batch of a range was trained here: an iterator that comes to it again passes over it."""
        trained = self._ended.pop(lease.number, [])
        if index <= len(trained):
            trained[index : index + 1] = [named]
        self._ended[lease.number] = trained
        if len(self._ended) > LEFT_RANGES:
            del self._ended[next(iter(self._ended))]

    def finish(self, lease: Lease) -> None:
        """Ends a range: returns when all its batches are durable. @raises Error: what a push of it raised."""
        lease.finish()
        # All ranks of a group forget it, and one of them alone may know yet that it is lost.
        self._ended.pop(lease.number, None)
        for each in list(self.on_range.values()):
            each()

    def _given(self, read: Batch | SchemaBatch | Lines) -> Any:
        """A batch as the loop gets it."""
        if isinstance(read, Lines):
            assert self._reader is not None
            return self._reader(read.content, read.samples)
        return tensors_of(read) if self._tensors else read

    def unstepped(self, left: Sequence[tuple[Table, Keys]]) -> list[tuple[Table, Keys]]:
        """Tables whose rows stand for keys without a step: a shard counts them, and nothing changes."""
        pools: dict[str, list[Keys]] = {}
        for table, keys in left:
            pools.setdefault(table.pool, []).append(keys)
        return [
            (self._unstepped(pool), np.unique(np.concatenate(keys))) for pool, keys in sorted(pools.items())
        ]

    def _unstepped(self, pool: str) -> Table:
        from ._specs import SGD, Zeros

        name = f"{self.dataset.name}-unstepped" + ("" if pool == "embedding" else f"-{pool}")
        return self.client.create_table(name, 1, optimizer=SGD(lr=0.0), initializer=Zeros(), pool=pool)

    def report(self) -> RangeReport:
        """Counts of the training: samples of all files and epochs, and how many the job counted.

        With `audit` also how many were lost, and how many batches were applied twice or more.

        @raises Error.
        """
        samples = self._source.count() * self.epochs
        trained = sum(self.dataset.status()["samples"])
        found: RangeReport = {"samples": samples, "trained": trained}
        if self.audit is not None:
            applied = [rows for _, rows in self.audit.items()]
            counts = np.concatenate(applied) if applied else np.zeros((0, 2), np.float32)
            once = counts[:, 1] / np.maximum(counts[:, 0], 1)
            found["lost"] = samples - int(once.sum())
            found["duplicated"] = int((counts[:, 0] - 1).sum())
        return found
