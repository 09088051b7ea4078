"""MoCo: the loss of its formula, what moves when and what does not, and a queue that survives save and resume."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor
from vision_method_toys import (
    EMBEDDING,
    Toy,
    assert_resumes_bit_for_bit,
    assert_states_equal,
    gradients,
    head,
    heads,
    macl_temperature,
    queue_loss,
    unit,
    views,
)

from tempplug.errors import ConfigError, ShapeError
from tempplug_adapters.vision.moco import MoCo, MomentumEncoder


def moco(strategy: str = "fixed:temperature=0.2", count: int = 1, **options: object) -> MoCo:
    projection_head = head() if count == 1 else heads(count)
    given = {"embedding_dimension": EMBEDDING, "queue_size": 7, "momentum": 0.9, **options}
    method = MoCo(Toy(), projection_head, strategy, **given).double()
    with torch.no_grad():  # as after some training: the copy is another network
        for parameter in method.momentum_encoder.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return method


def encoded(method: MoCo, view_a: Tensor, view_b: Tensor) -> tuple[Tensor, Tensor]:
    """Anchors of view_a and keys of view_b, of a method with one head, after a step moved the momentum encoder."""
    keys = method.momentum_encoder
    return method.projection_head(method.backbone(view_a)), keys.projection_head(keys.backbone(view_b)).detach()


@pytest.mark.parametrize("engine", ["dense", "tiled"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_fixed_is_infonce_over_the_queue_in_value_and_gradient(symmetric: bool, engine: str) -> None:
    torch.manual_seed(0)
    method = moco(symmetric=symmetric, engine=engine)
    view_a, view_b = views()
    queue = method.queues[0].rows.clone()
    loss = method(view_a, view_b)
    loss.backward()
    assert method.loss_fn.record.engine == engine
    found = gradients(method)
    method.zero_grad()
    expected = queue_loss(*encoded(method, view_a, view_b), queue, 0.2)
    if symmetric:
        expected = (expected + queue_loss(*encoded(method, view_b, view_a), queue, 0.2)) / 2
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    assert found.keys() == gradients(method).keys()
    assert not any(name.startswith("momentum_encoder") for name in found)
    assert not any(parameter.requires_grad for parameter in method.momentum_encoder.parameters())
    for name, gradient in gradients(method).items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-8, atol=1e-12)


def test_macl_follows_the_similarity_of_anchors_and_keys() -> None:
    method = moco("macl")
    queue = method.queues[0].rows.clone()
    view_a, view_b = views()
    loss = method(view_a, view_b)
    anchors, keys = encoded(method, view_a, view_b)
    temperature = macl_temperature((unit(anchors) * unit(keys)).sum(1))
    torch.testing.assert_close(loss, queue_loss(anchors, keys, queue, temperature), rtol=1e-10, atol=0)


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_keys_of_view_b_are_enqueued_once_a_step(symmetric: bool) -> None:
    method = moco(symmetric=symmetric)
    (queue,) = method.queues
    before = queue.rows.clone()
    first, second = views(seed=1), views(seed=2)
    method(*first)
    keys = encoded(method, *first)[1]
    torch.testing.assert_close(queue.rows, torch.cat([unit(keys), before[5:]]))
    method(*second)
    later = encoded(method, *second)[1]
    torch.testing.assert_close(queue.rows, torch.cat([unit(later)[2:], unit(keys)[3:], unit(later)[:2]]))
    assert int(queue.position) == 3


def test_a_batch_larger_than_the_queue_leaves_its_last_keys() -> None:
    method = moco()
    view_a, view_b = views(16)
    method(view_a, view_b).backward()
    keys = encoded(method, view_a, view_b)[1]
    # Rows 9 to 15 stay; the newest lies before the position, 16 mod 7.
    expected = unit(keys)[9:].roll(2, 0)
    torch.testing.assert_close(method.queues[0].rows, expected)
    assert int(method.queues[0].position) == 2


def test_only_a_training_step_moves_anything() -> None:
    method = moco()
    before = copy.deepcopy(method.state_dict())
    with torch.no_grad():
        trained = method(*views())
    method.eval()
    assert torch.equal(method(*views()), trained)
    assert_states_equal(method.state_dict(), before)
    method.train()
    method(*views())
    assert int(method.queues[0].position) == 5
    assert not torch.equal(
        method.state_dict()["momentum_encoder.projection_head.weight"], before["momentum_encoder.projection_head.weight"]
    )


def test_frozen_anchors_enqueue_nothing() -> None:
    method = moco().requires_grad_(False)
    method(*views())
    assert int(method.queues[0].position) == 0


def test_the_momentum_encoder_follows_after_each_optimizer_step() -> None:
    method = MoCo(Toy(batch_norm=True), head(), embedding_dimension=EMBEDDING, queue_size=7, momentum=0.75)
    optimizer = torch.optim.SGD([each for each in method.parameters() if each.requires_grad], lr=0.5)
    own = dict(method.named_parameters())
    average = {
        name: value.detach().clone() for name, value in own.items() if name.split(".")[0] in ("backbone", "projection_head")
    }
    for seed in range(4):
        average = {name: 0.75 * value + 0.25 * own[name].detach() for name, value in average.items()}
        loss = method(*views(seed=seed, dtype=torch.float32))
        for name, value in average.items():
            torch.testing.assert_close(own[f"momentum_encoder.{name}"].detach(), value)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weight = "backbone.layers.1.weight"
    assert (own[f"momentum_encoder.{weight}"] - own[weight]).abs().max() > 1e-3


def test_batch_normalisation_of_the_copy_has_statistics_of_its_own() -> None:
    method = MoCo(Toy(batch_norm=True), head(), embedding_dimension=EMBEDDING, queue_size=7).double()
    view_a, view_b = views()
    method(view_a, view_b + 3)
    pixels = (view_b + 3).flatten(1) @ method.momentum_encoder.backbone.layers[1].weight.T
    mean = (pixels + method.momentum_encoder.backbone.layers[1].bias).mean(0)
    torch.testing.assert_close(method.momentum_encoder.backbone.layers[2].running_mean, 0.1 * mean)
    assert (method.backbone.layers[2].running_mean - 0.1 * mean).abs().max() > 0.05


def test_each_head_has_a_queue_and_their_losses_are_summed() -> None:
    torch.manual_seed(0)
    method = moco(count=2)
    assert len(method.queues) == 2
    assert not torch.equal(method.queues[0].rows, method.queues[1].rows)
    rows = [queue.rows.clone() for queue in method.queues]
    view_a, view_b = views()
    loss = method(view_a, view_b)
    keys = method.momentum_encoder(view_b)
    anchors = method.embed(view_a)
    expected = sum(queue_loss(anchors[c], keys[c], rows[c], 0.2) for c in range(2))
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    for queue, key in zip(method.queues, keys, strict=True):
        torch.testing.assert_close(queue.rows[:5], unit(key))


def test_amcl_trains_with_several_heads() -> None:
    method = moco(f"amcl:dimension={EMBEDDING}", count=2, objective="dcl")
    method(*views()).backward()
    assert gradients(method)["loss_fn.strategy.phi.weight"].abs().sum() > 0
    assert {"loss_fn.strategy.phi.weight", "loss_fn.strategy.phi.bias"} & method.no_weight_decay()


def test_labels_and_index_reach_the_strategy() -> None:
    labels = torch.tensor([0, 1, 0, 0, 1])
    method = moco("head-tail:class_counts=9/1,temperature_head=0.5,temperature_tail=0.25")
    queue = method.queues[0].rows.clone()
    view_a, view_b = views()
    loss = method(view_a, view_b, labels=labels)
    of_row = torch.where(labels == 0, 0.5, 0.25)[:, None]
    torch.testing.assert_close(loss, queue_loss(*encoded(method, view_a, view_b), queue, of_row), rtol=1e-10, atol=0)
    method = moco("individual:size=20")
    method(view_a, view_b, index=torch.tensor([3, 19, 0, 7, 8]))
    assert method.loss_fn.strategy.log_means.isfinite().nonzero().flatten().tolist() == [0, 3, 7, 8, 19]


@pytest.mark.parametrize("symmetric", [False, True])
def test_it_resumes_bit_for_bit_with_a_queue_that_wraps(tmp_path: Path, symmetric: bool) -> None:
    def make() -> MoCo:
        backbone = Toy(batch_norm=True)
        return MoCo(backbone, heads(2), "learnable", embedding_dimension=4, queue_size=10, momentum=0.9, symmetric=symmetric)

    method = assert_resumes_bit_for_bit(make, tmp_path)
    assert int(method.queues[1].position) == 7 * 4 % 10


def test_it_can_be_copied_and_pickled() -> None:
    method = moco()
    for twin in (copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        assert_states_equal(twin.state_dict(), method.state_dict())
        assert torch.equal(twin(*views()), copy.deepcopy(method)(*views()))


def test_it_trains_under_autocast() -> None:
    method = MoCo(Toy(), head(), "macl", "reweighted", embedding_dimension=EMBEDDING, queue_size=7)
    with torch.autocast("cpu", torch.bfloat16):
        loss = method(*views(dtype=torch.float32))
    loss.backward()
    assert loss.dtype == method.queues[0].rows.dtype == torch.float32
    torch.testing.assert_close(method.queues[0].rows.norm(dim=1), torch.ones(7))
    assert all(value.isfinite().all() for value in gradients(method).values())


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"momentum=1\.5 of the momentum encoder must be at least 0 and at most 1"):
        moco(momentum=1.5)
    with pytest.raises(ConfigError, match=r"momentum=-0\.1"):
        MomentumEncoder(Toy(), head(), -0.1)
    with pytest.raises(ConfigError, match="strategy 'uncertainty' needs a head for its scalars, which MoCo has not"):
        moco("uncertainty")
    with pytest.raises(ConfigError, match="size=0 of a ring buffer"):
        moco(queue_size=0)


def test_embeddings_of_another_dimension_are_refused() -> None:
    with pytest.raises(ShapeError, match="queue has 9 dimensions where view_a has 4"):
        moco(embedding_dimension=9)(*views())
