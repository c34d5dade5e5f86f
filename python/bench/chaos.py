"""Trainers, gateways and PS are killed and stopped at random; every sample must be applied exactly once.

python python/bench/chaos.py [--minutes 5] [--seed 1] [--trainers 4] [--samples 200000] [--step]

A job of five PS with code 4+1. Half of the trainers start gateways of their own, and the others share one.
Each round is a data set of so many samples; every sample adds 1 to a row of its own, and to one that many
share. Trainers pull what they push. One that was killed is replaced. At the end of a round each row is
compared with what it must be, and at the end of all no process may be left.

With `--step` the trainers are programs of PyTorch: a `RangeDataset`, layers, and a `RowOptimizer` that steps
once for two micro-batches. The rows of samples have Adam, and are compared with those of `torch.optim.Adam`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

import kintsugi
from kintsugi import _reader
from kintsugi._processes import Process

BATCH = 64
SAMPLE_BYTES = 8
RANGE_BYTES = SAMPLE_BYTES * BATCH * 16
RESIDUES = 97
LEASE_MS = 2000
GAVE_UP = 3
"""Exit code of a trainer at whose request three gateways ended: docs/errors.md says UNREACHABLE then."""
MARK = "KINTSUGI_CHAOS_MARK"


def shared_rows(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Keys of the shared rows of samples: several samples of a batch have the same one."""
    rows: npt.NDArray[np.int64] = keys * keys % RESIDUES
    return rows


# ---- a trainer


