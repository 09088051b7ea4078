"""The losses of the step modules of vision beside formulas in float64, in value and gradient, and what a step stores."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from covering import every_pair
from torch import Tensor
from vision_method_toys import (
    AMCL,
    BARLOW_AMCL,
    CONTRASTIVE,
    EMBEDDING,
    FIXED,
    MACL,
    ROWS,
    create,
    cross_loss,
    gradients,
    macl_temperature,
    nt_xent,
    queue_loss,
    unit,
    views,
)
from vision_train_toys import built, images, tiny  # noqa: F401

from tempplug.errors import ConfigError
from tempplug_adapters.vision.barlow_twins import BarlowTwins
from tempplug_adapters.vision.simsiam import SimSiam
from tempplug_adapters.vision.step_module import StepModule, heads_of

LABELS = torch.tensor([0, 1, 0, 0, 1])
TAIL = "head-tail:class_counts=9/1,temperature_head=0.5,temperature_tail=0.25"


def temperature_of(strategy: str, anchors: Tensor, positives: Tensor) -> Tensor:
    """Of each anchor, [B]."""
    if strategy == MACL:
        return macl_temperature((unit(anchors) * unit(positives)).sum(1)).expand(len(anchors))
    return (
        torch.where(LABELS == 0, 0.5, 0.25).double()
        if strategy == TAIL
        else torch.full((len(anchors),), 0.2, dtype=torch.float64)
    )


def equation_2(together: Tensor, temperature: Tensor) -> Tensor:
    """Khosla et al. 2020: the sum over positives outside of the logarithm."""
    rows, classes, own = unit(together), LABELS.repeat(2), torch.eye(len(together), dtype=torch.bool)
    logits = (rows @ rows.T / temperature[:, None]).masked_fill(own, -torch.inf).log_softmax(1)
    positives = (classes[:, None] == classes) & ~own
    return -(logits.masked_fill(~positives, 0).sum(1) / positives.sum(1)).mean()


def near(embeddings: Tensor, rows: Tensor) -> Tensor:
    return torch.stack([max(rows, key=lambda row: float(row @ embedding)) for embedding in unit(embeddings.detach())])


def contrastive_formula(name: str, method: Any, strategy: str, view_a: Tensor, view_b: Tensor) -> Tensor:
    """The loss of a method that has not had the step yet, head by head."""
    if name.startswith("moco"):  # the copies follow before the step
        with torch.no_grad():
            own = [*method.backbone.parameters(), *method.projection_head.parameters()]
            for average, parameter in zip(method.momentum_encoder.parameters(), own, strict=True):
                average.mul_(0.9).add_(0.1 * parameter)
    total = torch.zeros((), dtype=torch.float64)
    for number, project in enumerate(heads_of(method.projection_head)):
        z_a, z_b = (project(method.backbone(view)) for view in (view_a, view_b))
        if name in ("simclr", "supcon"):
            temperature = temperature_of(strategy, z_a, z_b).repeat(2)
            total += nt_xent(z_a, z_b, temperature) if name == "simclr" else equation_2(torch.cat([z_a, z_b]), temperature)
        elif name == "nnclr":
            rows, predict = method.support_sets[number].rows, heads_of(method.prediction_head)[number]
            for anchors, prediction in ((near(z_a, rows), predict(z_b)), (near(z_b, rows), predict(z_a))):
                total += cross_loss(anchors, prediction, temperature_of(strategy, anchors, prediction)[:, None]) / 2
        else:
            both = [(z_a, view_b), (z_b, view_a)] if "symmetric" in name else [(z_a, view_b)]
            for anchors, view in both:
                keys = method.momentum_encoder(view)[number]
                temperature = temperature_of(strategy, anchors, keys)[:, None]
                total += queue_loss(anchors, keys, method.queues[number].rows, temperature) / len(both)
    return total


def assert_matches(method: StepModule, formula: Callable[[Any], Tensor], shares: dict[str, float], **given: Tensor) -> None:
    """Compares value and all gradients with those of a function of the method as it was before the step."""
    twin = copy.deepcopy(method)
    loss, expected = method(*views(ROWS), **given), formula(twin)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-12)
    found, wanted = gradients(method), gradients(twin)
    assert found.keys() == wanted.keys() != set()
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], shares.get(name, 1) * gradient, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "strategy", "count", "engine"),
    every_pair(
        CONTRASTIVE,
        (FIXED, MACL, TAIL),
        (1, 2),
        ("dense", "tiled"),
        allowed=lambda name, strategy, *_: (name, strategy) != ("supcon", MACL),
    ),
)
def test_value_gradient_and_queue_are_those_of_the_formula(name: str, strategy: str, count: int, engine: str) -> None:
    torch.manual_seed(0)
    method = create(name, strategy, count, engine=engine).double()
    if name.startswith("moco"):  # as after some training: the copy is another network
        with torch.no_grad():
            for parameter in method.momentum_encoder.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    queues = getattr(method, "queues" if name.startswith("moco") else "support_sets", [])
    before, (view_a, view_b) = [queue.rows.clone() for queue in queues], views(ROWS)
    stored = method.embed(view_a)
    assert_matches(method, lambda twin: contrastive_formula(name, twin, strategy, view_a, view_b), {}, labels=LABELS)
    assert method.loss_fn.record.engine == engine
    if name.startswith("moco"):
        stored = method.momentum_encoder(view_b)
        assert not any(parameter.requires_grad for parameter in method.momentum_encoder.parameters())
    for queue, rows, new in zip(queues, before, stored, strict=False):
        torch.testing.assert_close(queue.rows, torch.cat([unit(new.detach()), rows[ROWS:]]))
    with pytest.raises(ConfigError, match="labels") if strategy == TAIL or name == "supcon" else nullcontext():
        method(view_a, view_b)


def phi_temperature(strategy: Any, first: Tensor, second: Tensor) -> Tensor:
    """AMCL's temperature of two unit vectors."""
    return 1.5 / (1 + torch.exp(strategy.phi(first) @ strategy.phi(second))) + 0.2


