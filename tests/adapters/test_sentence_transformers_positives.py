"""Positives of sentence-transformers' losses: equal first texts, labels and a teacher, against formulas and the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from datasets import Dataset, DatasetDict
from sentence_transformer_toys import features, gradients, make, read, sentences, through, tiny
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import cos_sim, dot_score, pairwise_cos_sim, pairwise_dot_score
from torch import Tensor
from torch.nn import functional as F

from tempplug.errors import ConfigError, DataError, ShapeError
from tempplug_adapters.sentence_transformers import CachedTemperatureRankingLoss, NamedColumns, TemperatureRankingLoss
from tempplug_adapters.sentence_transformers.library import losses as library

TEMPERATURE, ITEMS = 0.2, 12
SPEC = f"fixed:temperature={TEMPERATURE}"
QUERY = [row % 5 for row in range(ITEMS)]
"""The number of each row's first text."""


def batch(model: SentenceTransformer, columns: int = 3, rows: slice = slice(None)) -> list[dict[str, Tensor]]:
    """Some rows have one first text."""
    texts = sentences(ITEMS, columns=columns)
    texts["anchor"] = [texts["anchor"][number] for number in QUERY]
    return [read(model, column[rows]) for column in texts.values()]


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def related(same_query: bool) -> Tensor:
    numbers = torch.tensor(QUERY if same_query else range(ITEMS))
    return numbers[:, None] == numbers


def candidates(values: Tensor) -> Tensor:
    """[B, B, 1 + k] of row i and the texts of row j, in the order of the candidates."""
    return torch.cat([values[:, :, 0], values[:, :, 1:].flatten(1)], 1)


def cross_entropy(model: SentenceTransformer, texts: list[dict[str, Tensor]], wanted: Tensor) -> Tensor:
    """The mean of -Σ_j t_ij ln p_ij over the rows that have a positive."""
    anchors, *others = (F.normalize(model(dict(each))["sentence_embedding"]) for each in texts)
    scores = torch.einsum("id,jkd->ijk", anchors, torch.stack(others, 1)) / TEMPERATURE
    losses = -(wanted * F.log_softmax(candidates(scores), 1)).sum(1)
    return losses[wanted.sum(1) > 0].mean()


def same_loss(model: SentenceTransformer, found: Tensor, expected: Tensor, bound: float = 1e-10) -> None:
    """Asserts that values and gradients of all weights are equal."""
    all_gradients = []
    for loss in (found, expected):
        model.zero_grad()
        loss.backward()
        all_gradients.append(gradients(model))
    torch.testing.assert_close(found.detach(), expected.detach(), rtol=bound, atol=bound)
    torch.testing.assert_close(*all_gradients, rtol=bound, atol=bound)


