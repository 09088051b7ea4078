"""The suites sentence, retrieval and bias: their generated data, the files that they read, and the recipes of profiles."""

from __future__ import annotations

import gzip
import itertools
import re
import shutil
from pathlib import Path

import pytest
import torch
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from suite_checks import read
from transformers import AutoModel, AutoTokenizer

from tempplug.errors import ConfigError
from tempplug_adapters.bias_evaluation.crows_pairs import read_crows_pairs
from tempplug_adapters.bias_evaluation.stereoset import read_stereoset
from tempplug_adapters.data_files.text_rows import open_texts
from tempplug_adapters.mabel.gender_words import GenderWords
from tempplug_adapters.sentence_evaluation.encoder import SentenceEncoder
from tempplug_adapters.sentence_evaluation.transfer_data import TRANSFER_TASKS
from tempplug_benchmarks.data import gendered_sentences as gendered
from tempplug_benchmarks.data.sentences import (
    EVALUATION_TEMPLATES,
    SLOTS,
    TRAINING_TEMPLATES,
    combinations,
    paraphrase_pairs,
    plain_sentences,
    scored_pairs,
    vocabulary,
    write_sts,
)
from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.tasks.text import BIAS, RETRIEVAL, SENTENCE

WORDS = [{word: concept for concept, words in enumerate(slot) for word in words} for slot in SLOTS]
MABEL = BIAS.task("mabel").profiles


def concepts(sentence: str) -> tuple[int, ...]:
    """Reads the four concepts back from a sentence."""
    found = [[slot[word] for word in sentence.split() if word in slot] for slot in WORDS]
    assert [len(each) for each in found] == [1, 1, 1, 1], sentence
    return tuple(each[0] for each in found)


def template(sentence: str) -> str:
    """Returns the sentence with the number of its slot in the place of each word of a slot."""
    marked = (next((f"{{{number}}}" for number, slot in enumerate(WORDS) if word in slot), word) for word in sentence.split())
    return " ".join(marked)


def test_words_belong_to_one_concept_alone_and_the_seed_decides() -> None:
    words = [word for slot in SLOTS for concept in slot for word in concept]
    assert len(set(words)) == len(words)
    assert all(len(concept) >= 2 for slot in SLOTS for concept in slot)
    assert paraphrase_pairs(50, seed=3) == paraphrase_pairs(50, seed=3) != paraphrase_pairs(50, seed=4)
    assert plain_sentences(50, seed=3) == plain_sentences(50, seed=3) != plain_sentences(50, seed=4)
    assert scored_pairs("dev", 50, seed=3) == scored_pairs("dev", 50, seed=3) != scored_pairs("dev", 50, seed=4)


def test_evaluation_has_other_concepts_and_templates_than_training() -> None:
    plain, pairs = plain_sentences(5000, seed=0), paraphrase_pairs(3000, seed=0)
    training = [*plain, *(side for pair in pairs for side in pair)]
    dev, test = (
        [side for pair in scored_pairs(split, 600, seed=0) for side in (pair.sentence_a, pair.sentence_b)]
        for split in ("dev", "test")  # type: ignore[arg-type]
    )
    for first, second in itertools.combinations((training, dev, test), 2):
        assert not set(map(concepts, first)) & set(map(concepts, second))
    assert set(map(template, training)) == set(TRAINING_TEMPLATES)
    assert set(map(template, [*dev, *test])) == set(EVALUATION_TEMPLATES)
    assert not set(TRAINING_TEMPLATES) & set(EVALUATION_TEMPLATES)
    assert sum(len(combinations(split)) for split in ("train", "dev", "test")) == len(list(itertools.product(*SLOTS)))
    assert len(set(map(concepts, plain))) == 5000, "none is drawn twice before all are used"
    assert not re.search(r"\ba [aeiou]", " ".join(plain))
    for first, second in pairs:
        assert concepts(first) == concepts(second)
        assert template(first) != template(second)


def test_scores_are_the_share_of_common_concepts_and_evenly_spread() -> None:
    pairs = scored_pairs("test", 500, seed=1)
    for pair in pairs:
        shared = sum(a == b for a, b in zip(concepts(pair.sentence_a), concepts(pair.sentence_b), strict=True))
        assert pair.score == 5 * shared / 4
    assert [sum(pair.score == score for pair in pairs) for score in (0, 1.25, 2.5, 3.75, 5)] == [100] * 5
    assert pairs != sorted(pairs, key=lambda pair: pair.score)


