"""The Trainer mixin on a tiny encoder: what it changes, and what it leaves alone."""

from __future__ import annotations

import copy
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_toys import (
    TEMPERATURE,
    Data,
    Encoder,
    MyTrainer,
    PlainTrainer,
    ScaleAndShift,
    cross_view,
    logged,
    make,
    weights,
)
from torch import nn
from torch.nn import functional as F
from transformers import HfArgumentParser, Trainer, TrainerCallback

import tempplug
from tempplug.errors import ConfigError
from tempplug_adapters.huggingface import TemperatureArguments, TemperatureTrainerMixin, Views
from tempplug_adapters.huggingface.callback import set_training_length

MODELS_RATE = "learnable:learning_rate=none"
PLAIN_SGD: dict[str, Any] = {"optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}


@pytest.mark.slow
def test_fixed_reproduces_a_plain_trainer(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"max_steps": 6, "gradient_accumulation_steps": 3, "weight_decay": 0.1, "max_grad_norm": 0.5}
    plain = make(tmp_path, None, PlainTrainer, **arguments)
    plain.train()
    ours = make(tmp_path, f"fixed:temperature={TEMPERATURE}", **arguments)
    start = weights(ours)
    ours.train()
    assert [len(group["params"]) for group in ours.optimizer.param_groups] == [2, 4]
    assert logged(ours, "loss") == pytest.approx(logged(plain, "loss"), rel=1e-5)
    assert logged(ours, "grad_norm") == pytest.approx(logged(plain, "grad_norm"), rel=1e-4)
    for name, value in weights(ours).items():
        torch.testing.assert_close(value, weights(plain)[name], rtol=1e-4, atol=1e-6)
        assert not torch.equal(value, start[name])


@pytest.mark.parametrize("items", [32, 24])
def test_gradient_accumulation_takes_the_mean_of_the_micro_batches(tmp_path: Path, items: int) -> None:
    """24 items end the epoch in a window of three micro-batches, which counts as three, not as four."""
    data, loss = Data(items), cross_view(MODELS_RATE)
    more: dict[str, Any] = {"gradient_accumulation_steps": 4, "train_sampling_strategy": "sequential", "max_steps": 1}
    keywords = {"train_dataset": data}
    trainer = make(tmp_path, copy.deepcopy(loss), dropout=0.0, keywords=keywords, **PLAIN_SGD, **more)
    model = copy.deepcopy(trainer.model)
    trainer.train()
    mean = torch.stack([loss(model(data.a[i : i + 8]), model(data.b[i : i + 8])) for i in range(0, items, 8)]).mean()
    mean.backward()
    assert logged(trainer, "loss") == pytest.approx([mean.item()], rel=1e-5)
    pairs = [*zip(model.parameters(), trainer.model.parameters(), strict=True)]
    pairs += zip(loss.parameters(), trainer.contrastive_loss.parameters(), strict=True)
    for before, after in pairs:
        assert before.grad is not None
        torch.testing.assert_close(after, before - before.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("optim", ["sgd", "adafactor"])
def test_what_the_loss_learns_joins_any_optimizer_spared_by_weight_decay_where_it_says_so(tmp_path: Path, optim: str) -> None:
    strategy = ScaleAndShift()
    trainer = make(tmp_path, cross_view(strategy), optim=optim, max_steps=4, weight_decay=0.1)
    trainer.train()
    groups = [([id(each) for each in group["params"]], group["weight_decay"]) for group in trainer.optimizer.param_groups[2:]]
    assert groups == [([id(strategy.log_gain)], 0.1), ([id(strategy.log_scale)], 0.0)]
    assert 1.0 not in (strategy.log_scale.item(), strategy.log_gain.item())
    trainer.train()
    assert len(trainer.optimizer.param_groups) == 4


def test_gradients_of_the_loss_do_not_pile_up(tmp_path: Path) -> None:
    """With SGD on one repeated batch and a model that stands still, every step of the temperature is its own gradient."""
    loss, data, model = cross_view(MODELS_RATE), Data(8), Encoder(dropout=0.0).requires_grad_(requires_grad=False)
    expected = copy.deepcopy(loss)
    for _ in range(4):
        (gradient,) = torch.autograd.grad(expected(model(data.a), model(data.b)), list(expected.parameters()))
        with torch.no_grad():
            next(expected.parameters()).sub_(0.05 * gradient)
    keywords = {"model": model, "train_dataset": data}
    make(tmp_path, loss, keywords=keywords, **{**PLAIN_SGD, "learning_rate": 0.05}, max_steps=4).train()
    torch.testing.assert_close(next(loss.parameters()), next(expected.parameters()), rtol=1e-5, atol=0)


def test_the_loss_is_clipped_by_its_own_norm(tmp_path: Path) -> None:
    """Steep temperature gradients must not shrink the encoder's steps: they stay those of a fixed temperature."""
    arguments = {**PLAIN_SGD, "max_grad_norm": 1e-3, "max_steps": 1}
    fixed = make(tmp_path, f"fixed:temperature={TEMPERATURE}", **arguments)
    fixed.train()
    learned = make(tmp_path, f"{MODELS_RATE},initial_temperature={TEMPERATURE}", **arguments)
    (parameter,) = learned.contrastive_loss.parameters()
    start = parameter.item()
    learned.train()
    assert abs(parameter.item() - start) == pytest.approx(1e-3, rel=1e-3)
    for name, value in weights(learned).items():
        torch.testing.assert_close(value, weights(fixed)[name], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("flags", "rate"),
    [
        ("learnable --temperature-args learning_rate=0.03", 0.03),
        ("learnable --temperature-learning-rate 0.2", 0.2),
        ("amcl:dimension=8 --temperature-learning-rate 0.2", 0.2),
        ("amcl:dimension=8", 0.02),
    ],
)
def test_what_the_loss_learns_has_a_rate_of_its_own_that_follows_the_schedule(tmp_path: Path, flags: str, rate: float) -> None:
    words = f"--temperature-strategy {flags}".split()
    (temperature,) = HfArgumentParser(TemperatureArguments).parse_args_into_dataclasses(words)
    rates: list[tuple[float, float]] = []

    class Watching(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            model, *_, own = kwargs["optimizer"].param_groups
            assert {id(each) for each in own["params"]} == {id(each) for each in trainer.contrastive_loss.parameters()}
            rates.append((model["lr"], own["lr"]))

    keywords = {"callbacks": [Watching()]}
    loss = temperature.create_loss("cross-view")
    trainer = make(tmp_path, loss, keywords=keywords, max_steps=4, learning_rate=0.02, warmup_steps=1)
    trainer.train()
    shares = (0, 1, 2 / 3, 1 / 3)
    assert rates == [(pytest.approx(0.02 * share), pytest.approx(rate * share)) for share in shares]
    assert logged(trainer, "learning_rate") == pytest.approx([0.02 * share for share in shares])


def test_an_objective_goes_by_the_run_too() -> None:
    loss = tempplug.ContrastiveLoss(objective="sogclr:size=4,decay=0.5")
    set_training_length(loss, 6.0, log=True)
    loss.set_progress(epoch=3)
    assert loss.objective.current_gamma() == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("spec", "run", "period", "said"),
    [
        # eight batches an epoch; 0.981 is 0.55 + 0.45·cos(2π·15/320)
        ("schedule", {"num_train_epochs": 2}, 0.4, ""),
        ("schedule", {"max_steps": 4}, 0.1, "3 different temperatures, from 0.1 to 1, .* has 0.8 steps, the training 4."),
        ("schedule:period=3", {"num_train_epochs": 2, "gradient_accumulation_steps": 2}, 3, ""),
        ("schedule:period=0.25", {"max_steps": 16}, 0.25, "2 different temperatures, from 0.1 to 1, .* has 2 steps, the tr"),
        ("schedule:period=40", {"num_train_epochs": 2}, 40, "0.981 to 1, .* has 320 steps, the training 16. .* period=2 or"),
    ],
)
def test_a_schedule_goes_by_the_run_and_warns_once_if_most_of_it_is_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spec: str, run: dict[str, Any], period: float, said: str
) -> None:
    """All micro-batches of a step share one progress."""
    loss = cross_view(spec)
    with caplog.at_level(logging.WARNING, logger="tempplug_adapters"):
        trainer = make(tmp_path, loss, **run)
        trainer.train()
        trainer.train()
    messages = [record.getMessage() for record in caplog.records]
    told = [each for each in messages if each.startswith(f"strategy 'schedule' goes by the {5 * period:g} epochs of this run")]
    assert len(told) == (spec == "schedule")
    expected, temperatures = tempplug.create_strategy("schedule", period=period), []
    for step in range(trainer.state.global_step):
        expected.set_progress(epoch=step * trainer.args.gradient_accumulation_steps / 8)
        temperatures.append(expected.temperature())
    assert loss.strategy.options["period"] == pytest.approx(period)
    assert logged(trainer, "temperature") == pytest.approx(temperatures)
    missed = [each for each in messages if "different temperature" in each]
    assert len(missed) == bool(said) * 2, "once in each training"
    assert all(re.search(said, each) for each in missed)
    assert all(f" {len({round(each, 4) for each in temperatures})} different" in each for each in missed)


def test_a_schedule_knows_its_progress_before_the_first_step(tmp_path: Path) -> None:
    more: dict[str, Any] = {"eval_on_start": True, "eval_strategy": "epoch", "max_steps": 1}
    trainer = make(tmp_path, "schedule", keywords={"eval_dataset": Data(16)}, **more)
    trainer.train()
    assert "eval_loss" in trainer.state.log_history[0]


def test_an_optimizer_of_ones_own_gets_the_parameters_of_the_loss_unless_it_has_a_scheduler(tmp_path: Path) -> None:
    loss, model = cross_view("learnable"), Encoder()

    def train(parameters: list[nn.Parameter], scheduled: bool) -> list[dict[str, Any]]:
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0) if scheduled else None
        make(tmp_path, loss, keywords={"model": model, "optimizers": (optimizer, scheduler)}, max_steps=2).train()
        return optimizer.param_groups

    start = next(loss.parameters()).item()
    assert train(list(model.parameters()), scheduled=False)[1]["params"] == list(loss.parameters())
    assert next(loss.parameters()).item() != start
    with pytest.raises(ConfigError, match=re.escape("build the optimizer with loss.parameters()")):
        train(list(model.parameters()), scheduled=True)
    assert len(train([*model.parameters(), *loss.parameters()], scheduled=True)) == 1


