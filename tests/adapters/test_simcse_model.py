"""The SimCSE model: poolers, the MLP that is kept or left out, and the masked-language-model term."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModel,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    DistilBertConfig,
    DistilBertModel,
    ResNetConfig,
    RobertaConfig,
    RobertaModel,
)

from tempplug.errors import ConfigError
from tempplug_adapters.huggingface.pooling import POOLINGS, pool
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


def test_poolers_are_those_of_the_paper(bert: str) -> None:
    outputs = AutoModel.from_pretrained(bert).eval()(IDS, attention_mask=MASK, output_hidden_states=True)
    for pooler in POOLINGS:
        model = SimCSEModel.from_pretrained(bert, pooler).eval()
        assert model.pooling == ("cls_before_pooler" if pooler == "cls" else pooler)
        expected = pool(outputs, MASK, model.pooling)
        expected = torch.tanh(model.head[0](expected)) if pooler == "cls" else expected
        assert torch.allclose(model(IDS, MASK)["embedding"], expected, atol=1e-6), pooler


@pytest.mark.parametrize("mlm", [False, True])
def test_an_mlp_that_is_kept_is_the_encoders_own_pooler_and_starts_anew(tmp_path: Path, mlm: bool) -> None:
    torch.manual_seed(0)
    BertForPreTraining(small()).save_pretrained(tmp_path)  # with the pooler of its pre-training
    model = SimCSEModel.from_pretrained(str(tmp_path), mlp_only_train=False, mlm=mlm).eval()
    dense = model.encoder.base_model.pooler.dense
    first = AutoModel.from_pretrained(tmp_path).eval()(IDS, attention_mask=MASK).last_hidden_state[:, 0]
    assert model.pooling == "cls"
    assert torch.allclose(model(IDS, MASK)["embedding"], torch.tanh(dense(first)), atol=1e-6)
    assert 0.01 < dense.weight.std() < 0.03
    assert not dense.bias.any()
    assert not torch.equal(dense.weight, AutoModel.from_pretrained(tmp_path).pooler.dense.weight)


def test_other_architectures_train_and_keep_the_mlp_where_they_have_such_a_pooler(tmp_path: Path) -> None:
    RobertaModel(small(RobertaConfig)).save_pretrained(tmp_path / "roberta")
    SimCSEModel.from_pretrained(str(tmp_path / "roberta"))(IDS, MASK)["embedding"].sum().backward()
    config = DistilBertConfig(vocab_size=30, dim=16, n_layers=1, n_heads=2, hidden_dim=16, max_position_embeddings=40)
    DistilBertModel(config).save_pretrained(tmp_path)
    assert SimCSEModel.from_pretrained(str(tmp_path))(IDS, MASK)["embedding"].shape == (3, 16)
    with pytest.raises(ConfigError, match=r"a distilbert model has none of that form\. Choose --mlp-only-train, or --pooling"):
        SimCSEModel.from_pretrained(str(tmp_path), mlp_only_train=False)


def test_every_parameter_gets_a_gradient(bert: str) -> None:
    for mlm, mlp_only_train in product((False, True), repeat=2):
        model = SimCSEModel.from_pretrained(bert, mlm=mlm, mlp_only_train=mlp_only_train)
        extra = {"mlm_input_ids": IDS, "mlm_labels": IDS} if mlm else {}
        sum(value.sum() for value in model(IDS, MASK, **extra).values()).backward()
        assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("pooler", ["cls", "avg_first_last"])
def test_sentences_of_like_length_are_encoded_together(bert: str, pooler: str) -> None:
    torch.manual_seed(1)
    lengths = torch.randint(3, 30, (70,))
    lengths[5] = 30
    mask = (torch.arange(30) < lengths[:, None]).long()
    ids = torch.randint(1, 30, (70, 30)) * mask
    labels = torch.where((torch.rand(70, 30) < 0.2) & (mask > 0), ids, -100)
    model = SimCSEModel.from_pretrained(bert, pooler, mlm=True).eval()
    one_by_one = torch.cat([model(ids[row : row + 1], mask[row : row + 1])["embedding"] for row in range(70)])
    computed: list[int] = []
    model.encoder.base_model.encoder.register_forward_hook(lambda *given: computed.append(given[1][0].shape[:2].numel()))
    outputs = model(ids, mask, ids, labels)
    assert sum(computed[::2]) < 0.75 * ids.numel(), "most of the padding is left out"
    assert torch.allclose(outputs["embedding"], one_by_one, atol=1e-6)
    whole = BertForMaskedLM.from_pretrained(bert).eval()(input_ids=ids, attention_mask=mask, labels=labels).loss
    assert torch.allclose(outputs["mlm_loss"], whole, atol=1e-6)
    assert model(ids, mask, ids, torch.full_like(labels, -100))["mlm_loss"] == 0


def test_dropout_is_set_where_a_model_has_it(bert: str, tmp_path: Path) -> None:
    assert SimCSEModel.from_pretrained(bert).config.hidden_dropout_prob == 0.1
    changed = SimCSEModel.from_pretrained(bert, config=load_config(bert, 0.3))
    assert {module.p for module in changed.modules() if isinstance(module, torch.nn.Dropout)} == {0.3}
    ResNetConfig().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"dropout=0\.3: a resnet model has no dropout rate of BERT's names"):
        load_config(str(tmp_path), 0.3)
