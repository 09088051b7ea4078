"""SimCLR: the loss of its formula, one pass for both views, and everything that strategies want gets through."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from vision_method_toys import (
    EMBEDDING,
    Toy,
    assert_resumes_bit_for_bit,
    gradients,
    head,
    heads,
    macl_temperature,
    nt_xent,
    unit,
    views,
)

from tempplug.errors import ConfigError, ShapeError
from tempplug_adapters.vision.simclr import SimCLR


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_fixed_is_nt_xent_in_value_and_gradient(engine: str) -> None:
    torch.manual_seed(0)
    method = SimCLR(Toy(), head(), "fixed:temperature=0.2", engine=engine).double()
    view_a, view_b = views()
    loss = method(view_a, view_b)
    loss.backward()
    assert method.loss_fn.record.engine == engine
    found = gradients(method)
    method.zero_grad()
    embeddings = [method.projection_head(method.backbone(view)) for view in (view_a, view_b)]
    expected = nt_xent(embeddings[0], embeddings[1], 0.2)
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    assert found.keys() == gradients(method).keys() != set()
    for name, gradient in gradients(method).items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-8, atol=1e-12)


def test_macl_follows_the_mean_similarity_of_the_positives() -> None:
    method = SimCLR(Toy(), head(), "macl").double()
    view_a, view_b = views()
    loss = method(view_a, view_b)
    first, second = (method.projection_head(method.backbone(view)) for view in (view_a, view_b))
    temperature = macl_temperature((unit(first) * unit(second)).sum(1))
    torch.testing.assert_close(loss, nt_xent(first, second, temperature), rtol=1e-10, atol=0)
    assert method.loss_fn.record.temperature_mean.item() == pytest.approx(temperature.item())


def test_both_views_are_one_batch_for_batch_normalisation() -> None:
    method = SimCLR(Toy(batch_norm=True), head()).double()
    view_a, view_b = views()
    loss = method(view_a, view_b + 3)
    assert method.backbone.calls == 1
    together = method.projection_head(method.backbone(torch.cat([view_a, view_b + 3])))
    torch.testing.assert_close(loss, nt_xent(together[:5], together[5:], 0.1), rtol=1e-10, atol=0)


def test_losses_of_several_heads_are_summed() -> None:
    method = SimCLR(Toy(), heads(3), "fixed:temperature=0.3").double()
    view_a, view_b = views()
    expected = sum(
        nt_xent(each(method.backbone(view_a)), each(method.backbone(view_b)), 0.3) for each in method.projection_head
    )
    torch.testing.assert_close(method(view_a, view_b), expected, rtol=1e-10, atol=0)


def test_amcl_learns_its_layer_and_one_layer_serves_all_heads() -> None:
    method = SimCLR(Toy(), heads(2), f"amcl:dimension={EMBEDDING}", "dcl")
    method(*views(dtype=torch.float32)).backward()
    layers = [name for name, _ in method.named_parameters() if name.startswith("loss_fn.strategy.phi")]
    assert layers == ["loss_fn.strategy.phi.weight", "loss_fn.strategy.phi.bias"]
    assert all(gradients(method)[name].abs().sum() > 0 for name in layers)


def test_uncertainty_has_a_head_of_its_own() -> None:
    torch.manual_seed(1)
    method = SimCLR(Toy(), head(), "uncertainty:base_temperature=0.2").double()
    view_a, view_b = views()
    loss = method(view_a, view_b)
    loss.backward()
    representations = method.backbone(torch.cat([view_a, view_b]))
    assert isinstance(method.uncertainty_head, nn.Linear)
    scalar = method.uncertainty_head(representations).squeeze(1)
    embeddings = method.projection_head(representations)
    expected = nt_xent(embeddings[:5], embeddings[5:], 0.2 / torch.sigmoid(scalar))
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    assert gradients(method)["uncertainty_head.weight"].abs().sum() > 0
    assert SimCLR(Toy(), head()).uncertainty_head is None


def test_labels_reach_the_strategy() -> None:
    method = SimCLR(Toy(), head(), "head-tail:class_counts=9/1,temperature_head=0.5,temperature_tail=0.25").double()
    view_a, view_b = views()
    labels = torch.tensor([0, 1, 0, 0, 1])
    of_row = torch.where(labels == 0, 0.5, 0.25).double().repeat(2)
    first, second = (method.projection_head(method.backbone(view)) for view in (view_a, view_b))
    torch.testing.assert_close(method(view_a, view_b, labels=labels), nt_xent(first, second, of_row), rtol=1e-10, atol=0)
    with pytest.raises(ConfigError, match="labels="):
        method(view_a, view_b)


def test_index_reaches_the_strategy() -> None:
    method = SimCLR(Toy(), head(), "individual:size=20").double()
    method(*views(), index=torch.tensor([3, 19, 0, 7, 8]))
    moved = method.loss_fn.strategy.log_means.isfinite().nonzero().flatten()
    assert moved.tolist() == [0, 3, 7, 8, 19]


def test_weight_decay_spares_what_a_part_of_it_names() -> None:
    backbone = Toy()
    backbone.layers[1].no_weight_decay = lambda: {"bias", "of_another_size"}
    method = SimCLR(backbone, head(), "learnable")
    assert method.no_weight_decay() == {"backbone.layers.1.bias", "loss_fn.strategy.log_scale"}
    assert SimCLR(Toy(), head()).no_weight_decay() == set()


def test_it_trains_under_autocast_and_channels_last() -> None:
    torch.manual_seed(0)
    method = SimCLR(Toy(batch_norm=True), head(), "macl", "reweighted").to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(method.parameters(), lr=0.1)
    view_a, view_b = (view.to(memory_format=torch.channels_last) for view in views(16, dtype=torch.float32))
    losses = []
    for _ in range(20):
        with torch.autocast("cpu", torch.bfloat16):
            loss = method(view_a, view_b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert loss.dtype == torch.float32
    assert losses[-1] < 0.8 * losses[0]


def test_it_resumes_bit_for_bit(tmp_path: pytest.TempPathFactory) -> None:
    assert_resumes_bit_for_bit(lambda: SimCLR(Toy(batch_norm=True), heads(2), "learnable"), tmp_path)


def test_a_backbone_without_dimension_is_refused() -> None:
    with pytest.raises(ConfigError, match="backbone of type Flatten has dimension=None"):
        SimCLR(nn.Flatten(), head())


def test_views_of_different_shapes_are_refused() -> None:
    view_a, view_b = views(dtype=torch.float32)
    with pytest.raises(ShapeError, match=r"view_b of shape \[4, 3, 2, 2\] must have view_a's shape \[5, 3, 2, 2\]"):
        SimCLR(Toy(), head())(view_a, view_b[:4])