def chosen(kind: str, columns: int) -> tuple[dict[str, Any], Tensor | None, Tensor]:
    """Options, labels, and the targets that they mean, from their definition."""
    texts = columns - 1
    if kind == "same-query":
        first = torch.zeros(ITEMS, texts, dtype=torch.float64)
        first[:, 0] = 1
        positive = candidates(related(True)[:, :, None] * first[None])
        return {"positives": kind}, None, positive / positive.sum(1, keepdim=True)
    if kind == "labels":  # rows with no, one and all positives
        labels = (torch.arange(ITEMS)[:, None] % 4 > torch.arange(texts)).long()
        positive = candidates(related(False)[:, :, None] * labels.double()[None])
        return {}, labels, positive / positive.sum(1, keepdim=True).clamp(min=1)
    if kind == "labels of queries":
        labels = (torch.arange(ITEMS) % 2).long()
        positive = candidates(related(True)[:, :, None] * F.pad(labels.double()[:, None], (0, texts - 1))[None])
        return {"positives": "same-query"}, labels, positive / positive.sum(1, keepdim=True).clamp(min=1)
    scores, same = 3 * random(ITEMS, texts), kind == "teacher of queries"
    options: dict[str, Any] = {"teacher_temperature": 2.0, "positives": "same-query" if same else "same-row"}
    logits = (scores[None] / 2).expand(ITEMS, -1, -1).masked_fill(~related(same)[:, :, None], -torch.inf)
    wanted = torch.softmax(candidates(logits), 1)
    if kind == "mixed":
        options["teacher_weight"] = 0.7
        wanted = 0.7 * wanted + 0.3 * F.pad(torch.eye(ITEMS, dtype=torch.float64), (0, ITEMS * (texts - 1)))
    return options, scores[:, 0] if same and texts == 1 else scores, wanted


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        *(
            (kind, columns)
            for kind in ("same-query", "labels", "labels of queries", "teacher of queries")
            for columns in (2, 4)
        ),
        *((kind, columns) for kind in ("teacher", "mixed") for columns in (3, 4)),  # which need several texts
    ],
)
@pytest.mark.parametrize("size", [None, 5])
def test_loss_and_gradients_are_those_of_the_formula(tiny_bert: Path, kind: str, columns: int, size: int | None) -> None:
    model = tiny(tiny_bert).double()
    options, labels, wanted = chosen(kind, columns)
    loss_class: Any = TemperatureRankingLoss if size is None else CachedTemperatureRankingLoss
    loss = loss_class(model, SPEC, **options, **({} if size is None else {"mini_batch_size": size}))
    found = loss(batch(model, columns), labels)
    same_loss(model, found, cross_entropy(model, batch(model, columns), wanted))
    dots = TemperatureRankingLoss(model, SPEC, similarity_fct=lambda a, b: cos_sim(a, b), **options)
    torch.testing.assert_close(dots(batch(model, columns), labels), found, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-10), (torch.float32, 1e-6)])
@pytest.mark.parametrize(("ours", "theirs"), [(cos_sim, pairwise_cos_sim), (dot_score, pairwise_dot_score)])
@pytest.mark.parametrize("size", [None, 5])
def test_a_teacher_of_own_texts_is_the_librarys_distillation(
    tiny_bert: Path, ours: Any, theirs: Any, dtype: torch.dtype, bound: float, size: int | None
) -> None:
    """Its value lacks the teacher's entropy, and is multiplied by the square of the student's temperature."""
    model, scores = tiny(tiny_bert).to(dtype), random(ITEMS, 3).to(dtype)
    temperature = 0.5 if ours is cos_sim else 20.0
    options: dict[str, Any] = {"teacher_temperature": temperature, "in_batch": False, "similarity_fct": ours}
    kind: Any = TemperatureRankingLoss
    if size is not None:
        kind, options = CachedTemperatureRankingLoss, {**options, "mini_batch_size": size}
    found = kind(model, f"fixed:temperature={temperature}", **options)(batch(model, 4), scores)
    own = library.DistillKLDivLoss(model, theirs, temperature=temperature)
    entropy = torch.distributions.Categorical(logits=scores.double() / temperature).entropy().mean().to(dtype)
    same_loss(model, found, own(batch(model, 4), scores) / temperature**2 + entropy, bound)


def test_one_row_is_the_librarys_distillation_without_further_options(tiny_bert: Path) -> None:
    """Its own texts are then all candidates."""
    model, scores = tiny(tiny_bert).double(), random(1, 3)
    loss = TemperatureRankingLoss(model, SPEC, teacher_temperature=TEMPERATURE)
    own = library.DistillKLDivLoss(model, pairwise_cos_sim, temperature=TEMPERATURE)
    texts = [batch(model, 4, slice(1)) for _ in "ab"]
    entropy = torch.distributions.Categorical(logits=scores / TEMPERATURE).entropy().mean()
    same_loss(model, loss(texts[0], scores), own(texts[1], scores) / TEMPERATURE**2 + entropy)


