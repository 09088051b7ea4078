"""``tempplug advise``: the choice among known courses, what is said of it, the page, and the command from files to its end."""

from __future__ import annotations

import gzip
import importlib
import json
import re
import shutil
import sys
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import torch
from advise_toys import courses, right
from torch.nn import functional

from tempplug import ContrastiveLoss, Fixed
from tempplug.cli import main
from tempplug_adapters.advise import training
from tempplug_adapters.advise.advice import advise, label
from tempplug_adapters.advise.page import page, text
from tempplug_adapters.advise.pairs import Heads, Pairs
from tempplug_adapters.advise.training import Course
from tempplug_benchmarks.data.sentences import paraphrase_pairs
from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder

NOISY = [Course(Fixed(each).spec(), {4: right(70 + place, 1 + place)}, {4: each}) for place, each in enumerate((0.05, 0.1))]
TURNED = courses((0.01, (50, 55, 60, 62)), (0.1, (40, 54.5, 70, 90)), lengths=(1, 2, 8, 32))
EQUAL = courses((0.01, 76), (0.02, 79), (0.03, 79.5), (0.05, 80), (0.1, 79.7), (0.5, 70))


@pytest.mark.parametrize(
    ("found", "planned", "current", "verdict", "said"),
    [
        (
            courses((0.02, 60), (0.05, 70), (0.1, 80), (0.2, 70), ("macl", 75)),
            *(2, 0.05, "0.1 changes held-out accuracy by +10.0 points, likely +10.0 ± 1.2: change it."),
            "Not clearly worse than 0.1: none. A wrong temperature costs points: 0.02 is 20.0 below. "
            "No strategy is clearly better than 0.1. From 1 to 4 epochs no other temperature is clearly better.",
        ),
        (
            *(EQUAL, 4, 0.05, "0.1 changes held-out accuracy by -0.3 points, likely -0.3 ± 0.2: keep what you have."),
            "Not clearly worse than 0.05: 0.02, 0.03, 0.1. A wrong temperature costs points: 0.5 is 10.0 below.",
        ),
        (EQUAL, 4, 0.03, "0.05 changes held-out accuracy by +0.5 points, likely +0.4 ± 0.3: keep what you have.", ""),
        (EQUAL, 4, 0.01, "0.05 changes held-out accuracy by +4.0 points, likely +3.9 ± 0.8: change it.", ""),
        (
            *(NOISY, 4, 0.05, "0.1 changes held-out accuracy by +1.0 points, no more than chance: keep what you have."),
            "No other temperature is clearly worse than 0.05. No other length of training was measured.",
        ),
        (
            *(courses((0.02, 60), (0.1, 70), ("macl:alpha=1", 75), ("learnable", 70.5)), 4, 0.1),
            *("0.02 changes held-out accuracy by -10.0 points, likely -10.0 ± 1.2: keep what you have.",),
            "Clearly better than 0.1 here: macl:alpha=1 (+5.0 ± 0.9). Check by `tempplug sweep` before you change to it.",
        ),
        (
            *(TURNED, 1, 0.01, "0.1 changes held-out accuracy by -10.0 points, likely -10.0 ± 1.2: keep what you have."),
            "It depends on the length of your training. Better at 8 epochs 0.1 (+10.0 ± 1.2); at 32 epochs 0.1 (+28.0 ± 1.8).",
        ),
        (
            *(TURNED, 40, 0.01, "0.1 changes held-out accuracy by +28.0 points, likely +28.0 ± 1.8: change it."),
            "Your training is longer, 40 epochs of these pairs: this is the advice at 32 epochs, the longest that was ",
        ),
    ],
)
def test_the_advice_compares_with_the_current_temperature(
    found: list[Course], planned: int, current: float, verdict: str, said: str
) -> None:
    advice = advise(found, planned, current)
    assert advice.verdict.sentence == f"You train at {current:g}. {verdict}"
    assert advice.epoch == max(length for length in found[0].credits if length <= planned)
    assert said in " ".join(advice.sentences)


