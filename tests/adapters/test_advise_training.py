"""What ``tempplug advise`` trains, for how long, and how it measures it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tempplug_adapters.advise import pairs as pairs_module, training
from tempplug_adapters.advise.pairs import Heads, Pairs, StaticModel, Trainee, narrowed, read_pairs
from tempplug_adapters.advise.training import RATES, compared, train
from tempplug_adapters.huggingface import loading


def hidden_pairs(size: int = 200, width: int = 8) -> list[Tensor]:
    """Pairs that agree in half of their dimensions; the other half is louder and says nothing."""
    generator = torch.Generator().manual_seed(0)

    def noise() -> Tensor:
        return torch.randn(size, width, generator=generator)

    common = noise()
    return [torch.cat([common + 0.2 * noise(), 3 * noise()], dim=1) for _ in range(2)]


def of(views: Sequence[Tensor]) -> Pairs:
    return Pairs(Heads(views, shared=True), len(views[0]), len(views[0]), "pairs", "a head")


@pytest.fixture(autouse=True)
def short_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains for at most four epochs, with two folds."""
    for name, value in (("LONGEST", 4), ("LEAST_STEPS", 4), ("MOST_FOLDS", 2)):
        monkeypatch.setattr(training, name, value)


def test_training_learns_from_pairs_that_are_not_held_out_and_repeats_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "LONGEST", 8)
    monkeypatch.setattr(training, "RATES", (3.0,))
    pairs = of(hidden_pairs())
    specs = ["fixed:temperature=0.1", "learnable"]
    first, again = (train(pairs, specs, 16, 3) for _ in range(2))
    for course, other in zip(first, again, strict=True):
        assert {1, 2, 3, 4} <= set(course.credits)
        assert all(torch.equal(course.credits[length], other.credits[length]) for length in course.credits)
        assert course.credits[1].shape == (2, 40), "two folds of a fifth each"
        assert course.accuracy(max(course.credits)) > course.accuracy(1) + 10
    assert first[0].temperatures == pytest.approx(dict.fromkeys(first[0].temperatures, 0.1))
    assert first[1].temperatures[4] != pytest.approx(first[1].temperatures[1])
    assert torch.equal(pairs.trainee.heads[0].weight, torch.eye(16)), "each training begins with an untrained copy"


def test_each_temperature_has_the_rate_that_suits_it() -> None:
    (course,) = train(of(hidden_pairs()), ["fixed:temperature=0.1"], 16, 3)
    for length, by_rate in course.by_rate.items():
        assert tuple(by_rate) == RATES == (1 / 3, 1.0, 3.0)
        assert course.accuracy(length) == pytest.approx(max(by_rate.values()), abs=1e-4)
        assert len(set(by_rate.values())) > 1


@pytest.mark.parametrize(
    "trainee", [Heads([torch.randn(5, 3)] * 2, shared=True), StaticModel([[[1, 2]] * 5] * 2, torch.randn(9, 3))]
)
def test_a_rate_multiplies_the_step_of_the_optimizer(trainee: Trainee) -> None:
    usual, three = (trainee.optimizer(rate).param_groups[0]["lr"] for rate in (1.0, 3.0))
    assert three == pytest.approx(3 * usual)


@pytest.mark.parametrize(
    ("planned", "seconds", "lengths", "folds"),
    [
        (4, 0.5, [1], 2),  # at least the first epoch, twice
        (4, 5.0, [1, 2], 2),  # two folds of two epochs take four seconds
        (4, 9.0, [1, 2, 4], 2),
        (4, 13.0, [1, 2, 4], 3),
        (4, 39.0, [1, 2, 4], 5),  # eight epochs would take forty
        (4, 41.0, [1, 2, 4, 8], 5),
        (2, float("inf"), [1, 2, 4, 8], 5),
    ],
)
def test_the_time_decides_how_long_and_how_often_is_trained(
    planned: int, seconds: float, lengths: list[int], folds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "MOST_FOLDS", 5)
    assert training._plan([1, 2, 4, 8], planned, seconds, 1.0) == (lengths, folds)


def test_a_training_ends_in_time_and_says_how_long_it_will_take() -> None:
    said: list[str] = []
    (course,) = train(of(hidden_pairs()), ["fixed:temperature=0.1"], 16, 32, 0.001, said.append)
    assert list(course.credits) == [1]
    assert course.credits[1].shape == (2, 40)
    assert [line.partition(";")[0] for line in said] == [f"{done} of 6 trainings done" for done in range(1, 7)]
    assert said[-1].endswith("; about 0 s left")


