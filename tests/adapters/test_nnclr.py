"""NNCLR: the loss of its formula, lookups before the support set changes, and a support set that survives save and resume."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor
from vision_method_toys import (
    EMBEDDING,
    Toy,
    assert_resumes_bit_for_bit,
    assert_states_equal,
    cross_loss,
    gradients,
    head,
    heads,
    macl_temperature,
    unit,
    views,
)

from tempplug.errors import ConfigError, ShapeError
from tempplug_adapters.vision.nnclr import NNCLR


def nnclr(strategy: str = "fixed:temperature=0.2", count: int = 1, **options: object) -> NNCLR:
    projection_head, prediction_head = (head(), head(EMBEDDING)) if count == 1 else (heads(count), heads(count, EMBEDDING))
    given = {"embedding_dimension": EMBEDDING, "queue_size": 7, **options}
    return NNCLR(Toy(), projection_head, prediction_head, strategy, **given).double()


def neighbours(embeddings: Tensor, rows: Tensor) -> Tensor:
    return torch.stack([max(rows, key=lambda row: float(row @ embedding)) for embedding in unit(embeddings.detach())])


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_fixed_is_infonce_of_neighbours_in_value_and_gradient(engine: str) -> None:
    torch.manual_seed(0)
    method = nnclr(engine=engine)
    rows = method.support_sets[0].rows.clone()
    view_a, view_b = views(9)
    loss = method(view_a, view_b)
    loss.backward()
    assert method.loss_fn.record.engine == engine
    found = gradients(method)
    method.zero_grad()
    z_a, z_b = (method.projection_head(method.backbone(view)) for view in (view_a, view_b))
    p_a, p_b = method.prediction_head(z_a), method.prediction_head(z_b)
    near_a, near_b = neighbours(z_a, rows), neighbours(z_b, rows)
    assert not torch.equal(near_a, near_b)
    expected = (cross_loss(near_a, p_b, 0.2) + cross_loss(near_b, p_a, 0.2)) / 2
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    assert found.keys() == gradients(method).keys()
    for name, gradient in gradients(method).items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-8, atol=1e-12)


def test_macl_follows_the_similarity_of_the_neighbours() -> None:
    torch.manual_seed(0)
    method = nnclr("macl:alpha=2").eval()
    rows = method.support_sets[0].rows
    view_a, view_b = views(9)
    z_a, z_b = (method.projection_head(method.backbone(view)) for view in (view_a, view_b))
    expected = torch.zeros((), dtype=torch.float64)
    for near, prediction in (
        (neighbours(z_a, rows), method.prediction_head(z_b)),
        (neighbours(z_b, rows), method.prediction_head(z_a)),
    ):
        temperature = macl_temperature((unit(near) * unit(prediction)).sum(1), alpha=2).clamp(min=0.01)
        expected = expected + cross_loss(near, prediction, temperature) / 2
    torch.testing.assert_close(method(view_a, view_b), expected, rtol=1e-10, atol=0)


def test_the_embeddings_of_view_a_are_enqueued_after_both_lookups() -> None:
    torch.manual_seed(0)
    method = nnclr()
    support_set = method.support_sets[0]
    before = support_set.rows.clone()
    # The same view twice: were it enqueued between the lookups, the second would find itself.
    view, _ = views()
    loss = method(view, view)
    z = method.projection_head(method.backbone(view))
    expected = cross_loss(neighbours(z, before), method.prediction_head(z), 0.2)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(support_set.rows, torch.cat([unit(z.detach()), before[5:]]))
    view_a, view_b = views(seed=4)
    method(view_a, view_b)
    z = unit(method.projection_head(method.backbone(view_a)).detach())
    torch.testing.assert_close(torch.cat([support_set.rows[5:], support_set.rows[:3]]), z)
    assert int(support_set.position) == 3


def test_only_a_training_step_changes_the_support_set() -> None:
    method = nnclr()
    before = copy.deepcopy(method.state_dict())
    with torch.no_grad():
        method(*views())
    method.eval()(*views())
    method.train().requires_grad_(False)(*views())
    assert_states_equal(method.state_dict(), before)


def test_each_head_has_a_support_set_and_their_losses_are_summed() -> None:
    torch.manual_seed(0)
    method = nnclr(count=2).eval()
    view_a, view_b = views(9)
    expected = torch.zeros((), dtype=torch.float64)
    for c in range(2):
        rows = method.support_sets[c].rows
        z_a, z_b = (method.projection_head[c](method.backbone(view)) for view in (view_a, view_b))
        p_a, p_b = method.prediction_head[c](z_a), method.prediction_head[c](z_b)
        expected = expected + (cross_loss(neighbours(z_a, rows), p_b, 0.2) + cross_loss(neighbours(z_b, rows), p_a, 0.2)) / 2
    torch.testing.assert_close(method(view_a, view_b), expected, rtol=1e-10, atol=0)
    method.train()(view_a, view_b)
    assert [int(each.position) for each in method.support_sets] == [2, 2]


def test_labels_and_index_reach_the_strategy() -> None:
    labels = torch.tensor([0, 1, 0, 0, 1])
    method = nnclr("head-tail:class_counts=9/1,temperature_head=0.5,temperature_tail=0.25").eval()
    view_a, view_b = views()
    rows, of_row = method.support_sets[0].rows, torch.where(labels == 0, 0.5, 0.25)[:, None]
    z_a, z_b = (method.projection_head(method.backbone(view)) for view in (view_a, view_b))
    expected = cross_loss(neighbours(z_a, rows), method.prediction_head(z_b), of_row)
    expected = (expected + cross_loss(neighbours(z_b, rows), method.prediction_head(z_a), of_row)) / 2
    torch.testing.assert_close(method(view_a, view_b, labels=labels), expected, rtol=1e-10, atol=0)
    method = nnclr("individual:size=20")
    method(view_a, view_b, index=torch.tensor([3, 19, 0, 7, 8]))
    assert method.loss_fn.strategy.log_means.isfinite().nonzero().flatten().tolist() == [0, 3, 7, 8, 19]


def test_it_resumes_bit_for_bit_with_a_support_set_that_wraps(tmp_path: Path) -> None:
    def make() -> NNCLR:
        return NNCLR(
            Toy(batch_norm=True), heads(2), heads(2, EMBEDDING), "learnable", embedding_dimension=EMBEDDING, queue_size=10
        )

    method = assert_resumes_bit_for_bit(make, tmp_path)
    assert int(method.support_sets[1].position) == 7 * 4 % 10


def test_it_trains_under_autocast() -> None:
    method = nnclr("macl", objective="reweighted").float()
    with torch.autocast("cpu", torch.bfloat16):
        loss = method(*views(dtype=torch.float32))
    loss.backward()
    assert loss.dtype == method.support_sets[0].rows.dtype == torch.float32
    torch.testing.assert_close(method.support_sets[0].rows.norm(dim=1), torch.ones(7))
    assert all(value.isfinite().all() for value in gradients(method).values())


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="prediction_head has 2 heads where projection_head has 3: give as many"):
        NNCLR(Toy(), heads(3), heads(2, EMBEDDING))
    with pytest.raises(ConfigError, match="strategy 'uncertainty' needs a head for its scalars, which NNCLR has not"):
        nnclr("uncertainty")
    with pytest.raises(ShapeError, match=r"embeddings of shape \[5, 4\] must be \[B, 9\]"):
        nnclr(embedding_dimension=9)(*views())
