"""Types of answers have the fields that a job gives, and that its source declares."""

import re
from pathlib import Path
from typing import Any

import pytest

import kintsugi

PROTOCOL = Path(__file__).parents[2] / "src" / "protocol"


def declared(name: str, file: str) -> tuple[set[str], set[str]]:
    """Names of fields that are always there, and of others."""
    text = (PROTOCOL / file).read_text()
    body = re.search(rf"export interface {name} {{\n(.*?)\n}}", text, re.DOTALL)
    assert body is not None
    fields = re.findall(r"^  (\w+)(\??):", body[1], re.MULTILINE)
    return {field for field, mark in fields if not mark}, {field for field, mark in fields if mark}


@pytest.mark.parametrize(
    ("kind", "name", "file"),
    [
        (kintsugi.JobStatus, "JobStatus", "status.ts"),
        (kintsugi.NodeStatus, "NodeStatus", "status.ts"),
        (kintsugi.RecoveryStatus, "RecoveryStats", "status.ts"),
        (kintsugi.ScalingStatus, "ScalingStatus", "status.ts"),
        (kintsugi.DatasetStatus, "DatasetStatus", "samples.ts"),
    ],
)
def test_fields_are_those_of_the_protocol(kind: Any, name: str, file: str) -> None:
    always, sometimes = declared(name, file)
    assert kind.__required_keys__ == always
    assert kind.__optional_keys__ == sometimes


def test_a_job_gives_them(cluster: kintsugi.LocalCluster) -> None:
    with kintsugi.connect(cluster.address) as client:
        client.create_table("answers", 4)
        client.create_table("answers-policy", 4, policy=kintsugi.Policy(ttl=500))
        status = client.status()
    assert status.keys() >= kintsugi.JobStatus.__required_keys__
    assert status["redundancy"] == "full"
    for kind, values in (
        (kintsugi.NodeStatus, status["nodes"]),
        (kintsugi.PoolStatus, status["pools"]),
        (kintsugi.TableStatus, status["tables"]),
    ):
        found: Any = kind
        assert values
        for each in values:
            assert found.__required_keys__ <= each.keys()
            assert each.keys() <= found.__required_keys__ | found.__optional_keys__