@pytest.mark.parametrize(
    ("batch", "planned", "lengths"), [(8, 5, [1, 2, 4, 5, 8, 16, 32]), (64, 1000, [1, 2, 4, 8, 16, 32, 64, 128])]
)
def test_lengths_double_and_contain_the_planned(
    batch: int, planned: int, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "LONGEST", 32)
    monkeypatch.setattr(training, "LEAST_STEPS", 256)
    monkeypatch.setattr(training, "RATES", (1.0,))
    views = [view[:160, :2] for view in hidden_pairs()]
    (course,) = train(of(views), ["fixed:temperature=0.1"], batch, planned)
    assert list(course.credits) == list(course.temperatures) == lengths


def test_a_hard_negative_is_trained_on_and_is_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "LONGEST", 1)
    anchors, positives = hidden_pairs()
    untrained = of([anchors, anchors, anchors])
    (course,) = train(untrained, ["fixed:temperature=0.1"], 16, 1)
    assert course.accuracy(1) == pytest.approx(50), "a negative equal to the positive shares the first place with it"
    without, beside = (train(of([anchors, positives, *more]), ["learnable"], 16, 1)[0] for more in ([], [-anchors]))
    assert without.temperatures[1] != beside.temperatures[1], "the loss has it, too"


def test_the_candidates_are_the_positives_of_all_pairs() -> None:
    views = [torch.eye(6)[[0, 1, 2, 3]], torch.eye(6)[[0, 1, 2, 3]] + 0.5 * torch.eye(6)[5]]
    views[1][3] = views[0][0]  # the positive of a trained pair is nearer to the first anchor than its own
    run = training._Run("fixed:temperature=0.1", 1.0, of(views).trainee, torch.tensor([2, 3]), 2, 0)
    assert run.credits(torch.tensor([0, 1])).tolist() == [0, 1]


def test_what_is_compared_is_sorted_and_there_once() -> None:
    found = compared(["macl", "fixed:temperature=0.07", "fixed", "macl"])
    temperatures = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.5)
    assert found == [*(f"fixed:temperature={each}" for each in temperatures), "macl"]
    assert len(compared([])) == len(compared([], 0.05)) == 7
    assert compared(["macl"], 0.04)[3:5] == ["fixed:temperature=0.04", "fixed:temperature=0.05"]


def test_heads_begin_with_the_embeddings_and_differ_where_the_encoders_do() -> None:
    views = [torch.randn(20, 6), torch.randn(20, 4)]
    rows = torch.tensor([3, 1])
    first, second = Heads(views, shared=False)(rows)
    assert first.shape == second.shape == (2, 4)
    assert torch.allclose(first, views[0][rows, :4] / views[0].norm(dim=1).mean())
    assert len(Heads([views[0]] * 3, shared=True).heads) == 1


def test_a_static_model_is_the_mean_of_its_tokens_and_keeps_those_alone() -> None:
    weight = torch.randn(50, 3)
    model = StaticModel([[[7, 9], [7], []], [[9], [40, 40, 7], [7, 9, 40]]], weight)
    anchors, positives = model(torch.tensor([2, 0]))
    assert model.bag.weight.shape == (3, 3)
    assert torch.allclose(anchors, torch.stack([torch.zeros(3), weight[[7, 9]].mean(0)]))
    assert torch.allclose(positives, torch.stack([weight[[7, 9, 40]].mean(0), weight[9]]))


@pytest.mark.parametrize(
    "trainee", [Heads([torch.randn(5, 3)] * 2, shared=True), StaticModel([[[1, 2]] * 5] * 2, torch.randn(9, 3))]
)
def test_a_copy_trains_alone_and_shares_the_inputs(trainee: Trainee) -> None:
    copy = trainee.copy()
    before = [each.clone() for each in trainee.parameters()]
    copy(torch.arange(5))[0].sum().backward()
    copy.optimizer().step()
    assert all(torch.equal(old, new) for old, new in zip(before, trainee.parameters(), strict=True))
    assert not any(torch.equal(old, new) for old, new in zip(before, copy.parameters(), strict=True))
    assert all(mine is theirs for mine, theirs in zip(trainee.inputs(), copy.inputs(), strict=True))


