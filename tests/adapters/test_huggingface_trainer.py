"""The Trainer mixin on a tiny encoder: what it changes, what it leaves alone, and that resuming is exact."""

from __future__ import annotations

import copy
import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainingArguments

import tempplug
import tempplug_adapters.huggingface.trainer as trainer_module
from tempplug.errors import ConfigError, DataError
from tempplug.plugins import Registry, hookimpl
from tempplug.strategies.maps import ScaleMap
from tempplug_adapters.huggingface import TemperatureTrainerMixin, Views

TEMPERATURE = 0.2


class Encoder(nn.Module):
    """Takes anything beside ``x`` too, so that the Trainer believes that it may scale the loss."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 8))

    def forward(self, x: Tensor, **ignored: Any) -> Tensor:
        return self.layers(x)


class Data(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Pairs of noisy copies; ``labels`` are there because users have them, not because the loss needs them."""

    def __init__(self, items: int = 64, seed: int = 0, sign: float = 1.0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.a = torch.randn(items, 8, generator=generator)
        self.b = sign * self.a + 0.5 * torch.randn(items, 8, generator=generator)

    def __len__(self) -> int:
        return len(self.a)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"a": self.a[index], "b": self.b[index], "labels": torch.tensor(index)}


class MyTrainer(TemperatureTrainerMixin, Trainer):
    def contrastive_views(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(model(torch.cat([inputs["a"], inputs["b"]])).chunk(2))


class PlainTrainer(Trainer):
    """What a user would write without tempplug."""

    loss_is_scaled_for_ga = False

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        view_a, view_b = model(torch.cat([inputs["a"], inputs["b"]])).chunk(2)
        similarity = F.normalize(view_a) @ F.normalize(view_b).T
        return F.cross_entropy(similarity / TEMPERATURE, torch.arange(len(view_a)))


class ScaleAndShift(tempplug.Strategy):
    """Two parameters, of which weight decay may have one; counts the calls of `observe`."""

    name = "scale-and-shift"

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(1.0))
        self.log_gain = nn.Parameter(torch.tensor(1.0))
        self.observed = 0

    def prepare(self, batch: tempplug.Batch) -> tempplug.LogitMap:
        return ScaleMap((self.log_scale + self.log_gain).exp())

    def observe(self, batch: tempplug.Batch, statistics: tempplug.RowStatistics) -> None:
        self.observed += 1

    def no_weight_decay(self) -> set[str]:
        return {"log_scale"}


def cross_view(strategy: str | tempplug.Strategy = f"fixed:temperature={TEMPERATURE}") -> tempplug.ContrastiveLoss:
    return tempplug.ContrastiveLoss(strategy, layout="cross-view")


def make(
    folder: Path,
    loss: tempplug.ContrastiveLoss | str | None,
    trainer_class: type[Trainer] = MyTrainer,
    *,
    model_seed: int = 0,
    dropout: float = 0.1,
    keywords: dict[str, Any] | None = None,
    **arguments: Any,
) -> Any:
    """Returns a trainer; ``loss`` None is for those that take none."""
    given = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "learning_rate": 0.02, "save_strategy": "no"}
    given["remove_unused_columns"] = False
    training = TrainingArguments(output_dir=str(folder), **{**given, "logging_steps": 1, **arguments})
    torch.manual_seed(model_seed)
    keywords = {"model": Encoder(dropout), "train_dataset": Data(), **(keywords or {})}
    if loss is not None:
        keywords["contrastive_loss"] = cross_view(loss) if isinstance(loss, str) else loss
    return trainer_class(args=training, **keywords)


def weights(trainer: Any) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def logged(trainer: Any, key: str) -> list[float]:
    return [entry[key] for entry in trainer.state.log_history if key in entry]


