"""The table of which positives: each kind of targets with the configuration that held-out pairs choose."""

from __future__ import annotations

from collections.abc import Sequence

from studies.cells import Measured
from tempplug.arguments import parse_spec


def positive_rows(*plans: Sequence[Measured]) -> list[list[str]]:
    """Returns held-out and test figures of each kind of targets, with its best configuration by held-out pairs, and the gain
    over one positive in per cent of nDCG@10 on the test; figures are means of the seeds.
    """
    rows = [["pairs", "targets", "τ @ rate", "held-out", "test", "test, against one positive, %"]]
    for cells in plans:
        for data in dict.fromkeys(each.data for each in cells):
            own = [each for each in cells if each.data == data]
            found: dict[str, tuple[str, float, float]] = {}
            for kind in dict.fromkeys(each.cell.targets for each in own):
                of = [(each, arm) for each in own if each.cell.targets == kind for arm in each.held_out]
                best, arm = max(of, key=lambda one: one[0].held_out[one[1]])
                shown = f"{parse_spec(arm.partition('@')[0])[1]['temperature']} @ {best.cell.rate:g}"
                found[kind] = shown, best.held_out[arm], best.test[arm]
            for kind, (shown, held_out, test) in found.items():
                gain = f"{100 * (test / found[''][2] - 1):+.1f}" if kind else "–"
                rows.append([data, kind or "one positive", shown, f"{held_out:.2f}", f"{test:.2f}", gain])
    return rows
