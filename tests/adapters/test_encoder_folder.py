"""Folders that SimCSE saves: our own loader, transformers and sentence-transformers give the same vectors; the model card."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from huggingface_hub.repocard import metadata_load
from sentence_transformers import SentenceTransformer
from simcse_toys import read, recipe, write_toys
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, BertConfig, BertForMaskedLM, RobertaConfig, RobertaModel

from tempplug.strategies.macl import MACL
from tempplug_adapters.huggingface.pooling import POOLINGS
from tempplug_adapters.sentence_evaluation.encoder import SentenceEncoder, load_encoder
from tempplug_adapters.simcse.method import SimCSEMethod, SimCSEModule
from tempplug_adapters.simcse.recipe import METHOD
from tempplug_adapters.training.trained import model_card

SENTENCES = ["the cook repairs the old boat", "a", "the cook " * 80]


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toys(tmp_path_factory.mktemp("toys"))


def saved(toys: Path, folder: Path, **changes: Any) -> tuple[SimCSEModule, Tensor]:
    """A module with weights of its own, saved; and the vectors that the evaluation in training measures."""
    method, settings = SimCSEMethod(METHOD), recipe(toys, **changes)
    data = read(toys, "pairs.tsv", settings)
    torch.manual_seed(1)
    module = method.build(settings, data, None).eval()
    for parameter in module.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    method.save(settings, module, data, folder)
    return module, SentenceEncoder(module.encoder.base_model, data.tokenizer, module.model.pooling)(SENTENCES)


def same(vectors: Any, wanted: Tensor) -> None:
    torch.testing.assert_close(torch.as_tensor(vectors), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("pooler", [*POOLINGS, "cls of training only"])
def test_all_libraries_give_the_vectors_of_the_training(toys: Path, tmp_path: Path, pooler: str) -> None:
    only = pooler == "cls of training only"
    module, wanted = saved(toys, tmp_path, pooling=pooler.partition(" ")[0], mlp_only_train=only)
    model = SentenceTransformer(str(tmp_path), device="cpu")
    model.save(str(tmp_path / "again"), create_model_card=False)
    assert model.max_seq_length == load_encoder(tmp_path).max_length == 64
    for folder in (tmp_path, tmp_path / "again"):
        same(load_encoder(folder)(SENTENCES), wanted)
        same(SentenceTransformer(str(folder), device="cpu").encode(SENTENCES), wanted)
    plain, tokenizer = AutoModel.from_pretrained(tmp_path).eval(), AutoTokenizer.from_pretrained(tmp_path)
    with torch.no_grad():
        outputs = plain(**tokenizer(SENTENCES, return_tensors="pt", padding=True, truncation=True))
    in_transformers = {"cls": outputs.pooler_output, "cls_before_pooler": outputs.last_hidden_state[:, 0]}
    same(in_transformers.get(module.model.pooling, wanted), wanted)


def test_other_encoders_are_kept_with_the_vectors_of_the_training(toys: Path, tmp_path: Path) -> None:
    """RoBERTa has two positions fewer than its table; sentence-transformers alone would read past them."""
    tokenizer = AutoTokenizer.from_pretrained(toys / "encoder")
    tokenizer.model_max_length = 10**6
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    sizes |= {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    for name, model, changes in (
        ("roberta", RobertaModel(RobertaConfig(max_position_embeddings=40, **sizes)), {"pooling": "avg"}),
        (
            "masked",
            BertForMaskedLM(BertConfig(max_position_embeddings=39, **sizes)),
            {"mlm_weight": 0.1, "mlp_only_train": False},
        ),
    ):
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        _, wanted = saved(toys, tmp_path / "out" / name, model_name_or_path=str(tmp_path / name), **changes)
        kept = SentenceTransformer(str(tmp_path / "out" / name), device="cpu")
        assert kept.max_seq_length == 39
        same(kept.encode(SENTENCES), wanted)
        same(load_encoder(tmp_path / "out" / name)(SENTENCES), wanted)


def test_a_folder_that_sentence_transformers_writes_anew_is_read_anew(toys: Path, tmp_path: Path) -> None:
    """Training there moves the Dense layer, and not the pooler of which it was a copy."""
    _, wanted = saved(toys, tmp_path, mlp_only_train=False)
    model = SentenceTransformer(str(tmp_path), device="cpu")
    model[2].linear.weight.data *= 2
    model.save(str(tmp_path), create_model_card=False)
    vectors = load_encoder(tmp_path)(SENTENCES)
    same(vectors, torch.from_numpy(model.encode(SENTENCES)))
    assert (vectors - wanted).abs().max() > 0.01
    same(load_encoder(tmp_path, "cls")(SENTENCES), wanted)


RESULTS = {
    **{"strategy": "macl:base_temperature=0.05,alpha=2", "objective": "infonce", "dataset": "somewhere/nli.tsv"},
    **{"items": 160, "steps": 10, "epochs": 1.0},
    "evaluation": {"stsb_dev": 81.2345, "sts12": 70.5, "sts_average": 75.25, "mr": 76.3, "transfer_average": 80.5},
}


def card_of(settings: Any, results: dict[str, Any], pooling: str, name: str = "out") -> str:
    module = SimpleNamespace(loss_fn=SimpleNamespace(strategy=MACL()), pooling=pooling)
    return model_card(SimCSEMethod(METHOD), settings, module, None, results, name)


def test_the_card_describes_training_and_scores(toys: Path, tmp_path: Path) -> None:
    settings = recipe(toys, model_name_or_path="bert-base-uncased", learning_rate=3e-5, columns=("anchor", "positive"))
    card = card_of(settings, RESULTS, "cls", "my: 'encoder'")
    lines = {
        **{"strategy": "`macl:base_temperature=0.05,alpha=2`", "objective": "`infonce`", "samples": "`160 of nli.tsv`"},
        **{"steps": "`10 (1 epochs)`", "learning rate": "`3e-05`", "columns": "`anchor positive`"},
        **{"STS-B dev": "81.23", "STS12": "70.5", "average of the seven test sets": "75.25"},
        **{"MR": "76.3", "average of the transfer tasks": "80.5"},
    }
    for name, value in lines.items():
        assert f"| {name} | {value} |" in card.splitlines()
    similar, accurate = card.split("| figure | accuracy of a linear classifier, in per cent |")
    assert "| STS-B dev |" in similar.split("| figure | Spearman × 100 |")[1]
    assert "| MR |" in accurate
    for words in ("@misc{tempplug-macl,", "@inproceedings{gao2021simcse,", "`AutoModel`'s `pooler_output`"):
        assert words in card
    assert "somewhere" not in card
    (tmp_path / "README.md").write_text(card)
    metadata = metadata_load(tmp_path / "README.md")
    assert (metadata["library_name"], metadata["pipeline_tag"]) == ("sentence-transformers", "sentence-similarity")
    assert (metadata["base_model"], metadata["model-index"][0]["name"]) == ("bert-base-uncased", "my: 'encoder'")
    results = {each.dataset_name: each for each in ModelCard.load(tmp_path / "README.md").data.eval_results}
    kinds = {name: (each.task_type, each.metric_type, each.metric_value) for name, each in results.items()}
    assert kinds["MR"] == ("text-classification", "accuracy", 76.3)
    assert kinds["STS-B dev"] == ("semantic-similarity", "spearman_cosine", 81.2345)


def test_a_card_without_scores_or_a_base_on_the_hub(toys: Path, tmp_path: Path) -> None:
    card = card_of(recipe(toys), {**RESULTS, "evaluation": {}}, "avg")
    assert "None were measured." in card
    assert str(toys) not in card
    (tmp_path / "README.md").write_text(card)
    assert not {"base_model", "model-index"} & set(metadata_load(tmp_path / "README.md"))
