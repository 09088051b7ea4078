"""An objective that learns: its gradient on every way through the loss, its state, its numbers in the record."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from objective_toys import Biased
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from tempplug import ContrastiveLoss
from tempplug.types import EngineName

TEMPERATURE, BIAS = 0.2, 0.5
ENGINES: list[EngineName] = ["auto", "dense", "tiled"]


def views(rows: int = 9) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    return a.requires_grad_(), (a.detach() + b).requires_grad_()


def rows_of(a: Tensor, b: Tensor, bias: Tensor, others: Tensor | None = None) -> Tensor:
    """The formula for anchors a, written out: row i of b is positive, all other rows of b and ``others`` are negatives."""
    s = normalize(a) @ normalize(b).T / TEMPERATURE
    negatives = s.masked_fill(torch.eye(len(s), dtype=torch.bool), -torch.inf)
    if others is not None:
        negatives = torch.cat([negatives, normalize(a) @ normalize(others).T / TEMPERATURE], 1)
    return softplus(negatives.logsumexp(1) - s.diagonal() + bias) + softplus(-bias)


def expected_loss(layout: str, a: Tensor, b: Tensor, queue: Tensor, bias: Tensor) -> Tensor:
    if layout == "cross-view":
        return rows_of(a, b, bias).mean()
    if layout == "symmetric":
        return (rows_of(a, b, bias).mean() + rows_of(b, a, bias).mean()) / 2
    if layout == "two-view":
        both = torch.cat([normalize(a), normalize(b)]) @ torch.cat([normalize(a), normalize(b)]).T / TEMPERATURE
        n = len(a)
        own = torch.eye(2 * n, dtype=torch.bool)
        negative = both.masked_fill(own | own.roll(n, 1), -torch.inf).logsumexp(1)
        return (softplus(negative - both[own.roll(n, 1)] + bias) + softplus(-bias)).mean()
    positive = (normalize(a) * normalize(b)).sum(1) / TEMPERATURE
    negative = (normalize(a) @ normalize(queue).T / TEMPERATURE).logsumexp(1)
    return (softplus(negative - positive + bias) + softplus(-bias)).mean()


@pytest.mark.parametrize("layout", ["cross-view", "symmetric", "two-view", "queue"])
@pytest.mark.parametrize("engine", ENGINES)
def test_the_gradient_of_a_learned_bias_is_that_of_the_formula(engine: EngineName, layout: str) -> None:
    a, b = views()
    queue = views(7)[1].detach()
    name: Any = "cross-view" if layout == "symmetric" else layout
    loss_fn = ContrastiveLoss(
        f"fixed:temperature={TEMPERATURE}", Biased(BIAS).double(), name, symmetric=layout == "symmetric", engine=engine
    )
    given = {"queue": queue} if layout == "queue" else {}
    loss = loss_fn(a, b, **given)
    bias = torch.tensor(BIAS, dtype=torch.float64, requires_grad=True)
    expected = expected_loss(layout, a, b, queue, bias)
    found = torch.autograd.grad(loss, [a, b, loss_fn.objective.offset])
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(found, torch.autograd.grad(expected, [a, b, bias]), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


def test_several_heads_share_the_bias_and_its_gradient() -> None:
    a, b = views()
    loss_fn = ContrastiveLoss("fixed", Biased(BIAS), "cross-view")
    (one,) = torch.autograd.grad(loss_fn(a, b), loss_fn.objective.offset)
    (two,) = torch.autograd.grad(loss_fn([a, a], [b, b]), loss_fn.objective.offset)
    assert two.item() == pytest.approx(2 * one.item(), rel=1e-6)


def test_a_plain_loop_learns_saves_and_resumes_the_bias() -> None:
    def train(loss_fn: ContrastiveLoss, steps: int) -> list[float]:
        optimizer = torch.optim.SGD(loss_fn.parameters(), lr=0.1)
        biases = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss_fn(*views()).backward()
            optimizer.step()
            biases.append(loss_fn.objective.offset.item())
        return biases

    def fresh() -> ContrastiveLoss:
        return ContrastiveLoss("fixed", Biased(BIAS), "cross-view")

    whole, begun, resumed = fresh(), fresh(), fresh()
    biases = train(whole, 4)
    assert len({BIAS, *biases}) == 5
    train(begun, 2)
    assert begun.state_dict()["objective.offset"].item() == biases[1]
    resumed.load_state_dict(begun.state_dict())
    assert train(resumed, 2) == biases[2:]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_record_shows_what_was_learned_as_it_was_in_the_call(engine: EngineName) -> None:
    loss_fn = ContrastiveLoss("fixed", Biased(BIAS), "cross-view", engine=engine)
    loss_fn(*views())
    with torch.no_grad():
        loss_fn.objective.offset.fill_(7.0)
    assert loss_fn.record.numbers()["objective_offset"] == loss_fn.record.to_dict()["objective_offset"] == BIAS
    assert not loss_fn.record.learned["objective_offset"].requires_grad
    loss_fn(*views())
    assert loss_fn.record.numbers()["objective_offset"] == 7.0


def test_an_objective_says_itself_which_numbers_the_record_shows() -> None:
    class Several(Biased):
        """Shows the exponential of its bias, and has weights that are no number."""

        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.Parameter(torch.ones(3))

        def learned(self) -> dict[str, Tensor]:
            return {"factor": self.offset.exp()}

    assert list(Biased().learned()) == ["offset"]
    assert Biased.learned(Several()).keys() == {"offset"}
    loss_fn = ContrastiveLoss("fixed", Several())
    loss_fn(*views())
    assert loss_fn.record.numbers()["objective_factor"] == pytest.approx(torch.tensor(0.5).exp().item())
    assert "objective_offset" not in loss_fn.record.numbers()


def test_an_objective_that_learns_nothing_adds_nothing_to_the_record() -> None:
    loss_fn = ContrastiveLoss()
    loss_fn(*views())
    assert loss_fn.record.learned == {}
    assert not [name for name in loss_fn.record.numbers() if name.startswith("objective")]
