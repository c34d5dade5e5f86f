"""`read_batches` in the workers of a DataLoader, however they start."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Files(IterableDataset):
    """Each worker reads some of the files."""

    def __init__(self, files: list[str]) -> None:
        self.files = files

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        mine = self.files if worker is None else self.files[worker.id :: worker.num_workers]
        for file in mine:
            for batch in kintsugi.read_batches([file], dense=[0], sparse=[1], batch=64, tensors=True):
                yield tuple(batch)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_read_what_one_process_reads(tmp_path: Path, method: str) -> None:
    files = []
    for n in range(4):
        path = tmp_path / f"{n}.tsv"
        path.write_text("".join(f"{1000 * n + i}\t{i:x}\n" for i in range(1000)))
        files.append(str(path))
    alone = sorted(batch[2].tolist() for batch in Files(files))
    assert sum(map(len, alone)) == 4000
    for _ in range(2):
        loader = DataLoader(Files(files), batch_size=None, num_workers=2, multiprocessing_context=method)
        batches = list(loader)
        assert sorted(batch[2].tolist() for batch in batches) == alone
        for dense, sparse, label in batches:
            assert (dense[:, 0] == label).all()
            assert (sparse[:, 0] == (1 << 32) + label.long() % 1000).all()
