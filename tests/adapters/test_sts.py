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
from scipy.stats import spearmanr
from torch import Tensor

from tempplug.errors import ConfigError, DataError, NonFiniteError, ShapeError, UnknownNameError
from tempplug_adapters.sentence_evaluation.sts import evaluate_sts, evaluate_stsb
from tempplug_adapters.sentence_evaluation.sts_data import STS_TASKS, load_sts


def random_encoder(sentences: list[str]) -> Tensor:
    """A vector that depends on the sentence alone."""
    rows = [torch.randn(8, generator=torch.Generator().manual_seed(zlib.crc32(sentence.encode()))) for sentence in sentences]
    return torch.stack(rows)


def by_angle(sentences: list[str]) -> Tensor:
    """Puts each sentence on the unit circle, at the angle that it names in degrees."""
    angles = torch.tensor([math.radians(float(sentence)) for sentence in sentences], dtype=torch.float64)
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def write(folder: Path, task: str, **files: list[tuple[float, str, str]]) -> Path:
    (folder / task).mkdir(exist_ok=True)
    for name, rows in files.items():
        lines = ["score\tsentence1\tsentence2", *(f"{score}\t{a}\t{b}" for score, a, b in rows)]
        (folder / task / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def test_cosine_similarity_is_ranked_against_the_scores(tmp_path: Path) -> None:
    """Ranks of similarity 4 2 3 1 against 4 3 2 1: rho = 1 - 6 · 2 / (4 · 15) = 0.8."""
    rows = [(5.0, "0", "10"), (4.0, "0", "50"), (1.0, "30", "0"), (0.0, "0", "200")]
    result = evaluate_sts(by_angle, write(tmp_path, "STSB", test=rows), ("STSB",))
    assert result.spearman["STSB"] == pytest.approx(80.0, abs=1e-9)
    assert (result.pairs, result.sentences) == ({"STSB": 4}, 5)


def test_a_year_has_one_correlation_over_all_its_pairs(tmp_path: Path) -> None:
    """Each subset is ranked perfectly, but their levels are swapped: the mean of three would be 100, "all" is far below."""
    scores, files = [2.0, 1.9, 1.8, 3.0, 2.9, 2.8, 4.0, 3.9, 3.8], ("FNWN", "headlines", "OnWN")
    rows = [(score, "0", str(degrees)) for degrees, score in enumerate(scores, start=1)]
    write(tmp_path, "STS13", **{name: rows[3 * place :][:3] for place, name in enumerate(files)})
    found = evaluate_sts(by_angle, tmp_path, ["STS13"]).spearman["STS13"]
    assert found == pytest.approx(100 * spearmanr(range(9, 0, -1), scores).statistic)
    assert found < 0


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


def test_each_sentence_is_encoded_once_long_ones_first_and_keeps_its_vector(sts_folder: Path) -> None:
    """The reference encodes pair by pair, in the order of the file."""
    batches: list[list[str]] = []
    result = evaluate_sts(lambda batch: batches.append(batch) or random_encoder(batch), sts_folder, batch_size=7)
    encoded = [sentence for batch in batches for sentence in batch]
    wanted: set[str] = set()
    for name in STS_TASKS:
        pairs = load_sts(name, sts_folder)
        wanted |= {*pairs.sentences_a, *pairs.sentences_b}
        similarity = torch.cosine_similarity(random_encoder(pairs.sentences_a), random_encoder(pairs.sentences_b))
        assert result.spearman[name] == pytest.approx(100 * spearmanr(similarity.numpy(), pairs.scores).statistic)
    assert sorted(encoded) == sorted(wanted)
    assert result.sentences == len(wanted) < 2 * sum(result.pairs.values())
    assert [len(sentence) for sentence in encoded] == sorted((len(sentence) for sentence in wanted), reverse=True)
    assert {len(batch) for batch in batches[:-1]} == {7}


def test_norm_and_kind_of_the_vectors_do_not_matter(sts_folder: Path, tmp_path: Path) -> None:
    """A zero vector has similarity 0, and in bfloat16 arithmetic the second similarities would all round to 1."""
    plain = evaluate_sts(random_encoder, sts_folder).spearman
    changes: list[Callable[[Tensor], Any]] = [
        lambda vectors: vectors * torch.linspace(1e-3, 1e3, len(vectors))[:, None],
        lambda vectors: vectors * 1e30,
        lambda vectors: vectors.requires_grad_(),
        lambda vectors: vectors.numpy(),
        lambda vectors: vectors.double(),
    ]
    for change in changes:
        changed = evaluate_sts(lambda sentences, change=change: change(random_encoder(sentences)), sts_folder)
        assert changed.spearman == pytest.approx(plain, abs=1e-6)
    write(tmp_path, "STSB", test=[(3.0, "o", "a"), (2.0, "o", "b"), (1.0, "o", "c")])
    for a, b, c in (([2.0, 0.0], [0.0, 0.0], [-1.0, 0.0]), ([1.0, 0.01], [1.0, 0.02], [1.0, 0.03])):
        known = {"o": torch.tensor([1.0, 0.0]), "a": torch.tensor(a), "b": torch.tensor(b), "c": torch.tensor(c)}
        result = evaluate_sts(
            lambda texts, known=known: torch.stack([known[text] for text in texts]).bfloat16(), tmp_path, ["STSB"]
        )
        assert result.spearman["STSB"] == pytest.approx(100.0)


def test_average_is_that_of_the_seven_and_dev_is_of_two(sts_folder: Path) -> None:
    result = evaluate_sts(random_encoder, sts_folder)
    assert tuple(result.spearman) == STS_TASKS
    assert result.average == pytest.approx(np.mean(list(result.spearman.values())))
    assert evaluate_sts(random_encoder, sts_folder, STS_TASKS[1:]).average is None
    stored = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert (stored["average"], stored["spearman"]) == (result.average, result.spearman)
    assert (stored["split"], stored["source"], stored["pairs"]["STS13"]) == ("test", "folder", 36)
    dev = evaluate_sts(random_encoder, sts_folder, split="dev")
    assert (tuple(dev.spearman), dev.average) == (("STSB", "SICKR"), None)
    assert evaluate_stsb(random_encoder, sts_folder) == dev.spearman["STSB"] != result.spearman["STSB"]
    assert evaluate_stsb(random_encoder, sts_folder, "test") == result.spearman["STSB"]


def test_nearly_collapsed_encoders_are_still_ranked(sts_folder: Path) -> None:
    """Differences well above the rounding noise of float32 count, however small."""
    result = evaluate_sts(lambda sentences: 1.0 + 1e-3 * random_encoder(sentences), sts_folder, ["STSB"])
    assert -100 <= result.spearman["STSB"] <= 100


def broken(value: float) -> Callable[[list[str]], Tensor]:
    return lambda batch: torch.where(torch.tensor([["dog" in text] * 8 for text in batch]), value, random_encoder(batch))


ONES = torch.arange(1.0, 9.0)
OF_A_DOG = "the vectors of a batch of texts hold NaN or infinite values in 2 of 5 rows, first in that of '.*dog"


@pytest.mark.parametrize(
    ("encode", "options", "error", "message"),
    [
        (broken(math.nan), {}, NonFiniteError, OF_A_DOG),
        (broken(math.inf), {}, NonFiniteError, OF_A_DOG),
        (lambda batch: torch.ones(len(batch)), {}, ShapeError, r"returned \[5\] for 5 sentences, not \[5, D\]"),
        (lambda batch: torch.ones(len(batch) + 1, 4), {}, ShapeError, r"returned \[6, 4\] for 5 sentences"),
        (lambda batch: torch.ones(len(batch), len(batch)), {}, ShapeError, r"returned \[4, 4\] for 4 sentences, not \[4, 5\]"),
        (lambda batch: ONES.expand(len(batch), 8), {}, ConfigError, r"all 12 pairs of STSB have .* 1\.000000: .*collapsed"),
        (lambda batch: ONES + 1e-7 * random_encoder(batch), {}, ConfigError, "collapsed to one direction"),
        (random_encoder, {"tasks": ["STSB", "STS17"]}, UnknownNameError, "unknown STS task 'STS17'"),
        (random_encoder, {"tasks": []}, ConfigError, r"tasks=\[\] must be"),
        (random_encoder, {"tasks": "STSB"}, ConfigError, "tasks='STSB' must be"),
        (random_encoder, {"tasks": ["STSB", "STSB"]}, ConfigError, "different names"),
        (random_encoder, {"tasks": ["STSB", "STS12"], "split": "dev"}, ConfigError, "split='dev' of STS12"),
        (random_encoder, {"split": "train"}, ConfigError, "split='train' must be test or dev"),
        (random_encoder, {"batch_size": 0}, ConfigError, "batch_size=0"),
        (random_encoder, {"batch_size": 2.5}, ConfigError, r"batch_size=2\.5"),
    ],
)
def test_broken_encoders_and_wrong_options_are_named(
    sts_folder: Path, encode: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    given = {"tasks": ["STSB"], "batch_size": 5, **options}
    with pytest.raises(error, match=message):
        # options are checked before any file is read
        evaluate_sts(encode, sts_folder if encode is not random_encoder else sts_folder / "nowhere", **given)


def test_equal_scores_are_a_fault_of_the_data(tmp_path: Path) -> None:
    write(tmp_path, "STSB", test=[(2.5, "a", "b"), (2.5, "c", "d")])
    with pytest.raises(DataError, match=r"all 2 scores of STSB are 2\.5"):
        evaluate_sts(random_encoder, tmp_path, ["STSB"])