def assert_equal(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]) if isinstance(value, Tensor) else value == second[name], name


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
    data, loss = Data(items), cross_view("learnable")
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
    loss = cross_view("learnable")
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
    learned = make(tmp_path, f"learnable:initial_temperature={TEMPERATURE}", **arguments)
    (parameter,) = learned.contrastive_loss.parameters()
    start = parameter.item()
    learned.train()
    assert abs(parameter.item() - start) == pytest.approx(1e-3, rel=1e-3)
    for name, value in weights(learned).items():
        torch.testing.assert_close(value, weights(fixed)[name], rtol=1e-6, atol=1e-7)


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
    with pytest.raises(ConfigError, match=re.escape("build the optimizer with contrastive_loss.parameters()")):
        lacking.train()
    whole = pair([*model.parameters(), *loss.parameters()])
    make(tmp_path, loss, keywords={"model": model, "optimizers": whole}, max_steps=2).train()
    assert len(whole[0].param_groups) == 1


@pytest.mark.parametrize(
    "strategy",
    [
        "learnable",
        "macl:base_temperature=0.1,alpha=0.5",
        "schedule:temperature_min=0.1,temperature_max=0.5,period=1.7",
        "schedule:shape=random,temperature_min=0.1,temperature_max=0.5",
    ],
)
@pytest.mark.parametrize("stop", [8, 11], ids=["between epochs", "within an epoch"])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path: Path, strategy: str, stop: int) -> None:
    """Eight steps an epoch and two epochs, with dropout; the period of the schedules does not fit the epochs."""
    arguments: dict[str, Any] = {"max_steps": 16, "weight_decay": 0.1}
    whole = make(tmp_path, strategy, save_strategy="steps", save_steps=stop, **arguments)
    whole.train()
    resumed = make(tmp_path, strategy, model_seed=1, **arguments)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{stop}"))

    assert_equal(weights(resumed), weights(whole))
    assert_equal(resumed.contrastive_loss.state_dict(), whole.contrastive_loss.state_dict())
    for key in ("temperature", "loss", "uniformity"):
        assert logged(resumed, key) == logged(whole, key)
    assert len(set(logged(whole, "temperature"))) > 1


def test_a_schedule_runs_on_fractions_of_epochs_shared_by_the_micro_batches_of_a_step(tmp_path: Path) -> None:
    strategy = "schedule:temperature_min=0.1,temperature_max=0.5,period=3"
    trainer = make(tmp_path, strategy, gradient_accumulation_steps=2, num_train_epochs=2)
    trainer.train()
    schedule = tempplug.create_strategy(strategy)
    expected = []
    for step in range(8):
        schedule.set_progress(epoch=step / 4)
        expected.append(schedule.temperature())
    assert logged(trainer, "temperature") == pytest.approx(expected, rel=1e-6)


def test_a_schedule_knows_its_progress_before_the_first_step(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"eval_on_start": True, "eval_strategy": "epoch", "max_steps": 1}
    trainer = make(tmp_path, "schedule", keywords={"eval_dataset": Data(16)}, **arguments)
    trainer.train()
    assert "eval_loss" in trainer.state.log_history[0]


def test_the_best_model_comes_back_with_its_loss_also_after_resuming(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {
        "max_steps": 12,
        "save_strategy": "steps",
        "save_steps": 4,
        "eval_strategy": "steps",
        "eval_steps": 4,
        "load_best_model_at_end": True,
        "metric_for_best_model": "loss",
    }

    class EarlierIsBetter(MyTrainer):
        def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
            return {"eval_loss": float(self.state.global_step)}

    keywords = {"eval_dataset": Data(16)}
    trainer = make(tmp_path, "learnable", EarlierIsBetter, keywords=keywords, **arguments)
    trainer.train()
    best = Path(trainer.state.best_model_checkpoint)
    assert best.name == "checkpoint-4"
    states = {n: torch.load(tmp_path / f"checkpoint-{n}" / "contrastive_loss.pt", weights_only=True) for n in (4, 8, 12)}
    assert not torch.equal(states[4]["strategy.log_scale"], states[12]["strategy.log_scale"])
    assert_equal(trainer.contrastive_loss.state_dict(), states[4])

    resumed = make(tmp_path, "learnable", EarlierIsBetter, model_seed=1, keywords=keywords, **arguments)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert_equal(resumed.contrastive_loss.state_dict(), states[4])
    assert_equal(weights(resumed), weights(trainer))


def test_saving_writes_the_loss_beside_a_model_that_is_untouched(tmp_path: Path) -> None:
    trainer = make(tmp_path, "learnable", max_steps=2)
    trainer.train()
    trainer.save_model(str(tmp_path / "final"))
    assert load_file(tmp_path / "final" / "model.safetensors").keys() == Encoder().state_dict().keys()
    saved = torch.load(tmp_path / "final" / "contrastive_loss.pt", weights_only=True)
    assert_equal(saved, trainer.contrastive_loss.state_dict())


def test_a_checkpoint_without_the_state_of_the_loss_is_refused_unless_there_is_none(tmp_path: Path) -> None:
    for strategy in ("learnable", "fixed"):
        make(tmp_path, strategy, max_steps=2, save_strategy="steps", save_steps=1).train()
        (tmp_path / "checkpoint-1" / "contrastive_loss.pt").unlink()
        resumed = make(tmp_path, strategy, max_steps=2)
        if strategy == "learnable":
            with pytest.raises(DataError, match=r"contrastive_loss\.pt does not exist"):
                resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
        else:
            resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
            assert resumed.state.global_step == 2


def test_a_checkpoint_of_another_strategy_is_refused(tmp_path: Path) -> None:
    make(tmp_path, "learnable", max_steps=1, save_strategy="steps", save_steps=1).train()
    with pytest.raises(DataError, match=r"contrastive_loss\.pt does not fit strategy 'macl'"):
        make(tmp_path, "macl", max_steps=2).train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))


