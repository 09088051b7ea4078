"""Tables of the guide from results of the speed suite: a header and rows of cells. It must not know how pages are written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

NOTHING = "–"
LOSSES = {
    "nt-xent": "two views (SimCLR)",
    "one-way": "one-way (SimCSE)",
    "two-way": "two-way (CLIP)",
    "hard-negatives": "one-way, a hard negative each",
    "queue": "queue of 4,096 (MoCo)",
    "labels": "labels (SupCon)",
    "masks": "masks, one positive a row",
    "macl": "two views, MACL",
    "dystress": "two views, DySTreSS",
    "temperature-free": "two views, Temperature-Free",
    "amcl": "two views, AMCL with DCL",
}
NAMED = {"eager": "plain PyTorch", "compiled": "`torch.compile`"}
LIBRARIES = {
    **{"grace": "GRACE's code", "pygcl": "PyGCL", "lightly": "lightly", "open-clip": "open_clip's formula"},
    **{"sentence-transformers": "sentence-transformers", "sentence-transformers-cached": "its cached loss"},
    "pytorch-metric-learning": "pytorch-metric-learning",
}


def speed(folder: Path) -> list[list[str]]:
    """Returns milliseconds of tempplug, and how many times as long others take; slower ones of ours are marked."""
    lines = [["loss", "N × D", "tempplug, ms", *NAMED.values(), "other libraries"]]
    for case, found in _cases(folder, "time"):
        ours = found["tempplug"]["milliseconds"]
        times = {name: of["milliseconds"] / ours for name, of in found.items()}
        others = ", ".join(f"{title} {_times(times[name])}" for name, title in LIBRARIES.items() if name in times)
        shown = [NOTHING if name not in times else _times(times[name]) + " ▼" * (times[name] < 1) for name in NAMED]
        digits = 0 if ours >= 10 else 1 if ours >= 1 else 2
        size = f"{case['rows']} × {case['dimension']}"
        lines.append([LOSSES[case["loss"]], size, f"{ours:.{digits}f}", *shown, others or NOTHING])
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


def _cases(folder: Path, quantity: str, kept: bool = False) -> list[tuple[dict[str, Any], dict[str, dict[str, float]]]]:
    """Returns the cases of a machine, by loss and size, each with the numbers of every implementation that ran."""
    cases = []
    for file in folder.glob("*.json"):
        content = json.loads(file.read_text(encoding="utf-8"))
        case, outcomes = content["case"], content["outcomes"]
        environment = set(case["environment"])
        if case["quantity"] == quantity and environment == ({"GLIBC_TUNABLES"} if kept else set()):
            cases.append((case, {name: of["numbers"] for name, of in outcomes.items() if of["status"] == "measured"}))
    order = [*LOSSES]
    return sorted(
        cases, key=lambda each: (order.index(each[0]["loss"]), *(each[0][of] for of in ("rows", "dimension", "temperature")))
    )


def _times(ratio: float) -> str:
    return f"{ratio:.{2 if ratio < 1 else 1 if ratio < 9.95 else 0}f}"


TABLES: dict[str, Callable[[Path], list[list[str]]]] = {"speed": speed, "memory": memory, "kept": kept, "errors": errors}
