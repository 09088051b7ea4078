"""`check_negative`: built-ins and a sound third party pass, and each broken part of the contract is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from tempplug import NegativeTerm, Pairs, TermMap, create_negatives
from tempplug.testing import ConformanceError, check_negative

BUILT_IN = ["false-negatives", "false-negatives:margin=-0.3,rule=relative,weight=0.5,blocks=ab/aa", "guide", "same-key"]
BUILT_IN += ["within-group", "hardness", "hardness:of=hard", "hardness:of=in-batch", "log-q", "log-q:size=16"]
BUILT_IN += ["debiased", "debiased:prior=0.9"]
TRUST = torch.linspace(0.5, 1, 16, dtype=torch.float64)


class Weighed(TermMap):
    """The logarithm of one weight of each candidate."""

    bound = 0.0

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def at(self, rows: Any, columns: Any, paired: bool = False) -> TermMap:
        return type(self)(self.values[columns])

    def term(self, similarity: Tensor) -> Tensor:
        return self.values


class Trust(NegativeTerm):
    """A third party's: a weight that the call gives, less with every batch of the training."""

    name = "trust"
    takes: ClassVar[frozenset[str]] = frozenset({"trust"})
    make: Callable[[Tensor], TermMap] = Weighed
    batches: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("batches", torch.zeros(()))

    def observe(self, given: Mapping[str, Mapping[str, Tensor]]) -> None:
        self.batches += 1

    def prepare(self, pairs: Pairs) -> TermMap | None:
        return type(self).make(pairs.of_candidates("trust").log() - float(self.batches))


def changed(base: type[Any], **parts: Any) -> Any:
    return type("Changed", (base,), parts)


def with_map(**parts: Any) -> NegativeTerm:
    """The term with another map."""
    return changed(Trust, make=changed(Weighed, **parts))()  # type: ignore[no-any-return]


def with_sums(negative_lse: Callable[..., Tensor]) -> NegativeTerm:
    """The term that changes sums of rows as well."""
    return changed(Trust, negative_lse=lambda self, *arguments: negative_lse(*arguments))()  # type: ignore[no-any-return]


@pytest.mark.parametrize("spec", BUILT_IN)
def test_built_in_terms_conform(spec: str) -> None:
    check_negative(*create_negatives(spec))


def test_a_third_partys_term_conforms_and_is_left_alone() -> None:
    term = Trust()
    check_negative(term, trust=TRUST)
    assert term.batches == 0
    with pytest.raises(ConformanceError, match=r"negative term 'trust': it takes trust=: pass that of 16 rows, check_negative"):
        check_negative(term)


def test_numbers_of_a_call_are_float64() -> None:
    """In float32 a tile may round the last digit otherwise than the whole."""
    seen = set()

    def prepare(self: Trust, pairs: Pairs) -> TermMap | None:
        seen.add(pairs.of_candidates("trust").dtype)
        return Trust.prepare(self, pairs)

    rows = {name: TRUST.float() for name in ("view_a", "view_b")}
    for given in (TRUST.float(), rows):
        check_negative(changed(Trust, prepare=prepare)(), trust=given)
    assert seen == {torch.float64}


def learned(self: Weighed, similarity: Tensor) -> Tensor:
    return self.values * nn.Parameter(torch.ones(()))


class Forgetful(Trust):
    """Counts batches where no state is."""

    def __init__(self) -> None:
        super().__init__()
        self._buffers.clear()
        self.batches = torch.zeros(())


class Renamed(Trust):
    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()

    def spec(self) -> str:
        return "trust:heaviness=1"


class Optional(Trust):
    """Does without what it takes."""

    def prepare(self, pairs: Pairs) -> TermMap | None:
        try:
            return super().prepare(pairs)
        except ValueError:
            return None


class Obscure(Trust):
    def prepare(self, pairs: Pairs) -> TermMap | None:
        try:
            return super().prepare(pairs)
        except ValueError:
            raise KeyError("trust") from None


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (with_map(bound=-0.5), r"bound is -0\.5, but a term is 0"),
        (with_map(symmetric=True), r"symmetric is True, but the term of \(i, j\) is not that of \(j, i\)"),
        (with_map(term=learned), "carries gradient"),
        (with_map(term=lambda self, s: self.values.new_tensor(torch.nan)), "is NaN or"),
        (with_map(bound=torch.inf, term=lambda self, s: self.values - s.log()), r"is NaN or \+inf somewhere"),
        (with_map(term=lambda self, s: s.clamp_(max=0)), "changes the similarities"),
        (with_map(term=lambda self, s: self.values[:3]), r"on the engine 'dense' raised RuntimeError"),
        (with_map(at=lambda self, *place, paired=False: self), r"a tile, at\(slice, slice\), is not that of the whole"),
        (
            with_map(at=lambda self, rows, columns, paired=False: Weighed(self.values[columns] - float(paired))),
            r"pairs, at\(paired=True\), is not that of the whole",
        ),
        (changed(Trust, prepare=lambda self, pairs: torch.zeros(16))(), "raised AttributeError"),
        (changed(Trust, name="")(), "the class has no name"),
        (Forgetful(), r"after load_state_dict\(state_dict\(\)\) the loss differs"),
        (Renamed(), "its spec string 'trust:heaviness=1' cannot be read back"),
        (Optional(), "it takes trust=, and a call without it is not refused"),
        (Obscure(), r"a call without trust= must raise a TempplugError that names it; it raised KeyError\('trust'\)"),
        (with_sums(lambda lse, *rest: lse.sum()), r"negative_lse\(...\) has shape \[\] for 5 rows"),
        (with_sums(lambda lse, *rest: (lse.exp() - 1).log()), r"negative_lse\(...\) is not finite for rows"),
        (with_sums(lambda lse, *rest: lse.clamp(min=-90)), r"negative_lse\(...\) must leave -inf"),
        (with_sums(lambda lse, *rest: lse + torch.rand(())), r"the loss of layout 'two-view' differs between the engines"),
        (
            with_sums(lambda lse, *rest: torch.where(lse > -10, lse.abs().sqrt() * lse.sign(), lse)),
            r"the gradient of negative_lse\(...\) is not finite",
        ),
    ],
)
def test_broken_terms_are_named(term: NegativeTerm, message: str) -> None:
    with pytest.raises(ConformanceError, match=message):
        check_negative(term, trust=TRUST)
