"""What sentence-transformers has as separate losses is a layout and a term here: equal in loss and all gradients."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
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


def both_losses(directions: tuple[str, ...], mode: str | None, engine: Any = "auto", gather: bool = False) -> tuple[Any, Any]:
    """The library's loss and ours, as functions of queries, documents and hard negatives."""
    options = {"hardness_mode": mode, "hardness_strength": 5.0} if mode else {}
    theirs = library.MultipleNegativesRankingLoss(
        nn.Identity(),  # type: ignore[arg-type]
        scale=20.0,
        directions=directions,
        gather_across_devices=gather,
        **options,
    )
    # The library weighs the negatives of its first direction alone.
    negatives = f"hardness:strength=5,blocks=ab,of={HARDNESS[mode]}" if mode else None
    layout = f"cross-view:directions={'+'.join(BLOCKS[each] for each in directions)}"
    ours = ContrastiveLoss("fixed:temperature=0.05", layout=layout, negatives=negatives, engine=engine, gather=gather)

    def ours_of(rows: list[Tensor]) -> Tensor:
        return ours(rows[0], rows[1], hard_negatives=torch.stack(rows[2:], 1) if rows[2:] else None)

    return ours_of, lambda rows: theirs.compute_loss_from_embeddings(rows, None)


def made_rows(hard: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(9, 24, generator=generator, dtype=dtype).requires_grad_() for _ in range(2 + hard)]


@pytest.mark.parametrize(("directions", "mode"), list(itertools.product(WAYS, HARDNESS)))
def test_the_ranking_loss_in_all_directions_and_hardness_modes(directions: tuple[str, ...], mode: str | None) -> None:
    for dtype, hard, engine in every_pair([torch.float64, torch.float32], [0, 1, 3], ["tiled", "dense"]):
        rows = made_rows(hard, dtype)
        exact = [each.detach().double().requires_grad_() for each in rows]  # in float32 the library itself is off by 1e-6
        ours, theirs = both_losses(directions, mode, engine)
        both = [[value := loss(of), *torch.autograd.grad(value, of)] for loss, of in ((ours, rows), (theirs, exact))]
        assert_close(both[0], both[1], 1e-10 if dtype == torch.float64 else 1e-6)


def value_and_gradient(loss: Any, rows: list[Tensor]) -> Tensor:
    """Of a linear encoder, [1 + 24·24]."""
    encoder = torch.eye(24, dtype=torch.float64).requires_grad_()
    value = loss([each.detach() @ encoder for each in rows])
    return torch.cat([value.detach().reshape(1), *torch.autograd.grad(value, encoder)[0]])


def gathered(rank: int, folder: str) -> None:
    """Two processes with half of the rows each; the first one keeps the mean of their losses and gradients."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    found = {}
    for case in itertools.product(WAYS, HARDNESS, (0, 2)):
        *chosen, hard = case
        means = []
        for loss in both_losses(*chosen, gather=True):
            means.append(value_and_gradient(loss, [each[:8][4 * rank : 4 * rank + 4] for each in made_rows(hard)]) / 2)
            dist.all_reduce(means[-1])
        found[case] = means
    if rank == 0:
        torch.save(found, Path(folder) / "found.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.slow
def test_gathered_over_two_processes_it_is_the_librarys_and_that_of_one(tmp_path: Path) -> None:
    mp.spawn(gathered, (str(tmp_path),), nprocs=2)
    found = torch.load(tmp_path / "found.pt")
    assert len(found) == 64
    for (*chosen, hard), (ours, theirs) in found.items():
        alone = value_and_gradient(both_losses(*chosen)[0], [each[:8] for each in made_rows(hard)])
        for other in (theirs, alone):
            torch.testing.assert_close(ours, other, rtol=1e-10, atol=1e-12)


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
