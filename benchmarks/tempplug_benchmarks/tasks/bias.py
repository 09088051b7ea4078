"""The suite ``bias``: MABEL with every temperature strategy, evaluated for gender bias on StereoSet and CrowS-Pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tempplug_adapters.mabel.recipe import METHOD, MabelRecipe
from tempplug_adapters.training.recipe import Recipe
from tempplug_benchmarks.arm import UNTRAINED, arms, fixed
from tempplug_benchmarks.data import gendered_sentences
from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.profile import Metric, Profile
from tempplug_benchmarks.resources import GPU
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Task

if TYPE_CHECKING:
    from tempplug_adapters.mabel.method import Quadruples
    from tempplug_adapters.training.method import Source

BASELINE = "fixed:temperature=0.05+infonce"
METRICS = (
    Metric(
        name="LM",
        figure="stereoset_lm",
        summary="StereoSet: per cent of words that fit which are more probable than one that does not",
    ),
    Metric(
        name="SS",
        figure="stereoset_ss",
        summary="StereoSet: per cent of stereotypes that are more probable than their opposites; 50 is no preference",
        higher_is_better=False,
    ),
    Metric(name="ICAT", figure="stereoset_icat", summary="LM · min(SS, 100 − SS) / 50", smallest_difference=0.1),
    Metric(
        name="CrowS-Pairs",
        figure="crows_pairs",
        summary="per cent of pairs whose stereotyping sentence is more probable, as MABEL computes it; 50 is no preference",
        higher_is_better=False,
    ),
    Metric(
        name="validation",
        figure="validation_icat",
        summary="ICAT of StereoSet's development set, whose targets are others than those of the test set",
    ),
)
_ARMS = (*fixed("infonce", 0.02, 0.05, 0.1, 0.2), "temperature-free+infonce", "macl+infonce", "dystress+infonce")
_REPORTED = {
    BASELINE: (PaperRow("temperature-free", "5", "Baseline", "gender"),),
    "temperature-free+infonce": (PaperRow("temperature-free", "5", "Ours", "gender"),),
}
_BENCHMARKS = (
    "stereoset_test_gender_intrasentence.jsonl.gz",
    "stereoset_dev_intrasentence.jsonl.gz",
    "crows_pairs_anonymized.csv",
)
_GENERATED: Mapping[str, Any] = {
    "model_name_or_path": "generated",
    "learning_rate": 3e-3,
    "num_train_epochs": 1,
    "per_device_train_batch_size": 32,
    "max_train_samples": 640,
    "mlm_weight": 1.0,
}


def generated_pairs(recipe: MabelRecipe, source: Source) -> tuple[MabelRecipe, Quadruples]:
    """Returns the recipe and data with pairs and a model for the run's seed; the evaluation data are the same for all seeds."""
    from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder

    folder = source.cache_dir
    gendered_sentences.write_gendered(folder, recipe.max_train_samples or 0, recipe.seed)
    write_tiny_encoder(folder / "model", recipe.seed, words=gendered_sentences.vocabulary(), masked=True)
    recipe = recipe.changed(model_name_or_path=str(folder / "model"))
    return recipe, METHOD.load().load(recipe, replace(source, dataset=str(folder / "pairs.tsv"), data_dir=folder))


def read_pairs(recipe: MabelRecipe, source: Source) -> tuple[MabelRecipe, Quadruples]:
    """Returns the recipe and data with paths in the data folder; a missing model is loaded from the hub."""
    folder = source.data_dir or Path()
    if (folder / recipe.model_name_or_path).is_dir():
        recipe = recipe.changed(model_name_or_path=str(folder / recipe.model_name_or_path))
    return recipe, METHOD.load().load(recipe, replace(source, dataset=str(folder / source.dataset)))


def _profile(dataset: str, recipe: Recipe, *, reported: bool = False, **more: Any) -> Profile:
    return Profile(
        dataset=dataset,
        recipe=recipe,
        arms=(UNTRAINED, *arms(*_ARMS, reported=_REPORTED if reported else None)),
        metrics=METRICS,
        primary="ICAT",
        validation="validation",
        **more,
    )


def _real(dataset: str, source: str, recipe: Recipe, *needs: str, **more: Any) -> Profile:
    return _profile(
        f"{dataset}; StereoSet's gender test set (771 sentences) and CrowS-Pairs of gender (262 pairs)",
        recipe,
        source=source,
        load=read_pairs,
        needs=(source, *needs, *(f"text/bias/{name}" for name in _BENCHMARKS)),
        **more,
    )


SUITE = Suite(
    "bias",
    "MABEL masked language models, their gender bias on StereoSet and CrowS-Pairs",
    (
        Task(
            name="mabel",
            summary="what a premise entails is its positive; pairs and their gender-swapped counterfactuals are made alike",
            method=METHOD,
            baseline=BASELINE,
            papers="bias",
            resources={"paper": GPU},
            profiles={
                "quick": _profile(
                    f"generated sentences about men and women, version {gendered_sentences.VERSION}",
                    METHOD.recipe(**_GENERATED),
                    load=generated_pairs,
                    stands_in="generated sentences",
                ),
                # One minute per run on one slow core: 100 steps, with a learning rate for so few steps of so small a model.
                "small": _real(
                    "the first 1,600 of 12,253 entailment pairs with gender words, all of SNLI",
                    "text/nli/gender_entailment.tsv.gz",
                    METHOD.recipe(
                        "temperature-free",
                        model_name_or_path="text/bert-wiki-mini",
                        num_train_epochs=1,
                        max_train_samples=1_600,
                        max_length=32,
                        learning_rate=5e-4,
                        warmup_steps=0.05,
                        bf16=True,
                    ),
                    "text/bert-wiki-mini",
                    "text/bias/gender_words.tsv",
                ),
                "paper": _real(
                    "entailment pairs of SNLI and MultiNLI with gender words, and their counterfactuals (entailment_data.csv)",
                    "text/nli/entailment_data.csv",
                    METHOD.recipe("temperature-free", columns=("orig_sent0", "orig_sent1", "aug_sent0", "aug_sent1")),
                    reported=True,
                    training={"fp16": True},
                ),
            },
        ),
    ),
)