def train(scheduler: str, gateway: str, run: str, samples: int, in_flight: int) -> None:
    with kintsugi.connect(scheduler, gateway=gateway, timeout=60) as client:
        tables = client.table(f"{run}-rows"), client.table(f"{run}-sums")
        files = [("numbers", samples * SAMPLE_BYTES)]
        data = client.dataset(run, files, batch=BATCH, range_bytes=RANGE_BYTES)
        while lease := data.acquire():
            pushes: deque[kintsugi.PushFuture] = deque()
            first, end = -(-lease.begin // SAMPLE_BYTES), -(-lease.end // SAMPLE_BYTES)
            for index, start in enumerate(range(first, end, BATCH)):
                keys = np.arange(start, min(end, start + BATCH))
                requests = list(zip(tables, (keys, shared_rows(keys)), strict=True))
                if lease.lost:
                    break
                if index < lease.done:
                    lease.skip(requests, len(keys))
                    continue
                rows = client.pull(requests)
                ones = [(*request, np.ones_like(each)) for request, each in zip(requests, rows, strict=True)]
                pushes.append(lease.push(ones, len(keys)))
                while len(pushes) > in_flight:
                    pushes.popleft().result()
            lease.finish()


def optimizers(step: bool) -> list[kintsugi.Optimizer]:
    """The optimizers of the rows of samples, and of those that many share."""
    counting = kintsugi.SGD(lr=-1)
    return [kintsugi.Adam(lr=0.1) if step else counting, counting]


def opened(client: kintsugi.Client, run: str, file: str) -> kintsugi.RangeDataset:
    """The samples of a round in step mode: a number in each line."""

    def read(lines: bytes, count: int) -> npt.NDArray[np.int64]:
        keys = np.array(lines.split(), np.int64)
        assert len(keys) == count
        return keys

    return kintsugi.RangeDataset(client, [file], batch=BATCH, run=run, reader=read)


def train_steps(scheduler: str, gateway: str, run: str, file: str) -> None:
    import torch

    import kintsugi.torch as kt

    torch.set_num_threads(1)
    with kintsugi.connect(scheduler, gateway=gateway, timeout=60) as client:
        rows, sums = (kt.KintsugiEmbedding(client, f"{run}-{name}") for name in ("rows", "sums"))
        optimizer = kt.RowOptimizer([rows, sums])
        for keys in opened(client, run, file):
            optimizer.zero_grad()
            for part in np.array_split(keys, 2):
                own, shared = rows(part), sums(shared_rows(part))
                ((own * gradients_of(part)).sum() + shared.sum()).backward()
            optimizer.step()


def gradients_of(keys: npt.NDArray[np.int64]) -> Any:
    """The gradient of the row of each sample, of its own size and sign: samples x 1."""
    import torch

    return torch.from_numpy(np.where(keys % 2 == 0, 1.0, -1.0) / (1 + keys % 7))[:, None].float()


def stepped_once(samples: int) -> Any:
    """The rows of samples after one step, by PyTorch: samples x 2."""
    import torch

    rows = torch.nn.Parameter(torch.zeros(samples, 2))
    rows.grad = gradients_of(np.arange(samples)).expand(-1, 2).clone()
    torch.optim.Adam([rows], lr=0.1).step()
    return rows.detach().numpy()


def trainer(arguments: list[str]) -> int:
    scheduler, gateway, run, samples, in_flight, file = arguments
    try:
        if file:
            train_steps(scheduler, gateway, run, file)
        else:
            train(scheduler, gateway, run, int(samples), int(in_flight))
    except kintsugi.Error as error:
        if error.code == "UNREACHABLE" and "gateways ended" in str(error):
            return GAVE_UP
        raise
    return 0


# ---- who kills them


def processes(found: Callable[[Path], bool]) -> list[int]:
    """Ids of the processes of this machine for whose folder in /proc `found` holds."""
    pids = []
    for entry in Path("/proc").iterdir():
        # The process may end while it is looked at.
        with contextlib.suppress(OSError, IndexError):
            if entry.name.isdigit() and found(entry):
                pids.append(int(entry.name))
    return pids


def gateways_of(pid: int) -> list[int]:
    def is_one(entry: Path) -> bool:
        parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        return parent == pid and b"\0gateway\0" in (entry / "cmdline").read_bytes()

    return processes(is_one)


class SharedGateway:
    """A process that is started again by nobody but this program."""

    def __init__(self, scheduler: str, folder: str) -> None:
        self.path = f"{folder}/gateway.sock"
        self._command = ["gateway", "--scheduler", scheduler, "--socket", self.path]
        self.start()

    def start(self) -> None:
        self.process = Process(self._command, stdout=True)
        self.process.stdout.readline()


class Chaos:
    """A round after the other."""

    def __init__(self, flags: argparse.Namespace, cluster: kintsugi.LocalCluster, folder: str) -> None:
        self.flags = flags
        self.cluster = cluster
        self.random = random.Random(flags.seed)
        self.shared = SharedGateway(cluster.address, folder)
        self.client = kintsugi.connect(cluster.address, timeout=60)
        self.trainers: dict[int, subprocess.Popen[bytes]] = {}
        self.done: Counter[str] = Counter()
        self.later: list[tuple[float, Callable[[], None]]] = []
        """Times at which faults are to be ended, and the functions that end them."""
        self.ps_down = False
        self.struck_at = 0
        """Rows of the round that there were at the last strike."""
        self.file = ""
        """Samples of all rounds, in step mode."""
        if flags.step:
            self.file = f"{folder}/samples.tsv"
            Path(self.file).write_text("".join(f"{number:07}\n" for number in range(flags.samples)))

    def close(self) -> None:
        for _, go_on in self.later:
            go_on()
        for each in self.trainers.values():
            each.kill()
            each.wait()
        self.client.close()
        self.shared.process.kill()

    # ---- a round

    def round(self, number: int) -> None:
        run, samples = f"round-{number}", self.flags.samples
        rows, sums = (
            self.client.create_table(f"{run}-{name}", dim, optimizer=optimizer, initializer=kintsugi.Zeros())
            for name, dim, optimizer in zip(
                ("rows", "sums"), (2, 8), optimizers(self.flags.step), strict=True
            )
        )
        begin, before = time.monotonic(), Counter(self.done)
        self.struck_at = 0
        due = begin + self._pause()
        for place in range(self.flags.trainers):
            self._start(place, run)
        while self.trainers:
            now = time.monotonic()
            for each in [each for each in self.later if each[0] <= now]:
                self.later.remove(each)
                each[1]()
            if now >= due:
                if self._has_progressed(rows):
                    self._strike()
                due = time.monotonic() + self._pause()
            self._reap(run)
            time.sleep(0.02)
        self._check(run, rows, sums)
        struck = Counter(self.done) - before
        said = ", ".join(f"{count} x {what}" for what, count in sorted(struck.items()))
        print(f"round {number}: {samples:,} samples exactly once, {time.monotonic() - begin:.0f} s: {said}")
        sys.stdout.flush()

    def _has_progressed(self, rows: kintsugi.Table) -> bool:
        """In step mode whether an eighth of the samples came since the last strike: a start takes seconds."""
        count = len(rows) if self.file else 0
        if self.file and count - self.struck_at < self.flags.samples // 8:
            return False
        self.struck_at = count
        return True

    def _pause(self) -> float:
        every: float = self.flags.every
        return self.random.uniform(0.2, 1.8) * every

    def _start(self, place: int, run: str) -> None:
        gateway = "spawn" if place % 2 == 0 else f"unix:{self.shared.path}"
        arguments = [
            self.cluster.address,
            gateway,
            run,
            str(self.flags.samples),
            str(place // 2 * 4),
            self.file,
        ]
        command = [sys.executable, __file__, "--trainer", *arguments]
        self.trainers[place] = subprocess.Popen(command)

    def _reap(self, run: str) -> None:
        for place, process in list(self.trainers.items()):
            code = process.poll()
            if code is None:
                continue
            del self.trainers[place]
            if code == GAVE_UP:
                self.done["three gateways ended at one request"] += 1
            elif code not in (0, -signal.SIGKILL):
                raise SystemExit(f"a trainer ended with status {code}")
            if code != 0:
                self._start(place, run)

    def _check(self, run: str, rows: kintsugi.Table, sums: kintsugi.Table) -> None:
        samples = self.flags.samples
        files = [("numbers", samples * SAMPLE_BYTES)]
        with kintsugi.connect(self.cluster.address, timeout=60) as client:
            if self.file:
                status = opened(client, run, self.file).dataset.status()
            else:
                status = client.dataset(run, files, batch=BATCH, range_bytes=RANGE_BYTES).status()
        applied = rows.pull(np.arange(samples), state=True)
        expected = np.bincount(shared_rows(np.arange(samples)), minlength=RESIDUES)
        # Adam counts the steps of a row in its last value.
        counts = applied[:, -1:] if self.file else applied
        reference = stepped_once(samples) if self.file else np.ones((samples, 2))
        wrong = {
            "samples lost": int((counts < 1).any(axis=1).sum()),
            "samples applied twice or more": int((counts > 1).any(axis=1).sum()),
            "rows that are not those of the reference": int(
                (~np.isclose(applied[:, :2], reference, rtol=1e-5, atol=1e-7)).any(axis=1).sum()
            ),
            "rows that there should not be": len(rows) - samples,
            "shared rows that are wrong": int(
                (sums.pull(np.arange(RESIDUES)) != expected[:, None]).any(axis=1).sum()
            ),
            "samples that the job did not count": samples - status["samples"][0],
            "ranges set aside": len(status["setAside"]),
        }
        found = {what: count for what, count in wrong.items() if count != 0}
        if found or not status["complete"]:
            raise SystemExit(f"{run}: {found}, complete: {status['complete']}")

    # ---- strikes

    def _strike(self) -> None:
        strikes: list[tuple[int, Callable[[subprocess.Popen[bytes]], str | None]]] = [
            (3, self._kill_trainer),
            (3, self._kill_gateway),
            (2, self._stop_trainer),
            (1, self._stop_gateway),
            (2, self._kill_both),
            (2, self._kill_shared),
            (2, self._kill_ps),
        ]
        victim = self.random.choice(list(self.trainers.values()))
        (strike,) = self.random.choices([each for _, each in strikes], [weight for weight, _ in strikes])
        name = strike(victim)
        if name is not None:
            self.done[name] += 1

    def _kill_trainer(self, victim: subprocess.Popen[bytes]) -> str:
        victim.kill()
        return "trainer killed"

    def _signal_gateways(self, victim: subprocess.Popen[bytes], number: signal.Signals) -> list[int]:
        pids = gateways_of(victim.pid)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids

    def _kill_gateway(self, victim: subprocess.Popen[bytes]) -> str | None:
        return "gateway killed" if self._signal_gateways(victim, signal.SIGKILL) else None

    def _kill_both(self, victim: subprocess.Popen[bytes]) -> str:
        self._signal_gateways(victim, signal.SIGKILL)
        victim.kill()
        return "trainer and gateway killed"

    def _stop(self, pids: list[int]) -> bool:
        """SIGSTOP, and SIGCONT some time later: shorter or longer than a lease."""

        def go_on() -> None:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        self.later.append((time.monotonic() + self.random.uniform(0.2, 2) * LEASE_MS / 1000, go_on))
        return len(pids) > 0

    def _stop_trainer(self, victim: subprocess.Popen[bytes]) -> str:
        self._stop([victim.pid])
        return "trainer stopped"

    def _stop_gateway(self, victim: subprocess.Popen[bytes]) -> str | None:
        return "gateway stopped" if self._stop(gateways_of(victim.pid)) else None

    def _kill_shared(self, _: subprocess.Popen[bytes]) -> str:
        self.shared.process.kill()
        self.shared.start()
        return "shared gateway killed"

    def _kill_ps(self, _: subprocess.Popen[bytes]) -> str | None:
        # More than r at once would be lost, and the job says so: that is not what is tried here.
        if self.ps_down or self.client.status()["redundancy"] != "full":
            return None
        index = self.random.randrange(len(self.cluster))
        self.cluster.kill(index)
        self.ps_down = True

        def again() -> None:
            self.cluster.restart(index)
            self.ps_down = False

        self.later.append((time.monotonic() + self.random.uniform(0, 2), again))
        return "PS killed"


def left_behind(mark: str) -> list[int]:
    """Processes of this run, but for this one, and its reader of files, which ends with it."""
    ours = {os.getpid(), _reader._running and _reader._running.pid}
    wanted = f"{MARK}={mark}".encode()
    return [
        pid
        for pid in processes(lambda entry: wanted in (entry / "environ").read_bytes().split(b"\0"))
        if pid not in ours
    ]


def described(pid: int) -> str:
    """The state, age and command line of a process."""
    command = ["ps", "-o", "pid=,ppid=,stat=,etimes=,args=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or f"{pid} (ended now)"


def main() -> int:
    if sys.argv[1:2] == ["--trainer"]:
        return trainer(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5, help="no round begins later")
    parser.add_argument("--seed", type=int, default=1, help="of the strikes; their moments differ")
    parser.add_argument("--trainers", type=int, default=4)
    parser.add_argument("--samples", type=int, default=200_000, help="of a round")
    parser.add_argument("--every", type=float, default=1, help="seconds between strikes, on average")
    parser.add_argument("--step", action="store_true", help="trainers of PyTorch with a RowOptimizer")
    flags = parser.parse_args()
    mark = os.environ[MARK] = str(uuid4())
    end = time.monotonic() + flags.minutes * 60
    number = 0
    done: Counter[str] = Counter()
    limits = {"leaseMs": LEASE_MS}
    with (
        tempfile.TemporaryDirectory() as folder,
        kintsugi.start_local_cluster(ps=5, code="4+1", limits=limits) as cluster,
    ):
        chaos = Chaos(flags, cluster, folder)
        try:
            while number == 0 or time.monotonic() < end:
                number += 1
                chaos.round(number)
            done = chaos.done
        finally:
            chaos.close()
    # The gateways of trainers that were killed notice it by themselves.
    deadline = time.monotonic() + 10
    while (left := left_behind(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    if left:
        raise SystemExit(f"processes are left: {', '.join(map(described, left))}")
    print(f"{number} rounds, {number * flags.samples:,} samples, each applied once; no process is left")
    for what, count in sorted(done.items()):
        print(f"{count:6}  {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
