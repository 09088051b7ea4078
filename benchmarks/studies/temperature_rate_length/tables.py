"""The tables of temperature, rate and length, from results of `studies.train_cells`; see `grids` for the figures.

A group is one encoder and one start, such as GloVe centred. Each table reads plans by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from scipy import stats

from studies.cells import Cell, Measured
from studies.temperature_rate_length.grids import (
    FLAT,
    POWERS,
    SMALLEST,
    TRIES,
    Configuration,
    Grid,
    along_rates,
    along_temperatures,
    followed,
    grids_of,
    interval,
    left_out,
    order_of,
    rates_of,
    regrets,
    temperatures_of,
)

Groups = Mapping[str, Sequence[Grid]]
STARTS = {"vectors": "", "centred": ", centred", "pretrained": "", "random": ""}
ADVISED = {"bert": Configuration(0.02, 3e-4), "nodes": Configuration(0.5, 5e-4), "images": Configuration(0.1, 3e-3)}
"""What the guide advised before this study for encoders with one start, at the rate of the earlier studies."""
EARLIER = (Configuration(0.05, 1e-3), Configuration(0.02, 3e-4), Configuration(0.02, 3e-3))
"""What two passes, one seed and twelve configurations had suggested for a small BERT, in this order."""
GUIDE = {
    "centred": Configuration(0.2, 0.03),
    "vectors": Configuration(0.1, 0.03),
    "pretrained": Configuration(0.02, 3e-4),
}
"""What the guide advised before this study, at the one rate of the earlier studies."""


def groups_of(plans: Mapping[str, Sequence[Measured]]) -> Groups:
    """Returns the grids of plans by encoder and start; the encoder is the first word of its plan's name after ``rate_``."""
    groups: dict[str, list[Grid]] = {}
    for plan, cells in plans.items():
        for grid in grids_of(cells):
            name = f"{plan.split('_')[1]}{STARTS[grid.cell.start]}"
            groups.setdefault(name, []).append(grid)
    return groups


def of_length(grids: Sequence[Grid], passes: int) -> list[Grid]:
    """Returns the grids of one length."""
    return [each for each in grids if each.cell.passes == passes]


def lengths_of(grids: Sequence[Grid]) -> list[int]:
    """Returns the lengths of grids in passes, ascending."""
    return sorted({each.cell.passes for each in grids})


def try_rows(plans: Mapping[str, Sequence[Measured]]) -> list[list[str]]:
    """Returns what to try, in one order for all lengths and from all sets, and the regrets on sets left out, by group."""
    groups = groups_of(plans)
    header = ["tries"]
    for name in groups:
        header += [f"{name}: τ @ rate", "regret, 95 %, worst"]
    rows = [header]
    orders = {name: order_of(grids, TRIES[-1]) for name, grids in groups.items()}
    for count in TRIES:
        row = [str(count)]
        for name, grids in groups.items():
            if count > len(grids[0].held_out):
                row += ["–", "–"]
                continue
            earlier = max((each for each in TRIES if each < count), default=0)
            row += [", ".join(map(_shown, orders[name][earlier:count])), _lost(grids, regrets(grids, count))]
        rows.append(row)
    return rows


def length_rows(plans: Mapping[str, Sequence[Measured]]) -> list[list[str]]:
    """Returns the first two configurations by group and length, from all sets, and the regrets of one, two and three tries on
    sets left out; ``best`` counts the configurations that held-out pairs choose.
    """
    rows = [["encoder", "passes", "first, second", "1 try: mean, worst", "2 tries", "3 tries", "chosen by held-out pairs"]]
    for name, grids in groups_of(plans).items():
        for passes in lengths_of(grids):
            own = of_length(grids, passes)
            lost = [regrets(own, count) for count in (1, 2, 3)]
            chosen = ", ".join(_shown(each.chosen()) for each in own)
            order = ", ".join(map(_shown, order_of(own, 2)))
            rows.append([name, str(passes), order, *(f"{fmean(each):+.1f}, {min(each):+.1f}" for each in lost), chosen])
    return rows


def line_rows(plans: Mapping[str, Sequence[Measured]]) -> list[list[str]]:
    """Returns regrets of searches along one axis on sets left out, the order and constants chosen by group and length."""
    rows = [["encoder", "passes", "one τ, all rates", "one rate, all τ", "one τ, one rate", "the guide before"]]
    for name, grids in groups_of(plans).items():
        every: list[tuple[Sequence[Grid], list[list[float]]]] = []
        for passes in lengths_of(grids):
            own = of_length(grids, passes)
            guide = [each.regret([GUIDE[each.cell.start]]) for each in own]
            columns = [left_out(own, along_rates), left_out(own, along_temperatures), regrets(own, 1), guide]
            rows.append([name, str(passes), *(f"{fmean(column):+.1f}, {min(column):+.1f}" for column in columns)])
            every.append((own, columns))
        merged = [grid for own, _ in every for grid in own]
        means = [_lost(merged, [one for _, columns in every for one in columns[place]]) for place in range(4)]
        rows.append([f"**{name}**", "all", *means])
    return rows


