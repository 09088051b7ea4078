"""Sentence encoders: vectors of each sentence alone, loading, and what a model's folder says of itself."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertModel,
    RobertaConfig,
    RobertaModel,
)

from tempplug.errors import ConfigError, DataError, UnknownNameError
from tempplug_adapters.huggingface import loading as loading_module
from tempplug_adapters.huggingface.pooling import POOLINGS, pool
from tempplug_adapters.sentence_evaluation import encoder as encoder_module
from tempplug_adapters.sentence_evaluation.encoder import SentenceEncoder, load_encoder

SENTENCES = ["the dog runs", "a", "the man plays a red guitar in the park", "horse sleeps", "a woman plays piano in the park"]


@pytest.fixture
def folder(tiny_bert: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model that a test may change."""
    return Path(shutil.copytree(tiny_bert, tmp_path / "model"))


def write_json(file: Path, content: Any) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content))


def change_json(file: Path, **values: Any) -> None:
    write_json(file, {**json.loads(file.read_text()), **values})


def write_modules(folder: Path, kinds: list[str], pooling: dict[str, Any] | None = None, prefix: str = "a.models.") -> None:
    """Makes the folder one of sentence-transformers."""
    paths = ["" if kind == "Transformer" else f"{place}_{kind}" for place, kind in enumerate(kinds)]
    modules = [{"path": path, "type": prefix + kind} for kind, path in zip(kinds, paths, strict=True)]
    write_json(folder / "modules.json", modules)
    if pooling is not None:
        write_json(folder / paths[kinds.index("Pooling")] / "config.json", pooling)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_vectors_are_those_of_each_sentence_alone(tiny_bert: Path, pooling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_module, "FORWARD_BATCH", 2)
    model, tokenizer = AutoModel.from_pretrained(tiny_bert).eval(), AutoTokenizer.from_pretrained(tiny_bert)
    vectors = load_encoder(tiny_bert, pooling)(SENTENCES)
    assert vectors.shape == (5, 16)
    for sentence, vector in zip(SENTENCES, vectors, strict=True):
        inputs = tokenizer(sentence, return_tensors="pt")
        with torch.no_grad():
            alone = pool(model(**inputs, output_hidden_states=True), inputs["attention_mask"], pooling)[0]
        torch.testing.assert_close(vector, alone, rtol=1e-4, atol=1e-5)


def test_a_pooler_is_never_made_up(folder: Path, tiny_bert: Path) -> None:
    """A masked language model has none, and transformers would fill one with random weights."""
    BertForMaskedLM(BertConfig.from_pretrained(tiny_bert)).save_pretrained(folder)
    with pytest.raises(ConfigError, match="has no weights of a pooler of its own, which pooling='cls' reads; choose cls_"):
        load_encoder(folder, "cls")
    config = DistilBertConfig(vocab_size=40, dim=16, n_layers=1, n_heads=2, hidden_dim=16, max_position_embeddings=40)
    DistilBertModel(config).save_pretrained(folder)
    with pytest.raises(ConfigError, match="has no weights of a pooler of its own"):
        load_encoder(folder, "cls")
    assert load_encoder(folder)(SENTENCES).shape == (5, 16)


def test_an_encoder_in_training_is_evaluated_without_dropout_and_without_gradient(tiny_bert: Path) -> None:
    encoder = load_encoder(tiny_bert, "avg")
    quiet = encoder(SENTENCES)
    assert not quiet.requires_grad
    assert not encoder.model.training
    encoder.model.train()
    assert torch.equal(encoder(SENTENCES), quiet)
    assert encoder.model.training


