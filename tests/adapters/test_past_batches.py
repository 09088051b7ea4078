"""The memory of past batches of texts: a dense formula, left-out copies, resumed trainings, and what does not go with it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from huggingface_toys import Data, MyTrainer, assert_equal, logged, make, weights
from method_toys import Kill, Killed
from pytorch_metric_learning.losses import CrossBatchMemory, NTXentLoss
from sentence_transformer_toys import features, sentences, through, tiny, weights as texts_weights
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional as F

import tempplug
from tempplug.errors import ConfigError, ShapeError
from tempplug_adapters.ring_buffer import PastBatches, add_past_batches, loss_with_past_batches
from tempplug_adapters.sentence_transformers import CachedTemperatureRankingLoss, TemperatureRankingLoss
from tempplug_adapters.sentence_transformers.library import losses as library

TEMPERATURE, SIZE = 0.1, 10


def with_memory(size: int = SIZE, layout: str = "cross-view") -> tuple[tempplug.ContrastiveLoss, PastBatches]:
    loss = tempplug.ContrastiveLoss(f"fixed:temperature={TEMPERATURE}", layout=layout, negatives="same-key")
    return loss, add_past_batches(loss, size)


def batches(count: int = 5, rows: int = 4, width: int = 6) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Some keys come back in later batches, none twice in one."""
    generator = torch.Generator().manual_seed(1)
    numbers = torch.randn(count, 2, rows, width, generator=generator, dtype=torch.float64)
    keys = [torch.randperm(9, generator=generator)[:rows] for _ in range(count)]
    return [(a, b, key) for (a, b), key in zip(numbers, keys, strict=True)]


def dense(a: Tensor, b: Tensor, keys: Tensor, past: list[tuple[Tensor, int]]) -> Tensor:
    rows = F.normalize(torch.stack([row for row, _ in past])) if past else b[:0]
    logits = F.normalize(a) @ torch.cat([F.normalize(b), rows]).T / TEMPERATURE
    copies = keys[:, None] == torch.tensor([-1] * len(b) + [key for _, key in past])
    return F.cross_entropy(logits.masked_fill(copies, -torch.inf), torch.arange(len(a)))


def test_it_is_cross_entropy_over_the_batch_and_the_last_rows() -> None:
    """With gradients, before and after the memory is full, and with keys of a text that come back."""
    loss, memory = with_memory()
    past: list[tuple[Tensor, int]] = []
    copies = 0
    for a, b, keys in batches():
        leaves, others = ([tensor.clone().requires_grad_() for tensor in (a, b)] for _ in range(2))
        found = loss_with_past_batches(loss, memory, *leaves, {"keys": keys})
        expected = dense(*others, keys, past)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
        found.backward()
        expected.backward()
        torch.testing.assert_close([each.grad for each in leaves], [each.grad for each in others], rtol=1e-10, atol=1e-10)
        copies += sum(key in keys.tolist() for _, key in past)
        past = [*past, *zip(b, keys.tolist(), strict=True)][-SIZE:]
        assert memory.stored == len(past)
    assert copies > 3


def test_without_copies_it_is_pytorch_metric_learnings_memory() -> None:
    """The library's has the positives in the memory before the loss: equal where the memory is that of the last batches."""
    loss, memory = with_memory(8)
    theirs = CrossBatchMemory(NTXentLoss(TEMPERATURE), 6, memory_size=12)
    for step, (a, b, _) in enumerate(batches(6)):
        a, b = a.float(), b.float()
        keys = torch.arange(4) + 4 * step
        found = loss_with_past_batches(loss, memory, a, b, {"keys": keys})
        # its queue takes positives alone, and each anchor's positive is the row of its key
        theirs(torch.cat([a, b]), torch.cat([keys, keys]), enqueue_mask=torch.arange(8) >= 4)
        expected = theirs.loss(
            a,
            keys,
            ref_emb=theirs.embedding_memory[: min(12, 4 * step + 4)],
            ref_labels=theirs.label_memory[: min(12, 4 * step + 4)],
        )
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_it_is_saved_and_loaded_before_and_after_the_first_batch() -> None:
    (loss, memory), (other, copied) = with_memory(), with_memory()
    empty = copy.deepcopy(loss.state_dict())
    for a, b, keys in batches(4):
        loss_with_past_batches(loss, memory, a, b, {"keys": keys})
    other.load_state_dict(loss.state_dict())
    assert (copied.stored, copied.rows.dtype) == (SIZE, torch.float64)
    a, b, keys = batches(5)[-1]
    found = [loss_with_past_batches(*each, a, b, {"keys": keys}) for each in ((loss, memory), (other, copied))]
    assert torch.equal(*found)
    other.load_state_dict(empty)
    assert copied.stored == 0
    torch.testing.assert_close(loss_with_past_batches(other, copied, a, b, {"keys": keys}), dense(a, b, keys, []))
    with pytest.raises(RuntimeError, match="size mismatch"):
        with_memory(3)[0].load_state_dict(loss.state_dict())


