"""Models of sentence-transformers in the evaluation: by that library what only it can do, without it what needs it not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.base.modules.normalize import Normalize
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from transformers import AutoTokenizer

from tempplug.cli import main
from tempplug.errors import ConfigError, UnknownNameError
from tempplug_adapters.sentence_evaluation.encoder import LibraryEncoder, SentenceEncoder, load_encoder
from tempplug_adapters.sentence_evaluation.sts import evaluate_sts

SENTENCES = ["the dog runs", "a", "the man plays a red guitar in the park", "horse sleeps"]
PROMPTS = {"query": "the man ", "passage": ""}


def saved(tiny_bert: Path, folder: Path, kind: str) -> SentenceTransformer:
    torch.manual_seed(0)
    if kind == "static":
        model = SentenceTransformer(modules=[StaticEmbedding(AutoTokenizer.from_pretrained(tiny_bert), embedding_dim=8)])
    else:
        transformer = Transformer(str(tiny_bert), max_seq_length=20)
        more: list[Any] = [Dense(16, 4)] if "dense" in kind else [Normalize()] if kind == "normalised" else []
        pooling = Pooling(16, "lasttoken" if kind == "last token" else "mean", include_prompt=kind != "prompt left out")
        prompts = {"prompts": PROMPTS, "default_prompt_name": "query"} if "prompt" in kind else {}
        model = SentenceTransformer(modules=[transformer, pooling, *more], device="cpu", **prompts)
    model.save(str(folder), create_model_card=False)
    return model


@pytest.mark.parametrize(
    ("kind", "encoder_class", "pooling", "source"),
    [
        ("dense", LibraryEncoder, "Transformer + Pooling + Dense", "by sentence-transformers"),
        ("last token", LibraryEncoder, "Transformer + Pooling", "by sentence-transformers"),
        ("static", LibraryEncoder, "StaticEmbedding", "by sentence-transformers"),
        ("prompt left out", LibraryEncoder, "Transformer + Pooling", "by sentence-transformers, prompt 'the man '"),
        ("prompt and dense", LibraryEncoder, "Transformer + Pooling + Dense", "by sentence-transformers, prompt 'the man '"),
        ("prompt", SentenceEncoder, "avg", "sentence-transformers settings, prompt 'the man '"),
        ("normalised", SentenceEncoder, "avg", "sentence-transformers settings"),
    ],
)
def test_vectors_are_those_of_the_library(
    tiny_bert: Path, tmp_path: Path, kind: str, encoder_class: type, pooling: str, source: str
) -> None:
    saved(tiny_bert, tmp_path, kind)
    model = SentenceTransformer(str(tmp_path), device="cpu")
    for name in (None, *(PROMPTS if "prompt" in kind else ())):
        encoder = load_encoder(tmp_path, device="cpu", prompt_name=name)
        wanted = model.encode(SENTENCES, convert_to_tensor=True, prompt_name=name)
        torch.testing.assert_close(encoder(SENTENCES), wanted, rtol=0, atol=1e-6)
        assert encoder.max_length == (None if kind == "static" else 20)
        if name is None:
            assert (type(encoder), encoder.pooling, encoder.pooling_source) == (encoder_class, pooling, source)


def test_options_choose_and_what_does_not_fit_is_named(tiny_bert: Path, tmp_path: Path) -> None:
    for kind in ("dense", "static", "prompt"):
        saved(tiny_bert, tmp_path / kind, kind)
    (tmp_path / "bare").symlink_to(tiny_bert)
    alone = load_encoder(tmp_path / "dense", "avg")(SENTENCES)
    torch.testing.assert_close(alone, load_encoder(tiny_bert, "avg")(SENTENCES))  # without the modules behind
    short = load_encoder(tmp_path / "dense", max_length=5)
    assert short.max_length == 5
    torch.testing.assert_close(short(["the man plays a guitar"]), short(["the man plays"]))
    for kind, options, error, message in (
        (
            "static",
            {"pooling": "avg"},
            ConfigError,
            r"pooling='avg' needs a transformer, .*modules\.json lists StaticEmbedding\.",
        ),
        ("static", {"max_length": 5}, ConfigError, "max_length=5 does not apply to StaticEmbedding, which reads any length"),
        ("dense", {"max_length": 21}, ConfigError, "max_length=21 must be a whole number from 1 to 20 for this model"),
        ("prompt", {"prompt_name": "quary"}, UnknownNameError, r"no prompt of this model\. Did you mean 'query'\? It has"),
        ("bare", {"prompt_name": "query"}, UnknownNameError, r"prompt_name='query' is no prompt of this model\. It has none"),
    ):
        with pytest.raises(error, match=message):
            load_encoder(tmp_path / kind, **options)


def test_weights_of_half_precision_compute_in_float32(tiny_bert: Path, tmp_path: Path) -> None:
    saved(tiny_bert, tmp_path, "dense").half().save(str(tmp_path), create_model_card=False)
    assert load_encoder(tmp_path, device="cpu")(SENTENCES).dtype == torch.float32


def test_the_command_evaluates_them(
    tiny_bert: Path, sts_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = saved(tiny_bert, tmp_path / "model", "static")
    words = ["eval", "sts", str(tmp_path / "model"), "--data-dir", str(sts_folder), "--split", "dev", "--device", "cpu"]
    assert main([*words, "--output", str(tmp_path / "result.json")]) == 0
    wanted = evaluate_sts(lambda sentences: torch.from_numpy(model.encode(sentences)), sts_folder, split="dev")
    found = json.loads((tmp_path / "result.json").read_text())
    assert found["spearman"] == pytest.approx(wanted.spearman, abs=1e-3)
    assert "pooling  StaticEmbedding (by sentence-transformers), any length" in capsys.readouterr().out
    assert main([*words, "--prompt-name", "nothing"]) == 2
    assert "error: prompt_name='nothing' is no prompt of this model." in capsys.readouterr().err
