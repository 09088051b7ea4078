"""Calls of the loss with one thing wrong: every argument times everything that it must not be.

A case is right where it is refused by an error of ours that names the argument. Some are no mistakes after all (integers of
another width, float64 beside float32): these must give the value of the plain call.
"""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fuzzing import Verdict
from torch import Tensor

import tempplug
from tempplug import ContrastiveLoss
from tempplug.errors import TempplugError

PACKAGE = str(Path(tempplug.__file__).parent)
ROWS, DIMENSION = 6, 4
LAYOUTS = ("two-view", "cross-view", "symmetric", "queue", "labels", "labels-one-view", "masks")
OBJECTIVES = ("infonce", "dcl", "flatnce")
EMBEDDINGS = ("view_a", "view_b", "queue", "hard_negatives")
INTEGERS = ("labels", "index")
MASKS = ("positive_mask", "negative_mask")

Change = Callable[[Tensor], Any]


def _with(value: float) -> Change:
    def change(tensor: Tensor) -> Tensor:
        changed = tensor.clone()
        changed.view(-1)[-1] = value
        return changed

    return change


def _nested(tensor: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor(list(tensor))


def _compressed(tensor: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tensor.to_sparse_csr()


ANY: dict[str, Change] = {
    "list": lambda t: t.tolist(),
    "numpy": lambda t: t.detach().numpy(),
    "number": lambda t: 0.5,
    "text": lambda t: "text",
    "dict": lambda t: {"a": t},
    "nested": _nested,
    "sparse": lambda t: t.to_sparse(),
    "meta": lambda t: t.to("meta"),
    "complex": lambda t: t.to(torch.complex64),
    "0-d": lambda t: t.flatten()[0],
    "no rows": lambda t: t[:0],
    "one more axis": lambda t: t.unsqueeze(-1),
    "one row less": lambda t: t[:-1],
    "one row more": lambda t: torch.cat([t, t[:1]]),
}
WRONG: dict[str, dict[str, Change]] = {
    "embeddings": ANY
    | {
        "list of rows": lambda t: list(t),
        "csr": _compressed,
        "mkldnn": lambda t: t.detach().to_mkldnn(),
        "float8": lambda t: t.detach().to(torch.float8_e4m3fn),
        "int64": lambda t: t.long(),
        "uint8": lambda t: t.abs().to(torch.uint8),
        "bool": lambda t: t > 0,
        "1-d": lambda t: t.flatten(),
        "no dimensions": lambda t: t[..., :0],
        "one dimension less": lambda t: t[..., :-1],
        "NaN": _with(float("nan")),
        "infinite": _with(float("inf")),
        "minus infinite": _with(-float("inf")),
    },
    "integers": ANY
    | {
        "float": lambda t: t.float(),
        "half": lambda t: t.half(),
        "NaN": lambda t: _with(float("nan"))(t.float()),
        "bool": lambda t: t > 0,
        "negative": _with(-1),
        "far outside": _with(10**9),
        "beyond int64": lambda t: torch.full_like(t, 2**63, dtype=torch.uint64),
        "two columns": lambda t: torch.stack([t, t], 1),
    },
    "uncertainty": ANY
    | {
        "int64": lambda t: t.long(),
        "bool": lambda t: t > 0,
        "NaN": _with(float("nan")),
        "infinite": _with(float("inf")),
        "triple": lambda t: (t, t, t),
        "pair of numbers": lambda t: (0.5, 0.5),
        "pair with a short one": lambda t: (t, t[:-1]),
        "pair of other kinds": lambda t: (t, t.long()),
    },
    "mask": ANY
    | {
        "float": lambda t: t.float(),
        "int64": lambda t: t.long(),
        "uint8": lambda t: t.to(torch.uint8),
        "transposed": lambda t: torch.cat([t, t[:, :1]], 1),
        "everything": torch.ones_like,
    },
}
# What is no mistake: the value is that of the plain call.
FINE: dict[str, dict[str, Change]] = {
    "embeddings": {
        "float64": lambda t: t.double(),
        "not contiguous": lambda t: t.repeat_interleave(2, -1)[..., ::2],
        "requires grad": lambda t: t.detach().clone().requires_grad_(),
    },
    "integers": {
        **{str(kind): (lambda t, kind=kind: t.to(kind)) for kind in (torch.int8, torch.int16, torch.int32, torch.uint8)},
        **{str(kind): (lambda t, kind=kind: t.to(kind)) for kind in (torch.uint16, torch.uint32, torch.uint64)},
    },
    "uncertainty": {"float64": lambda t: t.double()},
    "mask": {"not contiguous": lambda t: t.repeat_interleave(2, -1)[..., ::2]},
}


def kind_of(argument: str) -> str:
    if argument in EMBEDDINGS:
        return "embeddings"
    return "integers" if argument in INTEGERS else "mask" if argument in MASKS else "uncertainty"


@dataclass
class Call:
    """A call that works."""

    strategy: str
    objective: str
    layout: str
    engine: str
    given: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.strategy} {self.objective} {self.layout} {self.engine}"

    def run(self) -> Tensor:
        symmetric = {"symmetric": True} if self.layout == "symmetric" else {}
        layout: Any = {"symmetric": "cross-view", "labels-one-view": "labels"}.get(self.layout, self.layout)
        torch.manual_seed(0)  # of parameters that start at random
        loss_fn = ContrastiveLoss(self.strategy, self.objective, layout, engine=self.engine, **symmetric)  # type: ignore[arg-type]
        given = dict(self.given)
        loss = loss_fn(given.pop("view_a"), given.pop("view_b", None), **given)
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


def working_call(chance: random.Random) -> Call:
    """Returns a call in which everything is as it should be."""
    generator = torch.Generator().manual_seed(chance.randrange(1000))
    layout = chance.choice(LAYOUTS)
    a, b = (torch.randn(ROWS, DIMENSION, generator=generator) for _ in range(2))
    given: dict[str, Any] = {"view_a": a}
    if layout != "labels-one-view":
        given["view_b"] = b
    if layout.startswith("labels"):
        given["labels"] = torch.tensor([0, 1, 2, 0, 1, 2])
    if layout == "queue":
        given["queue"] = torch.randn(9, DIMENSION, generator=generator)
    if layout != "masks" and chance.random() < 0.4:
        shape = (5, DIMENSION) if chance.random() < 0.5 else (ROWS, 2, DIMENSION)
        given["hard_negatives"] = torch.randn(*shape, generator=generator)
    if layout == "masks":
        own = torch.eye(ROWS, dtype=torch.bool)
        given |= {"positive_mask": own, "negative_mask": ~own}
    strategy = chance.choice(
        ["fixed", "learnable", "macl", "dystress", "temperature-free", "amcl:dimension=4", "schedule"]
        + ["head-tail:class_counts=9/2/1", "individual:size=20", "uncertainty"] * 2
    )
    if strategy == "schedule":
        strategy = "fixed:temperature=0.3"
    if strategy.startswith("head-tail"):
        given["labels"] = torch.tensor([0, 1, 2, 0, 1, 2])
    if strategy.startswith("individual"):
        given["index"] = torch.tensor([0, 3, 2, 7, 11, 19])
    if strategy == "uncertainty":
        each = torch.randn(ROWS, generator=generator)
        given["uncertainty"] = (each, each + 1) if layout in ("two-view", "symmetric", "labels") else each
    return Call(strategy, chance.choice(OBJECTIVES), layout, chance.choice(["auto", "dense", "tiled"]), given)


def described(error: BaseException, names: tuple[str, ...]) -> bool:
    """Returns whether the error is raised by the library itself, is of a type that callers expect, and names what was wrong."""
    frames = traceback.extract_tb(error.__traceback__)
    own = frames[-1].filename.startswith(PACKAGE) or isinstance(error, TempplugError)
    return own and isinstance(error, ValueError | TypeError | LookupError) and any(name in str(error) for name in names)


def case(number: int) -> Verdict:
    chance = random.Random(number)
    call = working_call(chance)
    if chance.random() < 0.08:
        return _construction(chance)
    if chance.random() < 0.12:
        return _superfluous(call, chance)
    argument = chance.choice(sorted(call.given))
    if argument in ("view_a", "view_b") and chance.random() < 0.5:  # the others are rarer
        argument = chance.choice(sorted(call.given))
    kind = kind_of(argument)
    fine = chance.random() < 0.15
    name = chance.choice(sorted((FINE if fine else WRONG)[kind]))
    told = f"{call}: {argument} {name}"
    expected = call.run() if fine else None
    value = call.given[argument]
    change = (FINE if fine else WRONG)[kind][name]
    if isinstance(value, tuple):
        value, other = value
        changed = change(value)
        call.given[argument] = changed if isinstance(changed, tuple) else (changed, other)
    else:
        call.given[argument] = change(value)
    if not fine and _harmless(call, argument, name):
        return Verdict("right", told, "no mistake here")
    # Rows that do not fit are those of two arguments, and either may be named.
    named = tuple(call.given) if "row" in name else (argument,)
    return _verdict(told, named, call.run, expected)


def _harmless(call: Call, argument: str, name: str) -> bool:
    """Whether what would be wrong elsewhere is allowed for this argument of this call."""
    if argument in ("queue", "hard_negatives") and name in ("one row less", "one row more"):
        return argument == "queue" or call.given[argument].ndim == 2
    if argument == "view_a" and name == "one dimension less":
        return call.given.keys().isdisjoint({"view_b", "hard_negatives"})  # nothing to compare with
    # Classes are names where nothing looks them up.
    return argument == "labels" and name in ("negative", "far outside") and not call.strategy.startswith("head-tail")


def _superfluous(call: Call, chance: random.Random) -> Verdict:
    """One argument more, of the right kind, that nothing in this call reads."""
    extra = {
        "queue": torch.randn(3, DIMENSION),
        "hard_negatives": torch.randn(3, DIMENSION),
        "labels": torch.arange(ROWS) % 3,
        "index": torch.arange(ROWS),
        "uncertainty": (torch.zeros(ROWS), torch.zeros(ROWS)) if call.layout != "queue" else torch.zeros(ROWS),
        "positive_mask": torch.eye(ROWS, dtype=torch.bool),
        "negative_mask": ~torch.eye(ROWS, dtype=torch.bool),
    }
    unused = [name for name in extra if name not in call.given and not (name == "hard_negatives" and call.layout != "masks")]
    name = chance.choice(unused)
    call.given[name] = extra[name]
    return _verdict(f"{call}: superfluous {name}", (name,), call.run, None)


CONSTRUCTION: dict[str, tuple[Any, ...]] = {
    "strategy": (None, 0.1, "", ":", "fixed:", "macle", ["fixed"], "fixed:temperature=1e-40", "fixed:temperature=0"),
    "objective": (None, 1, "", "infonse", "dclw:sigma=0", "dclw:sigma=nan", ("dcl",)),
    "layout": (None, 3, "", "two_view", "cross", ["two-view"]),
    "reduction": (None, 0, "", "average", ["mean"]),
    "engine": (None, 2, "", "cuda", ["auto"]),
    "symmetric": (None, "yes", 1, 0.5),
    "gather": (None, "yes", 1, [1]),
}


def _construction(chance: random.Random) -> Verdict:
    """One argument of the constructor, wrong."""
    name = chance.choice(sorted(CONSTRUCTION))
    value = chance.choice(CONSTRUCTION[name])
    layout = {"layout": "cross-view"} if name == "symmetric" else {}
    told = f"ContrastiveLoss({name}={value!r})"
    return _verdict(told, (name, "spec", "temperature"), lambda: ContrastiveLoss(**layout, **{name: value}), None)


def _verdict(told: str, names: tuple[str, ...], run: Callable[[], Any], expected: Tensor | None) -> Verdict:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = run()
    except Exception as error:
        seen = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
        if expected is not None:
            return Verdict("wrong", told, f"refused what is no mistake: {seen}")
        return Verdict("refused" if described(error, names) else "obscure", told, seen)
    if expected is None:
        return Verdict("silent", told, f"accepted: {found}")
    if not torch.allclose(found.double(), expected.double(), rtol=1e-5, atol=1e-6):
        return Verdict("wrong", told, f"{found.item()} where the plain call gives {expected.item()}")
    return Verdict("right", told)
