from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
import torch
from scipy.stats import spearmanr
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer

from tempplug.errors import ConfigError
from tempplug_adapters.sentence_evaluation.sts_data import load_sts
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

WORDS = [{word: concept for concept, words in enumerate(slot) for word in words} for slot in SLOTS]


def concepts(sentence: str) -> tuple[int, ...]:
    """Reads the four concepts back from a sentence."""
    found = [[slot[word] for word in sentence.split() if word in slot] for slot in WORDS]
    assert [len(each) for each in found] == [1, 1, 1, 1], sentence
    return tuple(each[0] for each in found)


def template(sentence: str) -> str:
    """Returns the sentence with the number of its slot in the place of each word of a slot."""
    marked = (next((f"{{{number}}}" for number, slot in enumerate(WORDS) if word in slot), word) for word in sentence.split())
    return " ".join(marked)


def test_words_belong_to_one_concept_alone() -> None:
    words = [word for slot in SLOTS for concept in slot for word in concept]
    assert len(set(words)) == len(words)
    assert all(len(concept) >= 2 for slot in SLOTS for concept in slot)


def test_the_same_seed_gives_the_same_sentences_and_another_seed_others() -> None:
    assert paraphrase_pairs(50, seed=3) == paraphrase_pairs(50, seed=3) != paraphrase_pairs(50, seed=4)
    assert plain_sentences(50, seed=3) == plain_sentences(50, seed=3) != plain_sentences(50, seed=4)
    assert scored_pairs("dev", 50, seed=3) == scored_pairs("dev", 50, seed=3) != scored_pairs("dev", 50, seed=4)


def test_nothing_is_measured_on_what_was_trained_on() -> None:
    training = [*plain_sentences(3000, seed=0), *(sentence for pair in paraphrase_pairs(3000, seed=0) for sentence in pair)]
    by_split = {
        split: [side for pair in scored_pairs(split, 600, seed=0) for side in (pair.sentence_a, pair.sentence_b)]
        for split in ("dev", "test")
    }
    trained = {concepts(sentence) for sentence in training}
    assert not trained & {concepts(sentence) for sentences in by_split.values() for sentence in sentences}
    assert not set(map(concepts, by_split["dev"])) & set(map(concepts, by_split["test"]))
    assert {template(sentence) for sentence in training} == set(TRAINING_TEMPLATES)
    assert {template(sentence) for sentences in by_split.values() for sentence in sentences} == set(EVALUATION_TEMPLATES)
    assert not set(TRAINING_TEMPLATES) & set(EVALUATION_TEMPLATES)
    assert sum(len(combinations(split)) for split in ("train", "dev", "test")) == len(list(itertools.product(*SLOTS)))


def test_paraphrases_say_the_same_in_another_order() -> None:
    for first, second in paraphrase_pairs(500, seed=1):
        assert concepts(first) == concepts(second)
        assert template(first) != template(second)


def test_scores_are_the_share_of_common_concepts_and_evenly_spread() -> None:
    pairs = scored_pairs("test", 500, seed=1)
    for pair in pairs:
        shared = sum(a == b for a, b in zip(concepts(pair.sentence_a), concepts(pair.sentence_b), strict=True))
        assert pair.score == 5 * shared / 4
    assert [sum(pair.score == score for pair in pairs) for score in (0, 1.25, 2.5, 3.75, 5)] == [100] * 5
    assert pairs != sorted(pairs, key=lambda pair: pair.score)


def test_no_combination_is_drawn_twice_before_all_are_used() -> None:
    drawn = [concepts(sentence) for sentence in plain_sentences(5000, seed=0)]
    assert len(set(drawn)) == 5000


def test_a_vowel_never_follows_a() -> None:
    assert not re.search(r"\ba [aeiou]", " ".join(plain_sentences(3000, seed=0)))


def test_arguments_are_checked() -> None:
    with pytest.raises(ConfigError, match="count=0 of generated sentences must be at least 1"):
        plain_sentences(0, seed=0)
    with pytest.raises(ConfigError, match="seed=-1 of generated sentences must be at least 0"):
        plain_sentences(1, seed=-1)
    with pytest.raises(ConfigError, match="split='valid' must be one of train, dev, test"):
        scored_pairs("valid", 1, seed=0)  # type: ignore[arg-type]


def test_the_sts_reader_reads_what_is_written(tmp_path: Path) -> None:
    write_sts(tmp_path, seed=0, train=20, dev=30, test=40)
    pairs = load_sts("STSB", tmp_path, "dev")
    wanted = scored_pairs("dev", 30, seed=0)
    assert pairs.scores == [pair.score for pair in wanted]
    assert pairs.sentences_a == [pair.sentence_a for pair in wanted]
    assert pairs.sentences_b == [pair.sentence_b for pair in wanted]
    assert len(load_sts("STSB", tmp_path, "test")) == 40
    assert len((tmp_path / "STSB" / "train.tsv").read_text().splitlines()) == 21


def test_the_tiny_encoder_knows_every_word_and_depends_on_its_seed_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_tiny_encoder(tmp_path / name, seed=seed)
    assert torch.equal(torch.rand(3), expected), "the global generator was left alone"
    weights = [AutoModel.from_pretrained(tmp_path / name).embeddings.word_embeddings.weight for name in "abc"]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "a")
    ids = tokenizer(" ".join(vocabulary()), truncation=False)["input_ids"]
    assert len(set(ids)) == len(vocabulary()) + 2
    assert tokenizer.unk_token_id not in ids


@pytest.mark.slow
def test_training_on_paraphrases_teaches_the_graded_similarity(tmp_path: Path) -> None:
    """Plain InfoNCE at 0.05, 40 steps: no part of tempplug trains here."""
    write_tiny_encoder(tmp_path, seed=0)
    model, tokenizer = AutoModel.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    pairs = paraphrase_pairs(40 * 32, seed=0)
    test = scored_pairs("test", 400, seed=0)
    torch.manual_seed(0)

    def encode(sentences: list[str]) -> torch.Tensor:
        batch = tokenizer(sentences, padding=True, return_tensors="pt")
        weights = batch["attention_mask"].unsqueeze(-1)
        return functional.normalize((model(**batch).last_hidden_state * weights).sum(1) / weights.sum(1), dim=1)

    def spearman() -> float:
        model.eval()
        with torch.no_grad():
            cosine = (encode([pair.sentence_a for pair in test]) * encode([pair.sentence_b for pair in test])).sum(1)
        model.train()
        return 100 * float(spearmanr(cosine.numpy(), [pair.score for pair in test]).statistic)

    before = spearman()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for start in range(0, len(pairs), 32):
        first, second = (encode(list(side)) for side in zip(*pairs[start : start + 32], strict=True))
        loss = functional.cross_entropy(first @ second.T / 0.05, torch.arange(32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert before < 60
    assert spearman() > before + 15
