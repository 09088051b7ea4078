"""A third party's objective with a learned number in every trainer: it learns at its own rate, is spared by decay, resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_toys
import method_toys
import pytest
import sentence_transformer_toys
import torch
from objective_toys import Biased, Plugin
from sentence_transformers import SentenceTransformerTrainer
from test_lightning import Points, fit
from torch import Tensor, nn

import tempplug
from tempplug.errors import ConfigError, DataError
from tempplug.plugins.manager import Registry
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.lightning import optimizer_groups
from tempplug_adapters.sentence_transformers import TemperatureRankingCallback, TemperatureRankingLoss
from tempplug_adapters.training.train import train

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*(many workers|logging interval)"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
]
SAVED, STEPS = 2, 4
BIAS = "objective_offset"
# Adam's first step is the learning rate; decay would take 0.5 · 0.5 times the rate more
RATE, DECAY = Biased.learning_rate, 0.5


def loss_of(bias: float = 0.5) -> tempplug.ContrastiveLoss:
    return tempplug.ContrastiveLoss("fixed", Biased(bias), "cross-view")


def assert_learns(biases: list[float]) -> None:
    """Expects a record of the bias at every step: at first as it began, then moved by the objective's rate without decay."""
    assert biases[0] == 0.5
    assert abs(biases[1] - biases[0]) == pytest.approx(RATE, rel=1e-3)
    assert len(set(biases)) == len(biases)


def test_the_groups_of_any_optimizer_hold_the_bias() -> None:
    module = nn.ModuleDict({"encoder": nn.Linear(2, 2), "loss": loss_of()})
    model, own = optimizer_groups(module)
    assert own == {"params": [module["loss"].objective.offset], "weight_decay": 0.0, "lr": RATE}
    assert len(model["params"]) == 2


def test_the_mixin_learns_logs_saves_and_resumes_the_bias(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"max_steps": STEPS, "weight_decay": DECAY, "lr_scheduler_type": "constant"}
    whole = huggingface_toys.make(tmp_path, loss_of(), save_strategy="steps", save_steps=SAVED, **arguments)
    whole.train()
    biases = huggingface_toys.logged(whole, BIAS)
    assert_learns(biases)
    resumed = huggingface_toys.make(tmp_path, loss_of(-3.0), model_seed=1, **arguments)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{SAVED}"))
    huggingface_toys.assert_equal(huggingface_toys.weights(resumed), huggingface_toys.weights(whole))
    huggingface_toys.assert_equal(resumed.contrastive_loss.state_dict(), whole.contrastive_loss.state_dict())
    assert huggingface_toys.logged(resumed, BIAS) == biases
    other = huggingface_toys.make(tmp_path, huggingface_toys.cross_view("fixed"), **arguments)
    with pytest.raises(DataError, match=r"does not fit strategy 'fixed', objective 'infonce', so it was saved with others"):
        other.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{SAVED}"))


def test_each_trial_of_a_search_begins_with_the_first_bias(tmp_path: Path) -> None:
    given = {"temperature_space": tempplug.search_space("fixed"), "model": None}
    given["model_init"] = lambda: huggingface_toys.Encoder()  # a class of one argument would be handed the trial
    trainer = huggingface_toys.make(tmp_path, loss_of(), max_steps=2, keywords=given)
    for temperature in (0.1, 0.2):
        trainer.train(trial={"fixed.temperature": temperature})
        assert trainer.contrastive_loss.strategy.options["temperature"] == temperature
        assert huggingface_toys.logged(trainer, BIAS)[0] == 0.5