@pytest.mark.parametrize("current", [0.01, 0.02, 0.03, 0.05, 0.1, 0.5])
def test_the_advice_never_contradicts_its_table(current: float) -> None:
    advice = advise(EQUAL, 4, current)
    accuracies = {label(course): course.accuracy(4) for course in EQUAL}
    assert advice.verdict.best == max((name for name in accuracies if name != f"{current:g}"), key=accuracies.__getitem__)
    assert advice.verdict.difference == pytest.approx(accuracies[advice.verdict.best] - accuracies[f"{current:g}"], abs=1e-4)
    if advice.verdict.answer == "change":
        assert label(advice.chosen) == "0.05"
        assert advice.lines()["your own loop"] == 'loss_fn = ContrastiveLoss(0.05, layout="cross-view")'
    else:
        assert label(advice.chosen) == f"{current:g}"
        assert advice.lines() == {}, "nothing to paste where nothing is to be changed"


def test_the_worth_of_the_learning_rate_stands_beside_that_of_the_temperature() -> None:
    first, second = courses((0.05, 62), (0.1, 60))
    first.by_rate[4] = {1 / 3: 20.0, 1.0: 60.0, 3.0: 58.0}
    said = " ".join(advise([first, second], 4, 0.05).sentences)
    assert "the best rate is 40.0 points above the worst; the best temperature is 2.0 above the worst." in said
    assert "try a higher one" not in said
    first.by_rate[4] = {1 / 3: 20.0, 1.0: 59.0, 3.0: 60.0}
    assert any("is the highest: try a higher one in your" in each for each in advise([first, second], 4, 0.05).sentences)


def test_what_did_not_fit_into_the_time_or_has_no_room_is_said() -> None:
    far = advise(TURNED, 129, 0.01)
    assert far.verdict.sentence.endswith("± 1.8: cannot tell yet, your training is 4 times as long as was measured.")
    assert (far.lines(), far.sentences[0][:35]) == ({}, "Until more is measured, keep 0.01: ")
    assert advise(TURNED, 128, 0.01).verdict.answer == "change"
    assert "finds 97 % of the positives" in " ".join(advise(courses((0.05, 97), (0.1, 96)), 4, 0.05).sentences)
    assert "of the positives" not in " ".join(advise(courses((0.05, 95), (0.1, 90)), 4, 0.05).sentences)
    twice = [Course(each.spec, {4: each.credits[4].reshape(2, -1)}, {4: 0.1}) for each in NOISY]
    assert "Each was trained 2 times; with 5, which take a longer --time" in " ".join(advise(twice, 4, 0.05).sentences)
    assert "Each was trained" not in " ".join(advise(NOISY, 4, 0.05).sentences)


def test_pairs_that_all_look_alike_are_to_lose_their_mean_first() -> None:
    torch.manual_seed(0)
    rows = torch.randn(60, 5)
    for shift, wanted in ((0.0, 0.0), (3.0, 0.9)):
        views = [rows + shift, rows + shift + 0.1 * torch.randn(60, 5)]
        alike = Pairs(Heads(views, shared=True), 60, 60, "pairs", "a head").alike()
        each = [functional.normalize(view, dim=1).tolist() for view in views]
        dots = [sum(map(float.__mul__, a, b)) for i, a in enumerate(each[0]) for j, b in enumerate(each[1]) if i != j]
        assert alike == pytest.approx(fmean(dots), abs=1e-6)
        assert alike == pytest.approx(wanted, abs=0.05)
        said = " ".join(advise(NOISY, 4, 0.05, alike).sentences)
        assert (f"have a mean similarity of {alike:.2f}. Subtract the mean embedding first" in said) == (shift > 0)


