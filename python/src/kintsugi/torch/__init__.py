"""Embedding layers for PyTorch whose rows are in tables of a job. Needs PyTorch 2.1 or newer.

They take the place of `nn.Embedding`, `nn.EmbeddingBag` and TorchRec's `EmbeddingBagCollection`. They have no
parameters: a backward pass pushes gradients, and the optimizer of the table applies them.
"""

try:
    import torch as _torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "kintsugi.torch needs PyTorch 2.1 or newer: pip install 'kintsugi-ps[torch]'", name="torch"
    ) from None
if not hasattr(_torch.Tensor, "register_post_accumulate_grad_hook"):
    raise ImportError(f"kintsugi.torch needs PyTorch 2.1 or newer, not {_torch.__version__}")

from ._collection import EmbeddingBagCollection, EmbeddingCollection
from ._configs import EmbeddingBagConfig, EmbeddingConfig
from ._dense import SharedOptimizer
from ._embedding import KintsugiEmbedding, KintsugiEmbeddingBag
from ._export import RowState, to_embedding_bag, torchrec_state_dict
from ._once import overwrite
from ._optimizer import RowOptimizer, clip_grad_norm_
from ._pipeline import Pipeline
from ._saving import load, save
from ._takers import step

__all__ = [
    "EmbeddingBagCollection",
    "EmbeddingBagConfig",
    "EmbeddingCollection",
    "EmbeddingConfig",
    "KintsugiEmbedding",
    "KintsugiEmbeddingBag",
    "Pipeline",
    "RowOptimizer",
    "RowState",
    "SharedOptimizer",
    "clip_grad_norm_",
    "load",
    "overwrite",
    "save",
    "step",
    "to_embedding_bag",
    "torchrec_state_dict",
]
