"""Trainings with the ranking losses: what Trainer and callback do for a temperature that sentence-transformers does not."""

from __future__ import annotations

import copy
import gc
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset, DatasetDict
from sentence_transformer_toys import assert_equal, features, logged, make, sentences, tiny, watched, weights
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer import losses as library
from torch import nn

import tempplug
from tempplug.errors import ConfigError
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.sentence_transformers import (
    CachedTemperatureRankingLoss,
    TemperatureRankingCallback,
    TemperatureRankingLoss,
    TemperatureSentenceTransformerTrainer,
)

DOORS = ["trainer", "callback"]
ONE_PLAIN_STEP: dict[str, Any] = {
    "max_steps": 1,
    "optim": "sgd",
    "learning_rate": 1.0,
    "lr_scheduler_type": "constant",
    "max_grad_norm": 0.0,
}

MODELS_RATE = "learnable:learning_rate=none"


@pytest.fixture(autouse=True, scope="module")
def _collect_little() -> Iterator[None]:
    """The Trainer collects garbage at its start, which takes longer than these trainings where much is alive."""
    gc.freeze()
    yield
    gc.unfreeze()


def through(door: str, folder: Path, model: SentenceTransformer, loss: Any, **arguments: Any) -> Any:
    """Returns a trainer with somebody in charge: our Trainer, or the library's with our callback."""
    if door == "trainer":
        return make(folder, model, loss, **arguments)
    keywords = arguments.pop("keywords", {})
    keywords["callbacks"] = [TemperatureRankingCallback(loss), *keywords.get("callbacks", [])]
    return make(folder, model, loss, SentenceTransformerTrainer, keywords=keywords, **arguments)


def log_scale(loss: TemperatureRankingLoss) -> float:
    return loss.contrastive_loss.strategy.log_scale.item()


@pytest.mark.parametrize(
    ("strategy", "does"),
    [("learnable", "learns"), ("schedule", "follows a schedule"), ("individual:size=64", "counts")],
)
def test_what_learns_counts_or_follows_a_schedule_refuses_to_train_without_its_trainer(
    tiny_bert: Path, tmp_path: Path, strategy: str, does: str
) -> None:
    model = tiny(tiny_bert)
    for loss in (TemperatureRankingLoss(model, strategy), CachedTemperatureRankingLoss(model, strategy)):
        for whole in (loss, library.MatryoshkaLoss(model, loss, [16, 8])):
            with pytest.raises(ConfigError, match=f"strategy '{loss.contrastive_loss.strategy.name}' {does}, and nothing"):
                make(tmp_path, model, whole, SentenceTransformerTrainer, max_steps=1).train()
    if strategy == "learnable":
        model.eval()
        assert loss(features(model), None).isfinite()
        model.train()
        loss.take_charge()
        assert loss(features(model), None).isfinite()


def test_what_is_as_it_is_trains_without_anybody(tiny_bert: Path, tmp_path: Path) -> None:
    model = tiny(tiny_bert)
    for strategy in ("fixed", "macl", "dystress", "temperature-free"):
        trainer = make(tmp_path, model, TemperatureRankingLoss(model, strategy), SentenceTransformerTrainer, max_steps=1)
        assert trainer.train().global_step == 1


@pytest.mark.parametrize("door", DOORS)
def test_a_training_that_is_over_leaves_nothing_that_takes_care(tiny_bert: Path, tmp_path: Path, door: str) -> None:
    model = tiny(tiny_bert)
    loss = TemperatureRankingLoss(model, "learnable")
    through(door, tmp_path, model, loss, max_steps=1).train()
    with pytest.raises(ConfigError, match="nothing takes care of it here"):
        make(tmp_path, model, loss, SentenceTransformerTrainer, max_steps=1).train()


