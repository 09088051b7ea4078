"""``tempplug train dcrec``: what is learned, what is known at evaluation, the graphs of the recipe, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recommendation_toys import SMALL, run, toy_log, walks, write_log

from tempplug.cli import main
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.recommendation.dcrec import DCRecMethod
from tempplug_adapters.recommendation.interactions import Interactions
from tempplug_adapters.recommendation.item_graphs import ItemGraphs
from tempplug_adapters.recommendation.recipes import DCREC as METHOD


def build(data: Interactions | None = None, negatives: str | None = None, **changes: Any) -> tuple[Any, Any, Interactions, Any]:
    method, recipe, data = DCRecMethod(METHOD), METHOD.recipe(**{**SMALL, **changes}), data or toy_log()
    loss = method.create_loss(recipe, data, TemperatureArguments(None, [], None, contrastive_negatives=negatives))
    return method, recipe, data, method.build(recipe, data, loss)


def test_the_next_item_is_learned_and_the_test_graphs_are_used_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ranker = [], DCRecMethod.ranker
    monkeypatch.setattr(DCRecMethod, "ranker", lambda *given: asked.append(given[-1]) or ranker(*given))  # type: ignore[func-returns-value]
    results = run(METHOD, tmp_path, num_train_epochs=12, learning_rate=0.02)
    assert asked == [*["validation"] * 13, "test"]
    assert (results["strategy"], results["objective"]) == ("fixed:temperature=0.8", "infonce")
    found = results["evaluation"]
    assert found["hr@5 full"] > found["popularity hr@5 full"] + 20
    logged = [entry for entry in results["history"] if "loss" in entry][-1]
    assert logged["conformity_term"] == pytest.approx(0.4, abs=0.1)
    assert {"next_item_term", "contrastive_term", "divergence_term", "temperature", "positive_similarity"} <= set(logged)


def test_each_split_is_ranked_with_its_own_graphs() -> None:
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


def test_test_targets_do_not_reach_the_graphs() -> None:
    changed = [np.append(sequence[:-1], 1) for sequence in walks()]
    graphs, others = ItemGraphs(toy_log()), ItemGraphs(Interactions(changed, 12, 12, 0.3))
    for split in ("train", "validation", "test"):
        for one, two in zip(graphs.of(split), others.of(split), strict=True):
            assert torch.equal(one.sources, two.sources)
            assert torch.equal(one.weights, two.weights)


def test_empty_histories_and_unused_items_have_finite_scores() -> None:
    method, recipe, data, module = build(Interactions(walks(), 15, 12, 0.3))
    histories, lengths = torch.tensor([[0, 0], [14, 0], [3, 15]]), torch.tensor([0, 1, 2])
    scores = method.ranker(recipe, module.eval(), data, "test")(histories, lengths)
    assert scores.shape == (3, 16)
    assert scores.isfinite().all()
    assert len({tuple(row) for row in scores.tolist()}) == 3


@pytest.mark.parametrize("flag", [False, True])
def test_edges_are_dropped_at_evaluation_if_wanted(flag: bool) -> None:
    method, recipe, data, module = build(edge_dropout_at_evaluation=flag)
    one, two = (method.ranker(recipe, module.eval(), data, "test")(*data.batch(data.test)[:2]) for _ in range(2))
    assert torch.equal(one, two) is not flag


def test_histories_with_the_same_last_item_are_not_negatives_of_each_other() -> None:
    method, recipe, data, module = build(negatives="same-key")
    keys: list[torch.Tensor] = []
    module.loss_fn.register_forward_pre_hook(lambda _, __, given: keys.append(given["keys"]), with_kwargs=True)
    batch = method.collate(recipe, data, torch.arange(9))
    module(**batch)
    last = [history[length - 1] for history, length in zip(batch["histories"], batch["lengths"], strict=True)]
    assert [each.tolist() for each in keys] == [last, last]


def test_the_similarity_graph_is_the_recipes() -> None:
    fixed, faithful = (ItemGraphs(toy_log(1500, 1000), kind).of("train")[1] for kind in ("fixed", "faithful"))
    assert fixed.sources.max() > 990
    assert 735 < faithful.sources.max() < 745, "of 1001 rows those from 512 to 767 are cut off"
    _, _, _, module = build(similarity_graph="faithful", similar_items=1)
    assert module.train_graphs[1].sources.bincount().max() == 2


def test_a_command_trains_on_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(tmp_path / "log.csv", walks())
    small = ["--hidden", "8", "--inner", "8", "--layers", "1", "--num-train-epochs", "1", "--validation-share", "0.3"]
    flags = ["--temperature-strategy", "temperature-free", "--similarity-graph", "faithful", "--edge-dropout-at-evaluation"]
    assert main(["train", "dcrec", "--dataset", str(log), *small, *flags, "--output-dir", str(tmp_path / "run")]) == 0
    specs = "strategy temperature-free:eps=0.0001\nobjective infonce\nlayout cross-view\n"
    assert capsys.readouterr().out.startswith(f"{specs}{log}: 40 users, ")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert (metrics["recipe"]["similarity_graph"], metrics["recipe"]["edge_dropout_at_evaluation"]) == ("faithful", True)
