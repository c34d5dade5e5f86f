"""Export to ONNX and back: a trained model for programs without a job, and its rows in another table.

python to_onnx.py                          # a job of its own
python to_onnx.py --scheduler host:7077    # one that runs

It needs the packages onnx, onnxscript and onnxruntime.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn

import kintsugi
from kintsugi.torch import KintsugiEmbeddingBag, RowOptimizer, to_embedding_bag

KEYS, SAMPLES = 300, 64
LIKED = torch.randn(KEYS, generator=torch.Generator().manual_seed(7))


class Model(nn.Module):
    """Bags of keys, and a small network above them."""

    def __init__(self, bag: nn.Module, top: nn.Module) -> None:
        super().__init__()
        self.bag = bag
        self.top = top

    def forward(self, keys: Tensor) -> Tensor:
        """Logits of samples."""
        return self.top(self.bag(keys)).squeeze(1)


def main() -> None:
    """Trains, exports, reads it again, and prints how far results are apart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scheduler", help="of a running job; without it one is started here")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if options.scheduler is None:
            cluster = stack.enter_context(kintsugi.start_local_cluster(ps=3, code="2+1"))
            options.scheduler = cluster.address
        client = stack.enter_context(kintsugi.connect(options.scheduler, timeout=60))
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model.onnx"
        run(client, options.steps, path)


def run(client: kintsugi.Client, steps: int, path: Path) -> None:
    """Bags that are exported take samples x keys, without offsets."""
    torch.manual_seed(1)
    bag = KintsugiEmbeddingBag(client, "exported", 16, mode="mean", optimizer=kintsugi.Adam(lr=0.02))
    model = Model(bag, nn.Linear(16, 1))
    train(model, steps)
    keys = torch.randint(0, KEYS, (SAMPLES, 3))
    wanted = model(keys).detach().numpy()

    # A plain module has the rows in place of the layer: it needs no job.
    plain = Model(to_embedding_bag(bag, keys=range(KEYS)), model.top).eval()
    samples = torch.export.Dim("samples", min=1)
    # Without `optimize=False` the rows are there, too, and under another name.
    torch.onnx.export(
        plain, (keys,), path, dynamo=True, dynamic_shapes=({0: samples},), verbose=False, optimize=False
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (name,) = (each.name for each in session.get_inputs())
    (exported,) = session.run(None, {name: keys.numpy()})
    print(f"exported: {np.abs(exported - wanted).max():.1e} apart")

    # Back: the names in the file are those of the plain module, and a layer takes them into its table.
    values = {each.name: onnx.numpy_helper.to_array(each) for each in onnx.load(path).graph.initializer}
    state = {
        name: torch.from_numpy(value.copy()) for name, value in values.items() if name in plain.state_dict()
    }
    again = Model(KintsugiEmbeddingBag(client, "read-again", 16, mode="mean"), nn.Linear(16, 1))
    again.load_state_dict(state)
    print(f"read again: {np.abs(again(keys).detach().numpy() - wanted).max():.1e} apart")


def train(model: Model, steps: int) -> None:
    """Some steps."""
    optimizers = [RowOptimizer(model), torch.optim.Adam(model.top.parameters(), lr=0.01)]
    for _ in range(steps):
        keys = torch.randint(0, KEYS, (SAMPLES, 3))
        label = (LIKED[keys].sum(1) > 0).float()
        for optimizer in optimizers:
            optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(keys), label).backward()
        for optimizer in optimizers:
            optimizer.step()


if __name__ == "__main__":
    main()