def share(rank: int, folder: str) -> None:
    """Saves losses and memory of one of two processes, each with half of every batch."""
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    loss = tempplug.ContrastiveLoss(f"fixed:temperature={TEMPERATURE}", layout="cross-view", negatives="same-key", gather=True)
    memory, half = add_past_batches(loss, SIZE), slice(2 * rank, 2 * rank + 2)
    given = [[each[half] for each in batch] for batch in batches()]
    losses = [loss_with_past_batches(loss, memory, a, b, {"keys": keys}) for a, b, keys in given]
    torch.save([torch.stack(losses), memory.rows, memory.keys], f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_share_the_memory_of_one(tmp_path: Path) -> None:
    mp.spawn(share, (str(tmp_path),), nprocs=2)
    loss, memory = with_memory()
    whole = torch.stack([loss_with_past_batches(loss, memory, a, b, {"keys": keys}) for a, b, keys in batches()])
    (first, *stored), (second, *others) = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    torch.testing.assert_close((first + second) / 2, whole, rtol=1e-10, atol=1e-10)
    for each in (stored, others):
        torch.testing.assert_close(each, [memory.rows, memory.keys])


@pytest.mark.parametrize(
    ("words", "size", "layout", "negatives"),
    [
        ("queue_size=0 must be an integer, at least 1", 0, "cross-view", "same-key"),
        ("queue_size=5: layout 'two-view' takes no past batches; 'cross-view' does", 5, "two-view", "same-key"),
        ("queue_size=5 needs negatives='same-key'", 5, "cross-view", None),
        ("queue_size=5: past batches have no guide=", 5, "cross-view", "same-key+guide"),
    ],
)
def test_what_does_not_go_with_it_is_refused(words: str, size: int, layout: Any, negatives: str | None) -> None:
    with pytest.raises(ConfigError, match=words):
        add_past_batches(tempplug.ContrastiveLoss(layout=layout, negatives=negatives), size)


def test_calls_without_keys_and_rows_of_another_dimension_are_refused() -> None:
    loss, memory = with_memory()
    a, b, keys = batches()[0]
    with pytest.raises(ConfigError, match="queue_size= needs view_b, one tensor, and keys="):
        loss_with_past_batches(loss, memory, a, b, {})
    loss_with_past_batches(loss, memory, a, b, {"keys": keys})
    by_row = {name: keys for name in ("view_a", "view_b")} | {"hard_negatives": torch.tensor([77, 78])}
    shared = {"keys": by_row, "targets": torch.eye(4, 6), "hard_negatives": a[:2]}
    with pytest.raises(ConfigError, match=r"queue_size= takes targets= with hard_negatives \[B, k, D\]"):
        loss_with_past_batches(loss, memory, a, b, shared)
    with pytest.raises(ShapeError, match="queue has 6 dimensions where view_a has 5"):
        loss_with_past_batches(loss, memory, a[:, :5], b[:, :5], {"keys": keys})


class WithKeys(MyTrainer):
    def contrastive_views(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, ...]:
        return (*super().contrastive_views(model, inputs), {"keys": inputs["labels"] % 50})


def keyed() -> tempplug.ContrastiveLoss:
    return tempplug.ContrastiveLoss("learnable", layout="cross-view", negatives="same-key")


def test_the_mixin_trains_with_it_in_parts_and_resumes_to_the_bit(tmp_path: Path) -> None:
    more: dict[str, Any] = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3}
    data = {"train_dataset": Data(60), "eval_dataset": Data(10)}

    def trainer(folder: str, size: int | None = None, queue: int | None = 20, **changes: Any) -> Any:
        keywords = {**data, "queue_size": queue, "contrastive_mini_batch_size": size, **changes.pop("keywords", {})}
        return make(tmp_path / folder, keyed(), WithKeys, keywords=keywords, **more, **changes)

    whole = trainer("whole")
    whole.train()
    killed = trainer("killed", keywords={"callbacks": [Kill(4)]})
    with pytest.raises(Killed):
        killed.train()
    resumed = trainer("killed")
    resumed.train(resume_from_checkpoint=True)
    assert_equal(weights(resumed), weights(whole))
    assert_equal(resumed.contrastive_loss.state_dict(), whole.contrastive_loss.state_dict())
    assert whole.past_batches.stored == 20
    expected = trainer("alone", queue=None)
    expected.model.load_state_dict(whole.model.state_dict())
    expected.contrastive_loss.strategy.load_state_dict(whole.contrastive_loss.strategy.state_dict())
    assert whole.evaluate()["eval_loss"] == pytest.approx(expected.evaluate()["eval_loss"]), "used in training alone"
    parts, plain, alone = (
        trainer("parts", 3, dropout=0.0),
        trainer("plain", dropout=0.0),
        trainer("none", None, None, dropout=0.0),
    )
    for each in (parts, plain, alone):
        each.train()
    assert logged(parts, "loss") == pytest.approx(logged(plain, "loss"), rel=1e-4)
    assert logged(plain, "loss")[1] > logged(alone, "loss")[1], "more negatives"
    assert plain.contrastive_loss.record.negatives_left_out is not None


