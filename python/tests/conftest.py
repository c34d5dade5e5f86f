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


@pytest.fixture(params=[512 << 20, 0], ids=["shared", "socket"])
def either(request: pytest.FixtureRequest, cluster: kintsugi.LocalCluster) -> Iterator[kintsugi.Client]:
    """A client with shared memory, and one that sends rows over the socket."""
    with kintsugi.connect(cluster.address, timeout=60, memory_bytes=request.param) as client:
        assert client.shared == (request.param > 0)
        yield client


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--programs", default="200", help="random programs of tests/semantics")
