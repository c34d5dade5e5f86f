"""One client for all tests here: tables have names of their own."""

from collections.abc import Iterator

import pytest

import kintsugi


@pytest.fixture(scope="session")
def client(cluster: kintsugi.LocalCluster) -> Iterator[kintsugi.Client]:
    with kintsugi.connect(cluster.address, timeout=60) as client:
        yield client
