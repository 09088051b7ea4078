"""The STS protocol, with encoders that are small functions: what is ranked, what is encoded, and what is refused."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import bootstrap, spearmanr
from torch import Tensor

from tempplug.errors import ConfigError, DataError, ShapeError, UnknownNameError
from tempplug_adapters.sentence_evaluation.sts import evaluate_sts, evaluate_stsb
from tempplug_adapters.sentence_evaluation.sts_data import STS_TASKS, load_sts


def random_encoder(sentences: list[str]) -> Tensor:
    """A vector that depends on the sentence alone."""
    rows = [torch.randn(8, generator=torch.Generator().manual_seed(zlib.crc32(sentence.encode()))) for sentence in sentences]
    return torch.stack(rows)


def by_angle(degrees: dict[str, float]) -> Callable[[list[str]], Tensor]:
    """An encoder that puts each sentence at an angle on the unit circle."""

    def encode(sentences: list[str]) -> Tensor:
        angles = torch.tensor([math.radians(degrees[sentence]) for sentence in sentences], dtype=torch.float64)
        return torch.stack([angles.cos(), angles.sin()], dim=1)

    return encode


def write(folder: Path, task: str, **files: list[tuple[float, str, str]]) -> Path:
    (folder / task).mkdir(exist_ok=True)
    for name, rows in files.items():
        lines = ["score\tsentence1\tsentence2", *(f"{score}\t{a}\t{b}" for score, a, b in rows)]
        (folder / task / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def test_cosine_similarity_is_ranked_against_the_scores(tmp_path: Path) -> None:
    """Ranks of similarity 4 2 3 1 against 4 3 2 1: rho = 1 - 6 · 2 / (4 · 15) = 0.8."""
    angles = {"origin": 0.0, "ten": 10.0, "fifty": 50.0, "thirty": 30.0, "behind": 200.0}
    rows = [(5.0, "origin", "ten"), (4.0, "origin", "fifty"), (1.0, "thirty", "origin"), (0.0, "origin", "behind")]
    result = evaluate_sts(by_angle(angles), write(tmp_path, "STSB", test=rows), ("STSB",))
    assert result.spearman["STSB"] == pytest.approx(80.0, abs=1e-9)
    assert result.pairs == {"STSB": 4}
    assert result.sentences == 5


def test_a_year_has_one_correlation_over_all_its_pairs(tmp_path: Path) -> None:
    """Each subset is ranked perfectly, but their levels are swapped: the mean of three would be 100, "all" is far below."""
    angles = {"o": 0.0, **{f"s{degrees}": float(degrees) for degrees in range(1, 10)}}
    write(
        tmp_path,
        "STS13",
        FNWN=[(2.0, "o", "s1"), (1.9, "o", "s2"), (1.8, "o", "s3")],
        headlines=[(3.0, "o", "s4"), (2.9, "o", "s5"), (2.8, "o", "s6")],
        OnWN=[(4.0, "o", "s7"), (3.9, "o", "s8"), (3.8, "o", "s9")],
    )
    scores, similarities = [2.0, 1.9, 1.8, 3.0, 2.9, 2.8, 4.0, 3.9, 3.8], list(range(9, 0, -1))
    result = evaluate_sts(by_angle(angles), tmp_path, ["STS13"])
    assert result.spearman["STS13"] == pytest.approx(100 * spearmanr(similarities, scores).statistic)
    assert result.spearman["STS13"] < 0


def test_every_encoder_is_scored_on_the_same_samples_of_the_pairs(sts_folder: Path) -> None:
    result = evaluate_sts(random_encoder, sts_folder, ["STSB", "STS13"], resamples=30)
    expected = np.zeros(30)
    for name in ("STS13", "STSB"):
        pairs, generator = load_sts(name, sts_folder), np.random.default_rng(zlib.crc32(name.encode()))
        sides = (random_encoder(list(each)).double() for each in (pairs.sentences_a, pairs.sentences_b))
        similarity, scores = torch.cosine_similarity(*sides).numpy(), np.array(pairs.scores)
        for sample in range(30):
            drawn = generator.integers(len(scores), size=len(scores))
            expected[sample] += 50 * spearmanr(similarity[drawn], scores[drawn]).statistic
    assert result.resampled == pytest.approx(expected.tolist())
    assert evaluate_sts(random_encoder, sts_folder, ["STSB"]).resampled == ()


def test_samples_spread_as_a_bootstrap_does(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    degrees, scores = chance.uniform(0, 90, 150), chance.uniform(0, 40, 150)
    scores += 90 - degrees
    angles = {"o": 0.0, **{f"s{number}": float(each) for number, each in enumerate(degrees)}}
    write(tmp_path, "STSB", test=[(score, "o", f"s{number}") for number, score in enumerate(scores)])
    result = evaluate_sts(by_angle(angles), tmp_path, ["STSB"], resamples=500)
    found = bootstrap(
        (-degrees, scores), lambda a, b: 100 * spearmanr(a, b).statistic, paired=True, vectorized=False, n_resamples=500, rng=1
    )
    assert np.std(result.resampled, ddof=1) == pytest.approx(found.standard_error, rel=0.15)
    assert np.mean(result.resampled) == pytest.approx(result.spearman["STSB"], abs=2)


def test_each_sentence_is_encoded_once_long_ones_first(sts_folder: Path) -> None:
    batches: list[list[str]] = []

    def encode(sentences: list[str]) -> Tensor:
        batches.append(sentences)
        return random_encoder(sentences)

    result = evaluate_sts(encode, sts_folder, batch_size=7)
    encoded = [sentence for batch in batches for sentence in batch]
    wanted = {
        sentence
        for pairs in (load_sts(name, sts_folder) for name in STS_TASKS)
        for sentence in (*pairs.sentences_a, *pairs.sentences_b)
    }
    assert sorted(encoded) == sorted(wanted)
    assert result.sentences == len(wanted) < 2 * sum(result.pairs.values())
    assert [len(sentence) for sentence in encoded] == sorted((len(sentence) for sentence in wanted), reverse=True)
    assert {len(batch) for batch in batches[:-1]} == {7}


def test_vectors_stay_with_their_sentences(sts_folder: Path) -> None:
    """The reference encodes pair by pair, in the order of the file."""
    result = evaluate_sts(random_encoder, sts_folder, batch_size=5)
    for name in STS_TASKS:
        pairs = load_sts(name, sts_folder)
        similarity = torch.cosine_similarity(random_encoder(pairs.sentences_a), random_encoder(pairs.sentences_b))
        assert result.spearman[name] == pytest.approx(100 * spearmanr(similarity.numpy(), pairs.scores).statistic)


@pytest.mark.parametrize(
    "change",
    [
        lambda vectors: vectors * torch.linspace(1e-3, 1e3, len(vectors))[:, None],
        lambda vectors: vectors * 1e30,
        lambda vectors: vectors.requires_grad_(),
        lambda vectors: vectors.numpy(),
        lambda vectors: vectors.double(),
    ],
    ids=["norms", "huge", "requires_grad", "numpy", "float64"],
)
def test_norm_and_kind_of_the_vectors_do_not_matter(sts_folder: Path, change: Callable[[Tensor], Any]) -> None:
    plain = evaluate_sts(random_encoder, sts_folder)
    changed = evaluate_sts(lambda sentences: change(random_encoder(sentences)), sts_folder)
    assert changed.spearman == pytest.approx(plain.spearman, abs=1e-6)


def test_half_precision_is_compared_in_float32_or_wider(tmp_path: Path) -> None:
    """In bfloat16 arithmetic these similarities would all round to 1."""
    vectors = {"o": [1.0, 0.0], "near": [1.0, 0.01], "mid": [1.0, 0.02], "far": [1.0, 0.03]}
    write(tmp_path, "STSB", test=[(3.0, "o", "near"), (2.0, "o", "mid"), (1.0, "o", "far")])
    result = evaluate_sts(
        lambda sentences: torch.tensor([vectors[s] for s in sentences], dtype=torch.bfloat16), tmp_path, ["STSB"]
    )
    assert result.spearman["STSB"] == pytest.approx(100.0)


def test_zero_vectors_have_similarity_zero(tmp_path: Path) -> None:
    vectors = {"o": [1.0, 0.0], "same": [2.0, 0.0], "zero": [0.0, 0.0], "opposite": [-1.0, 0.0]}
    write(tmp_path, "STSB", test=[(3.0, "o", "same"), (2.0, "o", "zero"), (1.0, "o", "opposite")])
    result = evaluate_sts(lambda sentences: torch.tensor([vectors[s] for s in sentences]), tmp_path, ["STSB"])
    assert result.spearman["STSB"] == pytest.approx(100.0)


def test_average_is_that_of_the_seven(sts_folder: Path) -> None:
    result = evaluate_sts(random_encoder, sts_folder)
    assert tuple(result.spearman) == STS_TASKS
    assert result.average == pytest.approx(np.mean(list(result.spearman.values())))
    assert evaluate_sts(random_encoder, sts_folder, STS_TASKS[1:]).average is None
    stored = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert stored["average"] == result.average
    assert stored["spearman"] == result.spearman
    assert (stored["split"], stored["source"], stored["pairs"]["STS13"]) == ("test", "folder", 36)


def test_dev_means_the_two_sets_that_have_one(sts_folder: Path) -> None:
    result = evaluate_sts(random_encoder, sts_folder, split="dev")
    assert tuple(result.spearman) == ("STSB", "SICKR")
    assert result.spearman != evaluate_sts(random_encoder, sts_folder, ("STSB", "SICKR")).spearman
    assert result.average is None
    assert evaluate_stsb(random_encoder, sts_folder) == result.spearman["STSB"]
    assert evaluate_stsb(random_encoder, sts_folder, "test") != result.spearman["STSB"]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_vectors_that_are_not_finite_are_refused(sts_folder: Path, value: float) -> None:
    faulty = load_sts("STSB", sts_folder).sentences_b[3]

    def encode(sentences: list[str]) -> Tensor:
        vectors = random_encoder(sentences)
        for row, sentence in enumerate(sentences):
            if sentence == faulty:
                vectors[row, 5] = value
        return vectors

    with pytest.raises(ConfigError, match=f"NaN or infinity for the sentence '{faulty}'"):
        evaluate_sts(encode, sts_folder)


@pytest.mark.parametrize(
    ("encode", "message"),
    [
        (lambda sentences: torch.ones(len(sentences)), r"returned \[5\] for 5 sentences, not \[5, D\]"),
        (lambda sentences: torch.ones(len(sentences) + 1, 4), r"returned \[6, 4\] for 5 sentences"),
        (lambda sentences: torch.ones(len(sentences), len(sentences)), r"returned \[4, 4\] for 4 sentences, not \[4, 5\]"),
    ],
    ids=["no width", "a row too many", "widths differ"],
)
def test_vectors_of_another_shape_are_refused(sts_folder: Path, encode: Callable[[list[str]], Tensor], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        evaluate_sts(encode, sts_folder, ["STSB"], batch_size=5)


@pytest.mark.parametrize("noise", [0.0, 1e-7])
def test_a_collapsed_encoder_is_an_error_and_no_number(sts_folder: Path, noise: float) -> None:
    direction = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    with pytest.raises(ConfigError, match=r"all 12 pairs of STSB have the cosine similarity 1\.000000: .*collapsed"):
        evaluate_sts(lambda sentences: direction + noise * random_encoder(sentences), sts_folder, ["STSB"])


def test_nearly_collapsed_encoders_are_still_ranked(sts_folder: Path) -> None:
    """Differences well above the rounding noise of float32 count, however small."""
    result = evaluate_sts(lambda sentences: 1.0 + 1e-3 * random_encoder(sentences), sts_folder, ["STSB"])
    assert -100 <= result.spearman["STSB"] <= 100


def test_equal_scores_are_a_fault_of_the_data(tmp_path: Path) -> None:
    write(tmp_path, "STSB", test=[(2.5, "a", "b"), (2.5, "c", "d")])
    with pytest.raises(DataError, match=r"all 2 scores of STSB are 2\.5"):
        evaluate_sts(random_encoder, tmp_path, ["STSB"])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tasks": ["STS17"]}, UnknownNameError, "unknown STS task 'STS17'"),
        ({"tasks": []}, ConfigError, r"tasks=\[\] must be"),
        ({"tasks": "STSB"}, ConfigError, "tasks='STSB' must be"),
        ({"tasks": ["STSB", "STSB"]}, ConfigError, "different names"),
        ({"tasks": ["STS12"], "split": "dev"}, ConfigError, "split='dev' of STS12"),
        ({"split": "train"}, ConfigError, "split='train' must be test or dev"),
        ({"batch_size": 0}, ConfigError, "batch_size=0"),
        ({"batch_size": 2.5}, ConfigError, r"batch_size=2\.5"),
    ],
)
def test_options_out_of_range(sts_folder: Path, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        evaluate_sts(random_encoder, sts_folder, **options)


def test_options_are_checked_before_any_file_is_read(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown STS task 'STS17'"):
        evaluate_sts(random_encoder, tmp_path, ["STSB", "STS17"])
    with pytest.raises(ConfigError, match="split='dev' of STS12"):
        evaluate_sts(random_encoder, tmp_path, ["STSB", "STS12"], split="dev")