def earlier_rows(plans: Mapping[str, Sequence[Measured]]) -> list[list[str]]:
    """Returns by length the regrets of the first one, two and three of `EARLIER`, and what they are above those of as many
    configurations in the order from the other data sets, over all lengths.

    Args:
        plans: the first one gives the orders; ``PLAN@SEED`` judges both by one of its seeds.
    """
    rows = [["runs", "passes", *(f"first {count}: regret, 95 %, worst; minus the new order's" for count in (1, 2, 3))]]
    whole = grids_of(next(iter(plans.values())))
    for plan, cells in plans.items():
        grids = grids_of(cells)
        shown = plan.removeprefix("rate_").replace("@", ", seed ")
        for passes in (*lengths_of(grids), 0):
            judged = of_length(grids, passes) if passes else grids
            columns = []
            for count in (1, 2, 3):
                orders = [order_of([each for each in whole if each.data != grid.data], count) for grid in judged]
                lost = [grid.regret(EARLIER[:count]) for grid in judged]
                differences = [one - grid.regret(order) for one, grid, order in zip(lost, judged, orders, strict=True)]
                columns.append(f"{_lost(judged, lost)}; {interval(judged, differences)[0]:+.1f}")
            rows.append([shown, str(passes or "all"), *columns])
    return rows


def advised_rows(plans: Mapping[str, Sequence[Measured]]) -> list[list[str]]:
    """Returns what each temperature of a grid loses to the best of the grid, each at the rate that held-out data choose for it,
    what `ADVISED` loses, and how far the rates of its temperature and the temperatures at their best rates lie apart.
    """
    rows: list[list[str]] = []
    for name, grids in groups_of(plans).items():
        temperatures, advised = temperatures_of(grids), ADVISED[name]
        if not rows:
            lost = ["lowest", "middle", "highest"] if len(temperatures) == 3 else [f"τ {each:g}" for each in temperatures]
            ranges = ["rates at the advised τ", "temperatures at their best rates"]
            rows.append(
                ["trained", "data", "passes", "best", *lost, "advised before", *(f"range of {each}" for each in ranges)]
            )
        for grid in sorted(grids, key=lambda each: (each.data, each.cell.passes)):
            best = {each: grid.chosen([one for one in grid.test if one.temperature == each]) for each in temperatures}
            at_rates = [figure for each, figure in grid.test.items() if each.temperature == advised.temperature]
            at_best = [grid.test[each] for each in best.values()]
            lost = [f"{each:g}: {grid.regret([best[each]]):+.1f}" for each in temperatures]
            apart = [f"{100 * (max(each) / min(each) - 1):.1f}" for each in (at_rates, at_best)]
            before = f"{_shown(advised)}: {grid.regret([advised]):+.1f}"
            rows.append([name, grid.data, str(grid.cell.passes), _shown(grid.chosen()), *lost, before, *apart])
    return rows


def follow_rows(plans: Mapping[str, Sequence[Measured]]) -> list[list[str]]:
    """Returns what the worst temperature of `FLAT` loses if the rate is c·(τ/0.1)^p, by group and p, at each length's own c."""
    lowest, highest = FLAT[0], FLAT[-1]
    rows = [[f"worst τ of {lowest:g} to {highest:g} at rate c·(τ/0.1)^p", *(f"p = {power:g}" for power in POWERS)]]
    for name, grids in groups_of(plans).items():
        parts = [of_length(grids, passes) for passes in lengths_of(grids)]
        losses = [[lost for part in parts for lost in followed(part, power)] for power in POWERS]
        rows.append([name, *(f"{fmean(each):+.1f}" for each in losses)])
    return rows


def centring_gains(grids: Sequence[Grid], configurations: Sequence[Configuration] = ()) -> tuple[list[Grid], list[float]]:
    """Returns the uncentred grids that have a centred twin, and the gain of centring with the best of some configurations, by
    default of all, by held-out pairs on each side.
    """
    at = {(each.data, each.cell): each for each in grids}
    plain = [each for each in grids if each.cell.start == "vectors" and (each.data, _centred(each)) in at]
    twins = [at[each.data, _centred(each)] for each in plain]
    return plain, [
        100 * (twin.test[twin.chosen(configurations)] / each.test[each.chosen(configurations)] - 1)
        for each, twin in zip(plain, twins, strict=True)
    ]