def test_long_sentences_are_cut(tiny_bert: Path) -> None:
    long, head = "the man plays a red guitar in the park", "the man plays"
    cut, whole = load_encoder(tiny_bert, "avg", max_length=5), load_encoder(tiny_bert, "avg")
    assert torch.equal(cut([long]), cut([head]))
    assert not torch.allclose(whole([long]), whole([head]))
    assert whole.max_length == 40
    assert whole(["dog " * 100]).isfinite().all()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = RobertaConfig(vocab_size=40, max_position_embeddings=12, **sizes)
    roberta = SentenceEncoder(RobertaModel(config), AutoTokenizer.from_pretrained(tiny_bert), "avg")
    assert roberta.max_length == 10, "RoBERTa has fewer positions than its table"
    assert roberta(["dog " * 30]).shape == (1, 16)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"max_length": 2}, ConfigError, "max_length=2 must be a whole number from 3 to 40"),
        ({"max_length": 41}, ConfigError, "max_length=41 must be a whole number from 3 to 40"),
        ({"max_length": 16.0}, ConfigError, r"max_length=16\.0 must be a whole number"),
        ({"device": "abacus"}, ConfigError, "device='abacus' must be auto, cpu, cuda or cuda:N"),
        ({"pooling": "mean"}, UnknownNameError, "pooling='mean'"),
    ],
)
def test_wrong_options_are_named(tiny_bert: Path, options: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        load_encoder(tiny_bert, **options)


def test_masked_language_models_in_half_precision_load_as_encoders(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = BertForMaskedLM(BertConfig.from_pretrained(folder)).eval()
    model.half().save_pretrained(folder)
    inputs = AutoTokenizer.from_pretrained(folder)("the dog runs", return_tensors="pt")
    with torch.no_grad():
        wanted = model.float().bert(**inputs).last_hidden_state[:, 0]
    capfd.readouterr()
    torch.testing.assert_close(load_encoder(folder)(["the dog runs"]), wanted, rtol=1e-5, atol=1e-6)  # float32 too
    assert "UNEXPECTED" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "model.safetensors").write_bytes(b"0" * 500), "cannot be loaded: Error while deserializing"),
        (lambda folder: (folder / "model.safetensors").unlink(), r"cannot be loaded: .*no file named model\.safetensors"),
        (lambda folder: (folder / "config.json").write_text("{"), r"cannot be loaded: .*config\.json' is not a valid JSON"),
        (lambda folder: [file.unlink() for file in folder.glob("*token*")], "has no vocabulary: put its tokenizer's files"),
        (lambda folder: change_json(folder / "tokenizer_config.json", pad_token=None), "tokenizer without a padding token"),
        (lambda folder: change_json(folder / "config.json", num_hidden_layers=3), r"lacks weights .* as encoder\.layer\.2\."),
        (lambda folder: change_json(folder / "config.json", intermediate_size=31), r"dense\.bias \(of another shape\)"),
        (
            lambda folder: [file.unlink() for file in folder.iterdir()],
            r"cannot be loaded: the folder has no config\.json\. Give a folder with config\.json, weights",
        ),
        (shutil.rmtree, r"model='.*model' cannot be loaded: .*, or a name on the hub"),
    ],
)
def test_damaged_folders_are_refused(folder: Path, change: Callable[[Path], object], message: str) -> None:
    change(folder)
    with pytest.raises(ConfigError, match=message):
        load_encoder(folder)


def test_settings_of_hub_models_are_fetched(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The settings come from the hub's files, and model and tokenizer load by the same name."""
    write_json(folder / "tempplug_encoder.json", {"pooling": "avg_first_last"})
    loaders = {"AutoModel": AutoModel, "AutoTokenizer": AutoTokenizer}
    loaded = []

    def local(name: str) -> SimpleNamespace:
        def from_pretrained(model: str, **options: Any) -> Any:
            loaded.append((name, model, options["trust_remote_code"]))
            return loaders[name].from_pretrained(folder, **options)

        return SimpleNamespace(from_pretrained=from_pretrained)

    monkeypatch.setattr(encoder_module, "snapshot_download", lambda name, allow_patterns: str(folder))
    monkeypatch.setattr(encoder_module, "AutoModel", local("AutoModel"))
    monkeypatch.setattr(loading_module, "AutoTokenizer", local("AutoTokenizer"))
    assert load_encoder("someone/model").pooling == "avg_first_last"
    assert loaded == [("AutoTokenizer", "someone/model", False), ("AutoModel", "someone/model", False)]

    def unreachable(*_: Any, **__: Any) -> str:
        raise LocalEntryNotFoundError("Cannot find the requested files in the cache.")

    monkeypatch.setattr(encoder_module, "snapshot_download", unreachable)
    with pytest.raises(ConfigError, match=r"model='someone/model' cannot be loaded: Cannot find the requested files"):
        load_encoder("someone/model")


def test_our_own_file_comes_first_and_options_before_it(folder: Path) -> None:
    encoder = load_encoder(folder)
    assert (encoder.pooling, encoder.pooling_source) == ("cls_before_pooler", "default, the model sets none")
    write_json(folder / "tempplug_encoder.json", {"pooling": "avg", "max_length": 12})
    write_modules(folder, ["Transformer", "Pooling"], {"pooling_mode": "cls"})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 20})
    encoder = load_encoder(folder)
    assert (encoder.pooling, encoder.pooling_source, encoder.max_length) == ("avg", "tempplug_encoder.json", 12)
    encoder = load_encoder(folder, "avg_first_last", max_length=15)
    assert (encoder.pooling, encoder.pooling_source, encoder.max_length) == ("avg_first_last", "as given", 15)


