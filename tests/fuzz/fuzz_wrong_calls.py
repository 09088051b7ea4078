"""Calls of the loss with one thing wrong: every argument times everything that it must not be, and arguments that are not read.

A case is right where it is refused by an error of ours that names the argument.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzzing import Verdict
from oracle_cases import HEAD_TAIL, LAYOUTS, RAGGED, TERMS, build, make_call
from torch import Tensor

import tempplug
from tempplug.errors import TempplugError

PACKAGE = str(Path(tempplug.__file__).parent)
ROWS, DIMENSION = 6, 4
STRATEGIES = ["fixed", "learnable", "macl", "dystress", "temperature-free", "amcl:dimension=D"]
STRATEGIES += [HEAD_TAIL, "individual:size=20", "uncertainty"] * 2
KINDS = {"labels": "integers", "index": "integers", "uncertainty": "uncertainty"}
KINDS |= {"positive_mask": "mask", "negative_mask": "mask", "hard_negative_mask": "mask"}
KINDS |= {"keys": "integers", "groups": "integers", "candidate_log_q": "log q"}
Change = Callable[[Tensor], Any]


def with_number(value: float) -> Change:
    """The last number becomes another."""

    def change(tensor: Tensor) -> Tensor:
        changed = tensor.detach().clone()
        changed.view(-1)[-1] = value
        return changed

    return change


def as_types(*kinds: torch.dtype) -> dict[str, Change]:
    return {str(kind): (lambda t, kind=kind: t.to(kind)) for kind in kinds}


NUMBERS = {str(value): with_number(value) for value in (float("nan"), float("inf"), -float("inf"))}
ANY: dict[str, Change] = {
    **{"list": Tensor.tolist, "numpy": lambda t: t.detach().numpy(), "number": lambda t: 0.5, "text": lambda t: "text"},
    **{"dict": lambda t: {"a": t}, "sparse": Tensor.to_sparse, "meta": lambda t: t.to("meta"), "0-d": lambda t: t.flatten()[0]},
    **{"no rows": lambda t: t[:0], "one more axis": lambda t: t.unsqueeze(-1), "one row less": lambda t: t[:-1]},
    **{"one row more": lambda t: torch.cat([t, t[:1]]), "nested": lambda t: torch.nested.nested_tensor(list(t.detach()))},
    **{
        "words": lambda t: ["word"] * len(t),
        "None": lambda t: [None] * len(t),
        "array of words": lambda t: np.array(["a"] * len(t)),
    },
    **{"ragged": lambda t: [t.detach()[: 1 + row % 2] for row in range(len(t))], "tuple of rows": tuple},
    **as_types(torch.complex64),
}
WRONG: dict[str, dict[str, Change]] = {
    "embeddings": {
        **(ANY | NUMBERS | as_types(torch.float8_e4m3fn, torch.int64, torch.bool)),
        "list of rows": list,
        "csr": lambda t: t.detach().flatten(0, -2).to_sparse_csr(),
        "mkldnn": lambda t: t.detach().to_mkldnn(),
        "1-d": Tensor.flatten,
        "transposed": lambda t: t.mT,
        "no dimensions": lambda t: t[..., :0],
        "one dimension less": lambda t: t[..., :-1],
    },
    "integers": {
        **(ANY | as_types(torch.float32, torch.float16, torch.bool)),
        "NaN": lambda t: with_number(float("nan"))(t.float()),
        "negative": with_number(-1),
        "far outside": with_number(10**9),
        "beyond int64": lambda t: torch.full_like(t, 2**63, dtype=torch.uint64),
        "two columns": lambda t: torch.stack([t, t], 1),
        "one-hot": lambda t: torch.nn.functional.one_hot(t.flatten() % 7).float(),
        "of both views": lambda t: torch.cat([t, t]),
    },
    "uncertainty": {
        **(ANY | NUMBERS | as_types(torch.int64, torch.bool)),
        "triple": lambda t: (t, t, t),
        "pair of numbers": lambda t: (0.5, 0.5),
        "pair with a short one": lambda t: (t, t[:-1]),
        "pair of other kinds": lambda t: (t, t.long()),
    },
    "log q": {
        **(ANY | NUMBERS | as_types(torch.int64, torch.bool)),
        "q itself": torch.exp,
        "per cent": lambda t: 100 * t.exp(),
        "counts": lambda t: (1 + 1000 * t.exp()).round(),
        "their logarithms": lambda t: (1 + 1000 * t.exp()).log(),
        "negated": torch.neg,
    },
    "mask": {
        **(ANY | as_types(torch.float32, torch.int64, torch.uint8)),
        "one column more": lambda t: torch.cat([t, t[:, :1]], 1),
        "everything": torch.ones_like,
        "transposed": lambda t: t.mT,
    },
}


def _harmless(argument: str, name: str, given: dict[str, Any], strategy: str) -> bool:
    """Whether what would be wrong elsewhere is allowed for this argument of this call."""
    if argument in ("queue", "hard_negatives") and name in ("one row less", "one row more"):
        return argument == "queue" or given[argument].ndim == 2
    if argument == "view_a" and name == "one dimension less":
        return given.keys().isdisjoint({"view_b", "hard_negatives"})  # nothing to compare with
    if argument == "view_b" and "positive_mask" in given and name == "no rows":
        return False
    if argument in ("keys", "groups"):
        return name in ("negative", "far outside")
    if argument == "hard_negative_mask" and name == "everything":
        return True
    if argument == "guide" and name in ("one dimension less", "no dimensions"):
        return len(given["guide"]) == 1
    if name == "transposed":  # of a square
        return argument.endswith("mask") and given[argument].shape[0] == given[argument].shape[1]
    # Classes are names where nothing looks them up.
    return argument == "labels" and name in ("negative", "far outside") and not strategy.startswith("head-tail")


def described(error: BaseException, names: tuple[str, ...]) -> bool:
    """Returns whether the error is raised by the library itself, is of a type that callers expect, and names what was wrong."""
    frames = traceback.extract_tb(error.__traceback__)
    own = frames[-1].filename.startswith(PACKAGE) or isinstance(error, TempplugError)
    return own and isinstance(error, ValueError | TypeError | LookupError) and any(name in str(error) for name in names)


def case(number: int) -> Verdict:
    chance = random.Random(number)
    strategy, layout, objective = (
        chance.choice(STRATEGIES),
        chance.choice([*LAYOUTS, *RAGGED]),
        chance.choice(["infonce", "dcl", "flatnce"]),
    )
    # Some terms want hard negatives of rows, which an even number of rows has not.
    terms = [spec for spec in [*TERMS, "guide", "guide:margin=0.2"] if not ("of=" in spec and layout.endswith("+hard"))]
    call = make_call(layout, strategy, ROWS, DIMENSION, torch.float32, chance.choice(terms) if chance.random() < 0.4 else "")
    loss_fn = build(strategy, objective, call, "mean", chance.choice(["auto", "dense", "tiled"]))
    given: dict[str, Any] = {**dict(zip(("view_a", "view_b"), call.views, strict=False)), **call.inputs}
    told = f"{strategy.partition(':')[0]} {objective} {layout} {loss_fn.engine}"
    if chance.random() < 0.12:
        own = torch.eye(ROWS, dtype=torch.bool)
        both = (torch.zeros(ROWS), torch.zeros(ROWS)) if layout in ("two-view", "symmetric") else torch.zeros(ROWS)
        extra = {"queue": torch.randn(3, DIMENSION), "index": torch.arange(ROWS), "uncertainty": both}
        extra |= {"labels": torch.arange(ROWS) % 3, "positive_mask": own, "negative_mask": ~own}
        if loss_fn.layout.name == "cross-view":
            del extra["queue"]  # past candidates, which it takes
        argument = chance.choice([name for name in extra if name not in given])
        named, told = (argument,), f"{told}: superfluous {argument}"
        given[argument] = extra[argument]
    elif "guide" in given and loss_fn.layout.by_position and chance.random() < 0.2:
        margin, argument, named = loss_fn.terms[0].options["margin"], "guide", ("guide",)
        given["guide"] = {part: given["guide"]["view_a" if part == "view_b" else part] for part in given["guide"]}
        told = f"{told}: one guide of both views"
        if margin < 0:
            return Verdict("right", told, "no mistake here")
    else:
        argument = chance.choice(sorted(given))
        kind = KINDS.get(argument, "embeddings")
        name = chance.choice(sorted(WRONG[kind]))
        told = f"{told}: {argument} {name}"
        if isinstance(given[argument], dict):
            part = chance.choice(sorted(given[argument].keys() - {"view_a"}) or ["view_a"])  # what every layout reads
            given[argument] = {**given[argument], part: WRONG[kind][name](given[argument][part])}
        else:
            value, *rest = given[argument] if isinstance(given[argument], tuple) else (given[argument],)
            changed = WRONG[kind][name](value)
            given[argument] = (changed, *rest) if rest and not isinstance(changed, tuple) else changed
        if _harmless(argument, name, given, strategy):
            return Verdict("right", told, "no mistake here")
        # Rows that do not fit are those of two arguments, and either may be named.
        named = tuple(given) if "row" in name or "column" in name else (argument,)
    try:
        found = loss_fn(**given)
    except Exception as error:
        seen = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
        return Verdict("refused" if described(error, named) else "obscure", told, seen)
    return Verdict("silent", told, f"accepted: {found}")
