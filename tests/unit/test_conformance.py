"""`check_strategy`, `check_objective`, `check_negative`: built-ins and sound third parties pass, what is broken is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conformance_toys import (
    RECIPROCAL,
    Exponential,
    Forgetful,
    Hidden,
    Layered,
    Margin,
    Networked,
    PerAnchor,
    Softened,
    Sound,
    Trust,
    Weighed,
    changed,
    divided,
    exploding,
    greedy,
    keep,
    losing,
    mapped,
    margin,
    of_kept,
    pairwise,
    per_row,
    raising,
    summed,
    times,
    training_map,
    unbounded,
    with_map,
    with_sums,
    without_trust,
)
from covering import every_pair
from objective_toys import Biased
from torch import nn

from tempplug import (
    NegativeTerm,
    Objective,
    Pairs,
    TermMap,
    create_negatives,
    create_objective,
    create_strategy,
)
from tempplug.errors import TempplugError
from tempplug.pair_functions import Softplus
from tempplug.strategies.maps import LogOddsMap, ScaleMap
from tempplug.testing import ConformanceError, check_negative, check_objective, check_strategy
from tempplug.types import Auxiliary, RowStatistics

STRATEGIES = [
    *("fixed", "learnable", "macl:base_temperature=0.05,alpha=2,threshold=0.2", "uncertainty", "amcl:dimension=8"),
    *[f"dystress:profile={each},detach=false" for each in ("cosine", "linear", "exponential", "monotonic", "shifted")],
    *("dystress:profile=shifted,shift=0.2", "temperature-free", "temperature-free:eps=0.5", "schedule:shape=step"),
    *("schedule:shape=random", "head-tail:class_counts=5/2", "mm-ts:class_counts=5/2", "tempnet:dimension=8,per_view=true"),
    *(
        "by-group:temperatures=0.05/0.2",
        "by-group:temperatures=0.05/0.2,learn=true",
        "by-group:temperatures=0.1/0.2,dimensions=8/4",
    ),
    *("individual:size=16", "individual:size=16,per_view=true,relative=true"),
]
OBJECTIVES = ["infonce", "dcl", "flatnce", "reweighted", "dual-temperature", "dual-temperature:second_temperature=2", "sigmoid"]
OBJECTIVES += ["sogclr:size=16", "sogclr:size=16,relative=false", "infonce:margin=0.2,margin_kind=angular"]
TERMS = ["false-negatives", "false-negatives:margin=-0.3,rule=relative,weight=0.5,blocks=ab/aa", "guide", "same-key"]
TERMS += ["within-group", "hardness", "hardness:of=hard", "hardness:of=in-batch", "log-q", "log-q:size=16"]
TERMS += ["debiased", "debiased:prior=0.9"]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
TRUST = torch.linspace(0.5, 1, 16, dtype=torch.float64)


def check(thing: Any) -> None:
    """Checks an instance of any kind."""
    if isinstance(thing, NegativeTerm):
        check_negative(thing, **({"trust": TRUST} if isinstance(thing, Trust) else {}))
    else:
        (check_objective if isinstance(thing, Objective) else check_strategy)(thing)


@pytest.mark.parametrize("spec", [*STRATEGIES, *OBJECTIVES, *TERMS])
def test_built_ins_conform(spec: str) -> None:
    create = create_objective if spec in OBJECTIVES else create_strategy
    check(create_negatives(spec)[0] if spec in TERMS else create(spec))


def test_objectives_that_need_more_of_the_check_conform_with_it() -> None:
    """Weighted positives change with a shift of all logits; others need a strategy."""
    check_objective(create_objective("dclw"), shift_invariant=False)
    check_objective(create_objective("sigmoid:relative_bias=true"), strategy="learnable:initial_temperature=0.01")
    check_objective(create_objective("amcl-top:top_k=2,beta=0.1"), strategy="amcl:dimension=8")


def test_third_parties_conform_and_are_left_alone() -> None:
    strategy, term = Sound(), Trust()
    before = {key: value.clone() for key, value in strategy.state_dict().items()}
    summing = losing(summed, pair_function=Exponential()), losing(unbounded, pair_function=Softplus())
    for thing in (strategy, mapped(), PerAnchor(), term, Margin(), *summing):
        check(thing)
    torch.testing.assert_close(strategy.state_dict(), before, rtol=0, atol=0)
    assert strategy.log_scale.grad is None
    assert term.batches == 0
    assert issubclass(ConformanceError, TempplugError)


@pytest.mark.parametrize(
    ("kind", "dtype"), [*every_pair([Sound, RECIPROCAL, Biased], DTYPES), *every_pair([Networked, Layered], DTYPES[:2])]
)
def test_what_is_checked_is_checked_in_the_type_of_its_parameters(kind: type[Any], dtype: torch.dtype) -> None:
    check(kind().to(dtype))


def test_numbers_of_a_call_are_float64() -> None:
    """In float32 a tile may round the last digit otherwise than the whole."""
    seen = set()

    def prepare(self: Trust, pairs: Pairs) -> TermMap | None:
        seen.add(pairs.of_candidates("trust").dtype)
        return Trust.prepare(self, pairs)

    for given in (TRUST.float(), {name: TRUST.float() for name in ("view_a", "view_b")}):
        check_negative(changed(Trust, prepare=prepare)(), trust=given)
    assert seen == {torch.float64}


HALVED = losing(lambda statistics: torch.log1p(torch.exp(margin(statistics))), **training_map(ScaleMap, "fixed", 10))
ODDS = losing(margin, **training_map(LogOddsMap, "temperature-free"))
ROWS_OF_MAPS = {"uniform": False, "symmetric": False, **{each: per_row(each) for each in ("logit", "slope", "temperature")}}


def by_positives(self: Objective, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> torch.Tensor:
    """Another loss where the logit of the positive is not the sum of the positives."""
    return margin(statistics) * (1.0 if statistics.positive_lse is statistics.positive_logit else 2.0)


# What is checked, with which strategy if it is an objective, and how it is named.
BROKEN: list[tuple[Any, str]] = [
    (mapped(slope=times("slope", 1 + 1e-8)), r"slope\(s\) is not the derivative of logit\(s\): they differ by"),
    (mapped(logit=lambda self, s: 2 * torch.atanh(s)), r"logit\(s\) is not finite everywhere on \[-1, 1\]"),
    (mapped(temperature=times("temperature", -1)), r"temperature\(s\) is -.* somewhere"),
    (mapped(temperature=times("temperature", 1.001)), r"temperature\(s\) is not s / logit\(s\)"),
    (mapped(bound=7.9), "^strategy 'mapped': bound is 7.9, but a logit is 8, up or down"),
    (mapped(slope=lambda self, s: Softened.slope(self, s).float()), r"slope\(s\) of float64 is torch.float32"),
    (mapped(logit=lambda self, s: Softened.logit(self, s).to(s.dtype)), r"logit\(s\) of torch.bfloat16 is torch.bfloat16"),
    (mapped(logit=lambda self, s: Softened.logit(self, s).detach()), r"logit\(s\) carries no gradient of s"),
    (mapped(temperature=lambda self, s: 1 / self.scale), r"temperature\(s\) has shape \[\]"),
    (mapped(tensors=lambda self: (self.scale,)), r"tensors\(\)\[0\] does not require a gradient"),
    (mapped(**ROWS_OF_MAPS), r"logit of a tile, restrict\(slice, slice\), is not that of the whole"),
    (PerAnchor("symmetric"), r"symmetric is True, but the logit of \(i, j\) is not that of \(j, i\)"),
    (PerAnchor("uniform"), r"uniform is True, but the map is not the same for every pair"),
    (changed(Sound, make=changed(Softened, slope=times("slope", 1.001)))(), "slope"),
    (changed(Sound, make=changed(Softened, slope=times("slope", 1.001)))().double(), "slope"),
    (changed(Sound, set_progress=keep, prepare=of_kept)(), "the logits differ: something that counts is not saved"),
    (changed(Sound, state_dict=lambda self, *arguments, **more: {})(), r"load_state_dict\(state_dict\(\)\) raised"),
    (changed(Sound, make=lambda scale: Softened(scale.detach()))(), "strategy.log_scale receives no gradient"),
    (
        changed(Sound, make=changed(Softened, tensors=lambda self: ()))(),
        r"strategy.log_scale receives no gradient on the engine 'tiled'",
    ),
    (changed(Sound, make=exploding)(), "the gradient of strategy.log_scale on the engine 'dense' is not finite"),
    (changed(Sound, prepare=lambda self, batch: self.log_scale)(), r"prepare\(batch\) returned Parameter, not a LogitMap"),
    (changed(Sound, name="")(), "the class has no name"),
    (changed(Sound, prepare=greedy)(), r"prepare\(batch\) raised .*pass captions= to the loss"),
    (changed(Sound, cosines_only=False)(), r"cosines_only is False, but logit\(s\) does not rise with s everywhere"),
    (losing(lambda statistics: margin(statistics).mean()), r"row_loss has shape \[\] for 401 anchors"),
    (losing(lambda statistics: margin(statistics).exp().log1p()), r"row_loss is not finite for every d from -200 to 200"),
    (losing(divided), r"the gradient of row_loss is missing or not finite in torch.float32"),
    (losing(lambda of: margin(of) + of.positive_logit), "a constant added to all logits of a row changes its loss"),
    (
        changed(Margin, soft_targets=True, row_loss=by_positives)(),
        "the loss differs between .*, or with targets of one positive",
    ),
    (create_objective("dclw"), r"objective 'dclw': a constant added to all logits of a row changes its loss"),
    (losing(lambda statistics: margin(statistics).detach()), "row_loss carries no gradient"),
    (losing(lambda of: of.negative_lse - of.positive_logit.detach()), "the gradient of row_loss is missing or not finite"),
    (changed(Margin, row_loss=lambda self, statistics: margin(statistics))(), "row_loss raised TypeError"),
    (changed(Margin, name="")(), "the class has no name"),
    (changed(Biased, row_loss=Margin.row_loss)(), r"objective\.offset receives no gradient on the engine 'dense'"),
    (pairwise(slope=lambda self, s: 1.001 * s.sigmoid()), r"slope\(l\) of the pair function is not the derivative"),
    (pairwise(slope=lambda self, s: s.sigmoid().mean()), r"value\(l\) and slope\(l\) of the pair function must have"),
    (pairwise(value=lambda self, s: 1 + Softplus.value(self, s)), r"value\(l\) of the pair function is 1 at l = -inf"),
    (Hidden(), r"the gradient of objective\.bias differs .* by offset\(logit_map\)"),
    (ODDS, "training_map refuses the map of strategy 'fixed': .*use it with strategy 'temperature-free'. Pass strategy="),
    (changed(Margin, training_map=lambda self, given: given.temperature)(), "training_map returned method, not a LogitMap"),
    (with_map(bound=-0.5), r"bound is -0\.5, but a term is 0"),
    (with_map(symmetric=True), r"symmetric is True, but the term of \(i, j\) is not that of \(j, i\)"),
    (with_map(term=lambda self, s: self.values * nn.Parameter(torch.ones(()))), "carries gradient"),
    (with_map(term=lambda self, s: self.values.new_tensor(torch.nan)), "is NaN or"),
    (with_map(bound=torch.inf, term=lambda self, s: self.values - s.log()), r"is NaN or \+inf somewhere"),
    (with_map(term=lambda self, s: s.clamp_(max=0)), "changes the similarities"),
    (with_map(term=lambda self, s: self.values[:3]), r"on the engine 'dense' raised RuntimeError"),
    (with_map(restrict=lambda self, *place, paired=False: self), r"a tile, restrict\(slice, slice\), is not that of the whole"),
    (
        with_map(restrict=lambda self, i, j, paired=False: Weighed(self.values[j] - float(paired))),
        r"pairs, restrict\(paired=True\), is not",
    ),
    (changed(Trust, prepare=lambda self, pairs: torch.zeros(16))(), "raised AttributeError"),
    (changed(Trust, name="")(), "the class has no name"),
    (Forgetful(), r"after load_state_dict\(state_dict\(\)\) the loss differs"),
    (changed(Trust, spec=lambda self: "trust:heaviness=1")(), "its spec string 'trust:heaviness=1' cannot be read back"),
    (without_trust(lambda: None), "it takes trust=, and a call without it is not refused"),
    (without_trust(raising(KeyError("trust"))), r"must raise a TempplugError that names it; it raised KeyError\('trust'\)"),
    (with_sums(lambda lse, *rest: lse.sum()), r"negative_lse\(...\) has shape \[\] for 5 rows"),
    (with_sums(lambda lse, *rest: (lse.exp() - 1).log()), r"negative_lse\(...\) is not finite for rows"),
    (with_sums(lambda lse, *rest: lse.clamp(min=-90)), r"negative_lse\(...\) must leave -inf"),
    (with_sums(lambda lse, *rest: lse + torch.rand(())), r"the loss of layout 'two-view' differs between the engines"),
    (
        with_sums(lambda lse, *rest: torch.where(lse > -10, lse.abs().sqrt() * lse.sign(), lse)),
        r"the gradient of negative_lse\(...\) is not finite",
    ),
]


@pytest.mark.parametrize(("thing", "message"), BROKEN, ids=range(len(BROKEN)))
def test_what_is_broken_is_named(thing: Any, message: str) -> None:
    with pytest.raises(ConformanceError, match=message):
        check(thing)


def test_an_objective_is_given_the_logits_of_its_own_map_and_strategy() -> None:
    """None of which comes near d = 88, where the exponential overflows, until the temperature is small."""
    check_objective(HALVED)
    check_objective(HALVED, strategy="fixed:temperature=0.05")
    check_objective(ODDS, strategy="temperature-free")
    unbound, top = losing(unbounded, pair_function=Softplus()), create_objective("amcl-top:top_k=2,beta=0.1")
    for objective, strategy, message in (
        (HALVED, "fixed:temperature=0.001", r"row_loss is not finite for every d from -197\.9 to 202\.1 in torch.float32"),
        (unbound, "fixed:temperature=0.01", r"row_loss is not finite for every logit from -100 to 100 in torch.float32"),
        (top, "macl", "training_map refuses the map of strategy 'macl'"),
    ):
        with pytest.raises(ConformanceError, match=message):
            check_objective(objective, strategy=strategy)


@pytest.mark.parametrize("thing", [Sound, "macl", nn.Identity()], ids=["class", "spec", "module"])
def test_what_is_checked_must_be_an_instance(thing: Any) -> None:
    for check, kind in ((check_strategy, "Strategy"), (check_objective, "Objective"), (check_negative, "NegativeTerm")):
        with pytest.raises(ConformanceError, match=rf"is not an instance of tempplug\.{kind}"):
            check(thing)
    with pytest.raises(ConformanceError, match=r"negative term 'trust': it takes trust=: pass that of 16 rows, check_negative"):
        check_negative(Trust())