@pytest.mark.parametrize("optim", ["sgd", "adamw_torch"])
def test_weight_decay_spares_the_temperature_through_both_doors_and_not_without(
    tiny_bert: Path, tmp_path: Path, optim: str
) -> None:
    after: dict[str, dict[float, tuple[float, float]]] = {}
    for door in (*DOORS, "nobody"):
        for decay in (0.0, 0.5):
            model = tiny(tiny_bert)
            loss = TemperatureRankingLoss(model, MODELS_RATE)
            loss.take_charge()
            arguments = {**ONE_PLAIN_STEP, "optim": optim, "learning_rate": 0.1, "weight_decay": decay}
            if door == "nobody":
                trainer = make(tmp_path, model, loss, SentenceTransformerTrainer, **arguments)
            else:
                trainer = through(door, tmp_path, model, loss, **arguments)
            trainer.train()
            weight = model[0].auto_model.embeddings.word_embeddings.weight.norm().item()
            after.setdefault(door, {})[decay] = log_scale(loss), weight
            assert [len(group["params"]) > 0 for group in trainer.optimizer.param_groups] == [True, True]
    for door in DOORS:
        assert after[door][0.5][0] == after[door][0.0][0] == after["nobody"][0.0][0]
        assert after[door][0.5][1] < after[door][0.0][1]
    assert after["nobody"][0.5][0] < after["nobody"][0.0][0] - 0.05


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("cached", [False, True], ids=["plain", "cached"])
def test_accumulation_of_four_gives_the_mean_gradient(tiny_bert: Path, tmp_path: Path, door: str, cached: bool) -> None:
    """The library's cached losses give their own parameters four times that."""
    model = tiny(tiny_bert).double()
    loss = (
        CachedTemperatureRankingLoss(model, MODELS_RATE, mini_batch_size=3)
        if cached
        else TemperatureRankingLoss(model, MODELS_RATE)
    )
    start, reference = log_scale(loss), TemperatureRankingLoss(copy.deepcopy(model), "learnable")
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    batches = watched(loss)
    through(door, tmp_path, model, loss, gradient_accumulation_steps=4, **ONE_PLAIN_STEP).train()
    reference.take_charge()
    assert len(batches) == 4
    torch.stack([reference(batch, None) for batch in batches]).mean().backward()
    expected = reference.contrastive_loss.strategy.log_scale.grad.item()
    assert abs(expected) > 1e-3
    assert start - log_scale(loss) == pytest.approx(expected, abs=1e-6)
    for name, weight in reference.model.named_parameters():
        if weight.grad is not None:
            torch.testing.assert_close(before[name] - dict(model.named_parameters())[name], weight.grad, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("door", DOORS)
def test_the_temperatures_gradient_is_clipped_by_itself(tiny_bert: Path, tmp_path: Path, door: str) -> None:
    model = tiny(tiny_bert)
    loss = TemperatureRankingLoss(model, MODELS_RATE)
    start = log_scale(loss)
    through(door, tmp_path, model, loss, **{**ONE_PLAIN_STEP, "max_grad_norm": 1e-3}).train()
    assert abs(start - log_scale(loss)) == pytest.approx(1e-3, rel=1e-2)


@pytest.mark.parametrize("optim", ["sgd", "adamw_torch"])
def test_the_temperature_has_a_learning_rate_of_its_own_through_both_doors(tiny_bert: Path, tmp_path: Path, optim: str) -> None:
    """It follows the schedule of the encoder's, and what ``learning_rate_mapping`` says comes first."""
    arguments: dict[str, Any] = {"max_steps": 4, "optim": optim, "learning_rate": 0.1, "weight_decay": 0.5}
    cases = {
        "as it is": ("learnable", 0.01, {}),
        "given": ("learnable:learning_rate=0.03", 0.03, {}),
        "mapped": ("learnable", 0.02, {"learning_rate_mapping": {r"log_scale$": 0.02}}),
        "the model's": (MODELS_RATE, 0.1, {}),
    }
    for name, (strategy, rate, more) in cases.items():
        paths, moved = [], []
        for door in DOORS:
            model = tiny(tiny_bert)
            loss = TemperatureRankingLoss(model, strategy)
            trainer = through(door, tmp_path, model, loss, **arguments, **more)
            trainer.train()
            paths.append(logged(trainer, "temperature"))
            moved.append(weights(trainer))
        assert paths[0] == pytest.approx(paths[1], rel=1e-6), name
        assert_equal(*moved)
        (first, second) = (-math.log(each) for each in paths[0][:2])
        if optim == "adamw_torch":  # whose first step is the learning rate
            assert abs(second - first) == pytest.approx(rate, rel=1e-3), name


@pytest.mark.parametrize("door", DOORS)
def test_a_schedule_hears_its_progress_and_gets_a_fifth_of_the_runs_epochs(
    tiny_bert: Path, tmp_path: Path, door: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny(tiny_bert)
    for strategy, period, arguments in (
        ("schedule", 0.4, {"num_train_epochs": 2}),
        ("schedule:shape=triangle", 0.1, {"max_steps": 4}),
        ("schedule:period=3", 3.0, {"max_steps": 4}),
    ):
        caplog.clear()
        loss = TemperatureRankingLoss(model, strategy)
        with caplog.at_level(logging.WARNING, logger="tempplug_adapters"):
            trainer = through(door, tmp_path, model, loss, **arguments)
            trainer.train()
        schedule = tempplug.create_strategy(strategy, period=period, temperature_min=0.025, temperature_max=0.1)
        expected = []
        for step in range(trainer.state.global_step):
            schedule.set_progress(epoch=step / 8)
            expected.append(schedule.temperature())
        assert logged(trainer, "temperature") == pytest.approx(expected, rel=1e-5)
        assert loss.contrastive_loss.strategy.options["period"] == pytest.approx(period)
        said = [record.getMessage() for record in caplog.records if "goes by" in record.getMessage()]
        if "period" in strategy:
            assert said == []
        else:
            (message,) = said
            assert message.startswith(f"strategy 'schedule' goes by the {5 * period:g} epochs of this run")
        assert f"period={period:g}," in loss.get_config_dict()["strategy"]


@pytest.mark.parametrize("door", DOORS)
def test_a_training_that_misses_most_of_a_schedule_says_so_once(
    tiny_bert: Path, tmp_path: Path, door: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Eight steps an epoch: the fourth begins at an eighth of a period of three, where τ is 0.0625 + 0.0375·cos 45°."""
    model = tiny(tiny_bert)
    for period, said in (
        (3, "4 different temperatures, from 0.089 to 0.1, where its options say 0.025 to 0.1: "),
        (0.5, "3 different"),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="tempplug_adapters"):
            through(door, tmp_path, model, TemperatureRankingLoss(model, f"schedule:period={period}"), max_steps=4).train()
        (found,) = [message for record in caplog.records if "different" in (message := record.getMessage())]
        assert said in found


@pytest.mark.parametrize("door", DOORS)
def test_a_stream_without_a_length_is_one_epoch(tiny_bert: Path, tmp_path: Path, door: str) -> None:
    model = tiny(tiny_bert)
    loss = TemperatureRankingLoss(model, "schedule")
    data = Dataset.from_dict(sentences(64)).to_iterable_dataset()
    trainer = through(door, tmp_path, model, loss, data=data, max_steps=5)
    trainer.train()
    assert loss.contrastive_loss.strategy.options["period"] == pytest.approx(0.2)
    assert logged(trainer, "temperature") == pytest.approx([0.1] * 5, rel=1e-5)


@pytest.mark.parametrize("door", DOORS)
def test_logs_measure_the_last_training_batch_also_after_an_evaluation(tiny_bert: Path, tmp_path: Path, door: str) -> None:
    model = tiny(tiny_bert)
    loss = library.MatryoshkaLoss(model, TemperatureRankingLoss(model, "learnable"), [16, 8])
    keywords = {"eval_dataset": Dataset.from_dict({name: column[::-1] for name, column in sentences(16, 5).items()})}
    arguments = {
        "eval_strategy": "steps",
        "eval_steps": 1,
        "logging_strategy": "epoch",
        "num_train_epochs": 1,
        "max_grad_norm": 0.0,
    }
    trainer = through(door, tmp_path, model, loss, keywords=keywords, **arguments)
    seen: list[float] = []
    own = loss.loss.contrastive_loss
    own.register_forward_hook(
        lambda module, _, output: seen.append(module.strategy.log_scale.item()) if module.training else None
    )
    trainer.train()
    assert len(logged(trainer, "eval_loss")) == 8
    assert logged(trainer, "temperature") == pytest.approx([torch.tensor(-seen[-1]).exp().item()])
    for key in ("positive_similarity", "negative_similarity", "alignment", "uniformity", "gradient_scale"):
        assert len(logged(trainer, key)) == 1


def test_several_data_sets_may_have_a_loss_each(tiny_bert: Path, tmp_path: Path) -> None:
    model = tiny(tiny_bert)
    losses: dict[str, nn.Module] = {
        "first": TemperatureRankingLoss(model, "learnable"),
        "second": TemperatureRankingLoss(model, "learnable:initial_temperature=0.2"),
        "third": library.MultipleNegativesRankingLoss(model),
    }
    data = DatasetDict({name: Dataset.from_dict(sentences(16, seed)) for seed, name in enumerate(losses)})
    trainer = make(tmp_path, model, losses, data=data, num_train_epochs=1, save_strategy="epoch")
    trainer.train()
    last = trainer.state.log_history[-2]
    for name in ("first", "second"):
        assert last[f"{name}_temperature"] == pytest.approx(1 / torch.tensor(log_scale(losses[name])).exp().item(), rel=0.05)
    assert log_scale(losses["first"]) != log_scale(losses["second"])
    saved = torch.load(next(tmp_path.glob("checkpoint-*")) / "contrastive_loss.pt", weights_only=True)
    assert [value.item() for value in saved.values()] == [log_scale(losses[name]) for name in ("first", "second")]


def test_a_last_batch_of_one_does_not_end_a_run(tiny_bert: Path, tmp_path: Path) -> None:
    model = tiny(tiny_bert)
    data = Dataset.from_dict(sentences(9, columns=2))
    loss = TemperatureRankingLoss(model, "learnable")
    trainer = make(tmp_path, model, loss, data=data, num_train_epochs=1)
    with pytest.warns(RuntimeWarning, match="without a negative"):
        trainer.train()
    assert logged(trainer, "loss")[-1] == 0.0
    assert trainer.state.global_step == 2


def test_one_loss_for_several_data_sets_is_one(tiny_bert: Path, tmp_path: Path) -> None:
    model = tiny(tiny_bert)
    loss = TemperatureRankingLoss(model, "learnable")
    data = DatasetDict({name: Dataset.from_dict(sentences(16, seed)) for seed, name in enumerate(("first", "second"))})
    trainer = make(tmp_path, model, {"first": loss, "second": loss}, data=data, num_train_epochs=1)
    trainer.train()
    assert len(logged(trainer, "temperature")) == 4


def test_the_model_card_has_strategy_objective_and_citation(tiny_bert: Path, tmp_path: Path) -> None:
    model = tiny(tiny_bert)
    make(tmp_path, model, TemperatureRankingLoss(model, "macl:alpha=2", "dcl"), max_steps=1).train()
    model.save(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text()
    for words in ('"strategy": "macl:base_temperature=0.05,alpha=2', '"objective": "dcl"', "@misc{tempplug-macl,", "Oord"):
        assert words in card
    assert "loss:TemperatureRankingLoss" in card


def test_every_trial_starts_with_the_temperature_of_the_first(tiny_bert: Path, tmp_path: Path) -> None:
    def create(trial: object = None) -> SentenceTransformer:
        return tiny(tiny_bert)

    loss = TemperatureRankingLoss(create(), "learnable")
    trainer = make(tmp_path, None, loss, keywords={"model_init": create}, max_steps=2)
    start = log_scale(loss)
    trainer.train()
    learned = log_scale(loss)
    assert learned != start
    trainer.train()
    assert log_scale(loss) == learned


def test_an_optimizer_of_ones_own_gets_the_parameters_of_the_loss_or_is_refused(tiny_bert: Path, tmp_path: Path) -> None:
    def own(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=0.01)

    model = tiny(tiny_bert)
    loss = TemperatureRankingLoss(model, "learnable")
    start, optimizer = log_scale(loss), own(model)
    make(tmp_path, model, loss, keywords={"optimizers": (optimizer, None)}, max_steps=1).train()
    assert log_scale(loss) != start
    assert optimizer.param_groups[-1]["weight_decay"] == 0.0
    optimizer = own(model)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    with pytest.raises(ConfigError, match="passed with its scheduler lacks the parameters of the loss"):
        make(tmp_path, model, loss, keywords={"optimizers": (optimizer, scheduler)}, max_steps=1).train()
    keywords = {"optimizers": (own(model), None), "callbacks": [TemperatureRankingCallback(loss)]}
    with pytest.raises(ConfigError, match="the optimizer lacks the parameters of the loss"):
        make(tmp_path, model, loss, SentenceTransformerTrainer, keywords=keywords, max_steps=1).train()


def test_there_must_be_a_loss_to_take_charge_of_and_one_is_in_charge(tiny_bert: Path, tmp_path: Path) -> None:
    model = tiny(tiny_bert)
    for take in (TemperatureRankingCallback, lambda loss: make(tmp_path, model, loss)):
        with pytest.raises(ConfigError, match="loss holds no TemperatureRankingLoss"):
            take(library.MultipleNegativesRankingLoss(model))
    loss = TemperatureRankingLoss(model, "learnable")
    trainer = make(tmp_path, model, loss, keywords={"callbacks": [TemperatureRankingCallback(loss)]}, max_steps=1)
    assert isinstance(trainer, TemperatureSentenceTransformerTrainer)
    assert [type(each).__name__ for each in trainer.callback_handler.callbacks].count("TemperatureRankingCallback") == 0


def test_the_flags_make_the_loss(tiny_bert: Path) -> None:
    model = tiny(tiny_bert)
    plain = TemperatureArguments().create_sentence_transformers_loss(model)
    assert (type(plain), plain.scale, plain.gather_across_devices) == (TemperatureRankingLoss, 20.0, False)
    assert TemperatureArguments("fixed", ["temperature=0.1"]).create_sentence_transformers_loss(model).temperature == 0.1
    arguments = TemperatureArguments("macl:alpha=2", ["threshold=0.8"], "dclw:sigma=0.25")
    cached = arguments.create_sentence_transformers_loss(model, mini_batch_size=4, gather_across_devices=True)
    assert (type(cached), cached.mini_batch_size, cached.contrastive_loss.gather) == (CachedTemperatureRankingLoss, 4, True)
    assert cached.contrastive_loss.objective.spec() == "dclw:sigma=0.25"
    options = cached.contrastive_loss.strategy.options
    assert (options["alpha"], options["threshold"], options["base_temperature"]) == (2, 0.8, 0.05)
    for strategy in ("learnable", "amcl:dimension=32"):
        made = TemperatureArguments(strategy, temperature_learning_rate=0.3).create_sentence_transformers_loss(model)
        assert made.contrastive_loss.strategy.learning_rate == 0.3
