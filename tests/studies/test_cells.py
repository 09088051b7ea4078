"""The module `studies.train_cells` on real pairs; law, losses, regret and gains on results with known answers."""

from __future__ import annotations

import json
import math
import random
import tomllib
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import mine_hard_negatives

from studies import train_cells
from studies.all_factors.tables import factor_rows, follow_rows
from studies.cells import Cell, Measured, read_lines, read_measured
from studies.equal_budgets.tables import advised, cell_rows, regret_rows
from studies.gains import batch_rows, start_rows
from studies.negatives.tables import negative_cell_rows, negative_rows
from studies.temperature_law.tables import TERMS, fit
from studies.text_settings import HELD_OUT
from studies.texts import HARD, LONGEST, Texts, load_static
from studies.train_cells import CellsPlan, create_loss, main, train, verify
from tempplug.errors import DataError, UnknownNameError
from tempplug_adapters.data_files.text_rows import open_texts
from tempplug_adapters.sentence_transformers.library import dimension_of, modules
from tempplug_adapters.simcse.retrieval_method import hold_out
from tempplug_benchmarks.run.fixed_plan import read_plan

STUDIES = Path(__file__).parents[2] / "benchmarks" / "studies"
TEXTS = Texts(torch.tensor([3, 4, 5, 6, 7, 8]), torch.tensor([2, 1, 3]))


def test_texts_are_chosen_and_averaged_like_lists_of_words() -> None:
    weight = torch.randn(9, 4, dtype=torch.float64)
    words = [[3, 4], [5], [6, 7, 8]]
    rows = [2, 0, 2]
    expected = torch.stack([weight[words[row]].mean(0) for row in rows])
    torch.testing.assert_close(TEXTS.of(torch.tensor(rows)).vectors(weight), expected)


def test_a_copy_keeps_half_of_its_words_and_at_least_the_first() -> None:
    many = Texts(torch.arange(4000), torch.full((20,), 200))
    found = many.halved(torch.arange(20) % 2 == 0, torch.Generator().manual_seed(0))
    assert found.lengths[1::2].tolist() == [200] * 10
    assert 800 < found.lengths[::2].sum() < 1200
    assert TEXTS.halved(torch.ones(3, dtype=torch.bool), torch.Generator().manual_seed(0)).lengths.min() >= 1
    assert found.words[:1] == 0
    assert int(found.lengths.sum()) == len(found.words)


def test_a_plan_runs_once_and_goes_on_where_it_was_killed(data_dir: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'date = 2026-11-26\nquestion = "?"\npairs = 300\ntemperatures = [0.02, 0.2]\ncandidates = []\nseeds = [0]\n'
        'strategies = ["learnable"]\ncells = [{ passes = 1 }, { passes = 1, batch = 32 }]\n[sets]\nquora = "quora"\n'
    )
    output = tmp_path / "out"
    command = [str(plan), "--data-dir", str(data_dir), "--output", str(output)]
    main(command)
    file = output / "quora.jsonl"
    lines = read_lines(file)
    assert [(each["batch"], each["strategy"]) for each in lines] == [
        *((128, spec) for spec in ("fixed:temperature=0.02", "fixed:temperature=0.2", "learnable")),
        *((32, spec) for spec in ("fixed:temperature=0.02", "fixed:temperature=0.2")),
    ]
    # The last line is torn, as by a kill; that run alone is repeated, with the same figures.
    text = file.read_text()
    file.write_text(text[: len(text) - 40])
    main(command)
    again = read_lines(file)
    figures = [
        [{name: line[name] for name in ("held_out", "test", "seed", "steps")} for line in each] for each in (lines, again)
    ]
    assert figures[0] == figures[1]


def test_cells_differ_in_what_they_say(data_dir: Path) -> None:
    data = load_static("quora", "quora", data_dir, 300)
    own = train(data, Cell(passes=1, batch=64), "fixed:temperature=0.05", 0)
    assert own == train(data, Cell(passes=1, batch=64), "fixed:temperature=0.05", 0)
    for other in (
        Cell(passes=1, batch=64, noise=0.2),
        Cell(passes=1, batch=64, hard=True),
        Cell(passes=1, batch=64, start="random"),
        Cell(passes=1, batch=64, start="centred"),
        Cell(passes=1, batch=64, start="shifted"),
    ):
        assert train(data, other, "fixed:temperature=0.05", 0)["test"] != own["test"], other
    # A hard negative is another document than the query's own.
    queries, documents = data.queries, data.documents
    units = torch.nn.functional.normalize(documents.vectors(data.start), dim=1)
    asked = torch.nn.functional.normalize(queries.vectors(data.start), dim=1)
    scores = asked @ units.T
    assert (data.hard != torch.arange(len(data.hard))).all()
    assert (scores.gather(1, data.hard[:, None]) > scores.median(dim=1, keepdim=True).values).float().mean() > 0.9


