"""The Trainer mixin on a tiny encoder: what it changes, what it leaves alone, and that resuming is exact."""

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
    assert_equal,
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

MODELS_RATE = "learnable:learning_rate=none"


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 3])
def test_fixed_reproduces_a_plain_trainer(tmp_path: Path, steps: int) -> None:
    arguments: dict[str, Any] = {
        "max_steps": 6,
        "gradient_accumulation_steps": steps,
        "weight_decay": 0.1,
        "max_grad_norm": 0.5,
    }
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
    trainer = make(
        tmp_path,
        copy.deepcopy(loss),
        dropout=0.0,
        keywords={"train_dataset": data},
        max_steps=1,
        gradient_accumulation_steps=4,
        optim="sgd",
        learning_rate=1.0,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        train_sampling_strategy="sequential",
    )
    model = copy.deepcopy(trainer.model)
    trainer.train()

    values = [loss(model(data.a[i : i + 8]), model(data.b[i : i + 8])) for i in range(0, items, 8)]
    mean = torch.stack(values).mean()
    mean.backward()
    assert logged(trainer, "loss") == pytest.approx([mean.item()], rel=1e-5)
    pairs = [*zip(model.parameters(), trainer.model.parameters(), strict=True)]
    pairs += zip(loss.parameters(), trainer.contrastive_loss.parameters(), strict=True)
    for before, after in pairs:
        assert before.grad is not None
        torch.testing.assert_close(after, before - before.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("optim", ["adamw_torch", "sgd", "adafactor"])
def test_what_the_loss_learns_joins_any_optimizer_spared_by_weight_decay_where_it_says_so(tmp_path: Path, optim: str) -> None:
    strategy = ScaleAndShift()
    trainer = make(tmp_path, cross_view(strategy), optim=optim, max_steps=4, weight_decay=0.1)
    trainer.train()
    groups = [(group["params"], group["weight_decay"]) for group in trainer.optimizer.param_groups[2:]]
    assert [([id(p) for p in parameters], decay) for parameters, decay in groups] == [
        ([id(strategy.log_gain)], 0.1),
        ([id(strategy.log_scale)], 0.0),
    ]
    assert strategy.log_scale.item() != 1.0
    assert strategy.log_gain.item() != 1.0
    trainer.train()
    assert len(trainer.optimizer.param_groups) == 4


def test_gradients_of_the_loss_do_not_pile_up(tmp_path: Path) -> None:
    """With SGD on one repeated batch and a model that stands still, every step of the temperature is its own gradient."""
    loss = cross_view(MODELS_RATE)
    data = Data(8)
    model = Encoder(dropout=0.0).requires_grad_(requires_grad=False)
    expected = copy.deepcopy(loss)
    for _ in range(4):
        (gradient,) = torch.autograd.grad(expected(model(data.a), model(data.b)), list(expected.parameters()))
        with torch.no_grad():
            next(expected.parameters()).sub_(0.05 * gradient)
    arguments: dict[str, Any] = {"optim": "sgd", "learning_rate": 0.05, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}
    keywords = {"model": model, "train_dataset": data}
    make(tmp_path, loss, keywords=keywords, max_steps=4, **arguments).train()
    torch.testing.assert_close(next(loss.parameters()), next(expected.parameters()), rtol=1e-5, atol=0)


def test_the_loss_is_clipped_by_its_own_norm(tmp_path: Path) -> None:
    """Steep temperature gradients must not shrink the encoder's steps: they stay those of a fixed temperature."""
    arguments: dict[str, Any] = {
        "optim": "sgd",
        "learning_rate": 1.0,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 1e-3,
        "max_steps": 1,
    }
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
        (["learnable"], 0.01),
        (["learnable", "--temperature-args", "learning_rate=0.03"], 0.03),
        (["learnable", "--temperature-learning-rate", "0.2"], 0.2),
        (["amcl:dimension=8", "--temperature-learning-rate", "0.2"], 0.2),
        (["amcl:dimension=8"], 0.02),
    ],
)
def test_what_the_loss_learns_has_a_rate_of_its_own_that_follows_the_schedule(
    tmp_path: Path, flags: list[str], rate: float
) -> None:
    (temperature,) = HfArgumentParser(TemperatureArguments).parse_args_into_dataclasses(["--temperature-strategy", *flags])
    rates: list[tuple[float, float]] = []

    class Watching(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            model, *_, own = kwargs["optimizer"].param_groups
            assert {id(each) for each in own["params"]} == {id(each) for each in trainer.contrastive_loss.parameters()}
            rates.append((model["lr"], own["lr"]))

    loss = temperature.create_loss("cross-view")
    arguments: dict[str, Any] = {"max_steps": 4, "learning_rate": 0.02, "warmup_steps": 1}
    trainer = make(tmp_path, loss, keywords={"callbacks": [Watching()]}, **arguments)
    trainer.train()
    shares = (0, 1, 2 / 3, 1 / 3)
    assert rates == [(pytest.approx(0.02 * share), pytest.approx(rate * share)) for share in shares]
    assert logged(trainer, "learning_rate") == pytest.approx([0.02 * share for share in shares])


def test_a_schedule_gets_its_period_from_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    loss = cross_view("schedule")
    for run, period in (({"num_train_epochs": 2}, 0.4), ({"max_steps": 4}, 0.1)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="tempplug_adapters"):
            trainer = make(tmp_path, loss, **run)
            trainer.train()
            trainer.train()
        (message,) = [said for record in caplog.records if "goes by" in (said := record.getMessage())]
        assert message.startswith(f"strategy 'schedule' goes by the {5 * period:g} epochs of this run")
        assert f"period={period:g}" in message
        expected = tempplug.create_strategy("schedule", period=period)
        temperatures = []
        for step in range(trainer.state.global_step):
            expected.set_progress(epoch=step / 8)
            temperatures.append(expected.temperature())
        assert logged(trainer, "temperature") == pytest.approx(temperatures)
        assert min(temperatures) < 0.2
    given = cross_view("schedule:period=7")
    make(tmp_path, given, max_steps=1).train()
    assert given.strategy.options["period"] == 7


@pytest.mark.parametrize(
    ("spec", "run", "said"),
    [
        # eight steps an epoch; 0.981 is 0.55 + 0.45·cos(2π·15/320)
        ("schedule:period=0.25", {"max_steps": 16}, "2 different temperatures, from 0.1 to 1, .* has 2 steps, the training 16"),
        ("schedule:period=0.5", {"num_train_epochs": 2}, "3 different temperatures, from 0.1 to 1, .* has 4 steps, "),
        ("schedule:period=40", {"num_train_epochs": 2}, "0.981 to 1, .* has 320 steps, the training 16. .* period=2 or"),
        ("schedule:period=1", {"num_train_epochs": 2}, ""),
        ("schedule", {"num_train_epochs": 2}, ""),
        ("learnable", {"num_train_epochs": 2}, ""),
    ],
)
def test_a_run_that_misses_most_of_a_schedule_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spec: str, run: dict[str, Any], said: str
) -> None:
    with caplog.at_level(logging.WARNING, logger="tempplug_adapters"):
        trainer = make(tmp_path, cross_view(spec), **run)
        trainer.train()
    found = [message for record in caplog.records if "different temperature" in (message := record.getMessage())]
    assert len(found) == bool(said)
    if said:
        assert re.search(said, found[0]), found
        assert f" {len({round(each, 4) for each in logged(trainer, 'temperature')})} different" in found[0]


