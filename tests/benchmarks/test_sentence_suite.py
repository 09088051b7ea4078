from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from suite_checks import read

from tempplug_adapters.sentence_evaluation.transfer_data import TRANSFER_TASKS
from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder
from tempplug_benchmarks.tasks.sentence import SUITE
from tempplug_benchmarks.tasks.sentence_data import STS, TRANSFER


@pytest.mark.parametrize(("name", "views"), [("supervised", 2), ("unsupervised", 1)])
def test_encoder_and_sentences_of_the_quick_profile_are_generated_for_each_seed(name: str, views: int, tmp_path: Path) -> None:
    profile = SUITE.task(name).profile("quick")
    recipe, data = read(profile, None, tmp_path, max_train_samples=20, seed=3)
    assert (len(data), data.views.views) == (20, 2)
    assert data.kind == {1: "sentences", 2: "pairs"}[views]
    assert recipe.model_name_or_path == str(tmp_path / "encoder")
    file = next(tmp_path.glob("*.t*"))
    text, sts = file.read_text(), (tmp_path / "sts/STSB/dev.tsv").read_text()
    assert len(sts.splitlines()) == 1001
    read(profile, None, tmp_path, max_train_samples=20, seed=4)
    assert file.read_text() != text
    assert (tmp_path / "sts/STSB/dev.tsv").read_text() == sts, "all seeds are measured on the same pairs"


def test_files_and_encoder_are_those_of_the_data_folder(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    write_tiny_encoder(data_dir / "text/bert-wiki-mini", seed=0)
    profile = SUITE.task("supervised").profile("small")
    file = data_dir / profile.source
    file.parent.mkdir(parents=True)
    rows = ["premise\thypothesis\tlabel", "the man sold a car\ta guy sold a car\tentailment", "a b\tc d\tneutral"]
    (tmp_path / "rows.tsv").write_text("\n".join([*rows, "the dog\ta hound\tentailment"]) + "\n")
    import gzip

    file.write_bytes(gzip.compress((tmp_path / "rows.tsv").read_bytes()))
    from tempplug_benchmarks.data.sentences import write_sts

    write_sts(data_dir / "text/sts", seed=0, train=1, dev=10, test=10)
    for name in STS:
        if name != "STSB":
            shutil.copytree(data_dir / "text/sts/STSB", data_dir / "text/sts" / name)
    recipe, data = read(profile, data_dir, tmp_path, sts_test=False)
    assert recipe.model_name_or_path == str(data_dir / "text/bert-wiki-mini")
    assert (len(data), data.kind) == (2, "pairs")


def test_a_checkpoint_is_chosen_as_often_as_the_profile_says() -> None:
    for name, steps in (("supervised", 80), ("unsupervised", 100)):
        profile = SUITE.task(name).profile("small")
        assert (profile.training["eval_steps"], profile.training["save_steps"]) == (steps, steps)
        assert profile.settings()["eval_steps"] == steps


def test_transfer_is_trained_as_unsupervised_is_and_measured_on_other_tasks() -> None:
    for name, tasks in (("small", 6), ("paper", 7)):
        profile, trained = SUITE.task("transfer").profile(name), SUITE.task("unsupervised").profile(name)
        differing = {key for key, value in profile.recipe.values().items() if trained.recipe.values()[key] != value}
        assert differing == {"sts_test", "transfer_test"}
        assert [metric.name for metric in profile.metrics] == ["STSB-dev", *profile.recipe.transfer_test, profile.primary]
        assert len(profile.recipe.transfer_test) == tasks
        assert ("text/transfer/SST2_phrases.train.tsv.gz" in profile.needs) == (tasks == 7)
        assert "text/transfer/TREC.test.tsv.gz" in profile.needs
        # A mean over six tasks must not be compared with a paper's over seven.
        assert (profile.primary == "Avg") == (tasks == 7)
    assert set(TRANSFER) == set(TRANSFER_TASKS)


def test_the_encoder_that_nothing_was_learnt_on_is_an_arm() -> None:
    for task in SUITE.tasks:
        for profile in task.profiles.values():
            assert dict(profile.arms[0].changes) == {"num_train_epochs": 0}