@pytest.mark.parametrize(
    ("pooling", "wanted", "prefix"),
    [
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "avg", "sentence_transformers.models."),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls_before_pooler", "any."),
        ({"embedding_dimension": 16, "pooling_mode": "mean", "include_prompt": True}, "avg", "sentence_transformers.base."),
        ({"pooling_mode": ["cls"]}, "cls_before_pooler", "any."),
        ({"word_embedding_dimension": 16}, "avg", "any."),
    ],
)
def test_sentence_transformers_folders(folder: Path, pooling: dict[str, Any], wanted: str, prefix: str) -> None:
    write_modules(folder, ["Transformer", "Pooling", "Normalize"], pooling, prefix)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 20, "do_lower_case": False})
    encoder = load_encoder(folder)
    assert (encoder.pooling, encoder.pooling_source, encoder.max_length) == (wanted, "sentence-transformers settings", 20)


def test_the_transformer_may_lie_in_a_subfolder(tiny_bert: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_bert, tmp_path / "0_Transformer")
    write_json(tmp_path / "0_Transformer" / "sentence_bert_config.json", {"max_seq_length": 21})
    write_json(tmp_path / "1_Pooling" / "config.json", {"pooling_mode": "mean"})
    modules = [{"type": f"a.{path[2:]}", "path": path} for path in ("0_Transformer", "1_Pooling")]
    write_json(tmp_path / "modules.json", modules)
    encoder = load_encoder(tmp_path)
    assert encoder.max_length == 21
    assert torch.equal(encoder(SENTENCES), load_encoder(tiny_bert, "avg")(SENTENCES))


@pytest.mark.parametrize(
    ("kinds", "pooling", "message"),
    [
        (["Transformer", "Pooling", "Dense"], {"pooling_mode": "mean"}, "lists Transformer, Pooling, Dense; without sentence-"),
        (
            ["Transformer"],
            None,
            "lists Transformer; without sentence-transformers only a Transformer with a Pooling by mean or",
        ),
        (["Transformer", "Pooling"], {"pooling_mode": ["cls", "mean"]}, "pools by cls and mean; without"),
        (["Transformer", "Pooling"], {"pooling_mode_mean_tokens": 1, "pooling_mode_max_tokens": 1}, "by mean and max; without"),
    ],
)
def test_other_sentence_transformers_need_that_library(
    folder: Path, kinds: list[str], pooling: dict[str, Any] | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    write_modules(folder, kinds, pooling)
    with pytest.raises(ConfigError, match=message):
        load_encoder(folder)
    assert load_encoder(folder, "avg").pooling == "avg"


@pytest.mark.parametrize(
    ("file", "content", "kind", "message"),
    [
        ("tempplug_encoder.json", "{", DataError, "cannot be read as JSON"),
        ("modules.json", "[" * 100_000, DataError, "cannot be read as JSON: maximum recursion depth"),
        ("tempplug_encoder.json", "[]", DataError, "holds a list, wanted a dict"),
        ("modules.json", '{"0": 1}', DataError, "holds a dict, wanted a list"),
        ("modules.json", '[{"path": ""}]', DataError, ": each module must be an object with type and path"),
        ("modules.json", "[1]", DataError, ": each module must be an object with type and path"),
        ("modules.json", '[{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": "1"}]', DataError, " names it"),
        ("tempplug_encoder.json", '{"pooling": "mean"}', ConfigError, ": pooling='mean' must be one of cls, cls_before_pooler"),
    ],
)
def test_malformed_settings_are_named(folder: Path, file: str, content: str, kind: type[Exception], message: str) -> None:
    (folder / file).write_text(content)
    with pytest.raises(kind, match=f"{file}.*{message}"):
        load_encoder(folder)
