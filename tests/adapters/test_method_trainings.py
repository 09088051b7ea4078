"""Trainings of graphs, recommenders and anomaly detectors: plain loops to the bit, exact after a kill, as in the papers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from launched.train_methods import TOYS
from method_toys import Kill, Killed, plain_loop, weights, without_seconds
from molecule_toys import unlabelled
from torch import Tensor

import tempplug_adapters.graph.grace_method as grace_method
from tempplug.arguments import parse_spec
from tempplug_adapters.graph.molecule_method import Molecules
from tempplug_adapters.graph.recipes import GRACE, MOLECULE
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.recommendation.recipes import DCREC


@pytest.fixture(autouse=True)
def quick_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    original = grace_method.evaluate_nodes
    monkeypatch.setattr(grace_method, "evaluate_nodes", lambda *given, **more: original(*given, **more, steps=60))


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("grace", "schedule:shape=triangle,temperature_min=0.2,temperature_max=0.9,period=4"),
        ("grace, batches", "learnable"),
        ("graphcl", "learnable"),
        ("molecule", "schedule:shape=triangle,temperature_min=0.05,temperature_max=0.2,period=3"),
        ("fine-tuning", None),
        ("sasrec", None),
        ("dcrec", "temperature-free"),
        ("grace, terms", "fixed"),
        ("dcrec, terms", "individual"),
        ("msc", "schedule:shape=random,period=2"),
    ],
)
def test_a_plain_loop_and_a_kill_end_alike(
    name: str, strategy: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = TOYS[name]
    whole = toy.run(tmp_path / "whole", strategy)
    found = weights(tmp_path / "whole")
    plain = plain_loop(toy.info.load(), toy.recipe, toy.data(), strategy).state_dict()  # type: ignore[arg-type]
    assert strategy != "learnable" or any(each.startswith("loss_fn.") for each in plain)
    assert all(torch.equal(found[each], value) for each, value in plain.items() if isinstance(value, Tensor))
    with pytest.raises(Killed):
        toy.run(tmp_path / "part", strategy, callbacks=[Kill(whole["steps"] * 2 // 3)])
    torch.manual_seed(99)
    monkeypatch.setattr(type(toy.info.load()), "prepare", lambda *given: pytest.fail("a resumed run prepares nothing"))
    resumed = toy.run(tmp_path / "part", strategy, resume_from_checkpoint="auto")
    assert without_seconds(resumed) == without_seconds(whole)
    for part in {each.parent.relative_to(tmp_path / "whole") for each in (tmp_path / "whole").rglob("metrics.json")}:
        expected, again = (weights(tmp_path / folder / part) for folder in ("whole", "part"))
        assert all(torch.equal(expected[each], again[each]) for each in expected), "temperatures and centre, too"


@pytest.mark.parametrize("name", ["graphcl", "molecule", "dcrec", "msc"])
def test_bfloat16_trains(name: str, tmp_path: Path) -> None:
    toy = TOYS[name]
    if name == "molecule":
        toy = toy._replace(data=lambda: Molecules(unlabelled()))
    half, full = (toy.run(tmp_path / str(bf16), "fixed", bf16=bf16) for bf16 in (True, False))
    assert half["loss"] == pytest.approx(full["loss"], rel=0.05)
    assert half["loss"] != full["loss"]
    assert all(value.dtype == torch.float32 for value in weights(tmp_path / "True").values() if value.is_floating_point())
    before = [each["evaluation"].get("roc_auc_before") for each in (half, full)]
    assert before[0] == before[1], "scores of images are always in float32"


PAPERS = {
    "grace": (0.5, "two-view", 32, "infonce reweighted infonce"),
    "graphcl": (0.2, "cross-view", 96, "dcl dcl infonce"),
    "molecule": (0.1, "cross-view", 300, "dcl dcl infonce"),
    "dcrec": (0.8, "cross-view", 64, "infonce reweighted infonce"),
    "msc": (0.25, "two-view", 8, "infonce reweighted infonce"),
}
SETTINGS = (
    # Kim & Kim 2025 (temperature-free), table 3: PyGCL's example of GRACE
    "grace:num_train_epochs=1000,learning_rate=0.01,weight_decay=0,optimizer=adam,hidden=32,projection=32,layers=2,"
    "activation=relu",
    # You et al. 2020 on TU data sets; Huang et al. 2023, appendix B.5
    "graphcl:num_train_epochs=20,per_device_train_batch_size=128,learning_rate=0.01,weight_decay=0,optimizer=adam,hidden=32,"
    "layers=3,folds=10",
    # You et al. 2020 and Hu et al. 2020, which MACL follows: the encoder after 80 epochs
    "molecule:num_train_epochs=80,per_device_train_batch_size=256,learning_rate=0.001,layers=5,width=300,view_ratio=0.2,"
    "optimizer=adam,finetune_epochs=100,finetune_batch_size=32,finetune_learning_rate=0.001,dropout=0.5",
    # Kim & Kim 2025, appendix on recommendation
    "dcrec:per_device_train_batch_size=512,learning_rate=0.001,dropout=0.5,attention_dropout=0.5,edge_dropout=0.5,"
    "contrastive_weight=0.1,divergence_weight=0.01,conformity_mean=0.4,similar_items=4,hidden=64,inner=256",
    # Kim & Kim 2025: CIFAR-10, a ResNet-152; MSC's own temperature
    "msc:num_train_epochs=25,per_device_train_batch_size=32,learning_rate=1e-5,weight_decay=5e-5,optimizer=sgd,momentum=0,"
    "backbone=microsoft/resnet-152,image_size=224,neighbours=2,angular=false",
)


@pytest.mark.parametrize("written", SETTINGS)
def test_the_recipe_is_that_of_the_papers(written: str) -> None:
    name, settings = parse_spec(written)
    around, layout, dimension, objectives = PAPERS[name]
    toy = TOYS[name]
    recipe, data = toy.info.recipe(), toy.data()
    assert recipe.changed(**settings) == recipe
    specs = {
        "fixed": f"fixed:temperature={around:g}",
        "macl": f"macl:base_temperature={around:g},alpha=0.5,threshold=0,floor_ratio=0.1,strict=false",
        "learnable": f"learnable:initial_temperature={around:g}",
        "dystress": f"dystress:temperature_min={around / 2:g},temperature_max={around:g}",
        "individual": f"individual:size={2 * len(data) if name == 'dcrec' else len(data)},temperature_init={around:g}",
        "amcl": f"amcl:dimension={dimension}",
    }
    made = [toy.info.load().create_loss(recipe, data, TemperatureArguments(given, [], None)) for given in specs]
    assert all(loss.strategy.spec().startswith(spec) for loss, spec in zip(made, specs.values(), strict=True))
    assert {loss.layout.name for loss in made} == {layout}
    assert [loss.objective.name for loss in made[:3]] == objectives.split()


def test_other_settings_of_papers() -> None:
    assert (GRACE.recipe().edge_removal, GRACE.recipe().feature_masking) == ((0.3,), (0.3,))  # type: ignore[attr-defined]
    tuning = MOLECULE.recipe(seed=3, bf16=True).fine_tuning()  # type: ignore[attr-defined]
    assert (tuning.num_train_epochs, tuning.per_device_train_batch_size, tuning.learning_rate) == (100, 32, 1e-3)
    assert (tuning.dropout, tuning.weight_decay, tuning.optimizer, tuning.seed, tuning.bf16) == (0.5, 0, "adam", 3, True)
    for name, batch, dropouts, weights_of in [
        ("reddit", 128, (0.3, 0.3, 0.3), (1, 1, 0.5)),
        ("beauty", 2048, (0.5, 0.1, 0.5), (0.1, 0.01, 0.5)),
        ("sports", 512, (0.5, 0.3, 0.5), (0.1, 0.01, 0.5)),
    ]:
        recipe: Any = DCREC.recipe(name)
        assert recipe.per_device_train_batch_size == batch
        assert (recipe.dropout, recipe.attention_dropout, recipe.edge_dropout) == dropouts
        assert (recipe.contrastive_weight, recipe.divergence_weight, recipe.conformity_mean) == weights_of
        assert recipe.loss.temperatures["fixed"] == {"temperature": 1.0}