def test_arguments_are_checked() -> None:
    with pytest.raises(ConfigError, match="count=0 of generated sentences must be at least 1"):
        plain_sentences(0, seed=0)
    with pytest.raises(ConfigError, match="seed=-1 of generated sentences must be at least 0"):
        plain_sentences(1, seed=-1)
    with pytest.raises(ConfigError, match="split='valid' must be one of train, dev, test"):
        scored_pairs("valid", 1, seed=0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="count=0 of generated pairs must be at least 1"):
        gendered.entailment_pairs(0, seed=0)


def test_the_tiny_encoder_has_every_word_and_depends_on_its_seed_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_tiny_encoder(tmp_path / name, seed=seed)
    assert torch.equal(torch.get_rng_state(), before)
    weights = [AutoModel.from_pretrained(tmp_path / name).embeddings.word_embeddings.weight for name in "abc"]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "a")
    ids = tokenizer(" ".join(vocabulary()), truncation=False)["input_ids"]
    assert len(set(ids)) == len(vocabulary()) + 2
    assert tokenizer.unk_token_id not in ids


@pytest.mark.parametrize(
    ("suite", "task", "kind", "views", "model", "file", "evaluation"),
    [
        (SENTENCE, "supervised", "pairs", 2, "encoder", "pairs.tsv", "sts/STSB/dev.tsv"),
        (SENTENCE, "unsupervised", "sentences", 2, "encoder", "sentences.txt", "sts/STSB/dev.tsv"),
        (BIAS, "mabel", "quadruples", 4, "model", "pairs.tsv", "crows_pairs_anonymized.csv"),
    ],
)
def test_quick_profiles_generate_model_and_data_for_each_seed_and_one_evaluation(
    suite: Suite, task: str, kind: str, views: int, model: str, file: str, evaluation: str, tmp_path: Path
) -> None:
    files = []
    for seed in (3, 4):
        recipe, data = read(suite.task(task).profile("quick"), None, tmp_path, max_train_samples=20, seed=seed)
        assert (len(data), data.views.views, data.kind) == (20, views, kind)
        assert recipe.model_name_or_path == str(tmp_path / model)
        files.append([(tmp_path / name).read_text() for name in (file, evaluation)])
    assert files[0][0] != files[1][0]
    assert files[0][1] == files[1][1]


def test_files_and_models_are_those_of_the_data_folder(tmp_path: Path) -> None:
    model, nli = tmp_path / "text/bert-wiki-mini", tmp_path / "text/nli"
    nli.mkdir(parents=True)
    supervised = SENTENCE.task("supervised").profile("small")
    rows = ["premise\thypothesis\tlabel", "the man\ta guy\tentailment", "a b\tc d\tneutral", "the dog\ta hound\tentailment"]
    (tmp_path / supervised.source).write_bytes(gzip.compress("\n".join(rows).encode()))
    write_sts(tmp_path / "text/sts", seed=0, train=1, dev=10, test=10)
    needed = [Path(name).name for name in supervised.needs if name.startswith("text/sts/")]
    assert len(needed) == 7
    for name in set(needed) - {"STSB"}:
        shutil.copytree(tmp_path / "text/sts/STSB", tmp_path / "text/sts" / name)
    write_tiny_encoder(model, seed=0)
    recipe, data = read(supervised, tmp_path, tmp_path / "cache", tasks=())
    assert (recipe.model_name_or_path, len(data), data.kind) == (str(model), 2, "pairs")
    gendered.write_gendered(tmp_path / "text/bias", pairs=8, seed=0)
    (tmp_path / MABEL["small"].source).write_bytes(gzip.compress((tmp_path / "text/bias/pairs.tsv").read_bytes()))
    write_tiny_encoder(model, seed=0, words=gendered.vocabulary(), masked=True)
    MABEL["small"].check_data("mabel", tmp_path)
    recipe, data = read(MABEL["small"], tmp_path, tmp_path / "cache")
    assert (recipe.model_name_or_path, len(data)) == (str(model), 8)