class Reporter(TrainerCallback):
    """What a logging integration sees."""

    def __init__(self) -> None:
        self.seen: list[dict[str, float]] = []

    def on_log(self, *args: Any, logs: dict[str, float], **kwargs: Any) -> None:
        self.seen.append(dict(logs))


def test_training_logs_measure_the_last_batch_and_reach_history_reporters_and_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records: list[tempplug.StepRecord] = []

    class Plugin:
        @hookimpl
        def tempplug_log(self, record: tempplug.StepRecord) -> None:
            records.append(record)

    registry = Registry()
    registry.register(Plugin(), name="collector")
    monkeypatch.setattr("tempplug.plugins.manager._registry", registry)
    reporter, data = Reporter(), Data(8)
    keywords = {"train_dataset": data, "callbacks": [reporter]}
    trainer = make(tmp_path, "macl:base_temperature=0.1", dropout=0.0, keywords=keywords, max_steps=1, learning_rate=0.0)
    trainer.train()

    history = trainer.state.log_history[0]
    assert history["temperature_min"] <= history["temperature"] <= history["temperature_max"]
    a, b = F.normalize(trainer.model(data.a)), F.normalize(trainer.model(data.b))
    similarity = (a * b).sum(1).mean().item()
    assert history["positive_similarity"] == pytest.approx(similarity, rel=1e-5)
    assert history["temperature"] == pytest.approx(0.1 * (1 + 0.5 * similarity), rel=1e-5)
    assert history["alignment"] == pytest.approx(2 - 2 * similarity, rel=1e-5)
    potential = torch.exp(-2 * torch.cdist(a, a).square())[~torch.eye(8, dtype=torch.bool)]
    assert history["uniformity"] == pytest.approx(potential.mean().log().item(), rel=1e-4)
    logits = a @ b.T / history["temperature"]
    assert history["infonce"] == pytest.approx(F.cross_entropy(logits, torch.arange(8)).item(), rel=1e-4)
    assert history["gradient_scale"] == pytest.approx(1 - history["positive_probability"], rel=1e-5)
    assert reporter.seen[0] == {key: value for key, value in history.items() if key != "step"}
    assert "temperature" not in trainer.state.log_history[-1]
    assert [record.positive_similarity.item() for record in records] == [history["positive_similarity"]]
    json.dumps(history)


def test_a_log_due_after_an_evaluation_still_describes_the_last_training_batch(tmp_path: Path) -> None:
    keywords = {"eval_dataset": Data(16, sign=-1.0)}
    arguments: dict[str, Any] = {"num_train_epochs": 1, "logging_strategy": "epoch", "eval_strategy": "steps", "eval_steps": 8}
    trainer = make(tmp_path, f"fixed:temperature={TEMPERATURE}", dropout=0.0, keywords=keywords, **arguments)
    trainer.train()
    order = [next(key for key in ("eval_loss", "loss", "train_loss") if key in entry) for entry in trainer.state.log_history]
    assert order == ["eval_loss", "loss", "train_loss"]
    assert logged(trainer, "positive_similarity")[0] > 0.3
    trainer.evaluate()
    assert trainer.contrastive_loss.record.positive_similarity < 0