def simsiam_formula(method: SimSiam, view_a: Tensor, view_b: Tensor) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for project, predict in zip(heads_of(method.projection_head), heads_of(method.prediction_head), strict=True):
        h_a, h_b = (project(method.backbone(view)) for view in (view_a, view_b))
        for prediction, embedding in ((predict(h_a), h_b), (predict(h_b), h_a)):
            for p, h in zip(unit(prediction), unit(embedding.detach()), strict=True):
                if method.strategy is None:
                    total = total - p @ h / 2
                else:
                    u = phi_temperature(method.strategy, p, h)
                    total = total - (p @ h) / (2 * u) + 0.7 * (u.log() + 1 / u)
    return total / ROWS


def barlow_twins_formula(method: BarlowTwins, view_a: Tensor, view_b: Tensor, weight: float) -> Tensor:
    """Pair of features by pair of features, each with mean 0 and variance 1 over the batch."""
    total = torch.zeros((), dtype=torch.float64)
    for project in heads_of(method.projection_head):
        centred = [each - each.mean(0) for each in (project(method.backbone(view)) for view in (view_a, view_b))]
        first, second = ((each / (each.square().mean(0) + 1e-5).sqrt()).T for each in centred)
        for place, a in enumerate(first):
            for other, b in enumerate(second):
                correlation, u, beta = (a * b).mean(), torch.ones((), dtype=torch.float64), 0.0
                if method.strategy is not None:
                    beta, u = 0.7, phi_temperature(method.strategy, unit(a[None])[0], unit(b[None])[0])
                omega = u.log() + 1 / u
                if place == other:
                    total = total + (1 - correlation / u) ** 2 + beta * omega
                else:
                    total = total + weight * correlation**2 / u - beta * omega / (len(first) - 1)
    return total


@pytest.mark.parametrize("strategy", [None, AMCL])
@pytest.mark.parametrize("count", [1, 3])
def test_simsiam_is_its_formula(strategy: str | None, count: int) -> None:
    torch.manual_seed(0)
    assert_matches(create("simsiam", strategy, count).double(), lambda twin: simsiam_formula(twin, *views(ROWS)), {})


@pytest.mark.parametrize(("strategy", "count", "weight"), every_pair((None, BARLOW_AMCL), (1, 2), (5e-3, 0.5)))
def test_barlow_twins_is_its_formula(strategy: str | None, count: int, weight: float) -> None:
    torch.manual_seed(0)
    method = create("barlow-twins", strategy, count, **({} if weight == 5e-3 else {"redundancy_weight": weight})).double()
    # φ learns from the mean over the features, everything else from their sum
    shares = {f"strategy.phi.{name}": 1 / EMBEDDING for name in ("weight", "bias")}
    assert_matches(method, lambda twin: barlow_twins_formula(twin, *views(ROWS), weight), shares)


def test_simclr_gives_both_views_to_batch_normalisation_at_once_and_moco_each_its_own() -> None:
    view_a, view_b = views()
    simclr = create("simclr", "fixed:temperature=0.1", batch_norm=True).double()
    loss = simclr(view_a, view_b + 3)
    assert simclr.backbone.calls == 1
    together = simclr.projection_head(simclr.backbone(torch.cat([view_a, view_b + 3])))
    torch.testing.assert_close(loss, nt_xent(together[:5], together[5:], 0.1), rtol=1e-10, atol=0)
    moco = create("moco", batch_norm=True).double()
    moco(view_a, view_b + 3)
    copied = moco.momentum_encoder.backbone.layers
    torch.testing.assert_close(copied[2].running_mean, 0.1 * copied[1]((view_b + 3).flatten(1)).mean(0))
    assert (moco.backbone.layers[2].running_mean - copied[2].running_mean).abs().max() > 0.05


def test_simclr_has_a_head_for_uncertainty() -> None:
    torch.manual_seed(1)
    method = create("simclr", "uncertainty:base_temperature=0.2").double()
    loss = method(*views())
    loss.backward()
    representations = method.backbone(torch.cat(views()))
    temperature = 0.2 / torch.sigmoid(method.uncertainty_head(representations).squeeze(1))
    embeddings = method.projection_head(representations)
    torch.testing.assert_close(loss, nt_xent(embeddings[:5], embeddings[5:], temperature), rtol=1e-10, atol=0)
    assert gradients(method)["uncertainty_head.weight"].abs().sum() > 0
    assert create("simclr").uncertainty_head is None
