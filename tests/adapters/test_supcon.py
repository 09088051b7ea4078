"""SupCon: the paper's equation in double precision, SimCLR where every image is its own class, all strategies."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from vision_method_toys import Toy, gradients, head, heads, unit, views
from vision_train_toys import run, tiny  # noqa: F401

import tempplug
from tempplug.errors import ConfigError
from tempplug_adapters.vision.simclr import SimCLR
from tempplug_adapters.vision.supcon import SupCon

LABELS = torch.tensor([0, 1, 0, 2, 0])


def equation_2(embeddings: list[Tensor], labels: Tensor, temperature: float) -> Tensor:
    """Khosla et al. 2020: the sum over positives outside of the logarithm."""
    rows, classes = unit(torch.cat(embeddings)), labels.repeat(2)
    losses = []
    for i in range(len(rows)):
        others = [j for j in range(len(rows)) if j != i]
        logits = torch.stack([rows[i] @ rows[j] / temperature for j in others])
        log_shares = logits - logits.logsumexp(0)
        positives = torch.tensor([classes[j] == classes[i] for j in others])
        losses.append(-log_shares[positives].mean())
    return torch.stack(losses).mean()


def test_the_loss_is_the_papers() -> None:
    torch.manual_seed(0)
    method = SupCon(Toy(), heads(2), "fixed:temperature=0.3").double()
    view_a, view_b = views()
    loss = method(view_a, view_b, labels=LABELS)
    pairs = zip(method.embed(view_a), method.embed(view_b), strict=True)
    torch.testing.assert_close(loss, sum(equation_2(list(pair), LABELS, 0.3) for pair in pairs))


def test_with_a_class_for_each_image_it_is_simclr() -> None:
    torch.manual_seed(0)
    found, expected = SupCon(Toy(), head(), "macl").double(), SimCLR(Toy(), head(), "macl").double()
    expected.load_state_dict(found.state_dict())
    view_a, view_b = views()
    losses = found(view_a, view_b, labels=torch.arange(5)), expected(view_a, view_b)
    torch.testing.assert_close(*losses)
    for loss in losses:
        loss.backward()
    for name, gradient in gradients(expected).items():
        torch.testing.assert_close(gradients(found)[name], gradient)
    assert not torch.allclose(losses[0], found(view_a, view_b, labels=LABELS))


def test_without_labels_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="SupCon needs labels"):
        SupCon(Toy(), head()).double()(*views())


@pytest.mark.usefixtures("tiny")
@pytest.mark.filterwarnings("ignore:strategy 'amcl'. nearly all temperatures lie on a bound")
@pytest.mark.parametrize("strategy", [each.name for each in tempplug.strategies()])
def test_every_strategy_trains(strategy: str, tmp_path: Path) -> None:
    results = run(tmp_path, "supcon", strategy, num_train_epochs=2)
    losses = [entry["loss"] for entry in results["history"] if "loss" in entry]
    assert all(math.isfinite(loss) for loss in losses)
    assert len(set(losses)) == 2
    assert results["objective"] == ("dcl" if strategy == "amcl" else "infonce")