def test_own_texts_without_labels_are_the_plain_softmax(tiny_bert: Path) -> None:
    model = tiny(tiny_bert).double()
    found = TemperatureRankingLoss(model, SPEC, in_batch=False)(batch(model, 4))
    a, *others = (F.normalize(model(each)["sentence_embedding"]) for each in batch(model, 4))
    logits = torch.stack([(a * other).sum(1) for other in others], 1) / TEMPERATURE
    torch.testing.assert_close(found, F.cross_entropy(logits, torch.zeros(ITEMS, dtype=torch.int64)), rtol=1e-10, atol=1e-10)


def test_labels_of_1_say_nothing_new_in_any_setting(tiny_bert: Path) -> None:
    """They take the path without targets, which directions other than from query to document need."""
    model = tiny(tiny_bert).double()
    both: Any = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
    loss = TemperatureRankingLoss(model, SPEC, **both)
    plain = loss(batch(model))
    labels = torch.ones(ITEMS)
    for same in (labels, labels.bool(), torch.stack([labels, 0 * labels], 1)):
        assert loss(batch(model), same).item() == plain.item()


def test_a_batch_without_positives_has_no_loss_and_says_so(tiny_bert: Path) -> None:
    model, zeros = tiny(tiny_bert), torch.zeros(ITEMS)
    loss = TemperatureRankingLoss(model, SPEC)
    with pytest.raises(ConfigError, match="labels holds 0 alone, and 1 is a positive: pass None if they mean nothing"):
        loss(batch(model), zeros)
    loss(batch(model), 1 - zeros)  # from now on labels mean something
    with pytest.warns(RuntimeWarning, match="no anchor has a positive, so the loss is 0"):
        found = loss(batch(model), zeros)
    found.backward()
    assert found.item() == 0
    assert all(not gradient.any() for gradient in gradients(model).values())


def test_wrappers_that_call_again_have_the_same_targets(tiny_bert: Path) -> None:
    model, scores = tiny(tiny_bert).double(), random(ITEMS, 2)
    loss = TemperatureRankingLoss(model, SPEC, teacher_temperature=1.0)
    found = library.MatryoshkaLoss(model, loss, [8, 16])(batch(model), scores)
    own = scores[None].expand(ITEMS, -1, -1).masked_fill(~related(False)[:, :, None], -torch.inf)
    wanted = torch.softmax(candidates(own), 1)
    expected = torch.zeros((), dtype=torch.float64)
    for width in (8, 16):
        a, *others = (F.normalize(model(each)["sentence_embedding"][:, :width]) for each in batch(model))
        logits = candidates(torch.einsum("id,jkd->ijk", a, torch.stack(others, 1))) / TEMPERATURE
        expected = expected - (wanted * F.log_softmax(logits, 1)).sum(1).mean()
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("columns", [2, 3])
def test_past_batches_have_no_share(tiny_bert: Path, columns: int) -> None:
    model = tiny(tiny_bert).double()
    loss = TemperatureRankingLoss(model, SPEC, queue_size=2 * ITEMS, **({"teacher_temperature": 1.0} if columns == 3 else {}))
    loss.take_charge()
    model.train()
    labels = random(ITEMS, 2) if columns == 3 else (torch.arange(ITEMS) % 3 > 0).long()
    loss(features(model, ITEMS, columns), labels)
    with torch.no_grad():
        past = F.normalize(model(features(model, ITEMS, columns)[1])["sentence_embedding"])
    texts = [read(model, each) for each in sentences(ITEMS, 7, columns).values()]
    found = loss([dict(each) for each in texts], labels)
    a, *others = (F.normalize(model(each)["sentence_embedding"]) for each in texts)
    logits = torch.cat([a @ torch.cat([others[0], past]).T, *(a @ each.T for each in others[1:])], 1) / TEMPERATURE
    if columns == 3:
        shares = torch.softmax(labels, 1)
        wanted = torch.cat([shares[:, 0].diag(), torch.zeros(ITEMS, ITEMS), shares[:, 1].diag()], 1)
    else:
        wanted = F.pad(labels.double().diag(), (0, ITEMS))
    losses = -(wanted * F.log_softmax(logits, 1)).sum(1)
    torch.testing.assert_close(found, losses[wanted.sum(1) > 0].mean(), rtol=1e-10, atol=1e-10)


