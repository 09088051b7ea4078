"""What third parties wrote for former names of methods: it works as under the new ones, and a warning says which these are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tempplug import Batch, ContrastiveLoss, NegativeTerm, Objective, Strategy, layouts
from tempplug.block import Block
from tempplug.logit_map import LogitMap
from tempplug.negatives.base import TermMap
from tempplug.strategies.maps import ScaleMap
from tempplug.term_map import Keys
from tempplug.types import RowStatistics

VIEWS = torch.randn(2, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
EVERY = slice(None)


def strategy_of(logit_map: LogitMap) -> Strategy:
    class Given(Strategy):
        name = "given"

        def prepare(self, batch: Batch) -> LogitMap:
            return logit_map

    return Given()


def written_for(names: dict[str, str], former: bool) -> Any:
    """Classes of a map, a term and an objective with the former names of their methods, or with those of now."""
    old = {new: name for name, new in names.items()}

    def called(name: str) -> str:
        return old[name] if former else name

    class PerAnchor(LogitMap):
        uniform = symmetric = False

        def __init__(self, scale: Tensor) -> None:
            self.scale = scale

        def logit(self, similarity: Tensor) -> Tensor:
            return similarity * self.scale

        def slope(self, similarity: Tensor) -> Tensor:
            return self.scale.expand_as(similarity)

        def temperature(self, similarity: Tensor) -> Tensor:
            return 1 / self.slope(similarity)

    def restrict(self: Any, rows: Any, columns: Any, paired: bool = False) -> Any:
        return type(self)(self.scale[rows] if paired else self.scale[rows, None])

    class Penalty(TermMap):
        def __init__(self, penalty: Tensor) -> None:
            self.penalty = penalty

        def term(self, similarity: Tensor) -> Tensor:
            return self.penalty.expand_as(similarity)

    def bound(self: Any, rows: Any, columns: Any, paired: bool = False) -> Any:
        return type(self)(self.penalty[columns])

    class Halved(Objective):
        name = "halved"

        def row_loss(self, statistics: RowStatistics, auxiliary: Any = None) -> Tensor:
            return torch.nn.functional.softplus(statistics.negative_lse - auxiliary.second.positive_logit)

    def training_map(self: Any, logit_map: LogitMap) -> LogitMap:
        return ScaleMap(torch.full((), 5.0, dtype=torch.float64))

    def reference_map(self: Any, logit_map: LogitMap) -> LogitMap:
        return logit_map

    return (
        type("Map", (PerAnchor,), {called("restrict"): restrict}),
        type("Term", (Penalty,), {called("restrict"): bound}),
        type("Target", (Halved,), {called("training_map"): training_map, called("reference_map"): reference_map}),
    )


NAMES = {"at": "restrict", "first_map": "training_map", "second_map": "reference_map"}


def losses(classes: Any) -> list[Tensor]:
    logit_map, term_map, objective = classes
    scale, penalty = torch.linspace(2, 9, 6, dtype=torch.float64), torch.linspace(-1, 0, 6, dtype=torch.float64)

    class Penalised(NegativeTerm):
        name = "penalised"

        def prepare(self, pairs: Any) -> TermMap:
            result: TermMap = term_map(penalty)
            return result

    found = []
    for engine in ("tiled", "dense"):
        for options in ({}, {"negatives": [Penalised()]}, {"objective": objective()}):
            loss_fn = ContrastiveLoss(strategy_of(logit_map(scale)), layout="cross-view", engine=engine, **options)  # type: ignore[arg-type]
            view_a, view_b = (rows.clone().requires_grad_() for rows in VIEWS)
            loss = loss_fn(view_a, view_b)
            found += [loss.detach(), *torch.autograd.grad(loss, [view_a, view_b]), loss_fn.record.temperature_mean]
    return found


def test_maps_terms_and_objectives_with_former_names_have_the_same_losses() -> None:
    with pytest.warns(DeprecationWarning, match="whose name is") as told:
        former = written_for(NAMES, True)
    messages = " ".join(str(each.message) for each in told)
    for name, new in NAMES.items():
        assert f"defines {name}(), whose name is {new}() now" in messages
    torch.testing.assert_close(losses(former), losses(written_for(NAMES, False)), rtol=0, atol=0)


@pytest.mark.parametrize("logit_map", [ScaleMap(torch.ones(3)), ScaleMap(torch.ones(()))], ids=["by anchor", "one"])
def test_former_names_may_be_called(logit_map: LogitMap) -> None:
    with pytest.warns(DeprecationWarning, match=r"at\(\) is called restrict\(\) now"):
        former = logit_map.at(EVERY, EVERY)  # type: ignore[attr-defined]
    similarity = torch.rand(3, 3)
    assert torch.equal(former.logit(similarity), logit_map.restrict(EVERY, EVERY).logit(similarity))
    with pytest.warns(DeprecationWarning, match=r"against\(\) is called with_candidates\(\) now"):
        assert logit_map.against([]) is logit_map  # type: ignore[attr-defined]
    keys = Keys(torch.arange(3), torch.arange(3))
    with pytest.warns(DeprecationWarning, match="restrict"):
        assert keys.at(EVERY, EVERY).of_anchors.shape == (3, 1)  # type: ignore[attr-defined]


def test_a_method_of_a_former_name_may_call_that_of_its_base() -> None:
    with pytest.warns(DeprecationWarning, match=r"Doubled defines at\(\)"):

        class Doubled(ScaleMap):
            def at(self, rows: Any, columns: Any, paired: bool = False) -> LogitMap:
                logit_map: LogitMap = super().at(rows, columns, paired)  # type: ignore[misc]
                return logit_map

    with pytest.warns(DeprecationWarning, match="restrict"):
        bound = Doubled(torch.arange(1.0, 4.0)).restrict(EVERY, EVERY)
    assert torch.equal(bound.logit(torch.ones(3, 1)).flatten(), torch.arange(1.0, 4.0))


def test_the_former_name_of_a_block_warns() -> None:
    with pytest.warns(DeprecationWarning, match=r"Direction is called tempplug\.block\.Block now"):
        assert layouts.Direction is Block
    with pytest.raises(AttributeError, match="no attribute 'Directions'"):
        _ = layouts.Directions
