"""Tables of the guide from results of the speed suite: a header and rows of cells. It must not know how pages are written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tempplug_benchmarks.environment import describe_machine
from tempplug_benchmarks.speed.case import told_time

NOTHING = "–"
LOSSES = {
    "nt-xent": "two views (SimCLR)",
    "one-way": "one-way (SimCSE)",
    "two-way": "two-way (CLIP)",
    "hard-negatives": "one-way, a hard negative each",
    "queue": "queue of 4,096 (MoCo)",
    "labels": "labels (SupCon)",
    "masks": "masks, one positive a row",
    "masks-several": "masks, several positives a row",
    "macl": "two views, MACL",
    "dystress": "two views, DySTreSS",
    "plugin-map": "two views, a plugin's map",
    "temperature-free": "two views, Temperature-Free",
    "amcl": "two views, AMCL with DCL",
}
NAMED = {"eager": "plain PyTorch", "compiled": "`torch.compile`"}
LIBRARIES = {
    **{"grace": "GRACE's code", "pygcl": "PyGCL", "lightly": "lightly", "open-clip": "open_clip's formula"},
    **{"sentence-transformers": "sentence-transformers", "sentence-transformers-cached": "its cached loss"},
    **{"pytorch-metric-learning": "pytorch-metric-learning", "tempplug-dystress": "tempplug's DySTreSS"},
    "tempplug-compiled": "tempplug in a compiled function",
}
# Width and pairs of the cases in the short table.
SHORT = {
    **{"nt-xent": (128, (64, 128, 512, 2048)), "one-way": (128, (64,)), "two-way": (512, (64,))},
    **{"labels": (128, (64,)), "masks-several": (128, (64,))},
}


def speed(folder: Path, *losses: str) -> list[list[str]]:
    """Returns milliseconds of tempplug as a training meets them, how many times as long others take, and the share of the peak.

    Times of others below ours are marked. Where losses are named, the rest is left out.
    """
    lines = [["loss", "N × D", "call", "tempplug, ms", *NAMED.values(), "others", "of peak"]]
    for case, found in _cases(folder, "time"):
        if losses and case["loss"] not in losses:
            continue
        call, ours, times = _told(case, found)
        others = ", ".join(f"{title} {_times(times[name])}" for name, title in LIBRARIES.items() if name in times)
        share = found["tempplug"].get("matmul_share")
        cells = [LOSSES[case["loss"]], f"{case['rows']} × {case['dimension']}", call, _milliseconds(ours)]
        cells += [_marked(times, name) for name in NAMED]
        lines.append([*cells, others or NOTHING, NOTHING if share is None else f"{share:.0%}"])
    return lines


def short(folder: Path) -> list[list[str]]:
    """Returns some cases of `speed`, a line for each loss."""
    lines = [["loss", "N", "tempplug, ms", *NAMED.values()]]
    for loss, (dimension, sizes) in SHORT.items():
        chosen = [each for each in _cases(folder, "time") if (each[0]["loss"], each[0]["dimension"]) == (loss, dimension)]
        chosen = [each for each in chosen if each[0]["rows"] in sizes]
        told = [_told(*each) for each in chosen]
        cells = [[str(case["rows"]) for case, _ in chosen], [_milliseconds(ours) for _, ours, _ in told]]
        cells += [[_marked(times, name) for *_, times in told] for name in NAMED]
        if chosen:
            title = LOSSES[loss] + f", D = {dimension}" * (dimension != 128)
            lines.append([title, *(", ".join(each) for each in cells)])
    return lines


def machines(folder: Path) -> list[list[str]]:
    """Returns the processors, the rate of plain products on each, and how many cases ran there."""
    lines = [["processor", "float32 products, GF/s", "cases"]]
    rates: dict[str, list[float]] = {}
    for content in _contents(folder):
        found = content["outcomes"]["tempplug"]["numbers"]
        rates.setdefault(describe_machine(content["hardware"]), []).append(1e3 * found.get("matmul_teraflops", math.nan))
    for machine, of in sorted(rates.items()):
        known = [rate for rate in of if not math.isnan(rate)]
        lines.append([machine, f"{min(known):.0f} to {max(known):.0f}" if known else NOTHING, str(len(of))])
    return lines


def memory(folder: Path) -> list[list[str]]:
    """Returns peak memory beyond the inputs."""
    lines = [["loss", "N × D", "tempplug, MiB", "plain PyTorch", "PyGCL"]]
    for case, found in _cases(folder, "memory"):
        shown = [f"{found[name]['mebibytes']:,.0f}" if name in found else NOTHING for name in ("tempplug", "eager", "pygcl")]
        lines.append([LOSSES[case["loss"]], f"{case['rows']} × {case['dimension']}", *shown])
    return lines


def kept(folder: Path) -> list[list[str]]:
    """Returns how many times as long plain PyTorch takes with the usual allocator, and with one that keeps its memory."""
    lines = [["loss", "N × D", "usual allocator", "memory kept"]]
    usual = {case["name"]: _eager(found) for case, found in _cases(folder, "time")}
    for case, found in _cases(folder, "time", kept=True):
        before = usual[case["name"].removesuffix("-kept")]
        lines.append([LOSSES[case["loss"]], f"{case['rows']} × {case['dimension']}", _times(before), _times(_eager(found))])
    return lines


def errors(folder: Path) -> list[list[str]]:
    """Returns the largest error of the gradient against float64, in units of its largest entry; ▼ is above plain PyTorch's."""
    lines = [["loss", "N × D", "τ", "tempplug", "plain PyTorch"]]
    for case, found in _cases(folder, "accuracy"):
        ours, theirs = (found[name]["gradient_error"] for name in ("tempplug", "eager"))
        size, mark = f"{case['rows']} × {case['dimension']}", " ▼" * (ours > theirs)
        lines.append([LOSSES[case["loss"]], size, f"{case['temperature']:g}", f"{ours:.1e}{mark}", f"{theirs:.1e}"])
    return lines