def test_wide_embeddings_keep_their_similarities_in_fewer_dimensions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs_module, "WIDEST", 6)
    low = [torch.randn(60, 5) @ torch.randn(5, 40) for _ in range(2)]
    first, second = narrowed(low)
    assert first.shape == (60, 6)
    alone = narrowed([low[0], low[1][:, :30]])
    assert torch.allclose(alone[1] @ alone[1].T, low[1][:, :30] @ low[1][:, :30].T, atol=1e-2, rtol=1e-2)
    shared = torch.randn(5, 40)
    first, second = narrowed([torch.randn(60, 5) @ shared, other := torch.randn(60, 5) @ shared])
    assert torch.allclose(second @ second.T, other @ other.T, atol=1e-2, rtol=1e-2)
    assert narrowed([low[0][:, :6]])[0] is not None
    assert torch.equal(narrowed([low[0][:, :6]])[0], low[0][:, :6])


class Static(nn.Module):
    """A static model as sentence-transformers has it: ten words, numbered."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(60, 4, mode="mean")
        self.tokenizer = SimpleNamespace(
            encode_batch=lambda texts, add_special_tokens: [
                SimpleNamespace(ids=[int(each) for each in t.split()]) for t in texts
            ]
        )


class Encoder(nn.Sequential):
    """A model of sentence-transformers around modules; encodes a text as its length."""

    max_seq_length = 512

    def encode(self, texts: list[str], **options: Any) -> Tensor:
        return torch.tensor([[float(len(text)), 1.0] for text in texts])


@pytest.mark.parametrize(
    ("modules", "most", "method"),
    [
        ((Static(),), 10_000, "all of the static model m"),
        ((Static(),), 100, "a linear head on the embeddings of m, which stay fixed"),
        ((Static(), nn.Linear(4, 4)), 10_000, "a linear head on the embeddings of m, which stay fixed"),
        ((nn.Linear(4, 4),), 10_000, "a linear head on the embeddings of m, which stay fixed"),
    ],
)
def test_a_static_model_is_trained_as_a_whole_unless_it_is_large_or_has_more_modules(
    modules: tuple[nn.Module, ...], most: int, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs_module, "LARGEST", most)
    monkeypatch.setattr(loading, "load_sentence_transformer", lambda name: Encoder(*modules))
    table = tmp_path / "x.csv"
    table.write_text("query,answer\n" + "".join(f"{word} {word},{word} {59 - word}\n" for word in range(60)), encoding="utf-8")
    found = read_pairs([table], "somewhere/m", [], 55)
    assert (found.method, found.total, isinstance(found.trainee, StaticModel)) == (method, 60, method.startswith("all"))
    assert found.size == 55
    anchors, _ = found.trainee(torch.arange(55))
    assert len(anchors) == 55


def test_encoding_ends_in_time_with_fewer_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "load_sentence_transformer", lambda name: Encoder(nn.Identity()))
    monkeypatch.setattr(pairs_module, "CHUNK", 50)
    monkeypatch.setattr(pairs_module, "LEAST_ENCODED", 60)
    table = tmp_path / "x.csv"
    table.write_text("question,answer\n" + "".join(f"q{number},a{number}\n" for number in range(180)), encoding="utf-8")
    said: list[str] = []
    pairs = read_pairs([table], "m", [], 2000, until=0.0, progress=said.append)
    assert (pairs.size, pairs.total, len(pairs.trainee(torch.arange(100))[0])) == (100, 180, 100)
    assert "100 of 180 pairs were encoded in two thirds of the time; a longer --time uses more" in pairs.read
    assert said == ["encoded 50 of 180 pairs", "encoded 100 of 180 pairs"]
    assert pairs.origin == "100 of 180 pairs of x.csv"
    assert read_pairs([table], "m", [], 2000).size == 180


def test_texts_that_repeat_are_used_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "load_sentence_transformer", lambda name: Encoder(nn.Identity()))
    lines = [*(f"q{number},a{number}" for number in range(60)), "q1,new", "new,a2", "a3,q3"]
    (tmp_path / "x.csv").write_text("\n".join(["question,answer", *lines]) + "\n", encoding="utf-8")
    found = read_pairs([tmp_path / "x.csv"], "m", [], 2000)
    assert (found.size, found.total) == (60, 63)
    assert found.origin == "60 of 63 pairs of x.csv (3 with a repeated text left out)"


def test_training_takes_one_thread_and_gives_the_others_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "LONGEST", 2)
    monkeypatch.setattr(training, "LEAST_STEPS", 2)
    before, seen = torch.get_num_threads(), set()
    torch.set_num_threads(2)
    try:
        train(of(hidden_pairs(60, 2)), ["fixed:temperature=0.1"], 16, 1, 9, lambda said: seen.add(torch.get_num_threads()))
        assert (seen, torch.get_num_threads()) == ({1}, 2)
    finally:
        torch.set_num_threads(before)
