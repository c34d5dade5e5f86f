"""One job of real processes for the tests that break nothing of it."""

from collections.abc import Iterator

import pytest

import kintsugi


@pytest.fixture(scope="session")
def cluster() -> Iterator[kintsugi.LocalCluster]:
    with kintsugi.start_local_cluster(ps=3, code="2+1") as cluster:
        yield cluster


@pytest.fixture
def client(cluster: kintsugi.LocalCluster) -> Iterator[kintsugi.Client]:
    with kintsugi.connect(cluster.address, timeout=60) as client:
        yield client


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--programs", default="200", help="random programs of tests/semantics")