def test_views_may_bring_arguments_of_the_loss_and_a_further_loss(tmp_path: Path) -> None:
    class Negatives(MyTrainer):
        def contrastive_views(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, ...]:
            a, b, negatives = model(torch.cat([inputs["a"], inputs["b"], -inputs["a"]])).chunk(3)
            return Views(a, b, {"hard_negatives": negatives}, 0.5 * a.square().mean())

    data = Data(8)
    trainer = make(tmp_path, "fixed:temperature=0.2", Negatives, dropout=0.0, keywords={"train_dataset": data}, max_steps=1)
    model = copy.deepcopy(trainer.model)
    trainer.train()
    a, b, negatives = F.normalize(model(data.a)), F.normalize(model(data.b)), F.normalize(model(-data.a))
    logits = torch.cat([a @ b.T, a @ negatives.T], dim=1) / 0.2
    expected = F.cross_entropy(logits, torch.arange(8)) + 0.5 * model(data.a).square().mean()
    assert logged(trainer, "loss") == pytest.approx([expected.item()], rel=1e-5)


def test_other_returns_of_contrastive_views_are_refused(tmp_path: Path) -> None:
    class Bare(TemperatureTrainerMixin, Trainer):
        pass

    with pytest.raises(NotImplementedError, match="Bare must override contrastive_views"):
        make(tmp_path, "fixed", Bare, max_steps=1).train()
    for returned in (torch.zeros(4, 8), (torch.zeros(4, 8),), None):
        trainer = make(tmp_path, "fixed", max_steps=1)
        trainer.contrastive_views = lambda model, inputs, returned=returned: returned
        with pytest.raises(ConfigError, match=f"contrastive_views returned {type(returned).__name__}, but must"):
            trainer.train()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step:UserWarning")
