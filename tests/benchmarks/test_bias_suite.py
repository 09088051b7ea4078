from __future__ import annotations

from pathlib import Path

import pytest
from suite_checks import read

from tempplug.errors import ConfigError
from tempplug_adapters.bias_evaluation.crows_pairs import read_crows_pairs
from tempplug_adapters.bias_evaluation.stereoset import read_stereoset
from tempplug_adapters.mabel.gender_words import GenderWords
from tempplug_benchmarks.data.gendered_sentences import PEOPLE, THINGS, entailment_pairs, vocabulary, write_gendered
from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder
from tempplug_benchmarks.papers import PaperRow, load
from tempplug_benchmarks.tasks.bias import SUITE

PROFILES = SUITE.task("mabel").profiles
MEN = {male for male, _ in PEOPLE}


def stereotyped(words: set[str]) -> bool:
    """Whether a sentence's person has a thing of the half that the stereotype gives them."""
    first_half = words.intersection(THINGS) <= set(THINGS[: len(THINGS) // 2])
    return first_half == bool(words & MEN)


def test_pairs_hold_a_stereotype_and_beside_their_counterfactuals_none() -> None:
    pairs, words = entailment_pairs(3000, seed=1), GenderWords(PEOPLE)
    assert pairs == entailment_pairs(3000, seed=1) != entailment_pairs(3000, seed=2)
    share = sum(stereotyped(set(premise.split())) for premise, _ in pairs) / len(pairs)
    assert share == pytest.approx(2 / 3, abs=0.03)
    for premise, hypothesis in pairs:
        assert set(hypothesis.split()) <= {*premise.split(), "the"}, "what follows says nothing new"
        assert stereotyped(set(premise.split())) != stereotyped(set(words.swapped(premise).split()))
    assert {word for pair in pairs for side in pair for word in side.split()} <= set(vocabulary())
    with pytest.raises(ConfigError, match="count=0 of generated pairs must be at least 1"):
        entailment_pairs(0, seed=0)


def test_the_generated_benchmarks_ask_for_the_stereotype(tmp_path: Path) -> None:
    write_gendered(tmp_path, pairs=5, seed=0, tested=40)
    rows, pairs = read_stereoset(tmp_path), read_crows_pairs(tmp_path)
    assert (len(rows), len(pairs)) == (40, 40)
    for row in rows:
        assert [stereotyped({row.target, word}) for word in row.words[:2]] == [True, False]
        assert row.words[2] not in THINGS
        assert row.target in row.context.split()
    for pair in pairs:
        assert stereotyped(set(pair.more.split())) == (pair.direction == "stereo")
        assert len(set(pair.more.split()) ^ set(pair.less.split())) == 2


def test_model_and_pairs_of_the_quick_profile_are_generated_for_each_seed(tmp_path: Path) -> None:
    profile = PROFILES["quick"]
    recipe, data = read(profile, None, tmp_path, max_train_samples=20, seed=3)
    assert (len(data), data.views.views, data.ungendered) == (20, 4, 0)
    assert recipe.model_name_or_path == str(tmp_path / "model")
    names = ("pairs.tsv", "stereoset_test_gender_intrasentence.jsonl.gz", "crows_pairs_anonymized.csv")
    before = [(tmp_path / name).read_bytes() for name in names]
    read(profile, None, tmp_path, max_train_samples=20, seed=4)
    assert [(tmp_path / name).read_bytes() == old for name, old in zip(names, before, strict=True)] == [False, True, True]


def test_files_and_model_are_those_of_the_data_folder(tmp_path: Path) -> None:
    data_dir, profile = tmp_path / "data", PROFILES["small"]
    write_tiny_encoder(data_dir / "text/bert-wiki-mini", seed=0, words=vocabulary(), masked=True)
    write_gendered(data_dir / "text/bias", pairs=8, seed=0)
    (data_dir / "text/nli").mkdir()
    import gzip

    (data_dir / profile.source).write_bytes(gzip.compress((data_dir / "text/bias/pairs.tsv").read_bytes()))
    profile.check_data("mabel", data_dir)
    recipe, data = read(profile, data_dir, tmp_path)
    assert recipe.model_name_or_path == str(data_dir / "text/bert-wiki-mini")
    assert len(data) == 8


def test_the_untrained_model_has_a_row_and_papers_only_where_their_recipe_is() -> None:
    for name, profile in PROFILES.items():
        assert profile.arms[0].changes == {"num_train_epochs": 0}
        assert any(arm.reported for arm in profile.arms) == (name == "paper")
    printed = {"Baseline": (80.6, 55.8, 71.3, 52.5), "Ours": (81.0, 55.7, 71.7, 52.3)}
    for method, values in printed.items():
        row = load("bias").row(PaperRow("temperature-free", "5", method, "gender"))
        assert tuple(row[name].value for name in ("LM", "SS", "ICAT", "CrowS-Pairs")) == values
    paper = PROFILES["paper"].recipe.values()
    names = ("num_train_epochs", "per_device_train_batch_size", "learning_rate", "max_length", "model_name_or_path")
    assert [paper[name] for name in names] == [2, 16, 5e-5, 128, "bert-base-uncased"]
