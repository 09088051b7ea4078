"""The table, the verdict, the picture and the JSON file of a comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import mean, stdev

from tempplug_adapters.figures import COLOURS, new_figure, svg_text
from tempplug_adapters.storage.files import write_json, write_text
from tempplug_adapters.sweep.runs import Candidate, Trainings
from tempplug_adapters.verdict import judge

Values = Mapping[Candidate, Mapping[int | None, float]]


def report(
    trainings: Trainings, compared: Values, current: Candidate | None, lower_is_better: bool, name: str, note: str = ""
) -> None:
    """Prints the table and the verdict, and writes ``NAME.svg`` and ``NAME.json`` into the folder of results.

    Args:
        trainings: with the metric of all runs.
        compared: the runs that the verdict rests on.
        current: what the verdict compares with; None for the second best.
        lower_is_better: of the metric.
        name: name of the files.
        note: what else the verdict rests on, in words.
    """
    values, metric = trainings.values, trainings.metric
    if not values:
        return
    width = max(len(candidate.name) for candidate in values)
    print(f"\n{'':<{width}}  {metric}")
    for candidate, by_seed in values.items():
        numbers = list(by_seed.values())
        spread = f" ± {stdev(numbers):.2g} over {len(numbers)} seeds" if len(numbers) > 1 else ""
        print(f"{candidate.name:<{width}}  {mean(numbers):.5g}{spread}")
    verdict, sentence = _verdict(compared, current, metric, lower_is_better)
    print(f"\n{sentence}\nIt holds for this length of training alone{note}.")
    picture, file = trainings.output / f"{name}.svg", trainings.output / f"{name}.json"
    series: dict[str, dict[float | str, list[float]]] = {}
    for candidate, by_seed in values.items():
        rate = "" if candidate.learning_rate is None else f"learning rate {candidate.learning_rate:g}"
        series.setdefault(rate, {})[candidate.temperature or candidate.strategy] = list(by_seed.values())
    content = {
        "metric": metric,
        "lower_is_better": lower_is_better,
        "values": {candidate.name: list(by_seed.values()) for candidate, by_seed in values.items()},
        "seeds": {candidate.name: list(by_seed) for candidate, by_seed in values.items()},
        "verdict": {**verdict, "sentence": sentence},
    }
    write_json(file, content)
    write_text(picture, draw(series, metric))
    print(f"wrote {picture} and {file}")


def _verdict(compared: Values, current: Candidate | None, metric: str, lower_is_better: bool) -> tuple[dict[str, object], str]:
    """Returns the numbers of the verdict, empty if there is none, and the verdict in words."""
    if metric.endswith("loss") and not lower_is_better:
        return {}, f"No verdict: {metric} depends on the temperature, so it cannot tell which is better."
    seeds = {seed for by_seed in compared.values() for seed in by_seed}
    whole = {
        candidate.label: list(by_seed.values())
        for candidate, by_seed in compared.items()
        if seeds and len(by_seed) == len(seeds)
    }
    if current is not None and current.label not in whole:
        return {}, f"No verdict: a training at {current.label}, the current one, failed."
    if len(whole) < 2:
        return {}, f"No verdict: a training of each but {', '.join(whole) or 'none'} failed."
    verdict = judge(whole, current.label if current else None, quantity=metric, lower_is_better=lower_is_better)
    numbers = {name: None if value == math.inf else value for name, value in asdict(verdict).items()}  # JSON has no infinity
    return numbers, verdict.sentence


def draw(series: Mapping[str, Mapping[float | str, Sequence[float]]], metric: str) -> str:
    """Returns the plot as SVG: a curve over the fixed temperatures, and beside it a point for each strategy.

    Each strategy has its own place, so that equal ones are all visible. Means have one standard deviation on either side.

    Args:
        series: by learning rate, in words or empty, the values of the metric by fixed temperature or name of a strategy, one
            for each seed.
        metric: its name.
    """
    figure, panel = new_figure(9, 4.8)
    repeated = any(len(numbers) > 1 for values in series.values() for numbers in values.values())
    title = f"{metric} by temperature" + ", bars: ± one standard deviation over seeds" * repeated
    panel.set_title(title, loc="left", fontsize=12, fontweight="bold")
    panel.grid(axis="y", color="#dfe4ec")
    panel.spines[["top", "right"]].set_visible(False)
    names = dict.fromkeys(name for values in series.values() for name in values)
    places: dict[float | str, float] = {name: math.log10(name) for name in names if isinstance(name, float)}
    first, last = min(places.values(), default=0.0), max(places.values(), default=0.0)
    strategies = [name for name in names if isinstance(name, str)]
    panel.set(xlabel="fixed temperature" + ", strategies" * bool(strategies), ylabel=metric)
    places |= {name: last + max(0.2, (last - first) / 6) * number for number, name in enumerate(strategies, 1)}
    panel.set_xticks(list(places.values()), [f"{name:g}" if isinstance(name, float) else name[:28] for name in places])
    for label in panel.get_xticklabels()[len(places) - len(strategies) :]:
        label.set(rotation=25, ha="right", rotation_mode="anchor")
    for number, (rate, values) in enumerate(series.items()):
        for kind, line in (("curve", "-"), ("strategies", "")):
            points = sorted((places[name], each) for name, each in values.items() if isinstance(name, str) == (not line))
            panel.errorbar(
                [place + 0.02 * number for place, _ in points],
                [mean(numbers) for _, numbers in points],
                [_spread(numbers) for _, numbers in points],
                color=COLOURS[number % len(COLOURS)],
                marker="o",
                linewidth=2,
                linestyle=line,
                gid=kind,
                label=(line and rate) or "_",
            )
    if any(series):
        figure.legend(loc="outside right upper", frameon=False, fontsize=10)
    return svg_text(figure, title)


def _spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0
