"""The tables of the study `centring` on results with known answers; the product centres as the study that measured it."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from studies.cells import Cell, Measured
from studies.centring.tables import gain_rows, loss_rows, over_temperature, unknown_rows
from studies.text_settings import HELD_OUT
from studies.texts import LONGEST, load_static
from tempplug_adapters.data_files.text_rows import open_texts
from tempplug_adapters.sentence_transformers import subtract_mean
from tempplug_adapters.sentence_transformers.library import modules
from tempplug_adapters.simcse.retrieval_method import hold_out


def cell(data: str, passes: int, start: str, *test: float, chosen: int = 0) -> Measured:
    """Returns a cell with these figures at 0.01, 0.1 and 0.2, or 0.1 and 0.2; held-out pairs choose one by its place."""
    arms = [f"fixed:temperature={each}" for each in (0.01, 0.1, 0.2)[-len(test) :]]
    held_out = {arm: float(place == chosen) for place, arm in enumerate(arms)}
    return Measured(data, Cell(passes=passes, start=start), 10, held_out, dict(zip(arms, test, strict=True)))


def test_what_ships_is_what_was_measured(data_dir: Path) -> None:
    data, generator = load_static("quora", "quora", data_dir, 300), torch.Generator()
    rows = open_texts(data_dir / "text" / "retrieval" / "quora.train.tsv.gz")
    samples = rows.taken(np.array(random.Random(0).sample(range(len(rows)), 300)))
    pairs = [samples[position].texts[:2] for position in hold_out(samples, HELD_OUT).trained]
    queries, documents = ([*texts] for texts in zip(*pairs, strict=True))
    static = modules.StaticEmbedding.load(str(data_dir / "text" / "glove-6b-50d-100k")).float()
    static.tokenizer.enable_truncation(LONGEST)
    subtract_mean(SentenceTransformer(modules=[static], device="cpu"), [*queries, *documents])
    for texts, numbers in ((queries, data.queries), (documents, data.documents)):
        shipped = static(static.preprocess(texts))["sentence_embedding"].detach()
        assert torch.equal(shipped, numbers.vectors(data.model("centred", generator).weight).detach())
    unknown = static.tokenizer.token_to_id("[UNK]")
    assert unknown in static.preprocess(documents)["input_ids"]
    assert not static.embedding.weight[unknown].any()
    # The other kind of centring, of all embeddings, gives unknown words a vector.
    shifted = data.model("shifted", generator).weight.detach()
    torch.testing.assert_close(
        shifted[1], -torch.cat([each.vectors(data.start) for each in (data.queries, data.documents)]).mean(0)
    )
    assert shifted[1].norm() > 3


def test_centring_gains_over_the_tuned_temperature_without_it() -> None:
    first = [
        *(cell(data, 1, "vectors", 50.0, 40.0, 30.0, chosen=0) for data in ("a", "b", "quora")),
        cell("a", 1, "centred", 45.0, 60.0, 55.0, chosen=1),
        cell("b", 1, "centred", 40.0, 50.0, 52.0, chosen=1),
        cell("quora", 1, "centred", 1.0, 1.0, 1.0, chosen=0),  # chose the question
    ]
    second = [
        *(cell(data, 8, "vectors", 50.0, 40.0, 30.0, chosen=0) for data in ("a", "quora")),
        cell("a", 8, "centred", 50.0, 60.0, 55.0, chosen=2),
        cell("quora", 8, "centred", 45.0, 50.0, 65.0, chosen=2),
    ]
    header, short, long, *plans = gain_rows(first, second)
    assert len(header) == len(short) == len(plans[0])
    assert short == ["1 (first plan)", "0.01, 0.01", "0.1, 0.1", "+10.0, +0.0", "+7.0, +4.0"]
    assert long == ["8 (second plan)", "0.01, 0.01", "0.2, 0.2", "+20.0, +10.0", "+20.0, +10.0"]
    # With two data sets the interval is 12.7 standard errors wide: 10 ± 127 and 20 ± 127.
    assert [plan[3].split("]")[0] for plan in plans] == ["+10.0 [-117.1, +137.1", "+20.0 [-107.1, +147.1"]
    *_, cold, middle, warm = loss_rows(first, second)
    assert cold == ["`fixed:temperature=0.01`", "-22.5, -25.0", "-19.9, -30.8"]
    assert middle == ["`fixed:temperature=0.1`", "+0.0, +0.0", "-7.0, -23.1"]
    assert warm == ["`fixed:temperature=0.2`", "-2.2, -8.3", "+0.0, +0.0"]
    temperatures, means = over_temperature(second)["centred, 8 passes"]
    assert temperatures == pytest.approx([0.01, 0.1, 0.2])
    assert means == pytest.approx([-5.0, 10.0, 20.0])
    assert over_temperature(second)["as they are, 8 passes"][1] == pytest.approx([0.0, -20.0, -40.0])


def test_unknown_words_that_stay_0_gain_over_those_that_lose_the_mean() -> None:
    figures = {  # at 0.1, which held-out pairs choose, and 0.2 without centring; at 0.2 from both kinds of it
        ("a", 1): (50.0, 10.0, 40.0, 60.0),
        ("a", 4): (40.0, 90.0, 44.0, 44.0),
        ("b", 1): (20.0, 10.0, 19.0, 20.0),
        ("b", 4): (20.0, 10.0, 25.0, 27.5),
    }
    cells = []
    for (data, passes), (tuned, other, shifted, kept) in figures.items():
        cells.append(cell(data, passes, "vectors", tuned, other))
        for start, figure in (("shifted", shifted), ("centred", kept)):
            cells.append(cell(data, passes, start, 1.0, figure))
    header, *rows, mean = unknown_rows(cells)
    assert len(header) == 4
    assert rows == [["a", "-5.0, -20.0", "+15.0, +10.0", "+25.0, +0.0"], ["b", "+10.0, -5.0", "+18.8, +0.0", "+7.6, +5.3"]]
    # Two sets: the interval is 12.7 standard errors wide.
    assert mean[:2] == ["**mean, 95 %**", "+2.5 [-92.8, +97.8]"]
