"""With packages that people train with: TorchRec, Lightning, Accelerate. Each is left out where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import kintsugi

pytest.importorskip("torch", reason="LEFT OUT: torch is not installed")
import torch
from torch import Tensor, nn

import kintsugi.torch as kt

LINES = 400
LOSS = nn.BCEWithLogitsLoss()
pytestmark = pytest.mark.filterwarnings("default")
"""Warnings of other packages are no failures here."""


def samples(client: kintsugi.Client, folder: Path) -> kintsugi.RangeDataset:
    path = folder / "train.tsv"
    path.write_text("".join(f"{key % 2}\t{key % 37:x}\t{key % 11:x}\n" for key in range(LINES)))
    return kintsugi.RangeDataset(
        client, [path], sparse=[1, 2], batch=10, run=f"run-{uuid4()}", tensors=True, audit=True
    )


class Model(nn.Module):
    def __init__(self, client: kintsugi.Client) -> None:
        super().__init__()
        self.rows = kt.KintsugiEmbedding(client, f"t-{uuid4()}", 8, fused=True)
        self.top = nn.Linear(16, 1)

    def forward(self, sparse: Tensor) -> Tensor:
        return self.top(self.rows(sparse).flatten(1)).squeeze(1)


def test_lightning(client: kintsugi.Client, tmp_path: Path) -> None:
    lightning: Any = pytest.importorskip("lightning", reason="LEFT OUT: lightning is not installed")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model(client)

        def training_step(self, dataloader_iter):  # type: ignore[no-untyped-def]
            # With an argument of this name Lightning reads nothing ahead.
            (_, sparse, label), _, _ = next(dataloader_iter)
            return LOSS(self.model(sparse), label)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), 1e-2)

    data = samples(client, tmp_path)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=str(tmp_path),
    )  # fmt: skip
    trainer.fit(Module(), data)
    assert data.report() == {"samples": LINES, "trained": LINES, "lost": 0, "duplicated": 0}


def test_accelerate(client: kintsugi.Client, tmp_path: Path) -> None:
    accelerate: Any = pytest.importorskip("accelerate", reason="LEFT OUT: accelerate is not installed")
    data = samples(client, tmp_path)
    accelerator = accelerate.Accelerator(cpu=True)
    model = Model(client)
    # Not the data: it would be read ahead.
    model, dense = accelerator.prepare(model, torch.optim.Adam(model.parameters(), 1e-2))
    for _, sparse, label in data:
        loss = LOSS(model(sparse), label)
        dense.zero_grad()
        accelerator.backward(loss)
        dense.step()
    assert data.report() == {"samples": LINES, "trained": LINES, "lost": 0, "duplicated": 0}


def test_torchrec_in_place(client: kintsugi.Client) -> None:
    torchrec: Any = pytest.importorskip("torchrec", reason="LEFT OUT: torchrec is not installed")
    name = f"t-{uuid4()}"
    theirs = torchrec.EmbeddingBagCollection(
        tables=[
            torchrec.EmbeddingBagConfig(
                name=name, embedding_dim=4, num_embeddings=10, feature_names=["a", "b"]
            )
        ]
    )
    ours = kt.EmbeddingBagCollection(
        client, [kt.EmbeddingBagConfig(name, 4, ["a", "b"], optimizer=kintsugi.SGD(lr=0.1))], fused=True
    )
    features = torchrec.KeyedJaggedTensor.from_lengths_sync(
        keys=["a", "b"], values=torch.tensor([1, 2, 3, 1, 9]), lengths=torch.tensor([2, 0, 1, 2])
    )
    weight = theirs.embedding_bags[name].weight
    with torch.no_grad():
        weight.copy_(torch.from_numpy(ours.tables[0].pull(torch.arange(10).numpy())))
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for _ in range(2):
        results = [each(features) for each in (theirs, ours)]
        assert results[0].keys() == results[1].keys()
        assert torch.allclose(results[0].values(), results[1].values(), atol=1e-6)
        optimizer.zero_grad()
        for result in results:
            (result.values() ** 2).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("sequences", [False, True])
def test_a_state_of_torchrec_goes_there_and_back(client: kintsugi.Client, sequences: bool) -> None:
    torchrec: Any = pytest.importorskip("torchrec", reason="LEFT OUT: torchrec is not installed")
    names = [f"t-{uuid4()}".replace("-", "_") for _ in range(2)]
    features = [["a", "b"], ["c"]]
    theirs_of = torchrec.EmbeddingCollection if sequences else torchrec.EmbeddingBagCollection
    config_of = torchrec.EmbeddingConfig if sequences else torchrec.EmbeddingBagConfig
    theirs = theirs_of(
        tables=[
            config_of(name=name, embedding_dim=4, num_embeddings=10, feature_names=each)
            for name, each in zip(names, features, strict=True)
        ]
    )
    ours: Any
    if sequences:
        ours = kt.EmbeddingCollection(
            client, [kt.EmbeddingConfig(name, 4, each) for name, each in zip(names, features, strict=True)]
        )
    else:
        ours = kt.EmbeddingBagCollection(
            client, [kt.EmbeddingBagConfig(name, 4, each) for name, each in zip(names, features, strict=True)]
        )
    model = nn.ModuleDict({"sparse": theirs, "top": nn.Linear(4, 1)})
    mine = nn.ModuleDict({"sparse": ours, "top": nn.Linear(4, 1)})
    # A checkpoint of TorchRec sets rows, and its names are those that this one gives.
    mine.load_state_dict(model.state_dict())
    given = torchrec.KeyedJaggedTensor.from_lengths_sync(
        keys=["a", "b", "c"],
        values=torch.tensor([1, 2, 3, 1, 9, 4]),
        lengths=torch.tensor([2, 0, 1, 2, 1, 0]),
    )
    results = [each(given) for each in (theirs, ours)]
    assert list(results[0].keys()) == list(results[1].keys())
    for feature in ("a", "b", "c"):
        parts = [each[feature].values() if sequences else each[feature] for each in results]
        torch.testing.assert_close(parts[0], parts[1])
    rows = kt.RowOptimizer(ours)
    loss = sum((each.values() if sequences else each).sum() for each in (ours(given)[f] for f in "abc"))
    loss.backward()
    rows.step()
    state = kt.torchrec_state_dict(ours, {name: range(10) for name in names})
    before = theirs.state_dict()
    assert list(state) == list(before)
    assert all(state[name].shape == before[name].shape for name in state)
    theirs.load_state_dict(state)
    for feature in ("a", "b", "c"):
        parts = [each(given)[feature] for each in (theirs, ours)]
        torch.testing.assert_close(*(each.values() if sequences else each for each in parts))
