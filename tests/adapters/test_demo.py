"""``tempplug demo``: its numbers are those of autograd on the plain formula, its picture and its errors say what they mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from torch import Tensor

import tempplug
from tempplug.cli import main
from tempplug.errors import ConfigError
from tempplug_adapters.demo.command import sentence
from tempplug_adapters.demo.effects import HARDEST, Effect, Pairs, default_specs, effects, generate_pairs

PAIRS = Pairs.of(*generate_pairs(120, seed=3))


def plain(similarity: Tensor, logit: Callable[[Tensor], Tensor]) -> tuple[float, float, float]:
    """Returns effective negatives, share of the hardest and gradient scale, by autograd in float64."""
    wide = similarity.double().requires_grad_()
    logits = logit(wide)
    loss = torch.nn.functional.cross_entropy(logits, torch.arange(len(wide)), reduction="sum")
    (gradient,) = torch.autograd.grad(loss, wide)
    scale = 1 - float(torch.softmax(logits, 1).diagonal().detach().mean())
    effective, hardest = [], []
    for row in range(len(wide)):
        others = [column for column in range(len(wide)) if column != row]
        pushes = gradient[row, others].numpy() / float(gradient[row, others].sum())
        effective.append(math.exp(-sum(p * math.log(p) for p in pushes if p > 0)))
        order = np.argsort(-similarity[row, others].numpy())
        hardest.append(pushes[order[: math.ceil(HARDEST * len(others))]].sum())
    return float(np.mean(effective)), float(np.mean(hardest)), scale


@pytest.mark.parametrize(
    ("spec", "logit"),
    [
        ("fixed:temperature=0.05", lambda s: s / 0.05),
        ("fixed:temperature=1", lambda s: s),
        ("macl:base_temperature=0.2,alpha=1,threshold=0.5", lambda s: s / (0.2 * (1 + s.diagonal().detach().mean() - 0.5))),
        ("temperature-free", lambda s: torch.log((1 + s) / (1 - s))),
    ],
)
def test_the_numbers_are_those_of_autograd(spec: str, logit: Callable[[Tensor], Tensor]) -> None:
    (effect,) = effects(spec, PAIRS)
    found = (effect.effective, effect.hardest, effect.scale)
    assert found == pytest.approx(plain(PAIRS.similarity, logit), rel=1e-4, abs=1e-6)
    assert effect.begins is None


@pytest.mark.parametrize("spec", ["learnable", "individual", "amcl"])
def test_what_is_learned_is_learned_on_the_pairs_and_moves_nothing_else(spec: str) -> None:
    before = PAIRS.view_a.clone()
    (effect,) = effects(spec, PAIRS)
    assert effect.begins is not None
    assert abs(math.log(effect.mean / effect.begins)) > 0.2
    assert torch.equal(PAIRS.view_a, before)


def test_a_learned_temperature_ends_where_the_loss_is_lowest() -> None:
    """Positives are often not the nearest here, so that the lowest loss lies between the bounds."""
    generator = torch.Generator().manual_seed(0)
    view_a = torch.randn(60, 6, generator=generator)
    pairs = Pairs.of(view_a, view_a + 0.6 * torch.randn(60, 6, generator=generator))
    (effect,) = effects("learnable", pairs)

    def loss(temperature: float) -> float:
        return float(torch.nn.functional.cross_entropy(pairs.similarity / temperature, torch.arange(60)))

    best = min((0.001 * each for each in range(20, 1000)), key=loss)
    assert 0.05 < best < 0.5
    assert effect.mean == pytest.approx(best, rel=0.05)


def test_every_registered_strategy_is_shown_or_says_what_it_lacks() -> None:
    labels = torch.arange(120) % 3
    labelled = Pairs(PAIRS.view_a, PAIRS.view_b, PAIRS.similarity, labels)
    specs = default_specs()
    assert {info.name for info in tempplug.strategies()} <= set(specs)
    for spec in specs:
        if spec == "uncertainty":
            with pytest.raises(ConfigError, match="'uncertainty' needs uncertainty, which embeddings do not contain"):
                effects(spec, labelled)
        else:
            assert all(each.low <= each.mean * 1.0001 and each.mean <= each.high * 1.0001 for each in effects(spec, labelled))
    (head_tail,) = effects("head-tail:temperature_head=0.8,temperature_tail=0.2", labelled)
    assert (head_tail.low, head_tail.high) == pytest.approx((0.2, 0.8))
    warmest, coldest = effects("schedule:temperature_min=0.05,temperature_max=0.7", PAIRS)
    assert (warmest.label[-7:], coldest.label[-7:]) == ("warmest", "coldest")
    assert (warmest.mean, coldest.mean) == pytest.approx((0.7, 0.05))


def test_terms_on_negatives_are_in_the_numbers_and_the_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = torch.arange(120) % 3
    pairs = Pairs(PAIRS.view_a, PAIRS.view_b, PAIRS.similarity, labels).with_negatives("same-key+hardness:strength=2,blocks=ab")
    same = (labels[:, None] == labels).fill_diagonal_(False)
    off = ~torch.eye(120, dtype=torch.bool)

    def logit(s: Tensor) -> Tensor:
        return (s / 0.1 + 2 * s.detach() * off).masked_fill(same, -1e4)

    (effect,) = effects("fixed:temperature=0.1", pairs)
    expected = plain(PAIRS.similarity, logit)
    assert (effect.effective, effect.scale) == pytest.approx((expected[0], expected[2]), rel=1e-4)
    (learned,), (without,) = (effects("learnable", each) for each in (pairs, PAIRS))
    assert learned.mean != pytest.approx(without.mean, rel=0.01)
    weight = float((2 * PAIRS.similarity).exp()[off & ~same].mean())
    assert sentence("120 pairs", pairs, [effect]).endswith(
        f" By same-key and hardness, {39 / 119:.1%} of the negatives are left out, "
        f"and the others have a mean weight of {weight:.3g}."
    )
    words = ["demo", "--rows", "40", "--strategies", "fixed", "--out", str(tmp_path / "a.svg"), "--contrastive-negatives"]
    assert main([*words, "false-negatives:margin=0.1"]) == 0
    assert "By false-negatives, 0.0% of the negatives are left out, " in capsys.readouterr().out
    for spec, message in (
        ("debiased", "negative term 'debiased' changes sums of rows"),
        ("same-key", "reads keys=, which a batch of embeddings without --labels does not have"),
        ("same-kye", "unknown negative term 'same-kye'"),
    ):
        assert main([*words, spec]) == 2
        assert message in capsys.readouterr().err


def test_the_sentence_says_whether_it_matters() -> None:
    a, b, c = (Effect(label, 0.1, 0.1, 0.1, effective, 0.5, 0.5) for label, effective in (("a", 3), ("b", 90), ("c", 60)))
    start = f"On 120 pairs as one batch (positives at similarity {float(PAIRS.positives.mean()):.2f}, "
    for found, end in (
        (
            (a, b),
            ", it matters which temperature you use: a (0.1) takes the gradient from 3 of 119 negatives, b (0.1) from 90.",
        ),
        (
            (c, b),
            ", it hardly matters which temperature you use: c (0.1) takes the gradient from 60 of 119 negatives, "
            "b (0.1) from 90.",
        ),
        ((c,), "c has the temperature 0.1 and takes the gradient from 60 of 119 negatives."),
    ):
        told = sentence("120 pairs", PAIRS, found)
        assert told.startswith(start)
        assert told.endswith(end)


def save(folder: Path, name: str, array: object) -> str:
    np.save(folder / name, np.asarray(array))
    return str(folder / name)


def test_two_files_or_generated_pairs_become_a_sentence_bars_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    view_a, view_b = (each.numpy() for each in generate_pairs(90))
    files = [save(tmp_path, "a.npy", view_a), save(tmp_path, "b.npy", view_b)]
    out = tmp_path / "new" / "picture.svg"
    specs = ["fixed:temperature=0.05", "macl"]
    assert main(["demo", *files, "--rows", "60", "--strategies", *specs, "--out", str(out)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("On 60 of 90 pairs as one batch")
    assert [line.split()[0] for line in printed[3:5]] == specs
    texts = ["".join(each.itertext()) for each in ElementTree.fromstring(out.read_text(encoding="utf-8")).iter()]
    assert set(specs) <= set(texts)
    assert printed[-1] == f"wrote {out}; `tempplug demo -h` explains the columns"
    assert main(["demo", "--rows", "40", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("On 40 generated pairs as one batch")
    assert "not shown: strategy 'head-tail' needs labels" in printed


GOOD = np.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize(
    ("a", "b", "words", "message"),
    [
        (GOOD, GOOD[:3], "A B", "view_b=B of shape [3, 3] must have the shape of view_a=A, [4, 3]."),
        (GOOD[0], GOOD, "A B", "view_a=A of shape [3, 1] must be [N, D], a row an embedding, N and D at least 2."),
        (GOOD, GOOD[:1], "A B", "view_b=B of shape [1, 3] must be [N, D]"),
        (GOOD, np.zeros((4, 3, 2)), "A B", "view_b: B must hold a matrix of numbers."),
        (np.where(GOOD == 4, np.nan, GOOD), GOOD, "A B", "view_a=A holds NaN or infinite values in 1 rows, row 1 first."),
        (GOOD, GOOD, "A B --rows 1", "rows=1 must be at least 2"),
        (GOOD, GOOD, "A B --out demo.png", "out=demo.png of a demo must end in .svg."),
        (GOOD, GOOD, "A B --labels A", "labels=A of shape [4, 3] must be [4], the class of each pair."),
        (GOOD, GOOD[:, 0] / 2, "A A --labels B", "labels=B must hold whole numbers of at least 0, the class of each pair."),
        (GOOD, GOOD, "A B --strategies uncertainty", "strategy 'uncertainty' needs uncertainty"),
        (GOOD, GOOD, "A B --strategies macle", "unknown strategy 'macle'. Did you mean 'macl'?"),
        (GOOD, GOOD, "A", "VIEW_A=A must come with VIEW_B alone"),
        (GOOD, GOOD, "--labels A", "labels=A goes with VIEW_A and VIEW_B"),
    ],
)
def test_wrong_input_is_named(
    a: object, b: object, words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"A": save(tmp_path, "a.npy", a), "B": save(tmp_path, "b.npy", b)}
    out = [] if "--out" in words else ["--out", str(tmp_path / "demo.svg")]
    assert main(["demo", *(files.get(word, word) for word in words.split()), *out]) == 2
    said = capsys.readouterr().err.replace(files["A"], "A").replace(files["B"], "B")
    assert said.startswith(f"error: {message}"), said
    assert not (tmp_path / "demo.svg").exists()