def test_a_gradient_scaler_scales_and_skips_the_loss_with_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """float16 needs CUDA in the Trainer; its scaler runs here too, so the scaler is put in by hand."""

    def run(scale: float | None, spoil: bool = False) -> tuple[Any, list[float]]:
        class Scaling(TrainerCallback):
            def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                # the model is prepared by now, so these switch on unscaling and nothing else
                if scale is not None:
                    trainer.accelerator.native_amp = True
                    monkeypatch.setattr(trainer.accelerator.state, "_mixed_precision", "fp16")

            def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                if spoil and state.global_step == 1:
                    next(loss.parameters()).grad.fill_(torch.inf)

            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                values.append(next(loss.parameters()).item())

        loss, values = cross_view("learnable"), []
        more = {**PLAIN_SGD, "learning_rate": 0.5, "max_grad_norm": 0.1, "gradient_accumulation_steps": 2, "max_steps": 4}
        trainer = make(tmp_path, loss, dropout=0.0, keywords={"callbacks": [Scaling()]}, **more)
        if scale is not None:
            trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        trainer.train()
        return trainer, values

    (plain, values), (scaled, scaled_values), (skipped, others) = run(None), run(1024.0), run(1024.0, spoil=True)
    assert scaled_values == pytest.approx(values, rel=1e-5)
    for name, value in weights(scaled).items():
        torch.testing.assert_close(value, weights(plain)[name], rtol=1e-4, atol=1e-6)
    assert others[1] == others[0]
    assert others[2] != others[1]
    assert all(torch.isfinite(value).all() for value in [*weights(skipped).values(), torch.tensor(others)])


@pytest.mark.parametrize("backend", ["deepspeed", "fsdp"])
def test_backends_that_own_the_optimizer_are_refused_where_the_loss_learns(tmp_path: Path, backend: str) -> None:
    trainers = [make(tmp_path, strategy) for strategy in ("learnable", "macl")]
    for trainer in trainers:
        setattr(trainer, f"is_{backend}_enabled", True)
    with pytest.raises(ConfigError, match=f"(?i){backend} would neither shard nor save"):
        trainers[0].create_optimizer()
    assert len(trainers[1].create_optimizer().param_groups) == 2


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"contrastive_loss": nn.MSELoss()}, "contrastive_loss of type MSELoss must be a tempplug.ContrastiveLoss"),
        ({"contrastive_loss": tempplug.ContrastiveLoss(reduction="sum")}, "reduction='sum' of contrastive_loss must be 'mean'"),
        ({"contrastive_loss": cross_view(), "compute_loss_func": F.mse_loss}, "compute_loss_func must be None"),
    ],
)
def test_losses_that_cannot_be_trained_with_are_refused(tmp_path: Path, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        make(tmp_path, None, keywords=keywords)
