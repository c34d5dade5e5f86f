"""A trainer whose samples are numbers: every batch adds 1 to the rows of its samples.

`python trainer.py SCHEDULER RUN TABLE SAMPLES HANG_AFTER`: trains until all ranges are done. After HANG_AFTER
batches (-1: never) it says "hangs" and waits for a line before it goes on. At the end it says "done".
"""

import sys
from collections.abc import Callable

import numpy as np

import kintsugi

BATCH = 16
SAMPLE_BYTES = 8


def train(
    client: kintsugi.Client, run: str, table: str, samples: int, after_batch: Callable[[], None]
) -> None:
    data = client.dataset(
        run, [("numbers", samples * SAMPLE_BYTES)], batch=BATCH, range_bytes=SAMPLE_BYTES * BATCH * 4
    )
    while lease := data.acquire():
        first, end = -(-lease.begin // SAMPLE_BYTES), -(-lease.end // SAMPLE_BYTES)
        for index, start in enumerate(range(first, end, BATCH)):
            keys = np.arange(start, min(end, start + BATCH))
            if lease.lost:
                break
            if index < lease.done:
                lease.skip([(table, keys)], len(keys))
                continue
            lease.push([(table, keys, np.ones((len(keys), 2)))], len(keys)).result()
            after_batch()
        lease.finish()


def main() -> None:
    scheduler, run, table, samples, hang_after = sys.argv[1:]
    batches = 0

    def after_batch() -> None:
        nonlocal batches
        batches += 1
        if batches == int(hang_after):
            print("hangs", flush=True)
            sys.stdin.readline()

    with kintsugi.connect(scheduler, timeout=60) as client:
        train(client, run, table, int(samples), after_batch)
    print("done", flush=True)


if __name__ == "__main__":
    main()
