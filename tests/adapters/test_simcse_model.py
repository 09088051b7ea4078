"""The SimCSE model: poolers, the training-only head, the masked-language-model term, and what is written to disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, BertConfig, BertForMaskedLM, ResNetConfig, RobertaConfig, RobertaModel

from tempplug.errors import ConfigError
from tempplug_adapters.simcse.model import SimCSEModel, load_config


def small(kind: type = BertConfig, **options: object):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 30}
    return kind(**sizes, max_position_embeddings=40, **options)


@pytest.fixture
def bert(tmp_path: Path) -> str:
    torch.manual_seed(0)
    BertForMaskedLM(small()).save_pretrained(tmp_path / "bert")
    return str(tmp_path / "bert")


IDS = torch.tensor([[1, 7, 8, 2, 0], [1, 9, 2, 0, 0], [1, 4, 5, 6, 2]])
MASK = (IDS != 0).long()


@pytest.mark.parametrize("pooler", ["cls_mlp", "cls", "avg", "avg_first_last"])
def test_poolers_are_those_of_the_paper(bert: str, pooler: str) -> None:
    model = SimCSEModel.from_pretrained(bert, pooler).eval()
    outputs = AutoModel.from_pretrained(bert).eval()(IDS, attention_mask=MASK, output_hidden_states=True)
    last, first = outputs.last_hidden_state, outputs.hidden_states[0]
    weight = MASK[..., None].float()
    expected = {
        "cls": last[:, 0],
        "avg": (last * weight).sum(1) / weight.sum(1),
        "avg_first_last": ((last + first) / 2 * weight).sum(1) / weight.sum(1),
    }
    expected["cls_mlp"] = torch.tanh(model.head[0](last[:, 0])) if pooler == "cls_mlp" else last
    assert torch.allclose(model(IDS, MASK)["embedding"], expected[pooler], atol=1e-6)


def test_roberta_encoders_work(tmp_path: Path) -> None:
    RobertaModel(small(RobertaConfig)).save_pretrained(tmp_path)
    embedding = SimCSEModel.from_pretrained(str(tmp_path))(IDS, MASK)["embedding"]
    assert embedding.shape == (3, 16)
    embedding.sum().backward()


def test_every_parameter_gets_a_gradient(bert: str) -> None:
    for mlm in (False, True):
        model = SimCSEModel.from_pretrained(bert, mlm=mlm)
        extra = {"mlm_input_ids": IDS, "mlm_labels": IDS} if mlm else {}
        sum(value.sum() for value in model(IDS, MASK, **extra).values()).backward()
        assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_the_masked_language_model_loss_is_that_of_transformers(bert: str) -> None:
    model = SimCSEModel.from_pretrained(bert, mlm=True).eval()
    labels = torch.where(IDS == 7, IDS, -100)
    expected = BertForMaskedLM.from_pretrained(bert).eval()(IDS, attention_mask=MASK, labels=labels).loss
    assert torch.allclose(model(IDS, MASK, IDS, labels)["mlm_loss"], expected)


def test_dropout_is_set_where_asked(bert: str) -> None:
    assert SimCSEModel.from_pretrained(bert).config.hidden_dropout_prob == 0.1
    changed = SimCSEModel.from_pretrained(bert, config=load_config(bert, 0.3))
    rates = {module.p for module in changed.modules() if isinstance(module, torch.nn.Dropout)}
    assert rates == {0.3}


@pytest.mark.parametrize("mlm", [False, True])
def test_what_is_saved_is_a_plain_encoder(bert: str, tmp_path: Path, mlm: bool) -> None:
    torch.manual_seed(1)
    model = SimCSEModel.from_pretrained(bert, "cls_mlp", mlm=mlm).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(tmp_path / "saved")
    assert json.loads((tmp_path / "saved/tempplug_encoder.json").read_text()) == {"pooling": "cls"}
    plain = AutoModel.from_pretrained(tmp_path / "saved").eval()
    last = plain(IDS, attention_mask=MASK).last_hidden_state
    assert torch.equal(torch.tanh(model.head[0](last[:, 0])), model(IDS, MASK)["embedding"])


def test_what_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be loaded"):
        SimCSEModel.from_pretrained(str(tmp_path / "nothing"))
    ResNetConfig().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"dropout=0\.3: a resnet model has no dropout rate of BERT's names"):
        load_config(str(tmp_path), 0.3)
