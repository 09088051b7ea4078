"""Each strategy: its temperatures, its options' ranges, what it needs, and what it keeps."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch

from tempplug import Batch, ContrastiveLoss, create_objective, create_strategy
from tempplug.errors import ConfigError


def batch(*similarities: float, **given: torch.Tensor) -> Batch:
    return Batch(positive_similarity=torch.tensor(similarities or (0.5,), dtype=torch.float64), **given)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fixed:temperature=-0.1", "temperature=-0.1 of strategy 'fixed' must be greater than 0."),
        ("fixed:temperature=warm", "temperature=warm of strategy 'fixed' must be a number."),
        ("learnable:initial_temperature=0", "initial_temperature=0 of strategy 'learnable' must be greater than 0."),
        ("learnable:initial_temperature=0.005", "must be at least 1/max_scale = 0.01."),
        ("macl:alpha=-1", "alpha=-1 of strategy 'macl' must be at least 0 and at most 1e+06."),
        ("macl:threshold=1.5", "threshold=1.5 of strategy 'macl' must be at least -1 and at most 1."),
        ("macl:floor_ratio=0", "floor_ratio=0 of strategy 'macl' must be greater than 0 and at most 1."),
        ("macl:strict=1", "strict=1 of strategy 'macl' must be true or false."),
        ("dystress:temperature_max=0.05", "temperature_max=0.05 of strategy 'dystress' must be at least temperature_min=0.1."),
        ("dystress:profile=square", "must be one of cosine, linear, exponential, monotonic, shifted."),
        ("dystress:shift=0.2", "shift=0.2 of strategy 'dystress' is ignored by profile=cosine"),
        ("dystress:profile=linear,width=0.6", "width=0.6 of strategy 'dystress' is ignored by profile=linear"),
        ("dystress:profile=shifted,rate=2", "rate=2 of strategy 'dystress' is ignored by profile=shifted"),
        ("temperature-free:eps=1e-8", "eps=1e-08 of strategy 'temperature-free' must be at least 1.2e-07 and less than 1."),
        ("temperature-free:eps=1", "must be at least 1.2e-07 and less than 1."),
        ("schedule:period=0", "period=0 of strategy 'schedule' must be greater than 0."),
        ("schedule:temperature_min=2", "must be at least temperature_min=2."),
        ("schedule:seed=0.5", "seed=0.5 of strategy 'schedule' must be an integer"),
        ("schedule:granularity=batch", "granularity=batch of strategy 'schedule' must be one of step, epoch."),
        ("head-tail:class_counts=5", "class_counts=5 of strategy 'head-tail' must be a list of 2 or more numbers"),
        ("head-tail:class_counts=5/3,head_classes=3", "must be at most 2, the number of classes."),
        ("head-tail", "strategy 'head-tail' needs class_counts=."),
        ("uncertainty:base_temperature=0", "must be greater than 0."),
        ("amcl", "strategy 'amcl' needs dimension=."),
        ("amcl:dimension=0", "dimension=0 of strategy 'amcl' must be an integer, at least 1 and at most 65536."),
        ("amcl:dimension=4,floor=0", "floor=0 of strategy 'amcl' must be greater than 0."),
        ("amcl:dimension=4,beta=-1", "beta=-1 of strategy 'amcl' must be at least 0 and at most 1e+06."),
        ("individual:size=4,gamma=0", "gamma=0 of strategy 'individual' must be greater than 0 and at most 1."),
        ("individual:size=4,temperature_init=2", "must lie between temperature_min=0.05 and temperature_max=1."),
    ],
)
def test_an_option_out_of_range_is_named_with_its_value_and_its_range(spec: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        create_strategy(spec)
    assert message in str(caught.value)


def test_learnable_starts_at_its_temperature_and_is_brought_back_to_its_bound() -> None:
    strategy = create_strategy("learnable:initial_temperature=0.05,max_scale=50")
    assert strategy.prepare(batch()).temperature(torch.zeros(1)).item() == pytest.approx(0.05)
    with torch.no_grad():
        strategy.log_scale.fill_(10.0)
    assert strategy.prepare(batch()).temperature(torch.zeros(1)).item() == pytest.approx(0.02)
    assert strategy.log_scale.item() == pytest.approx(math.log(50))
    assert strategy.no_weight_decay() == {"log_scale"}


@pytest.mark.parametrize(
    ("spec", "given", "message"),
    [
        ("macl:base_temperature=0.05,alpha=2,threshold=0.8,strict=true", {}, "choose a smaller alpha or threshold, or strict"),
        ("schedule", {}, "'schedule' was never told its progress: call set_progress"),
        ("head-tail:class_counts=10/30", {}, "'head-tail' needs the class of each anchor: pass labels= to the loss"),
        (
            "head-tail:class_counts=9/3",
            {"labels": torch.tensor([0, 2])},
            "labels holds 2; class_counts of strategy 'head-tail' allows",
        ),
        ("mm-ts:class_counts=9/3", {"labels": torch.tensor([0, 1])}, "'mm-ts' was never told its progress: call set_progress"),
        (
            "mm-ts:class_counts=9/3",
            {"labels": torch.tensor([0, -1])},
            "labels holds -1; class_counts of strategy 'mm-ts' allows",
        ),
        ("mm-ts:class_counts=9/3,amplitude=0.1", {}, "temperature_min=0.05 of strategy 'mm-ts' must be greater than half of"),
        ("tempnet:dimension=4,temperature_max=0.001", {}, "temperature_max=0.001 of strategy 'tempnet' must be at least"),
        ("uncertainty", {}, "'uncertainty' needs the learned uncertainty of each anchor: pass uncertainty="),
    ],
)
def test_a_batch_that_does_not_serve_is_refused(spec: str, given: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create_strategy(spec).prepare(batch(0.3, **given))


def test_each_view_has_a_network_of_its_own() -> None:
    """Published for images and texts; one way, the other network has a gradient of 0."""
    rows = torch.nn.functional.normalize(torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    torch.manual_seed(0)
    strategy = create_strategy("tempnet:dimension=4,per_view=true,temperature_max=0.4").double()
    assert strategy.no_weight_decay() == {name for name, _ in strategy.named_parameters()}

    def scales(of_view_a: int | None) -> torch.Tensor:
        return strategy.prepare(Batch(rows[:, 0], rows, rows, of_view_a=of_view_a)).scale

    torch.testing.assert_close(scales(3), torch.cat([scales(None)[:3], scales(0)[3:]]), rtol=1e-12, atol=0)
    assert not torch.equal(scales(None), scales(0))
    gradients = torch.autograd.grad(scales(None).sum(), list(strategy.parameters()))
    half = len(gradients) // 2
    assert [bool(each.any()) for each in gradients] == [True] * half + [False] * half


def test_shifted_dystress_defaults_to_the_width_that_ends_at_the_maximum_and_warns_of_another() -> None:
    assert create_strategy("dystress:profile=shifted,shift=-0.4").width == pytest.approx(0.7)
    with pytest.warns(RuntimeWarning, match="not temperature_max=0.2, which width=0.7 gives"):
        create_strategy("dystress:profile=shifted,shift=-0.4,width=0.5")


def test_a_random_schedule_depends_on_seed_and_whole_epoch_alone() -> None:
    def draw(seed: int, epoch: float, options: str = "") -> float:
        strategy = create_strategy(f"schedule:shape=random,seed={seed}{options}")
        strategy.set_progress(epoch=epoch)
        return strategy.temperature()

    torch.manual_seed(1)
    first = draw(0, 7.0)
    torch.manual_seed(2)
    assert draw(0, 7.9) == first == draw(0, 7.0, ",granularity=epoch")
    assert len({first, draw(0, 8.0), draw(1, 7.0), draw(0, 9.5)}) == 4
    drawn = [draw(0, epoch) for epoch in range(400)]
    assert 0.1 <= min(drawn) < 0.15
    assert 0.95 < max(drawn) <= 1.0


@pytest.mark.parametrize(
    ("options", "epoch", "t"),
    [
        ("period=5", 2.75, 2.75),
        ("period=25", 2.75, 2.75),
        # once an epoch, numbered from 1; at every step where a period has fewer than 20 epochs
        ("period=25,granularity=epoch", 0.0, 1),
        ("period=25,granularity=epoch", 12.75, 13),
        ("period=20,granularity=epoch", 9.99, 10),
        ("period=19.9,granularity=epoch", 9.99, 9.99),
        ("period=5,granularity=epoch", 2.75, 2.75),
        ("granularity=epoch", 137.5, 138),
    ],
)
def test_a_schedule_counts_epochs_as_it_is_told(options: str, epoch: float, t: float) -> None:
    period = 400.0 if "period" not in options else float(options.split(",")[0].removeprefix("period="))
    for shape, height in (
        ("cosine", 0.5 * (1 + math.cos(2 * math.pi * t / period))),
        ("triangle", abs(1 - 2 * t / period)),
        ("step", t >= period / 2),
    ):
        strategy = create_strategy(f"schedule:shape={shape},temperature_min=0.1,temperature_max=0.6,{options}")
        strategy.set_progress(epoch=epoch)
        assert strategy.temperature() == pytest.approx(0.1 + 0.5 * height, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "epochs", "steps", "said"),
    [
        ("period=1", 5, 60, ""),
        ("period=1", 5, 30, ""),  # 6 a period: 1, 0.75, 0.25 and 0 of the range
        ("period=1", 5, 25, "3 different temperatures, from 0.186 to 1, .* has 5 steps, the training 25. .* period=2.4 or"),
        ("period=1", 5, 20, "3 different temperatures, from 0.1 to 1, .* a period has 4 steps"),
        ("period=1", 5, 15, "2 different temperatures, from 0.325 to 1, where its options say 0.1 to 1: a period has 3 "),
        ("period=1", 5, 5, "1 different temperature, from 1 to 1, .* The remedy: smaller batches or more epochs."),
        ("shape=triangle,period=1", 5, 35, "4 different temperatures, from 0.229 to 1, "),  # a seventh of the range is missed
        ("shape=triangle,period=1", 5, 60, ""),
        ("shape=step,period=1", 5, 15, ""),
        ("shape=step,period=1", 5, 5, "1 different temperature, from 0.1 to 0.1, "),
        ("period=400", 5, 55, "from 0.999 to 1, .* a period has 4400 steps, the training 55. The remedy: period=5 or shorter."),
        ("period=40,granularity=epoch", 200, 200, ""),
        ("period=400,granularity=epoch", 2000, 44_000, ""),
        ("", 5, 55, "a period has 4400 steps"),  # without a length
        ("shape=random", 2, 55, "2 different temperatures, .*: it draws once an epoch. The remedy: more epochs."),
        ("shape=random", 200, 400, ""),
        ("temperature_min=1", 5, 5, ""),  # one temperature is what was asked for
        ("period=1", 0, 0, ""),
        ("period=1", 5, 0, ""),
    ],
)
def test_a_schedule_says_what_a_training_misses_of_its_range(options: str, epochs: float, steps: int, said: str) -> None:
    missed = create_strategy(f"schedule:{options}" if options else "schedule").missed(epochs, steps)
    if not said:
        assert missed == ""
    else:
        assert re.search(said, missed), missed
        assert missed.startswith("strategy 'schedule' will take ")


@pytest.mark.parametrize("shape", ["cosine", "triangle", "step"])
@pytest.mark.parametrize("given", [0.5, 1, 3, 40, 4000])
def test_the_period_that_a_schedule_recommends_shows_its_range(shape: str, given: float) -> None:
    for epochs, steps in ((1, 12), (5, 15), (5, 61), (10, 20), (3.5, 90), (200, 200)):
        missed = create_strategy(f"schedule:shape={shape},period={given}").missed(epochs, steps)
        if missed:
            (period,) = re.findall(r"period=(\S+) or", missed)
            assert create_strategy(f"schedule:shape={shape},period={period}").missed(epochs, steps) == "", missed


def test_a_schedule_without_a_period_has_a_fifth_of_the_training_and_else_400_epochs() -> None:
    """Five periods of an epoch, each sampled at every step, also where a recipe asks for whole epochs."""
    loss = ContrastiveLoss("schedule:temperature_min=0.1,temperature_max=1,granularity=epoch")
    schedule: Any = loss.strategy
    schedule.set_progress(199)
    assert schedule.temperature() == pytest.approx(0.1)
    for epochs in (10, 0, 5):  # 0: nothing is trained
        loss.set_length(epochs)
        assert schedule.options["period"] == (epochs or 10) / 5
    taken = []
    for step in range(55):
        schedule.set_progress(epoch=step / 11)
        taken.append(schedule.temperature())
    assert taken == pytest.approx([0.55 + 0.45 * math.cos(2 * math.pi * step / 11) for step in range(55)])
    given = create_strategy("schedule:period=7")
    given.set_length(10)
    assert given.options["period"] == 7
    for wrong in (-1, math.inf):
        with pytest.raises(ConfigError, match="of set_length must be at least 0"):
            given.set_length(wrong)
    for wrong in (-1, math.nan, math.inf):
        with pytest.raises(ConfigError, match="must be at least 0"):
            given.set_progress(epoch=wrong)


def test_head_tail_takes_the_more_frequent_half_and_breaks_ties_by_the_lower_class() -> None:
    assert create_strategy("head-tail:class_counts=10/30/10/20/10").head == (0, 1, 3)
    assert create_strategy("head-tail:class_counts=1/5/3,head_classes=1").head == (1,)
    assert create_strategy("head-tail:class_counts=1/5/3,head_classes=0/2").head == (0, 2)


@pytest.mark.parametrize(
    "spec",
    [
        "fixed:temperature={}",
        "learnable:initial_temperature={},max_scale=1e9",
        "macl:base_temperature={}",
        "dystress:temperature_min={},temperature_max=1e9",
        "schedule:temperature_min={}",
        "head-tail:class_counts=3/1,temperature_head={}",
        "head-tail:class_counts=3/1,temperature_tail={}",
        "amcl:dimension=2,floor={}",
        "uncertainty:base_temperature={}",
        "individual:size=3,temperature_min={},temperature_init=1",
    ],
)
def test_temperatures_leave_losses_and_gradients_in_float32(spec: str) -> None:
    for temperature in ("1e-38", "1e-320", "1e39"):
        with pytest.raises(ConfigError, match=r"must lie between 1e-09 and 1e\+09: beyond, losses or gradients leave float32"):
            create_strategy(spec.format(temperature))


def test_what_follows_from_options_has_one_too() -> None:
    with pytest.raises(ConfigError, match="lowest temperature 1e-10 of strategy 'macl' must lie between"):
        create_strategy("macl:base_temperature=1e-8,floor_ratio=0.01")
    with pytest.raises(ConfigError, match=r"highest temperature 1e\+10 of strategy 'macl' must lie between"):
        create_strategy("macl:base_temperature=1e8,alpha=99")
    with pytest.raises(ConfigError, match="second_temperature=1e-40 of objective 'dual-temperature' must lie between"):
        create_objective("dual-temperature:second_temperature=1e-40")
    assert ContrastiveLoss("fixed:temperature=1e-9")(torch.eye(3), torch.eye(3)).isfinite()
