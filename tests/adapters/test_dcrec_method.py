"""``tempplug train dcrec``: trainings with any strategy, resuming, what is known at evaluation, recipes, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from method_toys import Kill, Killed, plain_loop, weights, without_seconds
from recommendation_toys import SMALL, run, toy_log, walks, write_log
from torch import Tensor

from tempplug.cli import main
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.recommendation.dcrec_method import DCRecMethod
from tempplug_adapters.recommendation.dcrec_recipe import METHOD
from tempplug_adapters.recommendation.interactions import Interactions
from tempplug_adapters.recommendation.item_graphs import ItemGraphs


def build(**changes: Any) -> tuple[DCRecMethod, Any, Interactions, Any]:
    method, recipe, data = DCRecMethod(METHOD), METHOD.recipe(**{**SMALL, **changes}), toy_log()
    loss = method.create_loss(recipe, data, TemperatureArguments(None, [], None))
    return method, recipe, data, method.build(recipe, data, loss)


def test_what_comes_next_is_learned(tmp_path: Path) -> None:
    results = run(METHOD, tmp_path, num_train_epochs=12, learning_rate=0.02)
    assert (results["strategy"], results["objective"]) == ("fixed:temperature=0.8", "infonce")
    found = results["evaluation"]
    assert found["hr@5 full"] > found["popularity hr@5 full"] + 20
    logged = [entry for entry in results["history"] if "loss" in entry][-1]
    assert logged["conformity_term"] == pytest.approx(0.4, abs=0.1)
    assert {"next_item_term", "contrastive_term", "divergence_term", "temperature", "positive_similarity"} <= set(logged)


def test_half_precision_trains_and_keeps_its_weights(tmp_path: Path) -> None:
    half, full = (run(METHOD, tmp_path / str(bf16), "macl", bf16=bf16) for bf16 in (True, False))
    assert half["loss"] == pytest.approx(full["loss"], rel=0.05)
    assert half["loss"] != full["loss"]
    assert all(value.dtype == torch.float32 for value in weights(tmp_path / "True").values() if value.is_floating_point())


def test_a_ranking_knows_the_graphs_of_its_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method, recipe, data, module = build(similarity_graph="faithful", similar_items=2)
    model, graphs = module.eval().model, ItemGraphs(data, "faithful", 2)
    histories, lengths, _ = data.batch(data.test)
    last = histories[torch.arange(len(lengths)), lengths - 1]
    found = {}
    for split in ("train", "validation", "test"):
        state = model.encoder(histories, lengths)
        fused = model.fused([state, *(model.graph_output(graph)[last] for graph in graphs.of(split))])
        found[split] = method.ranker(recipe, module, data, split)(histories, lengths)
        torch.testing.assert_close(found[split], fused @ model.encoder.items.weight.T)
    assert not torch.allclose(found["train"], found["validation"])
    assert not torch.allclose(found["validation"], found["test"])
    asked, ranker = [], DCRecMethod.ranker
    monkeypatch.setattr(DCRecMethod, "ranker", lambda *given: asked.append(given[-1]) or ranker(*given))  # type: ignore[func-returns-value]
    run(METHOD, tmp_path, num_train_epochs=2)
    assert asked == ["validation", "validation", "validation", "test"]


def test_graphs_do_not_know_the_targets_of_the_test() -> None:
    data = toy_log()
    changed = [sequence.copy() for sequence in walks()]
    for sequence in changed:
        sequence[-1] = 1
    other = Interactions(changed, 12, 12, 0.3)
    for split in ("train", "validation", "test"):
        for one, two in zip(ItemGraphs(data).of(split), ItemGraphs(other).of(split), strict=True):
            assert torch.equal(one.sources, two.sources)
            assert torch.equal(one.weights, two.weights)


def test_a_history_of_nothing_or_of_items_that_nobody_took_has_finite_scores() -> None:
    method, recipe, data = DCRecMethod(METHOD), METHOD.recipe(**SMALL), Interactions(walks(), 15, 12, 0.3)
    module = method.build(recipe, data, method.create_loss(recipe, data, TemperatureArguments(None, [], None)))
    histories, lengths = torch.tensor([[0, 0], [14, 0], [3, 15]]), torch.tensor([0, 1, 2])
    scores = method.ranker(recipe, module.eval(), data, "test")(histories, lengths)
    assert scores.shape == (3, 16)
    assert scores.isfinite().all()
    assert len({tuple(row) for row in scores.tolist()}) == 3


@pytest.mark.parametrize("flag", [False, True])
def test_edges_are_dropped_at_evaluation_where_asked(flag: bool) -> None:
    method, recipe, data, module = build(edge_dropout_at_evaluation=flag)
    asked = data.batch(data.test)[:2]
    one, two = (method.ranker(recipe, module.eval(), data, "test")(*asked) for _ in range(2))
    assert torch.equal(one, two) is not flag


def test_the_similarity_graph_is_the_recipes() -> None:
    fixed, faithful = (ItemGraphs(toy_log(1500, 1000), kind).of("train")[1] for kind in ("fixed", "faithful"))
    assert fixed.sources.max() > 990
    assert 735 < faithful.sources.max() < 745, "of 1001 rows those from 512 to 767 are cut off"
    _, _, _, module = build(similarity_graph="faithful", similar_items=1)
    assert module.train_graphs[1].sources.bincount().max() == 2


def test_a_training_is_a_plain_loop_to_the_bit(tmp_path: Path) -> None:
    run(METHOD, tmp_path, "learnable")
    plain = plain_loop(DCRecMethod(METHOD), METHOD.recipe(**SMALL), toy_log(), "learnable").state_dict()
    found = weights(tmp_path)
    assert any(name.startswith("loss_fn.") for name in plain)
    # the loop's flags ask for InfoNCE, as the recipe does
    assert all(torch.equal(found[name], value) for name, value in plain.items() if isinstance(value, Tensor))


@pytest.mark.parametrize("strategy", ["individual", "temperature-free", "schedule:shape=random,period=2"])
def test_a_killed_run_ends_as_if_it_had_not_been(strategy: str, tmp_path: Path) -> None:
    whole = run(METHOD, tmp_path / "whole", strategy)
    with pytest.raises(Killed):
        run(METHOD, tmp_path / "part", strategy, callbacks=[Kill(whole["steps"] // 3 + 1)])
    torch.manual_seed(99)
    resumed = run(METHOD, tmp_path / "part", strategy, resume_from_checkpoint="auto")
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "part")
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert without_seconds(resumed) == without_seconds(whole)


def test_the_recipes_are_those_of_the_papers() -> None:
    """Kim & Kim 2025, appendix on recommendation, and the authors' run_DCRec.py."""
    for name, batch, dropouts, weights_of, temperature in [
        (None, 512, (0.5, 0.5, 0.5), (0.1, 0.01, 0.4), 0.8),
        ("reddit", 128, (0.3, 0.3, 0.3), (1, 1, 0.5), 1.0),
        ("beauty", 2048, (0.5, 0.1, 0.5), (0.1, 0.01, 0.5), 1.0),
        ("sports", 512, (0.5, 0.3, 0.5), (0.1, 0.01, 0.5), 1.0),
    ]:
        recipe: Any = METHOD.recipe(name)
        assert recipe.per_device_train_batch_size == batch
        assert (recipe.dropout, recipe.attention_dropout, recipe.edge_dropout) == dropouts
        assert (recipe.contrastive_weight, recipe.divergence_weight, recipe.conformity_mean) == weights_of
        assert recipe.loss.temperatures["fixed"] == {"temperature": temperature}
        assert (recipe.learning_rate, recipe.similar_items, recipe.hidden, recipe.inner) == (1e-3, 4, 64, 256)
    method, data, paper = DCRecMethod(METHOD), toy_log(), METHOD.recipe()
    for given, strategy, objective in [
        ("temperature-free", "temperature-free:eps=0.0001", "infonce"),
        ("macl", "macl:base_temperature=0.8,alpha=0.5,threshold=0,", "reweighted"),
        ("dystress", "dystress:temperature_min=0.4,temperature_max=0.8,", "infonce"),
        ("amcl", "amcl:dimension=64,", "dcl"),
    ]:
        loss = method.create_loss(paper, data, TemperatureArguments(given, [], None))
        assert loss.strategy.spec().startswith(strategy)
        assert (loss.objective.name, loss.layout.name, loss.reduction) == (objective, "cross-view", "none")


def test_a_command_trains_on_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(tmp_path / "log.csv", walks())
    small = ["--hidden", "8", "--inner", "8", "--layers", "1", "--num-train-epochs", "1", "--validation-share", "0.3"]
    flags = ["--temperature-strategy", "temperature-free", "--similarity-graph", "faithful", "--edge-dropout-at-evaluation"]
    assert main(["train", "dcrec", "--dataset", str(log), *small, *flags, "--output-dir", str(tmp_path / "run")]) == 0
    specs = "strategy temperature-free:eps=0.0001\nobjective infonce\nlayout cross-view\n"
    assert capsys.readouterr().out.startswith(f"{specs}{log}: 40 users, ")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert (metrics["recipe"]["similarity_graph"], metrics["recipe"]["edge_dropout_at_evaluation"]) == ("faithful", True)