def test_arms_of_a_plan_can_depend_on_the_number_of_passes(data_dir: Path) -> None:
    data = load_static("quora", "quora", data_dir, 300)
    falling = "schedule:temperature_min=0.02,temperature_max=0.2,period={twice}"
    for passes in (1, 2):
        found, fixed = (
            train(data, Cell(passes=passes, batch=32), falling.format(twice=each, passes=0), 0)
            for each in (2 * passes, "{twice}")
        )
        assert found == fixed
        assert found["temperature_mean"] == pytest.approx(0.02, abs=0.02), "at the end of the training it is cold"
    plan = read_plan(STUDIES / "all_factors" / "plans" / "crossing_bert.toml", CellsPlan)
    plain = {cell.passes for cell, spec, _ in plan.runs("quora") if "{twice}" in spec}
    assert plain == {1, 4, 16}
    with pytest.raises(DataError, match="model='bort' of a plan must be one of static, bert, images, nodes"):
        replace(plan, model="bort")
    with pytest.raises(DataError, match="guide='text/x' of a plan must be empty for model='nodes': texts alone have one"):
        replace(plan, model="nodes", guide="text/x")


def measured(cell: Cell, steps: float, best: float, height: float = 50.0) -> Measured:
    """Returns figures on a parabola in ln τ around the best temperature."""
    figures = {
        f"fixed:temperature={each:g}": height - (math.log(each) - best) ** 2
        for each in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
    }
    return Measured("set", cell, steps, figures, figures)


def test_the_best_temperature_and_the_law_are_those_that_made_the_results() -> None:
    coefficients = [-5.0, 0.3, -0.1, 1.5, 0.8, -0.4]
    cells = []
    for passes in (1, 4, 16):
        for batch in (32, 128):
            for more in ({}, {"noise": 0.2}, {"hard": True}, {"start": "random"}):
                cell, steps = Cell(passes=passes, batch=batch, **more), passes * 4096 / batch
                terms = [1, math.log(steps), math.log(batch), cell.noise, cell.start == "random", cell.hard]
                cells.append(measured(cell, steps, sum(a * b for a, b in zip(coefficients, terms, strict=True))))
    law = fit(cells)
    assert len(TERMS) + 1 == len(law.coefficients)
    assert law.coefficients == pytest.approx(coefficients, abs=1e-6)
    assert max(law.factors(cells)) == pytest.approx(1, abs=1e-6)
    # A term that all cells share is no term: without it the law of some cells is the same.
    some = [each for each in cells if each.cell.start != "random"]
    assert fit(some).coefficients == pytest.approx([*coefficients[:4], 0, coefficients[5]], abs=1e-6)
    own = measured(Cell(passes=4), 128, math.log(0.03))
    assert math.exp(own.best()) == pytest.approx(0.03, rel=1e-9)
    assert math.exp(measured(Cell(passes=4), 128, math.log(0.001)).best()) == pytest.approx(0.005), "the end of the grid"


def test_losses_are_to_the_best_by_held_out_pairs_not_by_the_test() -> None:
    fixed = {f"fixed:temperature={each:g}": value for each, value in ((0.01, 40.0), (0.1, 50.0), (1.0, 45.0))}
    held_out = {"fixed:temperature=0.01": 9.0, "fixed:temperature=0.1": 8.0, "fixed:temperature=1": 7.0, "macl": 8.5}
    own = Measured("set", Cell(passes=1), 10, held_out, {**fixed, "macl": 44.0})
    assert own.loss(44.0) == pytest.approx(10.0)
    assert own.at(math.log(0.1**1.5)) == pytest.approx(45.0)
    assert own.chosen(["macl", "fixed:temperature=0.1"]) == "macl"


