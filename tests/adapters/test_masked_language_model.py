"""How probable a token is in a masked place: in batches as alone, and only with a head that was trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from bias_toys import random_model, save, tokenizer_of
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    RobertaConfig,
    RobertaForMaskedLM,
)

from tempplug.errors import ConfigError
from tempplug_adapters.bias_evaluation.masked_language_model import MaskedLanguageModel, Question, load_masked_language_model
from tempplug_adapters.huggingface.masked_tokens import logits_of

WORDS = ["he", "she", "is", "a", "nurse", "ban", "##jo", "##ist", "doctor", "very", "good", "."]
SENTENCES = ["he is a nurse .", "she is a very very good banjoist .", "a banjo .", "she is good"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 30}


def test_logits_of_some_tokens_are_the_models_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = torch.randint(5, 17, (3, 7))
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    chosen = torch.zeros(3, 7, dtype=torch.bool)
    chosen[0, [1, 5]] = chosen[2, 0] = True
    roberta = RobertaForMaskedLM(RobertaConfig(**SIZES, max_position_embeddings=20))
    albert = AlbertForMaskedLM(AlbertConfig(**SIZES, embedding_size=8, max_position_embeddings=20))
    for model in (roberta, albert, random_model(WORDS).model):
        whole = model.eval()(input_ids=ids, attention_mask=mask).logits
        torch.testing.assert_close(logits_of(model, ids, mask, chosen), whole[chosen], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(model(input_ids=ids, attention_mask=mask).logits, whole)  # as it was before
    monkeypatch.setattr(BertForMaskedLM, "get_output_embeddings", lambda self: None)  # no access to the last layer
    torch.testing.assert_close(logits_of(model, ids, mask, chosen), whole[chosen])


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_batches_give_what_single_sentences_give(batch_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(WORDS, batch_size=batch_size)
    model.model.train()
    questions = [model.masked(tokens, place) for tokens in map(model.tokens, SENTENCES) for place in range(1, len(tokens) - 1)]
    sentences = len(questions)
    questions += [Question(questions[0].tokens, questions[0].place, answer) for answer in (6, 7, 8)]
    batches: list[int] = []
    model.model.register_forward_hook(lambda *given: batches.append(len(given[-1].logits)))
    found = model.log_probabilities(questions)
    assert sum(batches) == sentences, "a sentence that questions share passes the model once"
    assert model.model.training, "as it was before"
    model.model.eval()
    with torch.no_grad():
        for question, value in zip(questions, found.tolist(), strict=True):
            assert question.tokens[question.place] == model.tokenizer.mask_token_id
            logits = model.model(torch.tensor([question.tokens])).logits[0, question.place]
            assert value == pytest.approx(float(logits.log_softmax(0)[question.answer]), abs=1e-5)


def test_wrong_input_is_named() -> None:
    model = random_model(WORDS)
    with pytest.raises(ConfigError, match="a sentence has 52 tokens; '' takes at most 40"):
        model.log_probabilities([model.masked(model.tokens("he " * 50), 3)])
    with torch.no_grad():
        model.model.get_output_embeddings().bias.fill_(float("nan"))
    with pytest.raises(ConfigError, match="its weights may have diverged"):
        model.log_probabilities([model.masked(model.tokens("he is"), 1)])
    model.tokenizer.mask_token = None
    with pytest.raises(ConfigError, match="a tokenizer without a mask token; wanted a masked language model"):
        MaskedLanguageModel(model.model, model.tokenizer)


def test_a_checkpoint_is_loaded_with_its_head_and_another_is_refused(tmp_path: Path, tiny_bert: Path) -> None:
    model = random_model(WORDS)
    save(model, tmp_path / "whole")
    questions = [model.masked(model.tokens(SENTENCES[1]), 2)]
    found = load_masked_language_model(tmp_path / "whole", "cpu").log_probabilities(questions)
    torch.testing.assert_close(found, model.log_probabilities(questions))
    lacks = r"lacks weights of its architecture, such as cls\.predictions\.\S+, .* and 3 more\. Wanted is a masked language"
    with pytest.raises(ConfigError, match=lacks):
        load_masked_language_model(tiny_bert, "cpu")
    config = GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=2, n_positions=20, bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    tokenizer_of(WORDS).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="cannot be loaded: Unrecognized configuration class"):
        load_masked_language_model(tmp_path, "cpu")
