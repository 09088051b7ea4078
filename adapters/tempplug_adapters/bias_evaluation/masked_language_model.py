"""A masked language model for bias benchmarks: the probability of a token at a masked position.

Any checkpoint that `transformers.AutoModelForMaskedLM` loads, head included. No code of a model repository is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForMaskedLM

from tempplug.errors import ConfigError
from tempplug_adapters.huggingface.loading import load_pretrained, load_tokenizer
from tempplug_adapters.huggingface.masked_tokens import logits_of
from tempplug_adapters.modes import evaluating
from tempplug_adapters.sentence_evaluation.encoding import check_batch_size
from tempplug_adapters.training.command_line import choose_device

MODEL = "a masked language model with the head that it was pretrained with"


@dataclass(frozen=True, slots=True)
class Question:
    """A masked position in a sentence, and the token whose probability there is computed.

    Attributes:
        tokens: the sentence, special tokens and the mask included.
        place: position of the mask.
        answer: the token.
    """

    tokens: tuple[int, ...]
    place: int
    answer: int


class MaskedLanguageModel:
    """Computes probabilities at masked positions, in batches of similar length, without gradient and without dropout.

    Args:
        model: a transformers masked language model on its device; its training mode is restored after each call, so that a
            model can be evaluated during training.
        tokenizer: its tokenizer.
        batch_size: sentences per forward pass, at least 1.

    Raises:
        ConfigError: the tokenizer has no mask token, or ``batch_size`` is out of range.
    """

    def __init__(self, model: Any, tokenizer: Any, batch_size: int = 64) -> None:
        if tokenizer.mask_token_id is None:
            raise ConfigError(f"model='{tokenizer.name_or_path}' has a tokenizer without a mask token; wanted {MODEL}.")
        check_batch_size(batch_size)
        self.model, self.tokenizer, self.batch_size = model, tokenizer, batch_size
        self.progress: Callable[[float], None] = lambda fraction: None

    def tokens(self, text: str, *, special: bool = True) -> tuple[int, ...]:
        """Returns the tokens of a text, by default with the special tokens at the ends of a sentence."""
        return tuple(self.tokenizer(text, add_special_tokens=special)["input_ids"])

    def masked(self, tokens: Sequence[int], place: int) -> Question:
        """Returns the question for the probability of the token at a position of a sentence, given all other tokens."""
        return Question((*tokens[:place], self.tokenizer.mask_token_id, *tokens[place + 1 :]), place, tokens[place])

    def log_probabilities(self, questions: Sequence[Question]) -> Tensor:
        """Returns the natural logarithm of the probability of each answer, [n], in float64 (computed in float32).

        A sentence of several questions is computed once.

        Args:
            questions: at least one.

        Raises:
            ConfigError: a sentence has more tokens than the model has positions, or a probability is NaN or 0.
        """
        numbers_of: dict[tuple[tuple[int, ...], int], list[int]] = {}
        for number, question in enumerate(questions):
            numbers_of.setdefault((question.tokens, question.place), []).append(number)
        ordered = sorted(numbers_of, key=lambda sentence: len(sentence[0]), reverse=True)
        longest = len(ordered[0][0])
        limit = min(self.tokenizer.model_max_length, getattr(self.model.config, "max_position_embeddings", longest))
        if longest > limit:
            raise ConfigError(f"a sentence has {longest} tokens; '{self.tokenizer.name_or_path}' takes at most {limit}.")
        found = torch.empty(len(questions), dtype=torch.float64)
        with evaluating(self.model), torch.no_grad():
            for start in range(0, len(ordered), self.batch_size):
                batch = ordered[start : start + self.batch_size]
                rows = [row for row, sentence in enumerate(batch) for _ in numbers_of[sentence]]
                numbers = [number for sentence in batch for number in numbers_of[sentence]]
                answers = torch.tensor([questions[number].answer for number in numbers])
                found[numbers] = self._distributions(batch)[rows, answers].double().cpu()
                self.progress(min(1.0, (start + self.batch_size) / len(ordered)))
        if not found.isfinite().all():
            raise ConfigError("the model gives a token a probability of NaN or 0; its weights may have diverged.")
        return found

    def _distributions(self, batch: Sequence[tuple[tuple[int, ...], int]]) -> Tensor:
        """Returns the log-probabilities of all tokens at the mask of each sentence, [n, V]."""
        device = next(self.model.parameters()).device
        rows = [torch.tensor(tokens) for tokens, _ in batch]
        input_ids = pad_sequence(rows, batch_first=True, padding_value=self.tokenizer.pad_token_id)
        attention_mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        places = torch.tensor([place for _, place in batch])
        chosen = torch.arange(input_ids.shape[1]) == places[:, None]
        logits = logits_of(self.model, input_ids.to(device), attention_mask.to(device), chosen.to(device))
        return F.log_softmax(logits.float(), dim=-1)


def load_masked_language_model(name: str | Path, device: str = "auto", batch_size: int = 64) -> MaskedLanguageModel:
    """Returns the masked language model of a folder or a name on the hub, in float32; raises `ConfigError` for other models."""
    chosen = choose_device(device)
    tokenizer = load_tokenizer(str(name))
    model: nn.Module = load_pretrained(AutoModelForMaskedLM, str(name), purpose=MODEL)
    return MaskedLanguageModel(model.to(chosen).eval(), tokenizer, batch_size)
