"""A program finds its job by the variables that the operator of Kubernetes sets."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import kintsugi

POD = {
    "KINTSUGI_SCHEDULER": "small-scheduler.ml.svc:7077",
    "KINTSUGI_TOKEN": "secret",
    "KINTSUGI_JOB": "small",
    "KINTSUGI_RUN": "day-1",
    "POD_NAME": "small-worker-0",
}
RANKS = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "small", "MASTER_PORT": "29500"}


def test_the_job_is_found_and_its_token_is_not_shown() -> None:
    env = kintsugi.from_env(POD)
    assert (env.scheduler, env.token, env.job) == ("small-scheduler.ml.svc:7077", "secret", "small")
    assert (env.run, env.name, env.ranks, env.tls_ca) == ("day-1", "small-worker-0", None, None)
    assert "secret" not in repr(env)
    assert kintsugi.from_env({"KINTSUGI_SCHEDULER": "h:1", "KINTSUGI_TOKEN": ""}).token is None


def test_ranks_are_there_only_where_they_are_set() -> None:
    ranks = kintsugi.from_env({**POD, **RANKS}).ranks
    assert ranks is not None
    assert (ranks.rank, ranks.world_size, ranks.local_rank, ranks.master) == (1, 2, 0, "small:29500")


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({}, "KINTSUGI_SCHEDULER is not set"),
        (
            {**POD, "RANK": "0", "WORLD_SIZE": "2"},
            "RANK, WORLD_SIZE are set, and MASTER_ADDR, MASTER_PORT are",
        ),
        ({**POD, **RANKS, "RANK": "2"}, "RANK 2 is not below WORLD_SIZE 2"),
        ({**POD, **RANKS, "RANK": "x"}, "RANK must be a number from 0, not 'x'"),
    ],
)
def test_what_is_wrong_is_said(variables: dict[str, str], text: str) -> None:
    with pytest.raises(kintsugi.Error, match=re.escape(text)) as told:
        kintsugi.from_env(variables)
    assert told.value.code == "BAD_ARGUMENT"


def test_results_are_one_line_of_json(tmp_path: Path) -> None:
    file = tmp_path / "results"
    env = kintsugi.from_env({**POD, "KINTSUGI_RESULTS": str(file)})
    env.report(auc=np.float32(0.5), samples=np.int64(7), train_loss=float("nan"), mine="x")
    assert json.loads(file.read_text()) == {"auc": 0.5, "samples": 7, "trainLoss": None, "mine": "x"}
    kintsugi.from_env(POD).report(auc=0.5)
    for value in (object(), "x" * 4096):
        with pytest.raises(kintsugi.Error, match="report:"):
            env.report(mine=value)
    assert "auc" in file.read_text()


def test_a_client_of_the_job(cluster: kintsugi.LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINTSUGI_SCHEDULER", cluster.address)
    with kintsugi.from_env().connect() as client:
        assert client.status()["redundancy"] == "full"