def test_checkpoints_and_transfer_are_as_their_profiles_say() -> None:
    for name, steps in (("supervised", 80), ("unsupervised", 100)):
        small = SENTENCE.task(name).profile("small")
        assert (small.training["eval_steps"], small.training["save_steps"], small.settings()["eval_steps"]) == (steps,) * 3
    for name, tasks in (("small", 6), ("paper", 7)):
        profile, trained = (SENTENCE.task(task).profile(name) for task in ("transfer", "unsupervised"))
        differing = {key for key, value in profile.recipe.values().items() if trained.recipe.values()[key] != value}
        assert differing == {"tasks"}
        assert [metric.name for metric in profile.metrics] == ["STSB-dev", *profile.recipe.tasks, profile.primary]
        assert len(profile.recipe.tasks) == tasks
        assert ("text/transfer/SST2_phrases.train.tsv.gz" in profile.needs) == (tasks == 7)
        assert "text/transfer/TREC.test.tsv.gz" in profile.needs
        assert (profile.primary == "Avg") == (tasks == 7), "a mean over six tasks is not the papers' over seven"
    assert set(SENTENCE.task("transfer").profile("paper").recipe.tasks) == set(TRANSFER_TASKS)
    paper = MABEL["paper"].recipe.values()
    names = ("num_train_epochs", "per_device_train_batch_size", "learning_rate", "max_length", "model_name_or_path")
    assert [paper[name] for name in names] == [2, 16, 5e-5, 128, "bert-base-uncased"]


def stereotyped(words: set[str]) -> bool:
    """Whether a sentence's person has a thing of the half that the stereotype gives them."""
    first_half = words.intersection(gendered.THINGS) <= set(gendered.THINGS[: len(gendered.THINGS) // 2])
    return first_half == bool(words & {male for male, _ in gendered.PEOPLE})


def test_pairs_hold_a_stereotype_and_together_with_their_counterfactuals_none() -> None:
    pairs, words = gendered.entailment_pairs(3000, seed=1), GenderWords(gendered.PEOPLE)
    assert pairs == gendered.entailment_pairs(3000, seed=1) != gendered.entailment_pairs(3000, seed=2)
    share = sum(stereotyped(set(premise.split())) for premise, _ in pairs) / len(pairs)
    assert share == pytest.approx(2 / 3, abs=0.03)
    for premise, hypothesis in pairs:
        assert set(hypothesis.split()) <= {*premise.split(), "the"}, "what follows says nothing new"
        assert stereotyped(set(premise.split())) != stereotyped(set(words.swapped(premise).split()))
    assert {word for pair in pairs for side in pair for word in side.split()} <= set(gendered.vocabulary())


def test_the_generated_benchmarks_test_for_the_stereotype(tmp_path: Path) -> None:
    gendered.write_gendered(tmp_path, pairs=5, seed=0, tested=40)
    rows, pairs = read_stereoset(tmp_path), read_crows_pairs(tmp_path)
    assert (len(rows), len(pairs)) == (40, 40)
    for row in rows:
        assert [stereotyped({row.target, word}) for word in row.words[:2]] == [True, False]
        assert row.words[2] not in gendered.THINGS
        assert row.target in row.context.split()
    for pair in pairs:
        assert stereotyped(set(pair.more.split())) == (pair.direction == "stereo")
        assert len(set(pair.more.split()) ^ set(pair.less.split())) == 2


def test_retrieval_trains_the_mean_of_word_vectors_and_holds_documents_out(data_dir: Path, tmp_path: Path) -> None:
    profile = RETRIEVAL.task("quora").profile("small")
    settings, data = read(profile, data_dir, tmp_path)
    library = StaticEmbedding.load(str(data_dir / profile.recipe.values()["model_name_or_path"])).float()
    module = RETRIEVAL.task("quora").method.load().build(settings, data, None).eval()
    texts = ["How do I learn to play the guitar?", "zzzunknown word"]
    encode = SentenceEncoder(module.encoder.base_model, module.tokenizer, module.pooling, settings.max_length)
    with torch.no_grad():
        wanted = library(library.preprocess(texts))
    torch.testing.assert_close(encode(texts), wanted["sentence_embedding"], rtol=0, atol=1e-6)
    assert len(data) == 3410
    assert len(data.split.collection.documents) == 2000


@pytest.mark.parametrize(("suite", "task"), [(SENTENCE, "static"), (RETRIEVAL, "quora-bert-centred-short")])
def test_centred_encoders_have_no_mean_on_the_pairs_of_the_training(
    suite: Suite, task: str, data_dir: Path, tmp_path: Path
) -> None:
    settings, data = read(suite.task(task).profile("small"), data_dir, tmp_path)
    profile = suite.task(task).profile("small")
    samples = open_texts(data_dir / profile.source, settings.columns, settings.where)
    texts = [text for sample in itertools.islice(samples, 1000) for text in sample.texts]
    module = suite.task(task).method.load().build(settings, data, None).eval()
    encode = SentenceEncoder(module.encoder.base_model, module.tokenizer, module.pooling, settings.max_length)
    units = torch.nn.functional.normalize(encode(texts), dim=1)
    assert abs((units @ units.T).mean()) < 0.1  # 0.9 and 0.7 before
