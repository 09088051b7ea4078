"""What an evaluation says that does not move with the temperature, and what of a batch reaches `contrastive_views`."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from huggingface_toys import Data, Encoder, MyTrainer, cross_view, logged, make
from torch import Tensor, nn
from torch.nn import functional as F

from tempplug_adapters.huggingface.trainer import means, of_pairs


def test_each_item_is_told_apart_from_the_others_of_its_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(9, 4, generator=generator) for _ in range(2))
    rows = of_pairs(3 * a, b)
    similarity = F.normalize(a.double()) @ F.normalize(b.double()).T
    assert rows is not None
    assert rows[:, 0].tolist() == [float(row.argmax() == place) for place, row in enumerate(similarity)]
    expected = -(similarity / 0.1).log_softmax(1).diagonal()
    torch.testing.assert_close(rows[:, 1].double(), expected, rtol=1e-5, atol=1e-6)
    halves = of_pairs([a, a], [b, b.flip(0)])
    assert halves is not None
    other = of_pairs(a, b.flip(0))
    torch.testing.assert_close(halves, (rows + other) / 2)
    assert 0 < means([rows])["contrastive_accuracy"] < 1


def test_ties_and_batches_of_one_are_no_success() -> None:
    same = torch.ones(5, 3)
    rows = of_pairs(same, same)
    assert rows is not None
    assert rows[:, 0].tolist() == [0.0] * 5
    alone = of_pairs(same[:1], same[:1])
    assert alone is not None
    assert alone.isnan().all()
    assert means([rows, alone]) == means([rows])
    assert means([alone]) == means([]) == {}
    assert of_pairs(same, None) is of_pairs(same, torch.randn(6, 3)) is None, "no pairs row by row"


def test_the_measures_stay_where_the_temperature_moves_alone(tmp_path: Path) -> None:
    """The encoder stands still; only the loss sees another temperature."""
    found = []
    for temperature in (0.05, 0.5):
        loss = cross_view(f"fixed:temperature={temperature}")
        trainer = make(tmp_path, loss, keywords={"eval_dataset": {"near": Data(16), "far": Data(20, seed=1)}})
        found.append(trainer.evaluate())
    for name in ("near", "far"):
        for measure in ("contrastive_accuracy", "infonce_loss"):
            assert found[0][f"eval_{name}_{measure}"] == found[1][f"eval_{name}_{measure}"]
        assert found[0][f"eval_{name}_loss"] != found[1][f"eval_{name}_loss"]
    data, model = Data(16), trainer.model.eval()
    rows = [of_pairs(model(data.a[part]), model(data.b[part])) for part in (slice(0, 8), slice(8, 16))]
    expected = means([each for each in rows if each is not None])
    assert found[0]["eval_near_contrastive_accuracy"] == pytest.approx(expected["contrastive_accuracy"])
    assert found[0]["eval_near_infonce_loss"] == pytest.approx(expected["infonce_loss"])


@pytest.mark.parametrize(("metric", "better"), [("contrastive_accuracy", max), ("infonce_loss", min)])
def test_a_measure_chooses_the_best_model_in_the_right_direction(tmp_path: Path, metric: str, better: Any) -> None:
    arguments: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 4, "save_strategy": "steps", "save_steps": 4}
    arguments |= {"max_steps": 12, "load_best_model_at_end": True, "metric_for_best_model": metric, "learning_rate": 0.3}
    trainer = make(tmp_path, "schedule", keywords={"eval_dataset": Data(64, seed=1)}, **arguments)
    trainer.train()
    values = logged(trainer, f"eval_{metric}")[1:]  # without that of the untrained model
    assert len(set(values)) > 1
    assert trainer.state.best_metric == better(values)


def test_a_last_batch_of_one_item_ends_neither_training_nor_evaluation(tmp_path: Path) -> None:
    class Listing(MyTrainer):
        """Returns the views as a list, too."""

        def contrastive_views(self, model: nn.Module, inputs: dict[str, Any]) -> Any:
            return list(super().contrastive_views(model, inputs))

    for strategy, objective in (("learnable", "infonce"), ("macl", "dcl")):
        loss = cross_view(strategy, objective)
        more = {"eval_strategy": "epoch", "num_train_epochs": 2}
        keywords = {"train_dataset": Data(17), "eval_dataset": Data(17)}
        trainer = make(tmp_path, loss, Listing, keywords=keywords, **more)
        with pytest.warns(RuntimeWarning, match="leaves 1 of 1 anchors without a negative") as told:
            trainer.train()
        assert len(told) == 1
        losses = logged(trainer, "loss")
        assert losses[2::3] == [0.0, 0.0]
        assert all(math.isfinite(each) for each in losses)
        assert all(parameter.isfinite().all() for parameter in [*trainer.model.parameters(), *loss.parameters()])


def test_columns_that_the_model_does_not_name_are_kept_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Plain(Encoder):
        def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
            return self.layers(x)

    pairs = Data(16)
    named = datasets.Dataset.from_dict({"a": pairs.a.tolist(), "b": pairs.b.tolist()})
    for data, said in ((named, "Plain.forward does not name: a, b."), (pairs, "")):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="tempplug_adapters"):
            keywords = {"model": Plain(), "train_dataset": data}
            trainer = make(tmp_path, "fixed", keywords=keywords, remove_unused_columns=True, max_steps=2)
        trainer.train()
        assert trainer.state.global_step == 2
        assert [record.getMessage().endswith(said) for record in caplog.records] == [True] * bool(said)
