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


def model_of(tiny_bert: Path, kind: str) -> SentenceTransformer:
    torch.manual_seed(0)
    if kind == "static":
        tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
        return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu")
    transformer = Transformer(str(tiny_bert), max_seq_length=20)
    more: list[Any] = [Dense(16, 4)] if "dense" in kind else [Normalize()] if kind == "normalised" else []
    pooling = Pooling(16, "lasttoken" if kind == "last token" else "mean", include_prompt=kind != "prompt left out")
    prompts = {"prompts": PROMPTS, "default_prompt_name": "query"} if "prompt" in kind else {}
    return SentenceTransformer(modules=[transformer, pooling, *more], device="cpu", **prompts)


KINDS = {
    "dense": LibraryEncoder,
    "last token": LibraryEncoder,
    "static": LibraryEncoder,
    "prompt left out": LibraryEncoder,
    "prompt": SentenceEncoder,
    "mean": SentenceEncoder,
    "normalised": SentenceEncoder,
}


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_the_library(tiny_bert: Path, tmp_path: Path, kind: str) -> None:
    model = model_of(tiny_bert, kind)
    model.save(str(tmp_path))
    encoder = load_encoder(tmp_path, device="cpu")
    assert type(encoder) is KINDS[kind]
    wanted = SentenceTransformer(str(tmp_path), device="cpu").encode(SENTENCES, convert_to_tensor=True)
    torch.testing.assert_close(encoder(SENTENCES), wanted, rtol=0, atol=1e-6)
    assert encoder.max_length == (None if kind == "static" else 20)


def test_weights_of_half_precision_compute_in_float32(tiny_bert: Path, tmp_path: Path) -> None:
    model_of(tiny_bert, "dense").half().save(str(tmp_path))
    assert load_encoder(tmp_path, device="cpu")(SENTENCES).dtype == torch.float32


def test_prompts_are_chosen_by_name(tiny_bert: Path, tmp_path: Path) -> None:
    for kind in ("prompt", "prompt left out", "prompt and dense"):
        model = model_of(tiny_bert, kind)
        model.save(str(tmp_path / kind))
        for name in PROMPTS:
            wanted = model.encode(SENTENCES, convert_to_tensor=True, prompt_name=name)
            vectors = load_encoder(tmp_path / kind, device="cpu", prompt_name=name)(SENTENCES)
            torch.testing.assert_close(vectors, wanted, rtol=0, atol=1e-6)
    with pytest.raises(
        UnknownNameError, match=r"prompt_name='quary' is no prompt of this model\. Did you mean 'query'\? It has"
    ):
        load_encoder(tmp_path / "prompt", prompt_name="quary")
    with pytest.raises(UnknownNameError, match=r"prompt_name='query' is no prompt of this model\. It has none"):
        load_encoder(tiny_bert, prompt_name="query")


def test_a_pooling_that_is_asked_for_is_of_the_transformer_alone(tiny_bert: Path, tmp_path: Path) -> None:
    model_of(tiny_bert, "dense").save(str(tmp_path / "dense"))
    alone = load_encoder(tmp_path / "dense", "avg")(SENTENCES)
    torch.testing.assert_close(alone, load_encoder(tiny_bert, "avg")(SENTENCES))
    model_of(tiny_bert, "static").save(str(tmp_path / "static"))
    with pytest.raises(ConfigError, match=r"pooling='avg' needs a transformer, .*modules\.json lists StaticEmbedding\."):
        load_encoder(tmp_path / "static", "avg")


def test_the_longest_input_can_be_chosen_where_there_is_one(tiny_bert: Path, tmp_path: Path) -> None:
    model_of(tiny_bert, "dense").save(str(tmp_path / "dense"))
    short = load_encoder(tmp_path / "dense", max_length=5)
    assert short.max_length == 5
    torch.testing.assert_close(short(["the man plays a guitar"]), short(["the man plays"]))
    with pytest.raises(ConfigError, match="max_length=21 must be a whole number from 1 to 20 for this model"):
        load_encoder(tmp_path / "dense", max_length=21)
    model_of(tiny_bert, "static").save(str(tmp_path / "static"))
    with pytest.raises(ConfigError, match="max_length=5 does not apply to StaticEmbedding, which reads sentences"):
        load_encoder(tmp_path / "static", max_length=5)


def test_a_module_of_ones_own_is_not_run(tiny_bert: Path, tmp_path: Path) -> None:
    model_of(tiny_bert, "dense").save(str(tmp_path))
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[2]["type"] = "own.Dense"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "own.py").write_text("raise SystemExit('this code ran')")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        load_encoder(tmp_path)


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("dense", "Transformer + Pooling + Dense (by sentence-transformers), at most 20 tokens"),
        ("static", "StaticEmbedding (by sentence-transformers), any length"),
        ("prompt left out", "Transformer + Pooling (by sentence-transformers, prompt 'the man '), at most 20 tokens"),
        ("prompt", "avg (sentence-transformers settings, prompt 'the man '), at most 20 tokens"),
    ],
)
def test_the_command_evaluates_them(
    tiny_bert: Path, sts_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, shown: str
) -> None:
    model = model_of(tiny_bert, kind)
    model.save(str(tmp_path / "model"))
    words = ["eval", "sts", str(tmp_path / "model"), "--data-dir", str(sts_folder), "--split", "dev", "--device", "cpu"]
    assert main([*words, "--output", str(tmp_path / "result.json")]) == 0
    wanted = evaluate_sts(lambda sentences: torch.from_numpy(model.encode(sentences)), sts_folder, split="dev")
    found = json.loads((tmp_path / "result.json").read_text())
    assert found["spearman"] == pytest.approx(wanted.spearman, abs=1e-3)
    assert f"pooling  {shown}" in capsys.readouterr().out
    assert main([*words, "--prompt-name", "nothing"]) == 2
    assert "error: prompt_name='nothing' is no prompt of this model." in capsys.readouterr().err