def _eager(found: Mapping[str, Mapping[str, float]]) -> float:
    return found["eager"]["milliseconds"] / found["tempplug"]["milliseconds"] if "eager" in found else math.nan


def _told(case: Mapping[str, Any], found: Mapping[str, Mapping[str, float]]) -> tuple[str, float, dict[str, float]]:
    """Returns cold or hot, tempplug's milliseconds, and how many times as long each implementation takes."""
    name = told_time(case["rows"], found["tempplug"])
    ours = found["tempplug"][name]
    return "cold" if name.endswith("cold") else "hot", ours, {other: of[name] / ours for other, of in found.items()}


def _contents(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]


def _cases(folder: Path, quantity: str, kept: bool = False) -> list[tuple[dict[str, Any], dict[str, dict[str, float]]]]:
    """Returns the cases of a machine, by loss and size, each with the numbers of every implementation that ran."""
    cases = []
    for content in _contents(folder):
        case, outcomes = content["case"], content["outcomes"]
        environment = set(case["environment"])
        if case["quantity"] == quantity and environment == ({"GLIBC_TUNABLES"} if kept else set()):
            cases.append((case, {name: of["numbers"] for name, of in outcomes.items() if of["status"] == "measured"}))
    order = [*LOSSES]
    return sorted(
        cases, key=lambda each: (order.index(each[0]["loss"]), *(each[0][of] for of in ("rows", "dimension", "temperature")))
    )


def _milliseconds(value: float) -> str:
    return f"{value:.{0 if value >= 10 else 1 if value >= 1 else 2}f}"


def _marked(times: Mapping[str, float], name: str) -> str:
    """Returns how many times as long an implementation takes, marked where tempplug is slower."""
    return NOTHING if name not in times else _times(times[name]) + " ▼" * (times[name] < 1)


def _times(ratio: float) -> str:
    return f"{ratio:.{2 if ratio < 1 else 1 if ratio < 9.95 else 0}f}"


TABLES: dict[str, Callable[[Path], list[list[str]]]] = {
    each.__name__: each for each in (speed, short, machines, memory, kept, errors)
}
