"""A table with a policy is trained through the SIGKILL of a PS; rows go as a plain model says, by reason."""

import json
import subprocess
from collections import Counter

import numpy as np

import kintsugi
from kintsugi._processes import program

DIM = 2
TTL, RARE_TTL, SIGHTINGS = 30, 12, 3
BATCHES = 120
# Keys of every batch. Each shard has some of them, so each push is a step of all shards.
OFTEN = np.arange(10_000, 10_400)
# Keys of the first half, which expire.
EARLY = np.arange(20_000, 20_050)


class Model:
    """The rows of a table by key: the step in which each was last seen, and how often it was seen."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, int]] = {}
        self.gone = Counter(expired=0, rare=0, displaced=0, deleted=0, refused=0)
        self.step = 0

    def push(self, keys: list[int]) -> None:
        self.step += 1
        for key in keys:
            _, seen = self.rows.get(key, (0, 0))
            self.gone["refused"] += seen == 0
            self.rows[key] = (self.step, seen + 1)
        for key, (last, seen) in list(self.rows.items()):
            rare = seen < SIGHTINGS
            if self.step - last > (RARE_TTL if rare else TTL):
                self.gone["rare" if rare else "expired"] += 1
                del self.rows[key]

    def delete(self, keys: list[int]) -> None:
        for key in keys:
            self.gone["deleted"] += self.rows.pop(key, None) is not None

    def values(self, keys: list[int]) -> list[int]:
        """Each gradient adds one. The first of a row is dropped."""
        return [max(0, self.rows.get(key, (0, 0))[1] - 1) for key in keys]


def batch_of(number: int) -> np.ndarray:
    """Some keys come once, some in four batches, and some often until the middle."""
    once = np.random.default_rng(number).integers(100_000, 1_000_000, 20)
    four = np.arange(20) + 50_000 + 100 * (number // 4)
    early = EARLY[number % 2 :: 2] if number < BATCHES // 2 else EARLY[:0]
    return np.unique(np.concatenate([OFTEN, once, four, early]))


class Looked:
    """The answer of `kintsugi table show`: rows, and those that went, by PS."""

    def __init__(self, cluster: kintsugi.LocalCluster, name: str) -> None:
        command = [*program(), "table", "show", name, "--json", "--scheduler", cluster.address]
        answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        assert answer["missing"] == []
        self.rows: int = answer["rows"]
        self.nodes: dict[str, dict[str, int]] = answer["life"].pop("nodes")
        self.gone = Counter(answer["life"])


def test_rows_go_by_reason_as_in_a_model_through_the_kill_of_a_ps() -> None:
    with (
        kintsugi.start_local_cluster(ps=4, code="2+1") as cluster,
        kintsugi.connect(cluster.address, timeout=60) as client,
    ):
        policy = kintsugi.Policy(ttl=TTL, min_frequency=(SIGHTINGS, RARE_TTL), counter=2)
        optimizer = kintsugi.SGD(lr=-1)
        items = client.create_table(
            "items", DIM, optimizer=optimizer, initializer=kintsugi.Zeros(), policy=policy
        )
        model = Model()
        ever: set[int] = set()

        def train(keys: np.ndarray) -> None:
            items.push(keys, np.ones((len(keys), DIM), np.float32)).result()
            model.push(keys.tolist())
            ever.update(keys.tolist())

        def check() -> None:
            keys = sorted(ever)
            rows = items.pull(np.array(keys))
            assert (rows == np.array(model.values(keys), np.float32)[:, None]).all()

        lost: Counter[str] = Counter()
        for number in range(BATCHES):
            train(batch_of(number))
            if number % 10 == 5:
                some = [*OFTEN[number : number + 3].tolist(), 50_000, 7]
                items.delete(some)
                model.delete(some)
            if number == BATCHES // 2:
                check()
                # The counts of a PS are lost with it.
                looked = Looked(cluster, "items")
                killed = sorted(looked.nodes)[0]
                lost = Counter(looked.nodes[killed])
                cluster.kill(int(killed.removeprefix("ps-")))
        check()
        # Memory of rows that are gone is free, and they are counted, a little later.
        while Looked(cluster, "items").rows != len(model.rows):
            train(OFTEN)
        check()
        gone = Looked(cluster, "items").gone
        assert {reason: gone[reason] + lost[reason] for reason in model.gone} == dict(model.gone)
        assert all(model.gone[reason] > 0 for reason in ("expired", "rare", "deleted", "refused"))
        assert sum(lost.values()) > 0
