"""Formats the numbers of an evaluation for a terminal."""

from __future__ import annotations

from typing import Any

SCORES = ("overall", "head", "middle", "tail")


def evaluation_table(found: dict[str, Any]) -> str:
    """Returns aligned lines: accuracies in percent with two digits, geometry with four.

    Args:
        found: what ``tempplug eval vision`` writes as JSON.
    """
    lines = [
        f"checkpoint  {found['checkpoint']}",
        f"data        {found['dataset']}: bank of {found['bank']} train images, {found['queries']} test images as queries",
        f"            {found['classes']} classes, representations of {found['dimension']} numbers",
    ]
    shares = []
    for name, notes in (
        ("knn", "k={k}, temperature {temperature:g}"),
        ("linear-probe", "last of {epochs} epochs of SGD, learning rate {learning_rate:g}, images not augmented"),
        ("svc-probe", "linear support vector machine, all training images"),
    ):
        if name in found:
            shares.append(f"{name:<24}{found[name]['accuracy']:>8.2f}  {notes.format(**found[name])}")
    for name, notes in (
        ("top-5", "its class among the first five"),
        ("few-labels", "logistic regression, images of each class"),
    ):
        shares += [f"{each:<24}{value:>8.2f}  {notes}" for each, value in found.get(name, {}).items()]
    if shares:
        lines += ["", *shares]
    if tail := found.get("long-tail"):
        note = "bank of {bank} images, imbalance {imbalance_ratio:g}, mean of the classes' accuracies".format(**tail)
        lines += ["", f"{'long-tail':<24}{''.join(f'{each:>8}' for each in SCORES)}  {note}"]
        for name, score in tail.items():
            if isinstance(score, dict):
                lines.append(f"  {name:<22}{''.join(_percent(score[each]) for each in SCORES)}")
    if report := found.get("report"):
        lines.append("")
        for name, note in (
            ("alignment", f"of two views by {report['views']}; lower is closer"),
            ("uniformity", "lower is more spread"),
            ("tolerance", "higher keeps classes together"),
            ("interclass_uniformity", "lower is classes further apart"),
        ):
            lines.append(f"{name:<24}{report[name]:>8.4f}  {note}")
    lines += ["", *(f"wrote {path}" for path in found.get("plots", [])), f"measured in {found['seconds']:.1f} s"]
    return "\n".join(lines)


def _percent(value: float | None) -> str:
    return f"{'-' if value is None else f'{value:.2f}':>8}"
