"""Every strategy trains in sentence-transformers, by the columns of the data set that it reads, or is refused before it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from covering import every_pair
from datasets import Dataset, DatasetDict
from sentence_transformer_toys import features, gradients, make, sentences, through, tiny
from sentence_transformers.util import dot_score
from torch import Tensor

import tempplug
from tempplug.errors import ConfigError, DataError
from tempplug_adapters.sentence_transformers import (
    CachedTemperatureRankingLoss,
    NamedColumns,
    TemperatureRankingLoss,
)
from tempplug_adapters.sentence_transformers.columns import NAMED
from tempplug_adapters.sentence_transformers.library import losses as library

NEEDED = {"head-tail": "class_counts=40/20/4", "mm-ts": "class_counts=40/20/4", "individual": "size=64"}
NEEDED["by-group"] = "temperatures=0.05/0.1/0.07/0.2,learn=true"
COLUMNS: dict[str, list[Any]] = {
    "labels": [row % 3 for row in range(64)],
    "index": list(range(64)),
    "uncertainty": [0.2 + row / 100 for row in range(64)],
    "groups": [row % 4 for row in range(64)],
    "candidate_log_q": [-1.0 - row / 64 for row in range(64)],
}


def spec_of(strategy: str) -> str:
    return f"{strategy}:{NEEDED[strategy]}" if strategy in NEEDED else strategy


@pytest.mark.parametrize("strategy", [info.name for info in tempplug.strategies() if info.distribution == "tempplug"])
def test_every_strategy_trains_by_the_columns_that_it_reads(tiny_bert: Path, tmp_path: Path, strategy: str) -> None:
    """With a column too few, the Trainer refuses it when it is built."""
    model = tiny(tiny_bert)
    loss = TemperatureRankingLoss(model, spec_of(strategy))
    if not loss.columns:
        loss.take_charge()
        loss.contrastive_loss.set_progress(epoch=0)
        loss(features(model), None).backward()
    else:
        data = {**sentences(64), **{name: COLUMNS[name] for name in loss.columns}}
        trainer = make(tmp_path, model, loss, data=Dataset.from_dict(data), max_steps=2)
        assert trainer.train().global_step == 2
    assert loss.contrastive_loss.record.temperature_mean.isfinite()
    for name in loss.columns:
        with pytest.raises(ConfigError, match=f"reads {name}=, and train_dataset has no column '{name}', but anchor, positive"):
            make(tmp_path, model, loss, max_steps=2)


def rows(columns: int = 3, items: int = 12) -> dict[str, Tensor]:
    chance = torch.Generator().manual_seed(columns)
    return {
        "labels": torch.randint(3, (items,), generator=chance),
        "index": torch.randperm(64, generator=chance)[:items],
        "uncertainty": torch.rand(items, generator=chance),
        "groups": torch.randint(4, (items,), generator=chance),
        "candidate_log_q": -torch.rand(items, columns - 1, generator=chance),
    }


@pytest.mark.parametrize(
    ("given", "kind", "columns"),
    every_pair(
        [
            ("head-tail:class_counts=40/20/4", None),
            ("individual:size=64", None),
            ("uncertainty", None),
            ("fixed", "within-group"),
            ("uncertainty", "log-q+within-group"),
        ],
        [TemperatureRankingLoss, CachedTemperatureRankingLoss],
        [2, 3],
    ),
)
def test_columns_reach_the_loss(tiny_bert: Path, given: tuple[str, str | None], kind: Any, columns: int) -> None:
    """By the features of the first column; also inside of wrappers, which call the loss again with the same ones."""
    (strategy, negatives), model = given, tiny(tiny_bert).double()
    loss = kind(model, strategy, negatives=negatives, **({"mini_batch_size": 5} if "Cached" in kind.__name__ else {}))
    loss.take_charge()
    read = {name: each for name, each in rows(columns).items() if name in loss.columns}
    batch = features(model, columns=columns)
    batch[0].update(read)
    found = loss(batch, None)
    assert read.keys() <= batch[0].keys()
    a, b, *others = (model(each)["sentence_embedding"] for each in features(model, columns=columns))
    if others:
        extra: dict[str, Any] = {"hard_negatives": torch.stack(others, 1)}
        if "groups" in read:
            read["groups"] = {part: read["groups"] for part in ("view_a", "view_b")} | {
                "hard_negatives": read["groups"][:, None]
            }
    else:
        extra = {}
    if "candidate_log_q" in read:
        both = read["candidate_log_q"]
        read["candidate_log_q"] = {"view_b": both[:, 0], **({"hard_negatives": both[:, 1:]} if others else {})}
    plain = tempplug.ContrastiveLoss(
        tempplug.create_strategy(loss.contrastive_loss.strategy.spec()), layout="cross-view", negatives=negatives
    )
    assert found.item() == pytest.approx(plain(a, b, **extra, **read).item(), rel=1e-9)
    found.backward()
    if kind is TemperatureRankingLoss:
        for wrapper in (library.MatryoshkaLoss(model, loss, [16, 8]), library.AdaptiveLayerLoss(model, loss)):
            again = features(model, columns=columns)
            again[0].update({name: each for name, each in rows(columns).items() if name in loss.columns})
            assert wrapper(again, None).isfinite()


def test_uncertainty_of_both_texts_and_the_librarys_label(tiny_bert: Path) -> None:
    model = tiny(tiny_bert).double()
    both = TemperatureRankingLoss(
        model, "uncertainty", directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction"
    )
    a, b = (model(each)["sentence_embedding"] for each in features(model, columns=2))
    pair = torch.rand(12, 2, generator=torch.Generator().manual_seed(0))
    batch = features(model, columns=2)
    batch[0]["uncertainty"] = pair
    strategy = both.contrastive_loss.strategy.spec()
    plain = tempplug.ContrastiveLoss(strategy, layout="cross-view", symmetric=True)
    assert both(batch, None).item() == pytest.approx(plain(a, b, uncertainty=tuple(pair.unbind(1))).item(), rel=1e-9)
    labelled = TemperatureRankingLoss(model, "head-tail:class_counts=40/20/4")
    batch = features(model, columns=2)
    labels = rows()["labels"]
    found = labelled(batch, labels)
    batch[0]["labels"] = labels
    assert found.item() == labelled(batch, None).item()
    with pytest.raises(ConfigError, match="the loss reads labels=, and the batch has none: give the data set a column"):
        labelled(features(model), None)


def test_a_column_of_groups_goes_with_dot_products(tiny_bert: Path) -> None:
    """It is the cross entropy of the products, without those of other groups; hard negatives are of their row's group."""
    model = tiny(tiny_bert).double()
    loss = TemperatureRankingLoss(model, "fixed:temperature=2", negatives="within-group", similarity_fct=dot_score)
    batch, groups = features(model), rows()["groups"]
    batch[0]["groups"] = groups
    a, b, c = (model(each)["sentence_embedding"] for each in features(model))
    logits = (a @ torch.cat([b, c]).T / 2).masked_fill(groups[:, None] != torch.cat([groups, groups]), -torch.inf)
    expected = torch.nn.functional.cross_entropy(logits, torch.arange(12))
    assert loss(batch, None).item() == pytest.approx(expected.item(), rel=1e-9)


