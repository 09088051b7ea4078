"""The examples for trainers that are not installed here: what each gives its trainer, with stand-ins for the trainer's parts.

Each was run once inside its trainer, see docs/trainers.md; here a loss is compared with the trainer's formula.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tempplug
from tempplug.errors import ConfigError

EXAMPLES = Path(__file__).parents[2] / "adapters" / "examples"
FLAG = "FlagEmbedding.finetune.embedder.encoder_only.base"
KINDS = ("DataArguments", "ModelArguments", "TrainingArguments", "Runner")


@contextmanager
def modules(**attributes: dict[str, Any]) -> Iterator[None]:
    """Puts modules of these names (``__`` for a dot) into ``sys.modules``, with their packages."""
    wanted = {name.replace("__", "."): found for name, found in attributes.items()}
    parts = {".".join(name.split(".")[: end + 1]) for name in wanted for end in range(name.count(".") + 1)}
    with pytest.MonkeyPatch.context() as patch:
        for name in sorted(parts):
            patch.setitem(sys.modules, name, ModuleType(name))
            vars(sys.modules[name]).update(wanted.get(name, {}), __path__=[])
        yield


def example(name: str, **attributes: dict[str, Any]) -> dict[str, Any]:
    with modules(**attributes):
        return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def rows_of(groups: int, size: int, seed: int = 0) -> Tensor:
    """Returns unit rows, [groups · size, 8]."""
    return F.normalize(torch.randn(groups * size, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))


class Base(nn.Module):
    """What the trainers' classes are here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()


@pytest.mark.parametrize("size", [1, 3], ids=["pairs", "two hard negatives"])
@pytest.mark.parametrize("name", ["flagembedding_encoder", "tevatron_dense"])
def test_scores_of_queries_and_passages(name: str, size: int) -> None:
    base = {f"EncoderOnlyEmbedder{kind}": Base for kind in KINDS}
    stand_ins: dict[str, dict[str, dict[str, Any]]] = {
        "flagembedding_encoder": {
            "FlagEmbedding__abc__finetune__embedder": {"EmbedderTrainerCallbackForDataRefresh": Base},
            FLAG.replace(".", "__"): base,
            f"{FLAG}.trainer".replace(".", "__"): {"EncoderOnlyEmbedderTrainer": Base},
        },
        "tevatron_dense": {
            "tevatron__retriever__arguments": dict.fromkeys(
                ("DataArguments", "ModelArguments", "TevatronTrainingArguments"), Base
            ),
            "tevatron__retriever__collator": {"TrainCollator": Base},
            "tevatron__retriever__dataset": {"TrainDataset": Base},
            "tevatron__retriever__modeling": {"DenseModel": Base},
            "tevatron__retriever__trainer": {"TevatronTrainer": Base},
        },
    }
    trainer = example(name, **stand_ins[name])["Trainer"]
    queries, passages = rows_of(6, 1), rows_of(6, size, seed=1)
    given = {"queries": queries, "passages": passages, "teacher_scores": None, "no_in_batch_neg_flag": False}
    batch = given if name.startswith("flag") else (queries, passages)
    a, b, arguments = trainer.contrastive_views(None, lambda *rows: rows, batch)
    ours = tempplug.ContrastiveLoss(0.02, layout="cross-view")(a, b, **arguments)
    theirs = F.cross_entropy(queries @ passages.T / 0.02, torch.arange(6) * size)
    torch.testing.assert_close(ours, theirs)
    if name.startswith("flag"):
        with pytest.raises(ValueError, match="not for this example"):
            trainer.contrastive_views(None, lambda *rows: rows, given | {"no_in_batch_neg_flag": True})


