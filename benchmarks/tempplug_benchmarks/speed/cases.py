"""The speed suite's tasks and the cases of each profile: quick (seconds), small (two CPU cores), paper (all sizes; a GPU)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tempplug_benchmarks.speed.case import OURS, SMALL_ROWS, Case, Quantity, SpeedSuite, SpeedTask
from tempplug_benchmarks.speed.targets import Target, load_targets

SIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
DIMENSIONS = (64, 128, 768)
# How time and memory grow, tempplug alone; the largest for memory alone.
SCALING = (512, 1024, 2048, 4096, 8192, 16384)
LARGEST = 32768
GPU_DIMENSIONS = (128, 256, 512, 768, 1024)
GPU_ROWS = {"nt-xent": 32768, "dystress": 32768, "temperature-free": 32768, "one-way": 65536, "two-way": 65536}
# pytorch-metric-learning compares every positive pair with every negative one: beyond this its memory is cubic gigabytes.
METRIC_LEARNING_ROWS = 128

# The thresholds above which glibc returns memory to the system; out of reach, eager code never faults pages in again.
KEEP_MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.mmap_threshold=1099511627776:"
    "glibc.malloc.trim_threshold=1099511627776:glibc.malloc.top_pad=1073741824"
}
PLAIN_PRODUCTS = {"TEMPPLUG_GEMM": "mm"}
# The implementations of each loss that run at any size.
_PLAIN = ("eager", "compiled")
OTHERS = {
    "nt-xent": ("tempplug-dense", *_PLAIN, "lightly", "pygcl"),
    "macl": ("eager", "lightly"),
    "dystress": _PLAIN,
    "temperature-free": _PLAIN,
    "one-way": (*_PLAIN, "sentence-transformers", "sentence-transformers-cached"),
    "two-way": ("eager", "open-clip"),
}
# The losses that are also called from a compiled function, and the pairs.
COMPILED_LOSSES, COMPILED_ROWS = ("nt-xent", "one-way", "two-way"), (64, 256)
# Pairs up to which plain PyTorch must take at least so many times as long, with a network's step between calls.
COLD = {64: 0.9, 128: 0.95, 2048: 1.0}


def case(
    loss: str,
    rows: int,
    dimension: int,
    others: Sequence[str] = ("eager",),
    *,
    quantity: Quantity = "time",
    tag: str = "",
    **more: Any,
) -> Case:
    """Returns a case, named after its loss, size and what is special about it.

    Args:
        loss: name of the loss.
        rows: N.
        dimension: D.
        others: implementations beside tempplug.
        quantity: what is measured.
        tag: end of the name, for a case whose loss and size others share.
        more: further fields of `Case`.
    """
    parts = [loss, f"{rows}x{dimension}", *([tag] if tag else [])]
    more.setdefault("temperature", 0.05 if loss in ("one-way", "two-way", "hard-negatives") else 0.1)
    return Case(
        name="-".join(parts),
        quantity=quantity,
        loss=loss,
        rows=rows,
        dimension=dimension,
        implementations=(OURS, *others),
        **more,
    )


def _grid(loss: str) -> tuple[Case, ...]:
    """Returns every size of the paper profile; the slow comparisons, such as compiling, at D = 128 alone."""
    cases = []
    for dimension in DIMENSIONS:
        for rows in SIZES:
            others = list(OTHERS[loss] if dimension == 128 and rows <= 4096 else ("eager",))
            if loss == "nt-xent" and rows <= METRIC_LEARNING_ROWS:
                others.append("pytorch-metric-learning")
            cases.append(case(loss, rows, dimension, others))
    if loss in GPU_ROWS:
        others = ["tempplug-triton", "eager"]
        cases += [case(loss, GPU_ROWS[loss], dimension, others, tag="gpu", device="cuda") for dimension in GPU_DIMENSIONS]
    return tuple(cases)


def _task(
    name: str,
    summary: str,
    quick: Sequence[Case],
    small: Sequence[Case],
    paper: Sequence[Case] = (),
    quantity: Quantity = "time",
) -> SpeedTask:
    """Returns a task; its paper profile is the small one where it has none of its own."""
    large = {"small": small, "paper": paper or small}
    profiles = {"quick": tuple(quick)} | {profile: tuple(map(_with_compiled, cases)) for profile, cases in large.items()}
    return SpeedTask(name=name, summary=summary, quantity=quantity, profiles=profiles)


def _with_compiled(each: Case) -> Case:
    """Returns the case with compiled implementations where its batch is small."""
    names = each.implementations
    if each.quantity == "time" and each.rows <= SMALL_ROWS and not each.environment and "eager" in names:
        names += ("compiled",) * ("compiled" not in names)
        names += ("tempplug-compiled",) * (each.loss in COMPILED_LOSSES and each.rows in COMPILED_ROWS)
    return replace(each, implementations=names)


def _alone(measured: Sequence[Case], sizes: Sequence[int] = SCALING, **more: Any) -> list[Case]:
    """Returns a case of tempplug alone for each of these sizes that the cases lack."""
    there = {(each.rows, each.dimension) for each in measured if each.loss == "nt-xent"}
    return [case("nt-xent", rows, 128, (), **more) for rows in sizes if (rows, 128) not in there]


def _nt_xent() -> SpeedTask:
    quick = [
        case("nt-xent", 32, 64, ("tempplug-dense", "eager", "lightly", "pygcl", "pytorch-metric-learning")),
        case("nt-xent", 128, 64, ("tempplug-dense", "eager", "pygcl")),
        case("nt-xent", 1024, 64, ("tempplug-dense", "eager", "lightly", "pygcl")),
    ]
    small = [case("nt-xent", 32, 128, ("eager", "pytorch-metric-learning")), case("nt-xent", 64, 128)]
    small.append(case("nt-xent", 128, 128, OTHERS["nt-xent"]))
    for rows, dimension in [(512, 64), (512, 128), (512, 768), (2048, 64), (2048, 128), (2048, 768), (8192, 128)]:
        others = OTHERS["nt-xent"] if (rows, dimension) == (2048, 128) else ("eager",)
        small.append(case("nt-xent", rows, dimension, others))
    summary = "SimCLR's loss: two views, same-side negatives, one temperature"
    return _task("nt-xent", summary, quick, [*small, *_alone(small)], _grid("nt-xent"))


def _single(loss: str, summary: str) -> SpeedTask:
    quick = case(loss, 1024, 64, [name for name in OTHERS[loss] if name != "compiled"])
    return _task(loss, summary, [quick], [case(loss, 2048, 128, OTHERS[loss])], _grid(loss))


def _grace() -> SpeedTask:
    others = ("grace", "pygcl")
    whole = (case("nt-xent", 3327, 32, others, tag="grace"), case("nt-xent", 3327, 256, ("eager", "grace"), tag="grace"))
    summary = "a whole graph at once: GRACE on 3,327 nodes (Citeseer), same-side negatives"
    return _task("grace", summary, [case("nt-xent", 100, 32, others, tag="grace")], whole)


def _plugin_map() -> SpeedTask:
    others = ("tempplug-dystress", "eager")
    summary = "a third party's map with three methods, DySTreSS's formula, beside tempplug's own DySTreSS"
    sizes = [case("plugin-map", rows, 128, others) for rows in (64, 256, 1024)]
    return _task("plugin-map", summary, [case("plugin-map", 32, 16, others)], sizes)


def _plain_products() -> SpeedTask:
    def cases(rows: int, *dimensions: int) -> list[Case]:
        return [case("nt-xent", rows, each, tag="mm", environment=PLAIN_PRODUCTS) for each in dimensions]

    summary = "NT-Xent with tempplug's faster matrix products turned off (torch.mm alone)"
    return _task("plain-products", summary, cases(128, 64), cases(2048, *DIMENSIONS))


def _kept_memory() -> SpeedTask:
    def cases(rows: int, dimension: int) -> list[Case]:
        losses = ("nt-xent",) if rows < 512 else ("nt-xent", "dystress", "temperature-free", "one-way", "two-way")
        return [case(loss, rows, dimension, tag="kept", environment=KEEP_MEMORY) for loss in losses]

    summary = "glibc told never to return memory, so that no implementation pays for fresh pages"
    small = cases(2048, 128)
    return _task("kept-memory", summary, cases(128, 64), small, [*small, *cases(8192, 128)])


def _memory() -> SpeedTask:
    def one(loss: str, rows: int, dimension: int, others: Sequence[str] = ("eager",), **more: Any) -> Case:
        return case(loss, rows, dimension, others, quantity="memory", tag="memory", **more)

    losses = ("nt-xent", "dystress", "temperature-free")
    large = [one("nt-xent", 2048, 128, ("eager", "lightly", "pygcl")), *(one(loss, 8192, 128) for loss in (*losses, "one-way"))]
    alone = _alone(large, (*SCALING, LARGEST), quantity="memory", tag="memory")
    for_gpu = [one(loss, 32768, 512, device="cuda") for loss in losses]
    for_gpu += [one("nt-xent", rows, 512, (), device="cuda") for rows in (131072, 524288)]
    paper = [*large, one("one-way", 16384, 128), *alone, *for_gpu]
    summary = "growth of the memory at its peak, every implementation in a fresh process"
    return _task("memory", summary, [one("nt-xent", 512, 64)], [*large, *alone], paper, "memory")


SMALL_BATCHES = {
    "nt-xent": ((256, 128),),
    "one-way": ((64, 128), (64, 768), (256, 768)),
    "hard-negatives": ((64, 768), (512, 128)),
    "queue": ((64, 128), (256, 128)),
    "two-way": ((64, 512),),
}
PAIR_TEMPERATURES = {"amcl": ((256, 128), (1024, 128))}
SEVERAL_POSITIVES = {
    "labels": ((64, 128), (256, 128), (1024, 128)),
    "masks": ((64, 128), (256, 128), (2048, 128)),
    "masks-several": ((64, 128), (256, 128)),
}


def _of_losses(name: str, summary: str, sizes: Mapping[str, Sequence[tuple[int, int]]]) -> SpeedTask:
    """Returns a task of several losses."""
    cases = [case(loss, rows, width, tag="batch") for loss, its_sizes in sizes.items() for rows, width in its_sizes]
    return _task(name, summary, [case(loss, 32, 16, tag="batch") for loss in sizes], cases)


def _accuracy() -> SpeedTask:
    def one(loss: str, rows: int, dimension: int, tag: str = "batch-error", **more: Any) -> Case:
        return case(loss, rows, dimension, quantity="accuracy", tag=tag, **more)

    def sharp(rows: int, dimension: int, *temperatures: float) -> list[Case]:
        return [one("nt-xent", rows, dimension, f"error-{each:g}", temperature=each) for each in temperatures]

    cases = sharp(1024, 128, 0.02, 0.05, 0.1)
    cases += [one(loss, 1024, 128, "error") for loss in ("dystress", "temperature-free", "one-way", "two-way")]
    cases += [one("nt-xent", rows, 128) for rows in (32, 64, 128, 512, 2048)]
    for loss, sizes in {**SMALL_BATCHES, **SEVERAL_POSITIVES, **PAIR_TEMPERATURES}.items():
        cases += [one(loss, rows, width) for rows, width in sizes]
    summary = "largest error of the gradient against the same formula in float64, relative to its largest entry"
    return _task("accuracy", summary, sharp(64, 32, 0.05), cases, quantity="accuracy")


def _targets() -> Iterator[Target]:
    """Returns the targets that hold for every case outside the quick profile."""
    cases = {each.name: each for task in TASKS for each in (*task.profiles["small"], *task.profiles["paper"])}
    for name, each in cases.items():
        limits = [limit for rows, limit in COLD.items() if each.rows <= rows]
        if each.quantity == "time" and limits and "eager" in each.implementations:
            yield Target(case=name, against="eager", at_least=limits[0], cold=True)
        if "tempplug-compiled" in each.implementations:
            yield Target(case=name, against="compiled", of="tempplug-compiled", at_least=1, cold=True)
        if "tempplug-dystress" in each.implementations:
            yield Target(case=name, against="tempplug-dystress", at_least=1 / 1.5, cold=True)
        if each.quantity == "accuracy":
            yield Target(case=name, against="eager", at_least=1)


TASKS = (
    _nt_xent(),
    _single("macl", "MACL: a temperature that follows the batch, reweighted rows"),
    _single("dystress", "DySTreSS: a temperature for every pair"),
    _single("temperature-free", "Temperature-Free InfoNCE: logits are log-odds of the similarity"),
    _single("one-way", "in-batch negatives in one direction (multiple-negatives ranking, SimCSE)"),
    _single("two-way", "both directions (CLIP)"),
    _of_losses(
        "small-batches", "small batches: two views, one direction, hard negatives, a queue, two directions", SMALL_BATCHES
    ),
    _of_losses("several-positives", "several positives an anchor: classes (SupCon), masks (PyGCL)", SEVERAL_POSITIVES),
    _of_losses("pair-temperatures", "AMCL with DCL: a learned temperature for every pair", PAIR_TEMPERATURES),
    _plugin_map(),
    _grace(),
    _plain_products(),
    _kept_memory(),
    _memory(),
    _accuracy(),
)
SUITE = SpeedSuite(
    name="speed",
    summary="time, memory and exactness of a forward and backward pass, tempplug beside eager code and other libraries",
    tasks=TASKS,
    targets=(*load_targets(), *_targets()),
)