def share(rank: int, folder: str, bert: str) -> None:
    """Saves losses of one of two processes, with 5 and 7 rows of a batch."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    model, rows = tiny(Path(bert)).double(), slice(0, 5) if rank == 0 else slice(5, ITEMS)
    found = []
    for kind in ("same-query", "labels", "teacher of queries"):
        options, labels, _ = chosen(kind, 4)
        loss = TemperatureRankingLoss(model, SPEC, gather_across_devices=True, **options)
        found.append(loss(batch(model, 4, rows), None if labels is None else labels[rows]))
    torch.save(torch.stack(found).detach(), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_have_the_positives_of_one(tiny_bert: Path, tmp_path: Path) -> None:
    mp.spawn(share, (str(tmp_path), str(tiny_bert)), nprocs=2)
    model, parts = tiny(tiny_bert).double(), [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for number, kind in enumerate(("same-query", "labels", "teacher of queries")):
        options, labels, _ = chosen(kind, 4)
        whole = TemperatureRankingLoss(model, SPEC, **options)(batch(model, 4), labels)
        torch.testing.assert_close((parts[0][number] + parts[1][number]) / 2, whole.detach(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("options", "labels", "error", "words"),
    [
        ({}, torch.full((ITEMS,), 0.1), ConfigError, "the label column holds 0.1, and labels are 1 for a positive and 0"),
        ({}, torch.arange(ITEMS), ConfigError, "the label column holds 2, and"),
        ({}, torch.full((ITEMS,), torch.nan), ConfigError, "the label column holds nan"),
        ({"positives": "same-query"}, torch.full((ITEMS,), 0.5), ConfigError, "the label column holds 0.5"),
        ({}, torch.ones(ITEMS, 3), ShapeError, r"labels of shape \[12, 3\] must be \[B, 2\]"),
        ({"teacher_temperature": 1.0}, None, ConfigError, "teacher_temperature=1 needs a teacher's scores, and the batch has"),
        ({"teacher_temperature": 1.0}, torch.ones(ITEMS), ShapeError, r"labels of shape \[12\] must be \[B, 2\]"),
    ],
)
def test_labels_are_used_or_refused(
    tiny_bert: Path, options: dict[str, Any], labels: Tensor | None, error: Any, words: str
) -> None:
    model = tiny(tiny_bert)
    for kind in (TemperatureRankingLoss, CachedTemperatureRankingLoss):
        with pytest.raises(error, match=words) as raised:
            kind(model, **options)(features(model), labels)
        assert "\n" not in str(raised.value)


def test_one_text_a_row_has_nothing_to_rank(tiny_bert: Path) -> None:
    model = tiny(tiny_bert)
    for labels in (torch.ones(ITEMS), torch.ones(ITEMS, 1)):
        with pytest.raises(ShapeError, match=r"must be \[B, 2\].*, or a number with positives='same-query'"):
            TemperatureRankingLoss(model, teacher_temperature=1.0)(features(model, ITEMS, 2), labels)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"positives": "same"}, "positives='same' must be one of same-row, same-query"),
        ({"teacher_temperature": 0}, "teacher_temperature=0 must be a number greater than 0"),
        ({"teacher_temperature": 1, "teacher_weight": 1.5}, "teacher_weight=1.5 must lie between 0 and 1"),
        ({"teacher_weight": 0.5}, "teacher_weight=0.5 needs teacher_temperature="),
        ({"positives": "same-query", "queue_size": 8}, "queue_size=8 keeps no first texts for positives='same-query'"),
        ({"in_batch": False, "positives": "same-query"}, "in_batch=False leaves no other rows for gather_across_devices"),
        ({"in_batch": False, "gather_across_devices": True}, "in_batch=False leaves no other rows"),
        ({"in_batch": False, "negatives": "same-key"}, "in_batch=False leaves no other rows"),
        ({"in_batch": False, "directions": ("query_to_doc", "doc_to_query")}, "in_batch=False leaves no other rows"),
        ({"in_batch": False, "strategy": "dystress"}, "in_batch=False compares a row's own texts.*strategy 'dystress'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(tiny_bert: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TemperatureRankingLoss(tiny(tiny_bert), **options)


@pytest.mark.parametrize("door", ["trainer", "callback"])
@pytest.mark.parametrize("name", ["label", "score"])
def test_a_column_of_a_teacher_trains(tiny_bert: Path, tmp_path: Path, door: str, name: str) -> None:
    model = tiny(tiny_bert)
    loss = TemperatureRankingLoss(model, SPEC, teacher_temperature=1.0)
    seen: list[Tensor] = []
    loss.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[1]))
    data = Dataset.from_dict({**sentences(64), name: [[2.0, row / 64] for row in range(64)]})
    through(door, tmp_path, model, loss, data=data, max_steps=2).train()
    assert [tuple(each.shape) for each in seen] == [(8, 2)] * 2
    assert all((each[:, 0] == 2).all() for each in seen)


def test_the_trainer_looks_at_labels_before_it_trains(tiny_bert: Path, tmp_path: Path) -> None:
    model = tiny(tiny_bert)
    loss, taught = TemperatureRankingLoss(model), TemperatureRankingLoss(model, teacher_temperature=1.0)

    def data(**columns: Any) -> Dataset:
        return Dataset.from_dict({**sentences(64), **columns})

    for name in ("label", "score"):
        with pytest.raises(ConfigError, match=r"the label column holds 0\.1, and labels are 1 for a positive"):
            make(tmp_path, model, loss, data=data(**{name: [1.0, 0.1] * 32}))
    with pytest.raises(ConfigError, match="column 'label' holds 0 alone, and 1 is a positive"):
        make(tmp_path, model, loss, data=data(label=[0] * 64))
    with pytest.raises(ConfigError, match="teacher_temperature=1 needs a teacher's scores"):
        make(tmp_path, model, taught, data=data())
    with pytest.raises(DataError, match="column 'score' holds 1 and 2 numbers in rows of one batch"):
        make(tmp_path, model, taught, data=data(score=[[1.0], [1.0, 2.0]] * 32))
    with pytest.raises(ConfigError, match=r"holds 0\.1"):
        make(tmp_path, model, loss, data=data(), keywords={"eval_dataset": data(label=[0.1] * 64)})
    both = DatasetDict(pairs=data(label=[True] * 64), taught=data(label=[[1.0, 0.5]] * 64))
    assert make(tmp_path, model, {"pairs": loss, "taught": taught}, data=both, max_steps=4).train().global_step == 4
    # labels of a strategy stay classes, and grades have a column of their own
    counted = TemperatureRankingLoss(model, "head-tail:class_counts=40/20/4", teacher_temperature=1.0)
    named = data(labels=[row % 3 for row in range(64)], score=[[1.0, 0.5]] * 64)
    trainer = make(tmp_path, model, counted, data=named, max_steps=2)
    assert isinstance(trainer.data_collator, NamedColumns)
    assert trainer.train().global_step == 2


@pytest.mark.parametrize("door", ["trainer", "callback"])
def test_lists_of_texts_are_refused_by_name(tiny_bert: Path, tmp_path: Path, door: str) -> None:
    """The library would read two texts as one pair."""
    model, texts = tiny(tiny_bert), sentences(64, columns=2)
    lists = Dataset.from_dict({"anchor": texts["anchor"], "positive": [[each, each] for each in texts["positive"]]})
    with pytest.raises(DataError, match=r"column 'positive' of train_dataset holds lists of texts.*positive_1, positive_2"):
        through(door, tmp_path, model, TemperatureRankingLoss(model), data=lists, max_steps=1).train()
