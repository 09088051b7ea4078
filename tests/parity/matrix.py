"""The covering array of everything that a call can be, so that every two settings meet, each compared with the oracle."""

from __future__ import annotations

import re
from typing import Any

import torch
from covering import every_pair
from oracle_cases import (
    CONTEXTS,
    CUTS,
    DEVICE,
    GLOBAL,
    HEAD_TAIL,
    KEYS,
    LAYOUTS,
    OBJECTIVES,
    ONE_POSITIVE,
    RAGGED,
    SIGMOID,
    STRATEGIES,
    TARGETS,
    TERMS,
    compare,
    cut_into,
    make_call,
    zero_rows,
)

from tempplug.arguments import parse_spec
from tempplug.types import EngineName

Case = tuple[Any, ...]

# One spec of each strategy.
EACH = list({spec.partition(":")[0]: spec for spec in reversed(STRATEGIES)}.values())
ENGINES: list[EngineName] = ["auto", "dense", "tiled"]
# An engine, and how it cuts a block where that is not its own choice.
WAYS = [("auto", ""), ("dense", ""), *(("tiled", cut) for cut in CUTS)]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float64]
SIZES = [(1, 3), (2, 16), (3, 3), (14, 6), (17, 1), (17, 3), (33, 16), (35, 130)]
ROWS = ["as they are", "some of zeros"]
AROUND = [name for name, context in CONTEXTS.items() if context.backward != "none" and not context.compiled]
# Logits of 50 nats and more, or slopes that large, which float32 rounds to 1e-5.
STEEP = ("amcl", "temperature-free:", "fixed:temperature=0.004", "learnable:initial_temperature=0.02")
# What else a call can have is one more list here, and one more name in the test. Options of a strategy change its map alone.
CASES = every_pair(EACH, [*LAYOUTS, *RAGGED], OBJECTIVES, WAYS, DTYPES, SIZES, ROWS, AROUND, TERMS)
OTHERS = [spec for spec in STRATEGIES if spec not in EACH]
SOME = ["two-view", "symmetric+hard", "queue+ragged", "labels"]
CASES += every_pair(
    OTHERS, SOME, OBJECTIVES[:4], WAYS, DTYPES, SIZES[2:6], ROWS, AROUND, ["", "guide:margin=-0.1", "hardness:strength=9"]
)
AMCL = [spec for spec in STRATEGIES if spec.startswith("amcl")]
TOP = ["amcl-top:top_k=1,beta=0.02", "amcl-top:top_k=3,beta=0.5"]
CASES += every_pair(AMCL, [*ONE_POSITIVE, "masks-one"], TOP, WAYS, DTYPES[:1], [(14, 6), (17, 3)], ROWS[:1], AROUND, TERMS[:1])
# Which candidates are positives, and how much: by targets, which other objectives refuse, and by keys.
CASES += every_pair(EACH, TARGETS, ["infonce", *SIGMOID, "dcl"], WAYS, DTYPES, SIZES, ROWS, AROUND, TERMS)
CASES += every_pair(EACH, KEYS, ["infonce", "dcl", *SIGMOID[:1], GLOBAL[0]], WAYS, DTYPES, SIZES, ROWS, AROUND, TERMS)
# Several tiles of the engine's own size, 256 rows by 1024 columns.
CASES += [
    (strategy, layout, objective, ("tiled", ""), dtype, size, ROWS[0], "plain", negatives)
    for strategy, layout, objective, dtype, size, negatives in [
        ("learnable", "two-view", "infonce", torch.float32, (530, 3), ""),
        ("temperature-free", "two-view+hard", "reweighted", torch.float64, (530, 130), "same-key"),
        ("dystress:profile=cosine", "symmetric", "dclw", torch.float64, (1000, 130), ""),
        ("macl", "queue+hard", "dual-temperature", torch.float32, (1000, 3), ""),
        (HEAD_TAIL, "labels", "infonce", torch.float64, (530, 3), ""),
        ("uncertainty", "masks", "infonce", torch.float32, (1000, 3), ""),
        ("amcl:dimension=D", "two-view", "dcl", torch.float64, (530, 3), ""),
        ("learnable", "cross-view:directions=ab+aa+ba+bb+ragged", "infonce", torch.float64, (601, 3), "guide"),
    ]
]
# Blocks that share a softmax, and which hard negatives an anchor sees.
DIRECTIONS = ["ab", "ab+ba", "ab+bb", "ab+aa+bb", "ab+aa+ba+bb"]


def stands(directions: str, softmax: str, hard: str, in_batch: str, extra: str) -> bool:
    """Whether a layout has such options, with such hard negatives."""
    of_its_own = softmax == "joint" or directions in ("ab", "ab+ba")
    return of_its_own and (in_batch == "true" or (directions == "ab" and extra != ""))


OPTIONS = [DIRECTIONS, ["joint", "separate"], ["shared", "ab", "own"], ["true", "false"], ["", "+hard", "+ragged"]]
CROSS = [
    f"cross-view:directions={directions},softmax={softmax},hard={hard},in_batch={in_batch}{extra}"
    for directions, softmax, hard, in_batch, extra in every_pair(*OPTIONS, allowed=stands)
]
# Of one block alone, the last one.
OF_BLOCK = ["false-negatives:margin=-0.3,blocks=LAST", "hardness:strength=9,blocks=LAST"]
OF_CROSS = [*list({spec.partition(":")[0]: spec for spec in TERMS}.values()), *OF_BLOCK]
CASES += every_pair(EACH, CROSS, OBJECTIVES[::2], WAYS, DTYPES, SIZES[3:], ROWS, AROUND, OF_CROSS)


def tolerance_of(strategy: str, dtype: torch.dtype) -> float:
    """How far row losses and gradients may be off, relative to the larger of 1 and the largest number."""
    if dtype == torch.float64:
        return 1e-10
    if dtype == torch.bfloat16 and DEVICE != "cpu":  # the factors of a gradient's products are bfloat16 there
        return 2e-2 if strategy.startswith(("tempnet", *STEEP, "temperature-free")) else 2e-3
    # A row loss is a difference of logits, of up to 250 nats at the smallest temperature, each rounded to float32. Log-odds and
    # their slope divide by 1 - |s|, down to eps, of which the float32 rounding of s alone is 1e-3.
    reduced = 1e-4 if strategy.startswith(STEEP) else 2e-5
    reduced = 2e-3 if strategy == "temperature-free" else reduced
    return 5e-4 if strategy.startswith("tempnet") else reduced  # whose network divides products by 0.01


def check(case: Case) -> None:
    """Asserts that row losses and gradients of a case are those of the oracle."""
    strategy, layout, objective, (engine, cut), dtype, size, rows, around, negatives = case
    if objective.startswith("sigmoid"):  # which has no sum of exp to estimate
        negatives = re.sub(r"\+?debiased(:prior=[\d.]+)?$", "", negatives)
    last = str(parse_spec(layout)[1].get("directions", "")).split("+")[-1]
    call = make_call(layout, strategy, *size, dtype, negatives.replace("LAST", last))
    if rows == "some of zeros":
        zero_rows(call)
    with cut_into(cut):
        compare(strategy, objective, call, tolerance_of(strategy, dtype), engine, CONTEXTS[around])