def test_the_lines_to_paste_work_and_give_what_was_chosen(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    from tempplug_adapters.sentence_transformers import TemperatureRankingLoss

    lines = advise(courses((0.05, 80), (0.1, 70)), 4, 0.1).lines()
    write_tiny_encoder(tmp_path / "bert", seed=0, layers=1, width=32)
    model = SentenceTransformer(str(tmp_path / "bert"), device="cpu")
    names = {"TemperatureRankingLoss": TemperatureRankingLoss, "ContrastiveLoss": ContrastiveLoss, "model": model}
    exec(lines["sentence-transformers"], names)
    exec(lines["your own loop"], names)
    for strategy in (names["loss"].contrastive_loss.strategy, names["loss_fn"].strategy):  # type: ignore[attr-defined]
        assert (strategy.name, strategy.temperature) == ("fixed", 0.05)
    assert lines["a trainer's flag"].split() == ["--temperature-strategy", "fixed:temperature=0.05"]


class Tags(HTMLParser):
    """The tags of a page, which must all be closed, and the words it shows."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_has_one_picture_and_every_number(tmp_path: Path) -> None:
    found = courses((0.02, (30, 40, 50)), (0.1, (31, 45, 60)), ("macl:alpha=1", (32, 44, 52)))
    pairs = Pairs(Heads([torch.eye(50)] * 2, shared=True), 1000, 4000, "1,000 of 4,000 <pairs> & more", "a head")
    advice = advise(found, 4, 0.02)
    shown = page(pairs, found, advice)
    tags = Tags(shown)
    assert (tags.open, tags.tags.count("svg")) == ([], 1)
    assert (
        "On 1,000 of 4,000 &lt;pairs&gt; &amp; more, for a training of 4 epochs. An epoch of all 4,000 pairs has the" in shown
    )
    words = unescape(re.sub(r"<[^>]+>", " ", shown))
    title = "You train at 0.02. 0.1 changes held-out accuracy by +10.0 points, likely +10.0 ± 1.2: change it."
    assert all(each in words for each in (*advice.sentences, *advice.lines().values(), title, "of 1,000 candidates"))
    rows = re.findall(r"<tr.*?</tr>", shown)
    assert [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in rows] == [
        each.split() for each in ("epochs 1 2 4", "0.1 31.0 45.0 60.0", "macl:alpha=1 32.0 44.0 52.0", "0.02 30.0 40.0 50.0")
    ]
    assert 'class="chosen"><th>0.1<' in rows[1]
    picture = shown[shown.index("<svg") : shown.index("</svg>")]
    assert "currentColor" in picture
    assert "#ffffff" not in picture, "a white ground does not suit a dark page"
    printed = "\n".join(text(pairs, found, advice))
    assert ">      4   50.0   60.0" in printed
    assert "strategies at 4 epochs: macl:alpha=1 52.0" in printed


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed (Debian's package chromium)")
def test_the_page_is_whole_on_a_phone_and_follows_its_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = "macl:base_temperature=0.05,alpha=1.5,threshold=0.25"  # as wide as any
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    browser = importlib.import_module("browser")
    found = courses((0.02, (30.0,) * 6), (0.1, (60.0,) * 6), (spec, (50.0,) * 6), lengths=(1, 2, 4, 8, 16, 32))
    pairs = Pairs(Heads([torch.eye(50)] * 2, shared=True), 1000, 1000, "1,000 pairs", "a head")
    file = tmp_path / "a.html"
    file.write_text(page(pairs, found, advise(found, 4, 0.02)), encoding="utf-8")
    ink = "getComputedStyle(document.querySelector('svg text')).fill"
    with browser.chromium(tmp_path / "profile") as shown:
        for scheme, colour in (("light", "rgb(0, 0, 0)"), ("dark", "rgb(255, 255, 255)")):
            shown.show(file, 390, scheme)
            assert shown.run("document.documentElement.scrollWidth") <= 390
            assert shown.run("document.querySelector('table').getBoundingClientRect().right") <= 390
            assert shown.run(ink) == colour


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs the command with few pairs, a short training; returns what it printed."""
    monkeypatch.setattr(training, "LONGEST", 8)
    monkeypatch.setattr(training, "LEAST_STEPS", 8)
    monkeypatch.setattr(training, "MOST_FOLDS", 2)

    def command(*words: object) -> str:
        few = ["--max-pairs", "120", "--batch-size", "16", "--output", tmp_path / "new" / "a.html"]
        assert main(["advise", *map(str, [*words, *few])]) == 0
        printed = capsys.readouterr().out
        assert printed.splitlines()[-1] == f"wrote {tmp_path / 'new' / 'a.html'}"
        assert "</html>" in (tmp_path / "new" / "a.html").read_text(encoding="utf-8")
        return printed

    return command


def test_without_files_it_advises_on_digits(run: Callable[..., str]) -> None:
    printed = run("--strategies", "macl", "fixed:temperature=0.07", "fixed:temperature=0.1", "individual", "amcl")
    assert printed.splitlines()[3].split() == ["epochs", "0.01", "0.02", "0.03", "0.05", "0.07", "0.1", "0.2", "0.5"]
    assert printed.startswith("compared with: 0.1, the default of tempplug's `fixed` (--current gives yours)\n")
    assert "\nYou train at 0.1. 0." in printed
    assert re.search(r"^strategies at [48] epochs: macl \d+\.\d, individual \d+\.\d, amcl \d+\.\d$", printed, re.MULTILINE)


@pytest.mark.slow
def test_on_the_digits_a_bad_temperature_is_to_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("LONGEST", 8), ("LEAST_STEPS", 8), ("MOST_FOLDS", 3)):
        monkeypatch.setattr(training, name, value)
    command = ["advise", "--max-pairs", "600", "--current", "2", "--time", "200", "--output", str(tmp_path / "a.html")]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("compared with: 2, your temperature\n600 handwritten digits of scikit-learn")
    head, *rows = (line.split() for line in printed.splitlines()[3:10])
    (at,) = [row[2:] for row in rows if row and row[0] == ">"]
    scores = dict(zip(head[1:], map(float, at), strict=True))
    advised = re.search(r"^You train at 2\. (\S+) changes held-out accuracy by \+(\S+) points, .*: change it", printed, re.M)
    assert advised
    assert scores[advised[1]] == max(scores.values())
    assert scores[advised[1]] - scores["2"] == pytest.approx(float(advised[2]), abs=0.11)


