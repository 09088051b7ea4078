"""The speed suite's tasks and the cases of each profile: quick (seconds), small (two CPU cores), paper (all sizes; a GPU)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tempplug_benchmarks.speed.case import OURS, Case, Quantity, SpeedSuite, SpeedTask
from tempplug_benchmarks.speed.targets import load_targets

SIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
DIMENSIONS = (64, 128, 768)
# How time and memory grow, tempplug alone.
SCALING = (512, 1024, 2048, 4096, 8192, 16384, 32768)
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
    "nt-xent": ("tempplug-dense", *_PLAIN, "lightly", "pygcl", "bare-products"),
    "macl": ("eager", "lightly"),
    "dystress": _PLAIN,
    "temperature-free": _PLAIN,
    "one-way": (*_PLAIN, "sentence-transformers", "sentence-transformers-cached"),
    "two-way": ("eager", "open-clip"),
}


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


def _time_task(loss: str, summary: str, quick: Sequence[Case], small: Sequence[Case]) -> SpeedTask:
    profiles = {"quick": tuple(quick), "small": tuple(small), "paper": _grid(loss)}
    return SpeedTask(name=loss, summary=summary, quantity="time", profiles=profiles)


def _alone(measured: Sequence[Case], **more: Any) -> list[Case]:
    """Returns a case of tempplug alone for each size of `SCALING` that these cases lack."""
    sizes = {(each.rows, each.dimension) for each in measured if each.loss == "nt-xent"}
    return [case("nt-xent", rows, 128, (), **more) for rows in SCALING if (rows, 128) not in sizes]


def _nt_xent() -> SpeedTask:
    with_everything = (*OTHERS["nt-xent"], "pytorch-metric-learning")
    quick = [
        case("nt-xent", 32, 64, ("tempplug-dense", "eager", "lightly", "pygcl", "pytorch-metric-learning", "bare-products")),
        case("nt-xent", 128, 64, ("tempplug-dense", "eager", "pygcl")),
        case("nt-xent", 1024, 64, ("tempplug-dense", "eager", "lightly", "pygcl", "bare-products")),
    ]
    small = [case("nt-xent", rows, 128) for rows in (32, 64)] + [case("nt-xent", 128, 128, with_everything)]
    for rows in (512, 2048, 8192):
        for dimension in DIMENSIONS:
            others = OTHERS["nt-xent"] if (rows, dimension) == (2048, 128) else ("eager",)
            small.append(case("nt-xent", rows, dimension, others))
    small += _alone(small)
    return _time_task("nt-xent", "SimCLR's loss: two views, same-side negatives, one temperature", quick, small)


def _grace() -> SpeedTask:
    others = ("grace", "pygcl")
    return SpeedTask(
        name="grace",
        summary="a whole graph at once: GRACE on 3,327 nodes (Citeseer), D = 32, same-side negatives",
        quantity="time",
        profiles={
            "quick": (case("nt-xent", 100, 32, others, tag="grace"),),
            "small": (case("nt-xent", 3327, 32, others, tag="grace"),),
            "paper": (case("nt-xent", 3327, 32, others, tag="grace"),),
        },
    )


def _plain_products() -> SpeedTask:
    def cases(rows: int, dimensions: Sequence[int]) -> tuple[Case, ...]:
        return tuple(case("nt-xent", rows, each, tag="mm", environment=PLAIN_PRODUCTS) for each in dimensions)

    return SpeedTask(
        name="plain-products",
        summary="NT-Xent with tempplug's faster matrix products turned off (torch.mm alone)",
        quantity="time",
        profiles={"quick": cases(128, (64,)), "small": cases(2048, DIMENSIONS), "paper": cases(2048, DIMENSIONS)},
    )


def _kept_memory() -> SpeedTask:
    def cases(rows: int, dimension: int) -> tuple[Case, ...]:
        losses = ("nt-xent",) if rows < 512 else ("nt-xent", "dystress", "temperature-free", "one-way", "two-way")
        return tuple(case(loss, rows, dimension, tag="kept", environment=KEEP_MEMORY) for loss in losses)

    return SpeedTask(
        name="kept-memory",
        summary="glibc told never to return memory, so that no implementation pays for fresh pages",
        quantity="time",
        profiles={"quick": cases(128, 64), "small": cases(2048, 128), "paper": (*cases(2048, 128), *cases(8192, 128))},
    )


def _memory() -> SpeedTask:
    def one(loss: str, rows: int, dimension: int, others: Sequence[str] = ("eager",), **more: Any) -> Case:
        return case(loss, rows, dimension, others, quantity="memory", tag="memory", **more)

    losses = ("nt-xent", "dystress", "temperature-free")
    large = tuple(one(loss, 8192, 128) for loss in (*losses, "one-way"))
    libraries = one("nt-xent", 2048, 128, ("eager", "lightly", "pygcl"))
    alone = _alone((libraries, *large), quantity="memory", tag="memory")
    for_gpu = (
        *(one(loss, 32768, 512, device="cuda") for loss in losses),
        *(one("nt-xent", rows, 512, (), device="cuda") for rows in (131072, 524288)),
    )
    return SpeedTask(
        name="memory",
        summary="growth of the memory at its peak, every implementation in a fresh process",
        quantity="memory",
        profiles={
            "quick": (one("nt-xent", 512, 64),),
            "small": (libraries, *large, *alone),
            "paper": (libraries, *large, one("one-way", 16384, 128), *alone, *for_gpu),
        },
    )


def _single(loss: str, summary: str) -> SpeedTask:
    quick = case(loss, 1024, 64, [name for name in OTHERS[loss] if name != "compiled"])
    return _time_task(loss, summary, [quick], [case(loss, 2048, 128, OTHERS[loss])])


SMALL_BATCHES = {
    "nt-xent": ((256, 128),),
    "one-way": ((64, 128), (64, 768), (256, 768)),
    "hard-negatives": ((64, 768), (512, 128)),
    "queue": ((64, 128), (256, 128)),
}
PAIR_TEMPERATURES = {"amcl": ((256, 128), (1024, 128))}
SEVERAL_POSITIVES = {"labels": ((64, 128), (256, 128), (1024, 128)), "masks": ((64, 128), (256, 128), (2048, 128))}


def _of_losses(name: str, summary: str, sizes: Mapping[str, Sequence[tuple[int, int]]]) -> SpeedTask:
    """Returns a task of several losses; the smallest size of each is measured with kept memory as well."""
    cases: list[Case] = []
    for loss, its_sizes in sizes.items():
        cases += [case(loss, rows, width, tag="batch") for rows, width in its_sizes]
        cases.append(case(loss, *its_sizes[0], tag="batch-kept", environment=KEEP_MEMORY))
    quick = tuple(case(loss, 32, 16, tag="batch") for loss in sizes)
    return SpeedTask(
        name=name, summary=summary, quantity="time", profiles={"quick": quick, "small": tuple(cases), "paper": tuple(cases)}
    )


def _accuracy() -> SpeedTask:
    def cases(rows: int, dimension: int) -> tuple[Case, ...]:
        def one(loss: str, temperature: float, tag: str) -> Case:
            return case(loss, rows, dimension, quantity="accuracy", tag=tag, temperature=temperature)

        sharp = tuple(one("nt-xent", value, f"error-{value:g}") for value in (0.02, 0.05, 0.1))
        mapped = tuple(one(loss, 0.1, "error") for loss in ("dystress", "temperature-free"))
        return (*sharp, *mapped, *(one(loss, 0.05, "error") for loss in ("one-way", "two-way")))

    batches = [case("nt-xent", rows, 128, quantity="accuracy", tag="batch-error") for rows in (32, 64, 128, 512, 2048)]
    for loss, sizes in {**SMALL_BATCHES, **SEVERAL_POSITIVES, **PAIR_TEMPERATURES}.items():
        batches += [case(loss, rows, width, quantity="accuracy", tag="batch-error") for rows, width in sizes]
    return SpeedTask(
        name="accuracy",
        summary="largest error of the gradient against the same formula in float64, relative to its largest entry",
        quantity="accuracy",
        profiles={"quick": cases(64, 32)[1:2], "small": (*cases(1024, 128), *batches), "paper": (*cases(1024, 128), *batches)},
    )


SUITE = SpeedSuite(
    name="speed",
    summary="time, memory and exactness of a forward and backward pass, tempplug beside eager code and other libraries",
    tasks=(
        _nt_xent(),
        _single("macl", "MACL: a temperature that follows the batch, reweighted rows"),
        _single("dystress", "DySTreSS: a temperature for every pair"),
        _single("temperature-free", "Temperature-Free InfoNCE: logits are log-odds of the similarity"),
        _single("one-way", "in-batch negatives in one direction (multiple-negatives ranking, SimCSE)"),
        _single("two-way", "both directions (CLIP)"),
        _of_losses(
            "small-batches", "batches that one tile holds: two views, one direction, hard negatives, a queue", SMALL_BATCHES
        ),
        _of_losses("several-positives", "several positives an anchor: classes (SupCon), masks (PyGCL)", SEVERAL_POSITIVES),
        _of_losses("pair-temperatures", "AMCL with DCL: a learned temperature for every pair", PAIR_TEMPERATURES),
        _grace(),
        _plain_products(),
        _kept_memory(),
        _memory(),
        _accuracy(),
    ),
    targets=load_targets(),
)
