"""An objective that learns: its gradient on every way through the loss, its state, its numbers in the record."""

from __future__ import annotations

import pytest
import torch
from objective_toys import Biased
from torch import Tensor, nn

from tempplug import ContrastiveLoss
from tempplug.types import EngineName

BIAS = 0.5
ENGINES: list[EngineName] = ["auto", "dense", "tiled"]


def views(rows: int = 9) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    return a.requires_grad_(), (a.detach() + b).requires_grad_()


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


def test_an_objective_chooses_which_numbers_the_record_shows() -> None:
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
    plain = ContrastiveLoss()
    plain(*views())
    assert plain.record.learned == {}
    assert not [name for name in plain.record.numbers() if name.startswith("objective")]