def test_the_text_is_printed_before_the_page_is_drawn_and_without_matplotlib_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("LONGEST", 2), ("LEAST_STEPS", 2), ("MOST_FOLDS", 2)):
        monkeypatch.setattr(training, name, value)

    def fail(*_: object) -> str:
        raise OSError("the disk is full")

    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(ord(name)).standard_normal((60, 4)))
    files = (tmp_path / "a.npy", tmp_path / "b.npy")
    with monkeypatch.context() as patch:
        patch.setattr("tempplug_adapters.advise.page.page", fail)
        assert main(["advise", *map(str, files), "--output", str(tmp_path / "full.html")]) == 1
    assert "You train at 0.1. " in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["advise", *map(str, files), "--output", str(tmp_path / "plain.html")]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("note: matplotlib is not installed (extra 'advise'): the page will have no picture.\n")
    page_without = (tmp_path / "plain.html").read_text(encoding="utf-8")
    assert "<svg" not in page_without
    assert "You train at 0.1. " in printed.out
    assert "You train at 0.1. " in page_without


def test_two_matrices_need_no_model(run: Callable[..., str], tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    first = generator.standard_normal((150, 8), dtype=np.float32)
    np.save(tmp_path / "a.npy", first)
    np.save(tmp_path / "b.npy", np.hstack([first + generator.standard_normal((150, 8)), np.zeros((150, 1))]))
    printed = run(tmp_path / "a.npy", tmp_path / "b.npy", "--epochs", 2.4)
    assert printed.splitlines()[1] == "120 of 150 pairs of a.npy and b.npy; trained: a linear head on each matrix"
    assert "> 3 " in " ".join(printed.split()), "2.4 epochs of 150 pairs have the steps of 3 epochs of 120"


@pytest.mark.parametrize(
    ("name", "columns"), [("x.jsonl", ()), ("x.csv", ()), ("x.tsv.gz", ("--columns", "anchor", "positive"))]
)
def test_texts_of_every_format_are_read(name: str, columns: tuple[str, ...], run: Callable[..., str], tmp_path: Path) -> None:
    write_tiny_encoder(tmp_path / "bert", seed=0, layers=1, width=32)
    pairs = list(paraphrase_pairs(70, 0))
    rows = [{"anchor": a, "positive": b, "negative": pairs[number - 1][0]} for number, (a, b) in enumerate(pairs)]
    rows.append(rows[0])
    if name == "x.jsonl":
        lines = [json.dumps(row) for row in rows]
    else:
        between = "," if name == "x.csv" else "\t"
        lines = [between.join(rows[0]), *(between.join(row.values()) for row in rows)]
    content = "\n".join([*lines, ""]).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    printed = run(tmp_path / name, "--model", tmp_path / "bert", *columns)
    assert "anchor: column 'anchor'" in printed, printed
    assert "\ncompared with: 0.05, the default of sentence-transformers' MultipleNegativesRankingLoss" in printed
    distinct = re.search(
        r"^(\d+) of 71 (\w+) of x\S+ \((\d+) with a repeated text left out\); trained: a linear head on", printed, re.MULTILINE
    )
    assert distinct, printed
    assert int(distinct[1]) + int(distinct[3]) == 71
    assert distinct[2] == ("pairs" if columns else "triplets")


def test_wrong_input_is_named_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    good = np.random.default_rng(0).standard_normal((60, 4))
    holed = good.copy()
    holed[3, 1] = np.nan
    for name, matrix in (
        ("a", good),
        ("short", good[:59]),
        ("few", good[:9]),
        ("fewer", good[9:18]),
        ("thin", good[:, :1]),
        ("holed", holed),
    ):
        np.save(f"{name}.npy", matrix)
    Path("x.jsonl").write_text('{"query": "b", "answer": "d"}\n{"query": "e", "answer": "d"}\n', encoding="utf-8")
    np.save("ids.npy", np.arange(120).reshape(60, 2))
    np.save("copy.npy", good)
    Path("same.jsonl").write_text("".join(f'{{"anchor": "t{each}", "positive": "t{each}"}}\n' for each in range(60)))
    Path("ids.csv").write_text("user,item\n" + "".join(f"{each},{each + 7}\n" for each in range(60)))
    Path("x.txt").write_text("a\nb\n", encoding="utf-8")
    Path("plain").touch()
    wrong = (
        ("a.npy short.npy", "data=short.npy has 59 rows; it must have as many as a.npy, 60."),
        ("few.npy fewer.npy", "few.npy and fewer.npy has 9 pairs; advice needs at least 50, better 1,000."),
        ("a.npy thin.npy", "data=thin.npy of shape [60, 1] must be [N, D], a row an embedding, D at least 2."),
        ("a.npy holed.npy", "data=holed.npy has NaN or infinite values in 1 rows, row 3 first."),
        ("a.npy", "data=a.npy must be one table of texts (.jsonl, .csv, .tsv, .parquet …), or two matrices"),
        ("a.npy x.jsonl", "data=a.npy x.jsonl must be one table of texts"),
        ("a.npy missing.npy", "missing.npy does not exist"),
        ("missing.jsonl --model m", "missing.jsonl does not exist"),
        ("x.jsonl", "data=x.jsonl contains texts, which need --model"),
        ("train.py", "data=train.py is a program, not pairs: write tempplug advise --train --command"),
        ("x.jsonl --model m", "x.jsonl, without repeated texts, has 1 pairs; advice needs at least 50"),
        ("x.jsonl --model m --columns query z", "x.jsonl has no column 'z'. It has: 'query' (text, such as 'b')"),
        ("x.txt --model m", "x.txt contains single texts; wanted are pairs"),
        ("--model m", "model=m goes with a table of texts"),
        ("a.npy copy.npy --columns a b", "columns=a b goes with a table of texts"),
        ("--max-pairs 49", "max_pairs=49 must be at least 50."),
        ("--batch-size 1", "batch_size=1 must be at least 2: an anchor needs a negative."),
        ("--epochs 0", "epochs=0 must be a number greater than 0."),
        ("--epochs nan", "epochs=nan must be a number greater than 0."),
        ("a.npy a.npy", "data=a.npy and a.npy are the same matrix: row i of the second is the positive of row i of the first."),
        ("a.npy copy.npy", "data=a.npy and copy.npy are the same matrix"),
        ("ids.npy a.npy", "data=ids.npy has whole numbers, such as ids or labels; embeddings have a floating-point type."),
        ("a.npy ids.npy", "data=ids.npy has whole numbers"),
        ("same.jsonl --model m", "same.jsonl: the anchor and the positive of every row are the same text."),
        ("ids.csv --model m --columns user item", "ids.csv"),
        ("--current 0", "current=0 must be a temperature above 0, at most 2."),
        ("--current nan", "current=nan must be a temperature above 0, at most 2."),
        ("--current 20", "current=20 must be a temperature above 0, at most 2: a scale of 20 is the temperature 0.05."),
        ("--time 0", "time=0 must be a number of seconds greater than 0."),
        ("--time inf", "time=inf must be a number of seconds greater than 0."),
        ("--output a.svg", "output=a.svg must end in .html."),
        ("--output plain/a.html", "output='plain' cannot be written"),
        ("--strategies macle", "unknown strategy 'macle'. Did you mean 'macl'?"),
        ("--strategies fixed:temperature=0", "temperature=0"),
        ("--strategies head-tail", "strategy 'head-tail' needs labels, which pairs do not contain: leave it out."),
        ("--strategies schedule", "strategy 'schedule' follows the length of the training"),
    )
    for words, message in wrong:
        given = words.split()
        assert main(["advise", *given, *(() if "--output" in given else ("--output", "a.html"))]) == 2, words
        said = capsys.readouterr().err
        assert said.startswith("error: ")
        assert message in said
        assert not Path("a.html").exists()
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    assert main(["advise", "missing.jsonl", "--model", "m", "--output", "a.html"]) == 2
    assert "needs the package 'sentence_transformers', which is not installed" in (said := capsys.readouterr().err)
    assert "sentence-transformers]" in said
