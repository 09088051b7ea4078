"""What the tests of the vision methods share: tiny backbones, views of tiny images, and losses written out densely."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tempplug_adapters.vision.barlow_twins import BarlowTwins
from tempplug_adapters.vision.moco import MoCo
from tempplug_adapters.vision.nnclr import NNCLR
from tempplug_adapters.vision.simclr import SimCLR
from tempplug_adapters.vision.simsiam import SimSiam
from tempplug_adapters.vision.supcon import SupCon

PIXELS = 3 * 2 * 2
REPRESENTATION = 6
EMBEDDING = 4
ROWS = 5

FIXED, MACL = "fixed:temperature=0.2", "macl"
AMCL = f"amcl:dimension={EMBEDDING},span=1.5,floor=0.2,beta=0.7"
BARLOW_AMCL = f"amcl:dimension={ROWS},span=1.5,floor=0.2,beta=0.7"
CONTRASTIVE = ("simclr", "supcon", "moco", "moco, symmetric", "nnclr")


class Toy(nn.Module):
    """Images to representations; with batch normalisation, what a batch holds changes every row."""

    dimension = REPRESENTATION

    def __init__(self, batch_norm: bool = False) -> None:
        super().__init__()
        normal = nn.BatchNorm1d(REPRESENTATION) if batch_norm else nn.Identity()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, REPRESENTATION), normal, nn.Tanh())
        self.calls = 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        representations: Tensor = self.layers(images)
        return representations


def head(inputs: int = REPRESENTATION) -> nn.Module:
    return nn.Linear(inputs, EMBEDDING)


def heads(count: int, inputs: int = REPRESENTATION) -> nn.ModuleList:
    return nn.ModuleList(head(inputs) for _ in range(count))


def create(name: str, strategy: str | None = FIXED, count: int = 1, batch_norm: bool = False, **options: Any) -> Any:
    projection, prediction = (head(), head(EMBEDDING)) if count == 1 else (heads(count), heads(count, EMBEDDING))
    backbone, queue = Toy(batch_norm), {"embedding_dimension": EMBEDDING, "queue_size": 7, **options}
    if name.startswith("moco"):
        return MoCo(backbone, projection, strategy, symmetric="symmetric" in name, **{"momentum": 0.9, **queue})
    if name == "nnclr":
        return NNCLR(backbone, projection, prediction, strategy, **queue)
    if name == "simsiam":
        return SimSiam(backbone, projection, prediction, strategy)
    kinds: dict[str, Any] = {"simclr": SimCLR, "supcon": SupCon, "barlow-twins": BarlowTwins}
    return kinds[name](backbone, projection, strategy, **options)


def views(rows: int = ROWS, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Two views of the same images: close, but not the same."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn(rows, 3, 2, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(2, rows, 3, 2, 2, generator=generator, dtype=torch.float64)
    return (image + 0.5 * noise[0]).to(dtype), (image + 0.5 * noise[1]).to(dtype)


def unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=1, keepdim=True)


def nt_xent(embeddings_a: Tensor, embeddings_b: Tensor, temperature: Tensor | float, left_out: Tensor | None = None) -> Tensor:
    """SimCLR's and lightly's loss: the cross entropy of each view's logits, without its own and those that are left out.

    ``temperature`` may be one of each of the 2B anchors.
    """
    together, count = unit(torch.cat([embeddings_a, embeddings_b])), len(embeddings_a)
    of_row = torch.as_tensor(temperature, dtype=together.dtype).expand(2 * count)[:, None]
    logits = (together @ together.T / of_row).masked_fill(torch.eye(2 * count, dtype=torch.bool), -torch.inf)
    logits = logits if left_out is None else logits.masked_fill(left_out, -torch.inf)
    return nn.functional.cross_entropy(logits, torch.arange(2 * count).roll(count))


def queue_loss(anchors: Tensor, keys: Tensor, queue: Tensor, temperature: Tensor | float) -> Tensor:
    """MoCo's loss: an anchor's own key against the queue."""
    positive = (unit(anchors) * unit(keys)).sum(1, keepdim=True)
    logits = torch.cat([positive, unit(anchors) @ unit(queue).T], dim=1) / temperature
    return (logits.logsumexp(1) - logits[:, 0]).mean()


def cross_loss(anchors: Tensor, candidates: Tensor, temperature: Tensor | float) -> Tensor:
    """Anchor i against all candidates, the i-th positive."""
    logits = unit(anchors) @ unit(candidates).T / temperature
    return (logits.logsumexp(1) - logits.diagonal()).mean()


def macl_temperature(similarity: Tensor, base: float = 0.1, alpha: float = 0.5, threshold: float = 0.0) -> Tensor:
    return base * (1 + alpha * (similarity.detach().mean() - threshold))


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: each.grad.clone() for name, each in module.named_parameters() if each.grad is not None}


def assert_states_equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