def test_an_optimizer_of_ones_own_gets_the_parameters_of_the_loss(tmp_path: Path) -> None:
    loss, model = cross_view("learnable"), Encoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    start = next(loss.parameters()).item()
    make(tmp_path, loss, keywords={"model": model, "optimizers": (optimizer, None)}, max_steps=2).train()
    assert optimizer.param_groups[1]["params"] == list(loss.parameters())
    assert next(loss.parameters()).item() != start


def test_an_optimizer_and_scheduler_of_ones_own_must_hold_the_parameters_of_the_loss(tmp_path: Path) -> None:
    loss, model = cross_view("learnable"), Encoder()

    def pair(parameters: list[nn.Parameter]) -> tuple[Any, Any]:
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)

    lacking = make(tmp_path, loss, keywords={"model": model, "optimizers": pair(list(model.parameters()))}, max_steps=2)
    with pytest.raises(ConfigError, match=re.escape("build the optimizer with loss.parameters()")):
        lacking.train()
    whole = pair([*model.parameters(), *loss.parameters()])
    make(tmp_path, loss, keywords={"model": model, "optimizers": whole}, max_steps=2).train()
    assert len(whole[0].param_groups) == 1


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


@pytest.mark.parametrize("returned", [torch.zeros(4, 8), (torch.zeros(4, 8),), None])
def test_other_returns_of_contrastive_views_are_refused(tmp_path: Path, returned: Any) -> None:
    class Wrong(MyTrainer):
        def contrastive_views(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, ...]:
            return returned

    with pytest.raises(ConfigError, match="contrastive_views returned"):
        make(tmp_path, "fixed", Wrong, max_steps=1).train()


