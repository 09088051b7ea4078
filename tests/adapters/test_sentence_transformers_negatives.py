"""What sentence-transformers has as separate losses is a layout and a term here: equal in loss and all gradients."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from covering import every_pair
from sentence_transformer_toys import features, gradients, tiny
from sentence_transformers.sentence_transformer import losses as library
from torch import Tensor, nn

from tempplug import ContrastiveLoss

BLOCKS = {"query_to_doc": "ab", "query_to_query": "aa", "doc_to_query": "ba", "doc_to_doc": "bb"}
HARDNESS = {None: None, "in_batch_negatives": "in-batch", "hard_negatives": "hard", "all_negatives": "all"}
WAYS = [("query_to_doc", *more) for count in range(4) for more in itertools.combinations(list(BLOCKS)[1:], count)]


def assert_close(found: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    """Losses relatively, and gradients relatively to the largest of all."""
    for part in (slice(0, 1), slice(1, None)):
        ours, theirs = (torch.cat([each.detach().flatten() for each in all_of[part]]) for all_of in (found, expected))
        assert float((ours - theirs).abs().max() / theirs.abs().max()) <= tolerance


@pytest.mark.parametrize(("directions", "mode"), list(itertools.product(WAYS, HARDNESS)))
def test_the_ranking_loss_in_all_directions_and_hardness_modes(directions: tuple[str, ...], mode: str | None) -> None:
    options = {"hardness_mode": mode, "hardness_strength": 5.0} if mode else {}
    theirs = library.MultipleNegativesRankingLoss(nn.Identity(), scale=20.0, directions=directions, **options)  # type: ignore[arg-type]
    # The library weighs the negatives of its first direction alone.
    negatives = f"hardness:strength=5,blocks=ab,of={HARDNESS[mode]}" if mode else None
    layout = f"cross-view:directions={'+'.join(BLOCKS[each] for each in directions)}"
    for dtype, hard, engine in every_pair([torch.float64, torch.float32], [0, 1, 3], ["tiled", "dense"]):
        generator = torch.Generator().manual_seed(0)
        rows = [torch.randn(9, 24, generator=generator, dtype=dtype).requires_grad_() for _ in range(2 + hard)]
        expected = theirs.compute_loss_from_embeddings(rows, None)  # type: ignore[arg-type]
        ours = ContrastiveLoss("fixed:temperature=0.05", layout=layout, negatives=negatives, engine=engine)
        found = ours(rows[0], rows[1], hard_negatives=torch.stack(rows[2:], 1) if hard else None)
        both = [[value, *torch.autograd.grad(value, rows)] for value in (found, expected)]
        assert_close(both[0], both[1], 1e-10 if dtype == torch.float64 else 1e-6)


@pytest.mark.filterwarnings("ignore:layout 'cross-view' leaves .* without a negative:RuntimeWarning")
@pytest.mark.parametrize(
    ("kind", "rule", "margin", "columns", "blocks"),
    every_pair(
        [library.GISTEmbedLoss, library.CachedGISTEmbedLoss],
        ["absolute", "relative"],
        [0.0, 0.05, 0.3],
        [2, 3],
        ["ab", "ab+aa", "ab+bb", "ab+aa+bb"],
    ),
)
def test_the_losses_with_a_guide(tiny_bert: Path, kind: Any, rule: str, margin: float, columns: int, blocks: str) -> None:
    """Whose margins count the other way."""
    model, guide = tiny(tiny_bert).double(), tiny(tiny_bert).double()
    with torch.no_grad():
        for number, parameter in enumerate(guide.parameters()):
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)) / 10)
    options: dict[str, Any] = {"contrast_anchors": "aa" in blocks, "contrast_positives": "bb" in blocks}
    options |= {"mini_batch_size": 5} if kind is library.CachedGISTEmbedLoss else {}
    theirs = kind(model, guide, margin_strategy=rule, margin=margin, **options)
    ours = ContrastiveLoss(
        "fixed:temperature=0.01",
        layout=f"cross-view:directions={blocks},hard=ab",
        negatives=f"guide:margin={-margin},rule={rule}",
    )

    def value() -> Tensor:
        names = ("view_a", "view_b", "hard_negatives")[:columns]
        own, of_guide = (
            {
                name: each(dict(column))["sentence_embedding"]
                for name, column in zip(names, features(model, 12, columns), strict=True)
            }
            for each in (model, guide)
        )
        return ours(**own, guide=of_guide)

    found = []
    for loss in (value(), theirs(features(model, 12, columns), None)):
        model.zero_grad()
        loss.backward()
        found.append([loss.detach(), *gradients(model).values()])
    assert_close(found[0], found[1], 1e-10)
    assert 0 < ours.record.negatives_left_out.item() < 1