class Contrastive(nn.Module):
    """PyLate's loss as its subclass sees it: scores in parts, of which it returns the cross entropy."""

    def __init__(self, model: Any, gather_across_devices: bool = False) -> None:
        super().__init__()
        self.gather_across_devices = gather_across_devices
        self.score_metric = lambda queries, documents: queries @ documents.T

    def forward(self, sentence_features: Any, labels: Any = None) -> Tensor:
        queries, documents = sentence_features
        scores = torch.cat([self.score_metric(part, documents) for part in queries.split(4)])
        return F.cross_entropy(scores, torch.arange(len(queries)) * (len(documents) // len(queries)))


def test_scores_of_pylate() -> None:
    kind = example("pylate_colbert", pylate=PYLATE)["TemperatureContrastive"]
    features = 3 * rows_of(6, 1), rows_of(6, 2, seed=1)
    own = Contrastive(None)(features)
    assert own > 0
    loss_fn = kind(None, tempplug.ContrastiveLoss(1.0, layout="masks"))
    for _ in "twice":
        torch.testing.assert_close(loss_fn(features), own)
    learned = kind(None, tempplug.ContrastiveLoss("learnable:initial_temperature=0.5", layout="masks"))
    learned(features).backward()
    assert all(each.grad is not None for each in learned.parameters())
    assert len(list(learned.parameters())) == 1


class Distillation(nn.Module):
    """PyLate's: its arguments, and that it passes the logarithms of both softmaxes to ``loss_function``."""

    def __init__(self, model: Any, size_average: bool = True, normalize_scores: bool = True) -> None:
        super().__init__()
        self.loss_function = nn.KLDivLoss(reduction="batchmean" if size_average else "sum", log_target=True)
        self.normalize_scores = normalize_scores

    def forward(self, sentence_features: Any, labels: Tensor) -> Tensor:
        queries, documents = sentence_features
        scores = (queries[:, None] * documents.unflatten(0, (len(queries), -1))).sum(2)
        if self.normalize_scores:
            low, high = scores.aminmax(dim=1, keepdim=True)
            scores = (scores - low) / (high - low + 1e-8)
        loss: Tensor = self.loss_function(scores.log_softmax(1), labels.log_softmax(1))
        return loss


PYLATE = {"losses": SimpleNamespace(Contrastive=Contrastive, Distillation=Distillation), "models": None, "utils": None}


@pytest.mark.parametrize("normalize", [True, False])
def test_a_teacher_of_pylate(normalize: bool) -> None:
    kind = example("pylate_colbert", pylate=PYLATE)["TemperatureDistillation"]
    labels = 3 * torch.randn(6, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    features = [each.requires_grad_() for each in (3 * rows_of(6, 1), rows_of(6, 4, seed=1))]
    own = Distillation(None, normalize_scores=normalize)(features, labels)
    found = kind(None, tempplug.ContrastiveLoss(1.0, layout="cross-view"), normalize_scores=normalize)(features, labels)
    entropy = torch.distributions.Categorical(logits=labels).entropy().mean()
    torch.testing.assert_close(found - entropy, own, rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(*(torch.autograd.grad(loss, features) for loss in (found, own)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    softer = kind(None, tempplug.ContrastiveLoss(1.0, layout="cross-view"), 2.0, normalize_scores=normalize)
    entropy = torch.distributions.Categorical(logits=labels / 2).entropy().mean()
    own = Distillation(None, normalize_scores=normalize)(features, labels / 2)
    torch.testing.assert_close(softer(features, labels) - entropy, own, rtol=1e-10, atol=1e-10)
    learned = kind(None, tempplug.ContrastiveLoss("learnable:initial_temperature=0.5", layout="cross-view"))
    learned(features, labels).backward()
    assert [each.grad is not None for each in learned.parameters()] == [True]


class BaseLoss:
    """ms-swift's base class."""

    def __init__(self, args: Any, trainer: Any) -> None:
        self.args, self.trainer, self.is_megatron = args, trainer, False


@pytest.mark.parametrize("negatives", [(2, 2, 2), (2, 0, 1), (0, 0, 0)], ids=["even", "ragged", "none"])
def test_rows_of_ms_swift(negatives: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    losses: dict[str, Any] = {}
    arguments, state = SimpleNamespace(num_train_epochs=2.0), SimpleNamespace(epoch=0.5, global_step=3)
    with modules(swift__loss={"BaseLoss": BaseLoss, "loss_map": losses}):
        runpy.run_path(str(EXAMPLES / "ms_swift_plugin.py"))
    monkeypatch.setenv("INFONCE_TEMPERATURE", "0.05")
    loss_fn = losses["tempplug"](arguments, SimpleNamespace(state=state))
    rows = rows_of(1, sum(negatives) + 2 * len(negatives))
    labels = torch.tensor([label for count in negatives for label in [1] + [0] * count])
    anchors = torch.tensor([2 * place + sum(negatives[:place]) for place in range(len(negatives))])
    others = torch.tensor([row for row in range(len(rows)) if row not in anchors])
    target = (others[None] == anchors[:, None] + 1).int().argmax(1)
    theirs = F.cross_entropy(rows[anchors] @ rows[others].T / 0.05, target)
    torch.testing.assert_close(loss_fn({"last_hidden_state": rows}, labels), theirs)
    monkeypatch.setenv("TEMPPLUG_STRATEGY", "schedule")
    scheduled = losses["tempplug"](arguments, SimpleNamespace(state=state))
    scheduled({"last_hidden_state": rows}, labels)
    assert scheduled.loss_fn.record.temperature_mean != pytest.approx(0.05)
    monkeypatch.setenv("TEMPPLUG_STRATEGY", "learnable")
    with pytest.raises(ConfigError, match="strategy 'learnable' or objective 'infonce' learns"):
        losses["tempplug"](arguments, SimpleNamespace(state=state))