def test_contrastive_views_must_be_overridden(tmp_path: Path) -> None:
    class Bare(TemperatureTrainerMixin, Trainer):
        pass

    with pytest.raises(NotImplementedError, match="Bare must override contrastive_views"):
        make(tmp_path, "fixed", Bare, max_steps=1).train()


def test_each_fresh_model_starts_with_a_fresh_loss(tmp_path: Path) -> None:
    def fresh() -> Encoder:
        return Encoder()

    trainer = make(tmp_path, "learnable", keywords={"model": None, "model_init": fresh}, max_steps=4)
    results = []
    for _ in range(2):
        trainer.train()
        results.append((weights(trainer), copy.deepcopy(trainer.contrastive_loss.state_dict())))
    assert_equal(results[0][0], results[1][0])
    assert_equal(results[0][1], results[1][1])


@pytest.mark.slow
def test_bfloat16_autocast_stays_close_to_float32(tmp_path: Path) -> None:
    dtypes: list[torch.dtype] = []
    trainer = make(tmp_path, "learnable", dropout=0.0, max_steps=4, bf16=True)
    trainer.model.layers[0].register_forward_hook(lambda module, inputs, output: dtypes.append(output.dtype))
    trainer.train()
    assert set(dtypes) == {torch.bfloat16}
    whole = make(tmp_path, "learnable", dropout=0.0, max_steps=4)
    whole.train()
    assert logged(trainer, "loss") == pytest.approx(logged(whole, "loss"), rel=0.05)
    assert next(trainer.contrastive_loss.parameters()).item() == pytest.approx(
        next(whole.contrastive_loss.parameters()).item(), rel=0.01
    )


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

        class Watching(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                values.append(next(loss.parameters()).item())

        loss = cross_view("learnable")
        values: list[float] = []
        keywords = {"callbacks": [Scaling(), Watching()]}
        arguments: dict[str, Any] = {
            "optim": "sgd",
            "learning_rate": 0.5,
            "max_grad_norm": 0.1,
            "gradient_accumulation_steps": 2,
        }
        trainer = make(tmp_path, loss, dropout=0.0, keywords=keywords, max_steps=4, lr_scheduler_type="constant", **arguments)
        if scale is not None:
            trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        trainer.train()
        return trainer, values

    plain, values = run(None)
    scaled, scaled_values = run(1024.0)
    assert scaled_values == pytest.approx(values, rel=1e-5)
    for name, value in weights(scaled).items():
        torch.testing.assert_close(value, weights(plain)[name], rtol=1e-4, atol=1e-6)
    skipped, skipped_values = run(1024.0, spoil=True)
    assert skipped_values[1] == skipped_values[0]
    assert skipped_values[2] != skipped_values[1]
    assert all(torch.isfinite(value).all() for value in weights(skipped).values())
    assert all(value == value for value in skipped_values)


@pytest.mark.parametrize("backend", ["deepspeed", "fsdp"])
def test_backends_that_own_the_optimizer_are_refused_where_the_loss_learns(tmp_path: Path, backend: str) -> None:
    for strategy in ("learnable", "macl"):
        trainer = make(tmp_path, strategy)
        setattr(trainer, f"is_{backend}_enabled", True)
        if strategy == "learnable":
            with pytest.raises(ConfigError, match=f"(?i){backend} would neither shard nor save"):
                trainer.create_optimizer()
        else:
            assert len(trainer.create_optimizer().param_groups) == 2


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