def test_best_temperatures_are_averaged_by_factor_and_set_beside_those_of_strategies() -> None:
    best = {1: 0.02, 4: 0.08}
    cells = [
        replace(measured(Cell(passes=passes, hard=hard), 10, math.log(each)), data="a")
        for passes, each in best.items()
        for hard in (True, False)
    ]
    rows = {row[0]: row[1:] for row in factor_rows(cells)}
    assert rows["cells with"] == ["a"]
    assert (rows["passes: 1"], rows["passes: 4"]) == (["0.02 (2)"], ["0.08 (2)"])
    assert rows["hard negatives"] == rows["no hard negatives"] == ["0.04 (2)"]
    for each in cells[::2]:
        each.temperature.update(
            dict.fromkeys(each.test, 0.0) | {"learnable": 0.05, "schedule:shape=step,period={passes}": 0.11}
        )
    assert follow_rows(cells) == [
        ["temperature", "a, passes: 1", "a, passes: 4"],
        ["the best fixed one", "0.02", "0.08"],
        ["`learnable`", "0.05", "0.05"],
        ["`schedule:shape=step`", "0.11", "0.11"],
    ]


def test_results_are_means_over_seeds(tmp_path: Path) -> None:
    file = tmp_path / "quora.jsonl"
    rows = [
        {**asdict(Cell(passes=4)), "strategy": "learnable", "seed": seed, "held_out": 10.0 + seed, "test": 20.0 + seed}
        | {"temperature_mean": 0.05, "steps": 26.0}
        for seed in (0, 1)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (found,) = read_measured([file])
    assert (found.data, found.cell, found.held_out, found.test) == (
        "quora",
        Cell(passes=4),
        {"learnable": 10.5},
        {"learnable": 20.5},
    )
    (of_one,) = read_measured([file], seed=1)
    assert (of_one.held_out, of_one.test) == ({"learnable": 11.0}, {"learnable": 21.0})


def test_a_cell_with_an_unknown_field_is_refused() -> None:
    plan = read_plan(STUDIES / "temperature_law" / "plans" / "temperature_law.toml", CellsPlan)
    with pytest.raises(DataError, match=r"a cell of the plan: .* those of Cell; epochs "):
        list(replace(plan, cells=[{"passes": 1, "epochs": 4}]).runs("quora"))
    with pytest.raises(DataError, match="start='centered' of a cell must be one of vectors, centred, shifted, random"):
        list(replace(plan, cells=[{"passes": 1, "start": "centered"}]).runs("quora"))


def test_an_encoder_guides_and_finds_the_hard_negatives_that_sentence_transformers_mines(data_dir: Path) -> None:
    guide = "text/bert-wiki-mini"
    own, guided = (load_static("quora", "quora", data_dir, 300, each) for each in ("", guide))
    assert own.guide is None
    rows = open_texts(data_dir / "text" / "retrieval" / "quora.train.tsv.gz")
    samples = rows.taken(np.array(random.Random(0).sample(range(len(rows)), 300)))
    pairs = [samples[position].texts[:2] for position in hold_out(samples, HELD_OUT).trained]
    questions, documents = zip(*pairs, strict=True)
    first = modules.Transformer(str(data_dir / guide), max_seq_length=LONGEST)
    pooling = modules.Pooling(dimension_of(first)["dimension"], pooling_mode="cls")
    mined = mine_hard_negatives(
        Dataset.from_dict({"query": questions, "document": documents}),
        SentenceTransformer(modules=[first, pooling], device="cpu"),
        range_min=HARD - 1,
        num_negatives=1,
        verbose=False,
    )
    expected = {(row["query"], row["document"]): row["negative"] for row in mined}
    assert {pair: documents[hard] for pair, hard in zip(pairs, guided.hard.tolist(), strict=True)} == expected
    assert (own.hard != guided.hard).any()
    arm, cell = "fixed:temperature=0.05+infonce+guide:margin=0.05", Cell(passes=1, batch=64)
    for hard in (False, True):
        assert train(own, replace(cell, hard=hard), arm, 0) != train(guided, replace(cell, hard=hard), arm, 0)


def test_committed_plans_of_cells_can_be_read() -> None:
    files = [
        each
        for each in sorted(STUDIES.glob("*/plans/*.toml"))
        if not {"suite", "curves"} & tomllib.loads(each.read_text(encoding="utf-8")).keys()
    ]
    assert files
    for file in files:
        plan = read_plan(file, CellsPlan)
        runs = (
            len(plan.seeds)
            * max(1, len(plan.rates))
            * (
                len(plan.cells) * (len(plan.temperatures) * (1 + len(plan.variants)) + len(plan.candidates))
                + len(plan.strategies) * sum({**each, "passes": 0} == {**plan.cells[0], "passes": 0} for each in plan.cells)
            )
        )
        for name in plan.sets:
            assert len(list(plan.runs(name))) * plan.fraction == runs
        assert plan.decisions


def judged(data: str, cell: Cell, figures: dict[str, tuple[float, float]], temperature: float = 0.1) -> Measured:
    """Returns a cell from held-out and test figures by arm; all adaptive arms have one mean temperature."""
    held_out, test = ({arm: pair[place] for arm, pair in figures.items()} for place in (0, 1))
    return Measured(data, cell, 10, held_out, test, dict.fromkeys(figures, temperature))


def test_the_advice_depends_on_start_and_length() -> None:
    expected = {("vectors", 4): 0.01, ("vectors", 16): 0.1, ("random", 4): 0.1, ("centred", 4): 0.2, ("centred", 16): 0.2}
    for (start, passes), temperature in expected.items():
        assert advised(judged("a", Cell(passes=passes, start=start), {})) == f"fixed:temperature={temperature:g}"


def test_regret_is_to_the_best_arm_by_held_out_pairs_and_a_search_is_by_them_too() -> None:
    cells = [
        judged(
            data,
            Cell(passes=passes),
            {
                "fixed:temperature=0.05": (7.0, 40.0),
                "fixed:temperature=0.01": (1.0, 24.0),
                "fixed:temperature=0.2": (8.0, 50.0),
                "macl:base_temperature=0.05": (6.0, 44.0 + shift),
                "macl:base_temperature=0.2": (9.0, 48.0 + shift),
                "macl:base_temperature=0.1": (5.0, 99.0),
            },
        )
        for data, shift in (("a", 0.0), ("b", 2.0))
        for passes in (1, 4)
    ]
    header, of_guide, fixed, macl = regret_rows(cells)
    assert len(header) == len(of_guide) == len(fixed) == len(macl)
    assert of_guide[:2] == ["`fixed` as the guide advises", "-51.0, -52.0"]
    # The best arm is macl at 0.2 (held-out 9), 48 or 50 on the test: fixed 0.05 is 16.7 and 20 % below it.
    assert fixed == ["`fixed`", "-18.3, -20.0", "-", "+2.1, +0.0", "-", "-"]
    assert macl[1] == "-8.2, -8.3"
    assert macl[2].startswith("+12.5 [-19.3, +44.3]")
    assert macl[3] == "+0.0, +0.0"
    # 48 and 50 against 50 of the searched fixed temperature; two data sets give an interval of t with one degree of freedom.
    assert macl[4] == "-2.0 [-27.4, +23.4], 0.5"
    # 0.1 is halfway between 0.05 and 0.2 along ln τ: 45.
    assert macl[5].startswith("+8.9 [")
    assert cell_rows(cells)[2] == ["`macl`", "-8.2, +0.0", "-8.2, +0.0"]


def test_the_gain_of_a_term_is_between_the_best_temperatures_of_both() -> None:
    cells = [
        judged(
            data,
            Cell(passes=4, noise=noise),
            {
                "fixed:temperature=0.05": (7.0, 40.0),
                "fixed:temperature=0.2": (8.0, 50.0),
                "fixed:temperature=0.05+infonce+same-key": (9.0, 51.0 + shift),
                "fixed:temperature=0.2+infonce+same-key": (8.0, 60.0),
                "fixed:temperature=0.05@directions=ab+aa+ba+bb": (9.0, 50.0),
                "fixed:temperature=0.2@directions=ab+aa+ba+bb": (8.0, 60.0),
            },
        )
        for data, shift in (("a", 0.0), ("b", 1.0))
        for noise in (0.0, 0.2)
    ]
    header, same_key, joint = negative_rows(cells)
    assert len(header) == len(same_key)
    assert same_key[:3] == ["`same-key`", "+3.0 [-9.7, +15.7], 0.41", "+2.0"]
    assert joint[0] == "`directions=ab+aa+ba+bb`"
    assert negative_cell_rows(cells)[1:3] == [["none: nDCG@10", "50.00", "50.00"], ["`same-key`", "+3.0", "+3.0"]]
    # Hard negatives raise every figure of data set b by a tenth, and none of a.
    plain = [each for each in cells if not each.cell.noise]
    raised = {"a": 1.0, "b": 1.1}
    hard = [
        replace(each, cell=Cell(passes=4, hard=True), test={arm: raised[each.data] * one for arm, one in each.test.items()})
        for each in plain
    ]
    header, same_key, _, mined = negative_rows([*plain, *hard])
    assert header[3] == "mined hard negatives: mean, 95 %, Holm p"
    assert same_key[1] == same_key[3]
    assert mined == ["no term, mined hard negatives", "+5.0 [-58.5, +68.5], 0.5", "+0.0", "-", "-"]
    assert start_rows(cells)[1][1:] == ["-22.3, -23.1"]  # 40 of 51 and 52


def test_losses_by_batch_and_the_temperatures_chosen_there() -> None:
    cells = [
        judged(
            data, Cell(passes=4, batch=batch), {"fixed:temperature=0.1": (held_out, 40.0), "fixed:temperature=0.2": (0.5, 50.0)}
        )
        for data, held_out in (("a", 0.4), ("b", 0.6))
        for batch in (32, 2048)
    ]
    assert batch_rows(cells) == [
        ["temperature, batches of", "32: mean, worst", "2,048: mean, worst"],
        ["`fixed:temperature=0.1`", "-10.0, -20.0", "-10.0, -20.0"],
        ["`fixed:temperature=0.2`", "+12.5, +0.0", "+12.5, +0.0"],
        ["chosen, by data set", "0.2, 0.1", "0.2, 0.1"],
    ]


def test_an_arm_has_its_objective_terms_and_layout() -> None:
    loss_fn = create_loss("fixed:temperature=0.05+dcl+false-negatives:margin=0.2+same-key", 9)
    assert (loss_fn.objective.name, [each.name for each in loss_fn.terms]) == ("dcl", ["false-negatives", "same-key"])
    assert create_loss("individual@directions=ab+bb", 9).takes >= {"index"}
    with pytest.raises(UnknownNameError, match="'sam-key'"):
        create_loss("fixed+infonce+sam-key", 9)


def test_terms_and_strategies_get_what_they_read(data_dir: Path) -> None:
    data = load_static("quora", "quora", data_dir, 600)
    cell = Cell(passes=1, batch=128, noise=0.2)
    plain = train(data, cell, "fixed:temperature=0.05", 0)
    for arm in ("fixed:temperature=0.05+infonce+guide:margin=0.1", "fixed:temperature=0.05+infonce+same-key"):
        assert train(data, cell, arm, 0)["negatives_left_out"] > 0, arm
    moving = train(data, replace(cell, passes=4), "individual:temperature_init=0.05,temperature_min=0.01", 0)
    assert moving["temperature_mean"] != pytest.approx(0.05, rel=1e-3)
    joint = train(data, cell, "fixed:temperature=0.05@directions=ab+aa+ba+bb", 0)
    assert joint["positive_probability"] < 0.9 * plain["positive_probability"], "more negatives"
    assert plain["temperature"] == pytest.approx(0.05)


def test_stored_runs_are_trained_again_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = CellsPlan(
        date="2026-11-29", question="?", sets={"Cora": ""}, cells=[{"passes": 1, "batch": 512, "start": "random"}], pairs=9,
        temperatures=[0.5, 1], candidates=[], strategies=[], seeds=[0], model="nodes",
    )  # fmt: skip
    stored = [
        {**asdict(cell), "strategy": spec, "seed": seed, "held_out": 50.0, "test": 40.0}
        for cell, spec, seed in plan.runs("Cora")
    ]

    def kept(figure: float) -> None:
        (tmp_path / "Cora.jsonl").write_text("".join(f"{json.dumps({**line, 'test': figure})}\n" for line in stored))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_cells, "train", lambda data, cell, arm, seed: {"held_out": 50.5, "test": 40.4})
        patch.setattr(CellsPlan, "load", lambda *names: None)
        kept(40.0)
        verify(plan, tmp_path, tmp_path, 2)
        assert capsys.readouterr().out.count("stored 40.00, now 40.40; 1.00% apart at most") == 2
        kept(41.5)
        with pytest.raises(DataError, match=r"differ by up to 2.7% from those of a new training; allowed are 2%"):
            verify(plan, tmp_path, tmp_path, 1)
        with pytest.raises(DataError, match="has 2 runs of the plan; --verify 3 needs as many"):
            verify(plan, tmp_path, tmp_path, 3)