@pytest.mark.parametrize(("door", "workers"), [("trainer", 1), ("callback", 0)])
def test_both_doors_pass_columns_on_and_leave_the_others_to_the_library(
    tiny_bert: Path, tmp_path: Path, door: str, workers: int
) -> None:
    """`individual` counts what it saw: every item once in an epoch."""
    model = tiny(tiny_bert)
    loss = TemperatureRankingLoss(model, "individual:size=64")
    data = Dataset.from_dict({"index": COLUMNS["index"], **sentences(64)})
    keywords: dict[str, Any] = {}
    if door == "callback":
        plain = make(tmp_path, tiny(tiny_bert), TemperatureRankingLoss(model)).data_collator
        keywords = {"data_collator": NamedColumns(plain, ["index"])}
    given: dict[str, Any] = {"num_train_epochs": 1, "dataloader_num_workers": workers, "batch_sampler": "no_duplicates"}
    trainer = through(door, tmp_path, model, loss, data=data, keywords=keywords, **given)
    before = {name: each.clone() for name, each in loss.contrastive_loss.state_dict().items()}
    trainer.train()
    changed = [
        (each != before[name]).sum().item() for name, each in loss.contrastive_loss.state_dict().items() if each.shape == (64,)
    ]
    assert max(changed) == 64


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "labels",
            ["cat", "dog"],
            "holds 'cat' where the loss reads integers as labels=: number its words, equal ones alike in all",
        ),
        ("labels", [0, None], "holds None where the loss reads integers as labels=: leave out rows without a value."),
        ("labels", [None, 0], "holds None where the loss reads integers as labels=: leave out rows without a value."),
        ("labels", [0.0, float("nan")], "holds 0.0 where the loss reads integers as labels=: convert it to integers."),
        ("labels", [True, False], "holds True where the loss reads integers as labels=: convert it to integers."),
        ("index", ["3", "4"], "holds '3' where the loss reads integers as index=: number its words"),
        ("index", [1, 2**63], "holds integers beyond int64."),
        ("index", [[1], [1, 2]], "holds 1 and 2 numbers in rows of one batch: give every row as many"),
        ("groups", ["nli", None], "holds 'nli' where the loss reads integers as groups=: leave out rows without a value."),
        (
            "groups",
            [np.float64(1), np.float64(2)],
            "holds 1.0 where the loss reads integers as groups=: convert it to integers.",
        ),
        ("uncertainty", ["0.5", "0.1"], "holds '0.5' where the loss reads numbers as uncertainty=: convert it to numbers."),
        ("uncertainty", [0.5, [0.1, 0.2]], "holds 1 and 2 numbers in rows of one batch"),
        ("candidate_log_q", [[-1.0, -2.0], [-1.0]], "holds 1 and 2 numbers in rows of one batch: give every row as many, that"),
        (
            "candidate_log_q",
            [[-1.0, None], [-1.0, -2.0]],
            "holds None where the loss reads numbers as candidate_log_q=: leave out",
        ),
    ],
)
def test_a_column_that_holds_no_numbers_is_named(name: str, values: list[Any], message: str) -> None:
    collator = NamedColumns(lambda rows: {"anchor_input_ids": torch.zeros(len(rows))}, [name])
    with pytest.raises(DataError) as caught:
        collator([{"anchor": "a man", "positive": "runs", name: value} for value in values])
    assert str(caught.value).startswith(f"column '{name}' {message}")


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_numbers_of_a_column_stay_what_they_are(kind: Any) -> None:
    collator = NamedColumns(lambda rows: {"anchor_input_ids": torch.zeros(len(rows))}, NAMED)
    values = {"labels": [3, -1], "index": [2**62, 0], "uncertainty": [1, 0.5], "candidate_log_q": [[-1, -2.5], [-3, 0]]}
    lists = {name: list(each) if kind is list else list(kind(each)) for name, each in values.items()}
    batch = collator([{"anchor": "a", "positive": "b", **{name: lists[name][row] for name in lists}} for row in range(2)])
    assert {name: batch[f"anchor_{name}"].tolist() for name in values} == values
    assert [batch[f"anchor_{name}"].dtype for name in ("labels", "uncertainty")] == [torch.int64, torch.float32]


