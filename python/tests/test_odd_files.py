"""The odd files of the reader's own tests, read from Python: identical keys and values, or errors."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kintsugi

ROOT = Path(__file__).resolve().parents[2]
TABLES = tuple(f"test/data/odd-{name}.test.ts" for name in ("files", "cells", "parquet"))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("odd")
    done = subprocess.run(
        ["node", str(ROOT / "node_modules/vitest/vitest.mjs"), "run", *TABLES],
        cwd=ROOT,
        env={**os.environ, "KINTSUGI_ODD_FILES": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(folder.iterdir())


def keys_in(batch: kintsugi.SchemaBatch) -> list[int]:
    keys: list[int] = []
    for column in batch.sparse.values():
        found = column.keys if isinstance(column, kintsugi.Values) else column
        keys += found.view(np.uint64).tolist()
    return keys


def answer_of(file: Path, schema: dict[str, Any], batch: int) -> dict[str, Any]:
    answer: dict[str, Any] = {"keys": [], "dense": [], "labels": []}
    try:
        for each in kintsugi.read_batches([file], schema=schema, batch=batch):
            answer["keys"] += [str(key) for key in keys_in(each)]
            answer["dense"] += each.dense.reshape(-1).tolist()
            answer["labels"] += each.label.tolist()
    except kintsugi.Error as error:
        return {"code": error.code, "error": str(error.args[0]).replace(str(file), "")}
    return answer


def test_every_odd_file_is_read_as_the_reader_reads_it(kept: list[Path]) -> None:
    assert len(kept) > 150
    endings = set()
    for place in kept:
        told = json.loads((place / "kept.json").read_text())
        file = place / told["name"]
        endings.add(file.suffix)
        # Their tests read odd cells in batches of 100 and odd files in batches of 8; rows are as many keys.
        assert answer_of(file, told["schema"], 100_000) == told["answer"], (told, file.read_bytes()[:200])
    assert endings == {".csv", ".tsv", ".jsonl", ".parquet"}