def test_a_method_learns_logs_saves_and_resumes_the_bias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Registry()
    monkeypatch.setattr("tempplug.plugins.manager._registry", known)
    known.register(Plugin(), "theirs")
    recipe = method_toys.METHOD.recipe(optimizer="adamw", learning_rate=0.01, weight_decay=DECAY)

    def run(folder: Path, **more: Any) -> dict[str, Any]:
        flags = TemperatureArguments("fixed", [], "biased")
        training = {"logging_steps": 1, "lr_scheduler_type": "constant"}
        return train(method_toys.METHOD.load(), recipe, method_toys.Points(), flags, folder, training=training, **more)

    whole = run(tmp_path / "whole")
    assert_learns([entry[BIAS] for entry in whole["history"] if BIAS in entry])
    with pytest.raises(method_toys.Killed):
        run(tmp_path / "killed", callbacks=[method_toys.Kill(5)])
    again = run(tmp_path / "killed", resume_from_checkpoint="auto")
    assert method_toys.without_seconds(again) == method_toys.without_seconds(whole)
    huggingface_toys.assert_equal(method_toys.weights(tmp_path / "killed"), method_toys.weights(tmp_path / "whole"))
    assert "loss_fn.objective.offset" in method_toys.weights(tmp_path / "whole")


@pytest.mark.parametrize("door", ["trainer", "callback"])
def test_sentence_transformers_learn_log_save_and_resume_the_bias(tiny_bert: Path, tmp_path: Path, door: str) -> None:
    def trainer(bias: float = 0.5, **more: Any) -> Any:
        model = sentence_transformer_toys.tiny(tiny_bert)
        loss = TemperatureRankingLoss(model, objective=Biased(bias))
        arguments = {"max_steps": STEPS, "weight_decay": DECAY, "lr_scheduler_type": "constant", "max_grad_norm": 0.0, **more}
        if door == "trainer":
            return sentence_transformer_toys.make(tmp_path, model, loss, **arguments)
        keywords = {"callbacks": [TemperatureRankingCallback(loss)]}
        return sentence_transformer_toys.make(tmp_path, model, loss, SentenceTransformerTrainer, keywords=keywords, **arguments)

    whole = trainer(save_strategy="steps", save_steps=SAVED)
    whole.train()
    biases = sentence_transformer_toys.logged(whole, BIAS)
    assert_learns(biases)
    resumed = trainer(-3.0)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{SAVED}"))
    sentence_transformer_toys.assert_equal(sentence_transformer_toys.weights(resumed), sentence_transformer_toys.weights(whole))
    assert resumed.loss.contrastive_loss.objective.offset == whole.loss.contrastive_loss.objective.offset
    assert sentence_transformer_toys.logged(resumed, BIAS) == biases


def test_a_ranking_loss_that_learns_says_which_part_of_it_does(tiny_bert: Path, tmp_path: Path) -> None:
    model = sentence_transformer_toys.tiny(tiny_bert)
    for strategy, said in (
        (None, "^objective 'biased' learns, and"),
        ("learnable", "^strategy 'learnable' learns and objective"),
    ):
        loss = TemperatureRankingLoss(model, strategy, Biased())
        with pytest.raises(ConfigError, match=said):
            sentence_transformer_toys.make(tmp_path, model, loss, SentenceTransformerTrainer, max_steps=1).train()


class BiasedPoints(Points):
    """With the third party's objective; notes the bias of every batch."""

    def __init__(self, bias: float = 0.5) -> None:
        super().__init__()
        self.loss_fn = loss_of(bias)
        self.biases: list[float] = []

    def training_step(self, batch: list[Tensor], number: int) -> Tensor:
        loss = self.contrast(batch)
        self.biases.append(self.loss_fn.record.numbers()[BIAS])
        return loss


def test_lightning_learns_logs_saves_and_resumes_the_bias(tmp_path: Path) -> None:
    whole = BiasedPoints()
    logged = fit(whole, tmp_path).logger.rows
    assert_learns(whole.biases)
    assert [row[BIAS] for _, row in sorted(logged.items()) if BIAS in row] == pytest.approx(whole.biases)
    first = BiasedPoints()
    fit(first, tmp_path, max_epochs=2).save_checkpoint(tmp_path / "two.ckpt")
    resumed = BiasedPoints(-3.0)
    fit(resumed, tmp_path, checkpoint=tmp_path / "two.ckpt")
    assert first.biases + resumed.biases == whole.biases
    assert torch.equal(resumed.encoder.weight, whole.encoder.weight)