def test_words_as_labels_are_refused_before_the_training_and_by_their_own_column(tiny_bert: Path, tmp_path: Path) -> None:
    """The library itself says 'too many dimensions', or that None has no dtype, and names no column."""
    model = tiny(tiny_bert)
    loss = TemperatureRankingLoss(model, "head-tail:class_counts=40/20/4")
    for name in ("labels", "label"):
        words = Dataset.from_dict({**sentences(64), name: ["cat", "dog"] * 32})
        with pytest.raises(
            DataError, match=rf"^column '{name}' holds 'cat' where the loss reads integers as labels=: number its"
        ):
            make(tmp_path, model, loss, data=words, max_steps=2)
        none = rf"^column '{name}' holds None where the loss reads integers as labels=: leave out rows without a value"
        with pytest.raises(DataError, match=none):
            make(tmp_path, model, loss, data=Dataset.from_dict({**sentences(64), name: [1, None] * 32}), max_steps=2)
        late = Dataset.from_dict({**{key: 20 * each for key, each in sentences(64).items()}, name: [1] * 1200 + [None] * 80})
        trainer = make(tmp_path, model, loss, data=late.select(range(200, 1280)), num_train_epochs=1)
        with pytest.raises(DataError, match=none):
            trainer.train()


def test_each_data_set_needs_the_columns_of_its_own_loss(tiny_bert: Path, tmp_path: Path) -> None:
    model = tiny(tiny_bert)
    losses = {"plain": TemperatureRankingLoss(model), "counted": TemperatureRankingLoss(model, "individual:size=64")}
    plain = Dataset.from_dict(sentences(64))
    counted = Dataset.from_dict({**sentences(64), "index": COLUMNS["index"]})
    trainer = make(tmp_path, model, losses, data=DatasetDict(plain=plain, counted=counted), max_steps=4)
    assert trainer.train().global_step == 4
    with pytest.raises(ConfigError, match=r"index=, and train_dataset\['counted'\] has no column"):
        make(tmp_path, model, losses, data=DatasetDict(plain=counted, counted=plain))
    with pytest.raises(ConfigError, match="index=, and eval_dataset has no column"):
        make(tmp_path, model, losses["counted"], data=counted, keywords={"eval_dataset": plain})


