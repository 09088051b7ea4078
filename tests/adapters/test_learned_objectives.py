"""A third party's objective with a learned number in every trainer: it learns at its own rate, is spared by decay, resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import method_toys
import pytest
import sentence_transformer_toys
from objective_toys import BIAS, Biased, Plugin, assert_learns
from sentence_transformers import SentenceTransformerTrainer

from tempplug.errors import ConfigError
from tempplug.plugins.manager import Registry
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.sentence_transformers import TemperatureRankingCallback, TemperatureRankingLoss
from tempplug_adapters.training.train import train

pytestmark = [pytest.mark.slow]
SAVED, STEPS = 2, 4
DECAY = 0.5


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
    run(tmp_path / "killed", resume_from_checkpoint="auto")
    method_toys.assert_same_end(tmp_path)
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