def centring_rows(plans: Mapping[str, Sequence[Measured]]) -> list[list[str]]:
    """Returns the gains of centring by encoder and length: temperature and rate chosen on each side, and at each rate alone."""
    rows: list[list[str]] = []
    for plan, cells in plans.items():
        grids = [each for each in grids_of(cells) if each.cell.start in ("vectors", "centred")]
        rates = sorted({each.rate for each in grids[0].held_out})
        if not rows:
            rows.append(["vectors", "passes", "τ and rate tuned, 95 %, worst", *(f"rate {each:g}, τ tuned" for each in rates)])
        for passes in (*lengths_of(grids), 0):
            own = of_length(grids, passes) if passes else grids
            shown = [_lost(*centring_gains(own))]
            for rate in rates:
                gains = centring_gains(own, [each for each in own[0].held_out if each.rate == rate])[1]
                shown.append(f"{fmean(gains):+.1f}, {min(gains):+.1f}")
            rows.append([plan.removeprefix("rate_"), str(passes or "all"), *shown])
    return rows


def similarity_rows(plans: Mapping[str, Sequence[Measured]]) -> list[list[str]]:
    """Returns the mean similarity of negatives before the training beside the gain of centring by set, and in the last row
    Spearman's correlation of both over sets and encoders, and how often each rule chooses the better start.
    """
    names: list[str] = []
    points: list[tuple[str, str, float, float]] = []
    for plan, cells in plans.items():
        plain, gains = centring_gains(grids_of(cells))
        names.append(plan.removeprefix("rate_"))
        for data in dict.fromkeys(each.data for each in plain):
            of = [(each.similarity, gain) for each, gain in zip(plain, gains, strict=True) if each.data == data]
            points.append((plan.removeprefix("rate_"), data, fmean(one for one, _ in of), fmean(gain for _, gain in of)))
    header = ["pairs"]
    for name in names:
        header += [f"{name}: similarity", "gain of centring"]
    rows = [header]
    for data in dict.fromkeys(point[1] for point in points):
        row = [data]
        for name in names:
            (similarity, gain), *_ = [point[2:] for point in points if point[:2] == (name, data)] or [(float("nan"),) * 2]
            row += [f"{similarity:.2f}", f"{gain:+.1f}"]
        rows.append(row)
    correlation = float(stats.spearmanr([point[2] for point in points], [point[3] for point in points]).statistic)
    always, by_threshold = threshold_choices(points)
    said = (
        f"Spearman {correlation:+.2f}; better of {len(points)} chosen: always centring {always}, by a threshold {by_threshold}"
    )
    return [*rows, [said, *[""] * (len(header) - 1)]]


def threshold_choices(points: Sequence[tuple[str, str, float, float]]) -> tuple[int, int]:
    """Returns how often centring, always or above the threshold that is best on the other data sets, is the better choice.

    Args:
        points: encoder, data set, similarity and gain.
    """
    right = 0
    for _, data, similarity, gain in points:
        others = [point[2:] for point in points if point[1] != data]
        thresholds = [-1.0, *sorted(one for one, _ in others)]
        best = max(thresholds, key=lambda each, others=others: sum((one > each) == (gained > 0) for one, gained in others))  # type: ignore[misc]
        right += (similarity > best) == (gain > 0)
    return sum(point[3] > 0 for point in points), right


def choice_rows(plans: Mapping[str, Sequence[Measured]]) -> list[list[str]]:
    """Returns what the choice on held-out pairs loses to the choice on the test, and how often it is within `SMALLEST`."""
    rows = [["encoder", "grids", "same configuration", f"within {SMALLEST:g} %", "mean, worst"]]
    for name, grids in groups_of(plans).items():
        lost = [100 * (each.test[each.chosen()] / max(each.test.values()) - 1) for each in grids]
        same = sum(not each for each in lost)
        near = sum(each >= -SMALLEST for each in lost)
        rows.append([name, str(len(grids)), str(same), str(near), f"{fmean(lost):+.1f}, {min(lost):+.1f}"])
    return rows


def grid_rows(plans: Mapping[str, Sequence[Measured]]) -> list[list[str]]:
    """Returns the figures of every configuration on held-out pairs and on the test, by set, passes and rate."""
    rows: list[list[str]] = []
    for name, grids in groups_of(plans).items():
        temperatures = temperatures_of(grids)
        if not rows:
            rows.append(["encoder", "pairs", "passes", "rate", *(f"τ {each:g}: held-out, test" for each in temperatures)])
        for grid in grids:
            for rate in rates_of(grids):
                tried = [Configuration(temperature, rate) for temperature in temperatures]
                shown = [f"{grid.held_out[each]:.1f}, {grid.test[each]:.1f}" for each in tried]
                rows.append([name, grid.data, str(grid.cell.passes), f"{rate:g}", *shown])
    return rows


def _centred(grid: Grid) -> Cell:
    return replace(grid.cell, start="centred")


def _shown(configuration: Configuration) -> str:
    return f"{configuration.temperature:g} @ {configuration.rate:g}"


def _lost(grids: Sequence[Grid], figures: Sequence[float]) -> str:
    mean, low, high = interval(grids, figures)
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}], {min(figures):+.1f}"
