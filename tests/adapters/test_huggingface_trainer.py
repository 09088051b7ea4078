"""The Trainer mixin on a tiny encoder: what it changes, and what it leaves alone."""

from __future__ import annotations

import copy
import logging
import re
from pathlib import Path
from typing import Any

import method_toys as toys
import pytest
import torch
from huggingface_toys import Data, Encoder, MyTrainer, ScaleAndShift, cross_view, logged, make, weights
from torch import nn
from torch.nn import functional as F
from transformers import HfArgumentParser, Trainer, TrainerCallback

import tempplug
from tempplug.errors import ConfigError
from tempplug_adapters.huggingface import TemperatureArguments, TemperatureTrainerMixin, Views
from tempplug_adapters.huggingface.callback import set_training_length

MODELS_RATE = "learnable:learning_rate=none"
PLAIN_SGD: dict[str, Any] = {"optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}


@pytest.mark.parametrize("most", [0.0, 0.2])
def test_the_mixin_trains_as_a_plain_loop(tmp_path: Path, most: float) -> None:
    """A window of three micro-batches ends the epoch. What the loss learns is decayed, clipped and zeroed beside the model."""
    data, loss, rate, decay = Data(56), cross_view(ScaleAndShift()), 0.1, 0.1
    more: dict[str, Any] = {**PLAIN_SGD, "learning_rate": rate, "weight_decay": decay, "max_grad_norm": most, "max_steps": 4}
    more |= {"gradient_accumulation_steps": 4, "train_sampling_strategy": "sequential"}
    trainer = make(tmp_path, loss, dropout=0.0, keywords={"train_dataset": data}, **more)
    model, expected = copy.deepcopy(trainer.model), copy.deepcopy(loss)
    trainer.train()
    named = [*model.named_parameters(), *expected.named_parameters()]
    decayed = [name.endswith("log_gain") or each.ndim > 1 for name, each in named]
    groups = [{"params": [each], "weight_decay": decay * share} for (_, each), share in zip(named, decayed, strict=True)]
    optimizer, losses, norms = torch.optim.SGD(groups, lr=rate), [], []
    for first, last in ((0, 32), (32, 56)) * 2:
        mean = torch.stack([expected(model(data.a[i : i + 8]), model(data.b[i : i + 8])) for i in range(first, last, 8)]).mean()
        optimizer.zero_grad()
        mean.backward()
        norms += [float(nn.utils.clip_grad_norm_(part.parameters(), most or torch.inf)) for part in (model, expected)]
        optimizer.step()
        losses.append(mean.item())
    assert logged(trainer, "loss") == pytest.approx(losses, rel=1e-5)
    assert min(norms) > most, "all are clipped"
    found = [*trainer.model.parameters(), *loss.parameters()]
    for (_, ours), theirs in zip(named, found, strict=True):
        torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=1e-6)
    trainer.train()
    assert [(len(group["params"]), group["weight_decay"]) for group in trainer.optimizer.param_groups] == [
        *((2, decay), (4, 0.0), (1, decay), (1, 0.0))
    ]


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


def scheduled(kind: str, folder: Path, spec: str, training: dict[str, Any]) -> tuple[list[float], str]:
    """Returns the temperatures of the steps, and the spec at the end; the mixin trains twice, after an evaluation."""
    if kind == "method":
        results = toys.run(folder, spec, training={"logging_strategy": "steps", "logging_steps": 1, **training})
        return [entry["temperature"] for entry in results["history"] if "temperature" in entry], results["strategy"]
    trainer = make(
        folder, spec, keywords={"eval_dataset": Data(16)}, eval_on_start=True, eval_strategy="epoch", eval_delay=9, **training
    )
    trainer.train()
    trainer.train()
    assert "eval_loss" in trainer.state.log_history[0]
    return logged(trainer, "temperature"), trainer.contrastive_loss.strategy.spec()


@pytest.mark.parametrize(
    ("kind", "options", "training", "period", "said"),
    [
        # eight batches an epoch; 0.981 is 0.55 + 0.45·cos(2π·15/320)
        ("mixin", "", {"num_train_epochs": 2}, 0.4, ""),
        ("mixin", "", {"max_steps": 4}, 0.1, "3 different temperatures, from 0.1 to 1, .* has 0.8 steps, the training 4."),
        ("mixin", ",period=3", {"num_train_epochs": 2, "gradient_accumulation_steps": 2}, 3, ""),
        ("mixin", ",period=0.25", {"max_steps": 16}, 0.25, "2 different temperatures, from 0.1 to 1, .* has 2 steps, the tr"),
        ("mixin", ",period=40", {"num_train_epochs": 2}, 40, "0.981 to 1, .* has 320 steps, the training 16. .* period=2 or"),
        # three batches an epoch, nine in all
        ("method", "", {}, 0.6, ""),
        ("method", "", {"max_steps": 6}, 0.4, ""),
        # at thirds of a period a cosine has two heights, 1 and 1/4; 0.851 has 48 degrees
        (
            "method",
            ",period=1",
            {},
            1,
            "from 0.325 to 1, where its options say 0.1 to 1: a period has 3 steps, the training 9.",
        ),
        ("method", ",period=20", {}, 20, "from 0.851 to 1, where its options say 0.1 to 1: a period has 60 steps, the trainin"),
    ],
)
def test_a_schedule_goes_by_the_run_and_warns_once_if_most_of_it_is_missed(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    options: str,
    training: dict[str, Any],
    period: float,
    said: str,
) -> None:
    """All micro-batches of a step share one progress."""
    spec = f"schedule:temperature_min=0.1,temperature_max=1{options}"
    with caplog.at_level(logging.WARNING, logger="tempplug_adapters"):
        found, resolved = scheduled(kind, tmp_path, spec, training)
    expected, temperatures = tempplug.create_strategy("schedule", period=period), []
    assert f"period={period:g}," in resolved
    for step in range(len(found)):
        expected.set_progress(epoch=step * training.get("gradient_accumulation_steps", 1) / (8 if kind == "mixin" else 3))
        temperatures.append(expected.temperature())
    assert found == pytest.approx(temperatures, rel=1e-5)
    messages = [record.getMessage() for record in caplog.records]
    told = [each for each in messages if each.startswith(f"strategy 'schedule' goes by the {5 * period:g} epochs of this run")]
    assert len(told) == (kind == "mixin" and not options)
    missed = [each for each in messages if "different temperature" in each]
    assert len(missed) == bool(said) * (2 if kind == "mixin" else 1), "once in each training"
    assert all(re.search(said, each) for each in missed)
    assert all(f" {len({round(each, 4) for each in temperatures})} different" in each for each in missed)


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
