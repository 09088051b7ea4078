"""The committed page in a browser: widths of phones and desks, light and dark, folds, filter, tables sorted by keys."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser, chromium
from committed_results import RESULTS
from test_committed_report import INDEX

from tempplug_benchmarks.plot import curves, draw

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian's package chromium)")

TALLEST = 6000
"""Pixels of the page at a width of 1280."""
_OPEN = "document.querySelectorAll('details').forEach(each => each.open = true)"
_CONTRAST = r"""
(() => {
  const channel = value => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const numbers = colour => colour.match(/[\d.]+/g).map(Number);
  const behind = element => {
    for (; element; element = element.parentElement) {
      const colour = numbers(getComputedStyle(element).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
  };
  const ratio = element => {
    const style = getComputedStyle(element);
    const [ink, back] = [numbers(element.closest("svg") ? style.fill : style.color), behind(element)].map(luminance);
    return (Math.max(ink, back) + 0.05) / (Math.min(ink, back) + 0.05);
  };
  const kinds = ["p.soft", "p.said", "li", "a", "th", "td", "td.better", "td.worse", "td .interval", "dt", "dd", "option",
    "output", "ol li", "summary .soft", "figcaption", "summary", "code", "tr.reported td", ":not(.number) > text"];
  return kinds.map(kind => [kind, Math.min(...[...document.querySelectorAll(kind)].map(ratio))]).filter(each => each[1] < 99);
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (390, "dark"), (768, "dark"), (1280, "light")])
def test_everything_fits_the_window_and_letters_stand_out(browser: Browser, width: int, scheme: str) -> None:
    browser.show(INDEX, width, scheme)
    assert browser.run("document.documentElement.scrollWidth") <= width
    if width == 1280:
        assert browser.run("document.documentElement.scrollHeight") <= TALLEST, "before anything is unfolded"
    browser.run(_OPEN)
    if width < 700:  # on a phone what decides is in view, and the names stay where a table is moved aside
        tables = "[...document.querySelectorAll('section > .scroll table.sortable')]"
        ends = browser.run(f"{tables}.map(each => [...each.tHead.rows].at(-1).cells[1].getBoundingClientRect().right)")
        assert len(ends) > 10
        assert max(ends) <= width
        moved = browser.run(
            "(() => { const box = document.querySelector('.scroll:has(table.tasks)'); box.scrollLeft = 200;"
            " return [box.scrollLeft, box.querySelector('tbody td').getBoundingClientRect().left]; })()"
        )
        assert moved[0] == 200
        assert 0 <= moved[1] < 20
    assert browser.run("document.documentElement.scrollWidth") <= width
    plots = "[...document.querySelectorAll('svg[role]')].map(each => each.getBoundingClientRect().width)"
    assert browser.run(f"Math.min(...{plots})") == 332, "plots are not scaled"
    assert browser.run("performance.getEntriesByType('resource').length") == 0
    sizes = "[...document.querySelectorAll('td, p, li, svg text')].map(each => parseFloat(getComputedStyle(each).fontSize))"
    assert browser.run(f"Math.min(...{sizes})") >= 9
    dark = browser.run("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")
    ratios = dict(browser.run(_CONTRAST))
    assert {"td", "td.worse", ":not(.number) > text"} <= ratios.keys()
    assert {kind: ratio for kind, ratio in ratios.items() if ratio < 4.5} == {}


def test_the_page_loads_within_a_second(browser: Browser) -> None:
    """The fastest of three: another process may be busy meanwhile."""
    seconds = []
    for _ in range(3):
        browser.show(INDEX, 1280)
        seconds.append(browser.run("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000)
    assert 0 < min(seconds) < 1


_SHOWN = """
(() => {
  const seen = kind => [...document.querySelectorAll(kind)].filter(each => !each.hidden);
  return [seen('table.tasks tbody').map(each => each.querySelector('a').textContent), seen('details.task:has(section)').length,
    seen('details.family:has(section)').map(each => each.querySelector('h2').textContent.split(':')[0]),
    document.querySelector('form output').value];
})()
"""


def choose(browser: Browser, **given: str) -> tuple[list[str], int, list[str], str]:
    """Sets the fields of the filter; returns the tasks of the table, the number of folds, their families and the count."""
    browser.show(INDEX, 1280)
    for name, value in given.items():
        browser.run(f"document.forms[0].elements['{name}'].value = '{value}'")
    browser.run("document.forms[0].dispatchEvent(new Event('input', {bubbles: true}))")
    names, folds, families, said = browser.run(_SHOWN)
    return names, folds, families, said


def test_tasks_are_filtered_and_searched(browser: Browser) -> None:
    every, folds, families, said = choose(browser)
    files = [file for file in RESULTS.glob("*/*/*.jsonl") if file.parts[-3] != "speed"]
    assert len(every) == folds == len(files)
    assert len(families) == 10
    assert said == f"{len(files)} of {len(files)} tasks"
    found, folds, families, said = choose(browser, family="node")
    assert len(found) == folds == len(list(RESULTS.glob("node/*/*.jsonl")))
    assert families == ["node"]
    assert all(name.startswith("node ") for name in found)
    gained = choose(browser, result="gain")[0]
    assert {"sentence supervised-gpu", "retrieval quora"} <= set(gained)
    assert len(gained) < 10
    assert choose(browser, family="sentence", result="gain", text="GPU avg")[0] == ["sentence supervised-gpu"]
    assert choose(browser, text="head-tail")[2] == ["long-tail"], "a strategy that was only measured is found, too"
    assert choose(browser, text="nowhere") == ([], 0, [], f"0 of {len(every)} tasks")


def test_a_link_unfolds_its_task(browser: Browser) -> None:
    browser.show(INDEX, 1280)
    task = "document.getElementById('node-cora-small')"
    assert not browser.run(f"{task}.checkVisibility()")
    browser.run("document.querySelector('a[href=\"#node-cora-small\"]').click()")
    browser.call("Runtime.evaluate", expression="new Promise(requestAnimationFrame)", awaitPromise=True)
    assert browser.run(f"{task}.checkVisibility()")
    assert -1 <= browser.run(f"{task}.getBoundingClientRect().top") < 400
    assert browser.run("document.querySelectorAll('details[open]').length") == 2, "the family and the task"
    # the page's own script, for browsers that unfold nothing themselves
    browser.show(INDEX, 1280)
    browser.run("history.replaceState(null, '', '#node-cora-small'), dispatchEvent(new Event('hashchange'))")
    assert browser.run(f"{task}.checkVisibility()")


def test_keys_sort_a_table(browser: Browser) -> None:
    browser.show(INDEX, 390)
    browser.run(_OPEN)
    table = "document.querySelector('table.arms')"
    browser.run(f"{table}.querySelectorAll('th button')[2].focus()")
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
    headings = browser.run("[...document.querySelectorAll('table.sortable th[scope=col]')].map(each => each.ariaSort)")
    assert set(headings) == {"none"}
    orders = []
    for key, text, order in (("Enter", "\r", "descending"), (" ", " ", "ascending")):
        browser.press(key, text)
        cells = browser.run(f"[...{table}.tBodies].map(each => each.rows[0].cells[2].textContent)")
        orders.append([float(each.split()[0]) for each in cells])
        told = browser.run(f"[...{table}.tHead.rows[0].cells].map(each => each.getAttribute('aria-sort'))")
        assert told == ["none", "none", order, *["none"] * (len(told) - 3)]
    assert orders[0] == sorted(orders[0], reverse=True)
    assert orders[1] == orders[0][::-1] != orders[0]
    browser.press("Tab")
    assert browser.run(f"document.activeElement === {table}.querySelectorAll('th button')[3]")


def test_what_has_no_number_comes_last_and_the_baseline_is_zero(browser: Browser, tmp_path: Path) -> None:
    script = INDEX.read_text(encoding="utf-8").partition("<script>")[2]
    cells = ("<0.001", "-", "+0.25 [0.1, 0.4]", "failed", "-3.5", "baseline", "0.02")
    keys = (' data-key="0"' if each == "baseline" else "" for each in cells)
    rows = "".join(f"<tbody><tr><td>arm<td{key}>{escape(each)}</tbody>" for key, each in zip(keys, cells, strict=True))
    page = tmp_path / "page.html"
    table = f'<table class="sortable"><thead><tr><th>arm<th>p</thead>{rows}</table>'
    page.write_text(f"<!doctype html><meta charset=utf-8><body>{table}<script>{script}", encoding="utf-8")
    browser.show(page, 390)
    order = "[...document.querySelectorAll('tbody td:nth-child(2)')].map(each => each.textContent)"
    browser.run("document.querySelectorAll('th button')[1].click()")
    assert browser.run(order) == ["+0.25 [0.1, 0.4]", "0.02", "<0.001", "baseline", "-3.5", "-", "failed"]
    browser.run("document.querySelectorAll('th button')[1].click()")
    assert browser.run(order) == ["-3.5", "baseline", "<0.001", "0.02", "+0.25 [0.1, 0.4]", "-", "failed"]


_OF_DRAWING = """
(() => {
  const shades = (kind, style) => [...new Set([...document.querySelectorAll(kind)].map(each => getComputedStyle(each)[style]))];
  return [getComputedStyle(document.querySelector('[id^=patch] path')).fill, shades('text', 'fill'),
    shades('[id^=line2d] > path, [id=curve] > path', 'stroke')];
})()
"""


def _light(colour: str) -> float:
    red, green, blue = (int(each) / 255 for each in colour.strip("rgb()").split(","))
    return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_drawings_follow_the_colour_scheme(browser: Browser, tmp_path: Path, scheme: str) -> None:
    draw(curves("macl"), tmp_path / "curves.svg", "a caption")
    for file in (RESULTS / "sweep-sentence-supervised.svg", tmp_path / "curves.svg"):
        browser.show(file, 1280, scheme)
        back, texts, lines = browser.run(_OF_DRAWING)
        assert (_light(back) > 0.5) == (scheme == "light"), file
        assert texts or file.name == "curves.svg"
        for each in texts:
            light, dark = sorted((_light(back), _light(each)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) > 4.5, (file, each)
        assert max(abs(_light(back) - _light(each)) for each in lines) > 0.15, (file, lines)