def test_the_record_is_built_only_when_something_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    record, numbers = tempplug.ContrastiveLoss.record.fget, tempplug.StepRecord.numbers

    def count_record(loss: tempplug.ContrastiveLoss) -> tempplug.StepRecord:
        read.append("record")
        return record(loss)

    def count_numbers(step: tempplug.StepRecord) -> dict[str, float]:
        read.append("numbers")
        return numbers(step)

    monkeypatch.setattr(tempplug.ContrastiveLoss, "record", property(count_record))
    monkeypatch.setattr(tempplug.StepRecord, "numbers", count_numbers)
    make(tmp_path, "fixed", num_train_epochs=1, logging_steps=4).train()
    assert read == ["record", "numbers"] * 2


def test_evaluation_reports_the_loss_of_the_views_in_evaluation_mode(tmp_path: Path) -> None:
    strategy, data = ScaleAndShift(), Data(16, seed=1)
    seen: list[EvalPrediction] = []

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        seen.append(prediction)
        return {"count": float(len(prediction.label_ids))}

    keywords = {"eval_dataset": data, "compute_metrics": compute_metrics}
    trainer = make(tmp_path, cross_view(strategy), dropout=0.5, keywords=keywords, max_steps=3, label_names=["labels"])
    gradients: list[bool] = []
    hook = trainer.model.register_forward_hook(lambda module, inputs, output: gradients.append(output.requires_grad))
    metrics = trainer.evaluate()
    hook.remove()
    assert gradients == [False, False]
    model, loss = trainer.model.eval(), trainer.contrastive_loss
    a, b = model(data.a), model(data.b)
    expected = torch.stack([loss(a[:8], b[:8]), loss(a[8:], b[8:])]).mean()
    assert metrics["eval_loss"] == pytest.approx(expected.item(), rel=1e-5)
    assert metrics["eval_count"] == 16
    torch.testing.assert_close(torch.from_numpy(seen[0].predictions[0]), a)
    torch.testing.assert_close(torch.from_numpy(seen[0].predictions[1]), b)
    assert strategy.observed == 0
    trainer.train()
    assert strategy.observed == 3
    trainer.evaluate()
    assert strategy.observed == 3


def test_evaluation_needs_no_labels_and_leaves_an_overridden_evaluate_alone(tmp_path: Path) -> None:
    class Unlabelled(Data):
        def __getitem__(self, index: int) -> dict[str, Tensor]:
            return {"a": self.a[index], "b": self.b[index]}

    class Own(MyTrainer):
        def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
            return {**super().evaluate(*args, **kwargs), "eval_own": 1.0}

    trainer = make(tmp_path, "fixed", Own, keywords={"eval_dataset": Unlabelled(16)})
    metrics = trainer.evaluate()
    assert metrics["eval_own"] == 1.0
    assert metrics["eval_loss"] > 0


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


def test_the_example_of_the_module_gives_a_script_of_ones_own_the_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documentation = trainer_module.__doc__ or ""
    (block,) = re.findall(r"::\n(.*?)\n(?=\S)", documentation, re.DOTALL)
    example = textwrap.dedent(block)
    flags = ["--temperature-strategy", "macl:alpha=1", "--output_dir", str(tmp_path), "--use_cpu", "--max_steps", "2"]
    flags += ["--report_to", "none", "--disable_tqdm", "true", "--save_strategy", "no", "--temperature-args", "threshold=0.1"]
    monkeypatch.setattr(sys, "argv", ["train.py", *flags])
    names: dict[str, Any] = {"torch": torch, "Encoder": Encoder, "views": Data()}
    exec("from transformers import HfArgumentParser, Trainer, TrainingArguments", names)
    exec("from tempplug_adapters.huggingface import TemperatureArguments, TemperatureTrainerMixin", names)
    exec(compile(example, "example", "exec"), names)
    assert names["trainer"].state.global_step == 2
    assert names["loss"].strategy.spec().startswith("macl:base_temperature=0.1,alpha=1,threshold=0.1")
