"""A PS is lost, and every row is as before."""

import numpy as np
import pytest

import kintsugi


def test_rows_survive_the_loss_of_a_ps() -> None:
    with (
        kintsugi.start_local_cluster(ps=5, code="4+1") as cluster,
        kintsugi.connect(cluster.address, timeout=60) as client,
    ):
        items = client.create_table("items", 16, optimizer=kintsugi.Adagrad(lr=0.1), seed=7)
        keys = np.arange(2000)
        gradients = np.random.default_rng(1).standard_normal((2000, 16), np.float32)
        for _ in range(3):
            items.push(keys, gradients).result()
        before = items.pull(keys, state=True)
        cluster.kill(0)
        assert (items.pull(keys, state=True) == before).all()
        items.push(keys, gradients).result()
        assert (items.pull(keys) != before[:, :16]).any()
        with pytest.raises(kintsugi.Error, match="there is no ps 5"):
            cluster.kill(5)