def ranking(folder: Path, kind: Any = TemperatureRankingLoss, **options: Any) -> tuple[SentenceTransformer, Any]:
    model = tiny(folder)
    return model, kind(model, f"fixed:temperature={TEMPERATURE}", **options)


@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("kind", [TemperatureRankingLoss, CachedTemperatureRankingLoss])
def test_positives_of_past_batches_are_negatives_of_texts(tiny_bert: Path, kind: Any, columns: int) -> None:
    model, loss = ranking(tiny_bert, kind, queue_size=16, **({"mini_batch_size": 5} if "Cached" in kind.__name__ else {}))
    loss.take_charge()
    texts = sentences(24, columns=columns)
    texts["positive"][14] = texts["positive"][2]  # a stale copy in the second batch
    past: list[Tensor] = []
    for start in (0, 12):
        batch = [model.tokenize(column[start : start + 12]) for column in texts.values()]
        model.train()
        found = loss(batch)
        found.backward()
        with torch.no_grad():
            rows = [F.normalize(model(dict(each))["sentence_embedding"]) for each in batch]
        candidates = torch.cat([*rows[1:], *past])
        logits = rows[0] @ candidates.T / TEMPERATURE
        names = [text for column in list(texts)[1:] for text in texts[column][start : start + 12]]
        names += texts["positive"][:12] if past else []
        same = torch.tensor([[name == own for name in names] for own in texts["positive"][start : start + 12]])
        same &= ~F.pad(torch.eye(12, dtype=torch.bool), (0, len(names) - 12))
        assert bool(same.any()) == bool(past)
        expected = F.cross_entropy(logits.masked_fill(same, -torch.inf), torch.arange(12))
        torch.testing.assert_close(found.detach(), expected, rtol=1e-4, atol=1e-5)
        past = [rows[1]]
    assert loss.get_config_dict()["queue_size"] == 16
    model.eval()
    batch = features(model, 12, columns)
    with torch.no_grad():
        expected = TemperatureRankingLoss(model, f"fixed:temperature={TEMPERATURE}", negatives="same-key")(batch)
        torch.testing.assert_close(loss(batch), expected)  # the batch alone
    assert loss.past_batches.stored == 16


@pytest.mark.parametrize("door", ["trainer", "callback"])
def test_a_killed_training_of_texts_resumes_to_the_bit(tiny_bert: Path, tmp_path: Path, door: str) -> None:
    more: dict[str, Any] = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3}
    whole = through(door, tmp_path / "whole", *ranking(tiny_bert, queue_size=20), **more)
    whole.train()
    with pytest.raises(Killed):
        through(
            door, tmp_path / "killed", *ranking(tiny_bert, queue_size=20), keywords={"callbacks": [Kill(4)]}, **more
        ).train()
    resumed = through(door, tmp_path / "killed", *ranking(tiny_bert, queue_size=20), **more)
    resumed.train(resume_from_checkpoint=True)
    assert_equal(texts_weights(resumed), texts_weights(whole))
    assert_equal(resumed.loss.contrastive_loss.state_dict(), whole.loss.contrastive_loss.state_dict())
    assert resumed.loss.past_batches.stored == 20


def test_wrappers_that_call_a_loss_twice_and_loops_without_a_trainer_are_refused(tiny_bert: Path) -> None:
    model, loss = ranking(tiny_bert, queue_size=8)
    model.train()
    with pytest.raises(ConfigError, match="queue_size keeps past batches, and no Trainer or callback manages it"):
        loss(features(model))
    for kind in (TemperatureRankingLoss, CachedTemperatureRankingLoss):
        model, loss = ranking(tiny_bert, kind, queue_size=8)
        loss.take_charge()
        model.train()
        with pytest.raises(ConfigError, match="queue_size goes with one call of the loss a batch"):
            library.MatryoshkaLoss(model, loss, [16, 8])(features(model), None)
    with pytest.raises(ConfigError, match="queue_size=8 needs similarity_fct=cos_sim"):
        TemperatureRankingLoss(model, queue_size=8, similarity_fct=lambda a, b: a @ b.T)
    with pytest.raises(ConfigError, match="queue_size=0 must be an integer, at least 1"):
        TemperatureRankingLoss(model, queue_size=0)
    with pytest.raises(ConfigError, match="past batches have no guide="):
        TemperatureRankingLoss(model, queue_size=8, negatives="guide", guide=tiny(tiny_bert))
