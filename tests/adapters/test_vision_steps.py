"""The step modules of vision: what a step changes, resuming, precision, parameter groups and refusals."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from vision_method_toys import (
    AMCL,
    BARLOW_AMCL,
    CONTRASTIVE,
    EMBEDDING,
    FIXED,
    MACL,
    ROWS,
    Toy,
    assert_states_equal,
    create,
    gradients,
    head,
    heads,
    views,
)
from vision_train_toys import built, images, tiny  # noqa: F401

import tempplug
from tempplug.errors import ConfigError, ShapeError
from tempplug_adapters.vision.nnclr import NNCLR
from tempplug_adapters.vision.recipes import METHODS
from tempplug_adapters.vision.simclr import SimCLR
from tempplug_adapters.vision.simsiam import SimSiam

LABELS = torch.tensor([0, 1, 0, 0, 1])
WITHOUT_SOFTMAX = ("simsiam", "barlow-twins")


def step(name: str, strategy: str | None = FIXED, rows: int = ROWS, **options: Any) -> object:
    """A step in float64."""
    return create(name, strategy, **options).double()(*views(rows))


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("strategy", [each.name for each in tempplug.strategies() if each.name != "by-group"])
def test_supcon_takes_every_strategy(strategy: str) -> None:
    """Of what its data have; groups they have not."""
    module, data = built("supcon", strategy), images()
    assert METHODS["supcon"].load().specs(module)["objective"] == ("dcl" if strategy == "amcl" else "infonce")
    index = torch.arange(10)
    if module.loss_fn is not None:
        module.loss_fn.set_progress(epoch=0.0, step=0)
    module(index, data.batch(index), data.labels[index]).backward()
    assert all(value.isfinite().all() for value in gradients(module).values())
    assert any(value.any() for name, value in gradients(module).items() if name.startswith("step.backbone"))


@pytest.mark.parametrize("name", ["simclr", "moco", "nnclr"])
def test_index_and_amcl_reach_the_loss_and_one_layer_serves_all_heads(name: str) -> None:
    method = create(name, "individual:size=20").double()
    method(*views(), index=torch.tensor([3, 19, 0, 7, 8]))
    assert method.loss_fn.strategy.log_means.isfinite().nonzero().flatten().tolist() == [0, 3, 7, 8, 19]
    method = create(name, f"amcl:dimension={EMBEDDING}", count=2, objective="dcl").double()
    method(*views()).backward()
    layers = {each for each, _ in method.named_parameters() if "phi" in each}
    assert layers == {"loss_fn.strategy.phi.weight", "loss_fn.strategy.phi.bias"} == method.no_weight_decay()
    assert all(gradients(method)[each].abs().sum() > 0 for each in layers)


@pytest.mark.parametrize("name", ["simclr", "supcon", "moco", "moco-symmetric"])
def test_small_crops_are_compared_with_the_large_ones(name: str) -> None:
    method, (a, b), crops = create(name).double(), views(), [views(seed=seed)[0] for seed in (1, 2, 3)]
    method.eval()  # the queue and the momentum encoder stay
    given = {"labels": LABELS} if name == "supcon" else {}
    if name.startswith("moco"):
        method.symmetric = False
        pairs = [(each, b) for each in (a, *crops)] + [(each, a) for each in (b, *crops) if name == "moco-symmetric"]
    else:
        pairs = [(a, b), *((one, each) for each in crops for one in (a, b))]
    expected = torch.stack([method(*pair, **given) for pair in pairs]).mean()
    method.symmetric = name == "moco-symmetric"
    torch.testing.assert_close(method(a, b, small=crops, **given), expected)
    with pytest.raises(
        ConfigError, match="small crops are compared in several losses a step, and this loss has a state of each"
    ):
        create(name, "individual:size=20").double()(a, b, index=torch.arange(5), small=crops, **given)


@pytest.mark.parametrize("name", ["moco", "nnclr"])
def test_only_a_training_step_changes_anything(name: str) -> None:
    method = create(name).double()
    with torch.no_grad():
        for parameter in method.backbone.parameters():
            parameter.add_(0.1)
    before = copy.deepcopy(method.state_dict())
    with torch.no_grad():
        method(*views())
    method.eval()(*views())
    frozen = copy.deepcopy(method).train().requires_grad_(False)
    frozen(*views())
    assert_states_equal(method.state_dict(), before)
    assert all(torch.equal(value, before[key]) for key, value in frozen.state_dict().items() if "rows" in key)
    method.train()(*views())
    changed = {key.partition(".")[0] for key, value in method.state_dict().items() if not torch.equal(value, before[key])}
    assert changed == ({"momentum_encoder", "queues"} if name == "moco" else {"support_sets"})


@pytest.mark.parametrize("name", [*CONTRASTIVE, *WITHOUT_SOFTMAX])
def test_a_step_under_autocast_has_a_loss_in_single_precision(name: str) -> None:
    strategy = {"simsiam": AMCL, "barlow-twins": BARLOW_AMCL, "supcon": FIXED}.get(name, MACL)
    method = create(name, strategy, **({"objective": "reweighted"} if strategy == MACL else {}))
    method = method.to(memory_format=torch.channels_last)
    given = {"labels": LABELS} if name == "supcon" else {}
    with torch.autocast("cpu", torch.bfloat16):
        loss = method(*(view.to(memory_format=torch.channels_last) for view in views(dtype=torch.float32)), **given)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.isfinite()
    assert all(value.isfinite().all() for value in gradients(method).values())
    for each in (*getattr(method, "queues", ()), *getattr(method, "support_sets", ())):
        assert each.rows.dtype == torch.float32
        torch.testing.assert_close(each.rows.norm(dim=1), torch.ones(7))


@pytest.mark.parametrize(("name", "strategy"), [("simsiam", None), ("simsiam", AMCL), ("barlow-twins", None)])
def test_half_precision_is_left_before_similarities(name: str, strategy: str | None) -> None:
    torch.manual_seed(0)
    method = create(name, strategy)
    method.backbone.layers, method.projection_head, method.prediction_head = (nn.Flatten() for _ in range(3))
    pair = [view.flatten(1)[:, :EMBEDDING] for view in views(64, dtype=torch.float32)]
    exact = method(*pair)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(method(*pair), exact)
    assert method(*(view.bfloat16() for view in pair)).dtype == torch.float32


def test_a_feature_that_never_changes_gives_finite_gradients() -> None:
    method = create("barlow-twins", BARLOW_AMCL)
    with torch.no_grad():
        method.projection_head.weight[0] = 0
    loss = method(*views(dtype=torch.float32))
    loss.backward()
    assert loss.isfinite()
    assert all(value.isfinite().all() for value in gradients(method).values())


def test_weight_decay_spares_what_a_part_names() -> None:
    method = create("simclr", "learnable")
    method.backbone.layers[1].no_weight_decay = lambda: {"bias", "of_another_size"}
    assert method.no_weight_decay() == {"backbone.layers.1.bias", "loss_fn.strategy.log_scale"}
    assert create("simclr").no_weight_decay() == set()
    for name, strategy in (("simsiam", AMCL), ("barlow-twins", BARLOW_AMCL)):
        method = create(name, strategy)
        assert method.loss_fn is None
        assert method.no_weight_decay() == {"strategy.phi.weight", "strategy.phi.bias"}


def test_amcl_may_be_an_instance_where_there_is_no_softmax_and_nothing_else_may() -> None:
    amcl = tempplug.create_strategy(AMCL)
    assert create("simsiam", amcl).strategy is amcl  # type: ignore[arg-type]
    wrong = (tempplug.create_strategy("macl"), tempplug.ContrastiveLoss("macl"), tempplug.ContrastiveLoss(AMCL), 0.1)
    for strategy in ("fixed", "macl:alpha=1", "individual", "head-tail", "learnable", "schedule", *wrong):
        for name, title in (("simsiam", "SimSiam"), ("barlow-twins", "Barlow Twins")):
            with pytest.raises(ConfigError, match=f"does not apply: {title} has no softmax .* Only 'amcl'"):
                create(name, strategy)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: SimCLR(nn.Flatten(), head()), ConfigError, "backbone of type Flatten has dimension=None"),
        (lambda: create("simclr")(views()[0], views(4)[1]), ShapeError, r"view_b of shape \[4, 3, 2, 2\] must have view_a's"),
        (lambda: create("supcon")(*views()), ConfigError, "SupCon needs labels"),
        (lambda: create("moco", momentum=1.5), ConfigError, r"momentum=1\.5 of the momentum encoder must be at least 0 and"),
        (lambda: create("moco", "uncertainty"), ConfigError, "strategy 'uncertainty' needs a head .*which MoCo does not have"),
        (lambda: create("nnclr", "uncertainty"), ConfigError, "strategy 'uncertainty' needs a head .*which NNCLR does not"),
        (lambda: step("nnclr", embedding_dimension=9), ShapeError, r"embeddings of shape \[5, 4\] must be \[B, 9\]"),
        (lambda: NNCLR(Toy(), heads(3), heads(2, EMBEDDING)), ConfigError, r"has 2 heads where projection_head has 3: give as"),
        (lambda: SimSiam(Toy(), heads(2), head(EMBEDDING)), ConfigError, "has 1 heads where projection_head has 2"),
        (lambda: step("simsiam", "amcl:dimension=9"), ShapeError, f"dimension=9.* must be {EMBEDDING}"),
        (lambda: create("simsiam", "amcl"), ConfigError, "needs dimension="),
        (lambda: step("barlow-twins", BARLOW_AMCL, 4), ShapeError, r"holds 4 images where .* dimension=5: .*drop_last=True"),
        (lambda: step("barlow-twins", None, 1), ShapeError, "over the batch, which has 1 image; wanted 2"),
        (lambda: create("barlow-twins", None, redundancy_weight=-0.1), ConfigError, r"redundancy_weight=-0\.1 of Barlow Twins"),
    ],
)
def test_faults_are_named(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