def test_a_collator_of_named_columns_is_one_of_the_librarys(tiny_bert: Path, tmp_path: Path) -> None:
    collator = make(tmp_path, tiny(tiny_bert), TemperatureRankingLoss(tiny(tiny_bert))).data_collator
    named = NamedColumns(collator, NAMED)
    assert named.valid_label_columns[: len(collator.valid_label_columns)] == collator.valid_label_columns
    assert set(named.valid_label_columns) >= NAMED
    assert named.prompts == collator.prompts
    assert pickle.loads(pickle.dumps(NamedColumns(dict, ["index"]))).names == ["index"]
    rows = [{"index": place, "anchor": "a man", "positive": "runs", "label": 1} for place in range(3)]
    batch = named(rows)
    assert batch["anchor_index"].tolist() == [0, 1, 2]
    assert batch["label"].tolist() == [1, 1, 1]
    assert batch.keys() - {"anchor_index"} == collator([{k: v for k, v in row.items() if k != "index"} for row in rows]).keys()
    with pytest.raises(ConfigError, match=r"names=\['weight'\] must be among candidate_log_q, groups"):
        NamedColumns(collator, ["weight"])


def test_each_matryoshka_dimension_may_have_a_temperature_of_its_own(tiny_bert: Path) -> None:
    """The loss is the weighted sum of the library's at each scale; learned temperatures have the gradient of their own part."""
    model = tiny(tiny_bert)
    dimensions, weights, temperatures = [16, 8, 4], [1.0, 0.5, 0.25], [0.05, 0.1, 0.2]
    expected = sum(
        library.MatryoshkaLoss(model, library.MultipleNegativesRankingLoss(model, scale=1 / temperature), [width], [weight])(
            features(model), None
        ).item()
        for width, weight, temperature in zip(dimensions, weights, temperatures, strict=True)
    )
    for kind, options in ((TemperatureRankingLoss, {}), (CachedTemperatureRankingLoss, {"mini_batch_size": 5})):
        for learn in ("false", "true"):
            loss = kind(model, f"by-group:temperatures=0.05/0.1/0.2,dimensions=16/8/4,learn={learn}", **options)
            loss.take_charge()
            value = library.MatryoshkaLoss(model, loss, dimensions, weights)(features(model), None)
            assert value.item() == pytest.approx(expected, rel=1e-6)
            model.zero_grad()
            value.backward()
            for gradient in gradients(loss.contrastive_loss).values():
                assert gradient.shape == (3,)
                assert gradient.all()
            assert len(gradients(loss.contrastive_loss)) == (learn == "true")
