"""`check_objective`: built-ins and a sound third party pass, and each broken part of the contract is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from covering import every_pair
from objective_toys import Biased
from torch import Tensor, nn

from tempplug import LogitMap, Objective, RowStatistics, create_objective
from tempplug.errors import ConfigError
from tempplug.objectives.base import softplus
from tempplug.pair_functions import PairFunction, Softplus
from tempplug.strategies.maps import LogOddsMap, ScaleMap
from tempplug.testing import ConformanceError, check_objective
from tempplug.types import Auxiliary


@pytest.mark.parametrize(
    "spec",
    [
        *("infonce", "dcl", "flatnce", "reweighted", "dual-temperature", "dual-temperature:second_temperature=2"),
        *("sogclr:size=16", "sogclr:size=16,relative=false"),
    ],
)
def test_built_in_objectives_conform(spec: str) -> None:
    check_objective(create_objective(spec))


def test_weighted_positives_conform_but_for_the_shift() -> None:
    check_objective(create_objective("dclw"), shift_invariant=False)
    with pytest.raises(ConformanceError, match=r"objective 'dclw': a constant added to all logits of a row changes its loss"):
        check_objective(create_objective("dclw"))


class Margin(Objective):
    """Sound: the squared hinge of the margin."""

    name = "margin"

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return (statistics.negative_lse - statistics.positive_logit + 1).clamp(min=0).square()


def broken(row_loss: Callable[[RowStatistics], Tensor]) -> type[Objective]:
    """A margin with another loss of each row."""
    return type("Broken", (Margin,), {"row_loss": lambda self, statistics, auxiliary=None: row_loss(statistics)})


def margin(statistics: RowStatistics) -> Tensor:
    return statistics.negative_lse - statistics.positive_logit


def divided(statistics: RowStatistics) -> Tensor:
    """Finite in value, 0/0 in gradient."""
    d = margin(statistics)
    return torch.where(d > 80, d, torch.log1p(torch.exp(d)))


OVERFLOWING = broken(lambda statistics: torch.log1p(torch.exp(margin(statistics))))


def test_third_party_objective_conforms() -> None:
    check_objective(Margin())


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (broken(lambda statistics: margin(statistics).mean()), r"row_loss has shape \[\] for 401 anchors"),
        (OVERFLOWING, r"row_loss is not finite for every d from -200 to 200 in torch.float32"),
        (broken(divided), r"the gradient of row_loss is missing or not finite in torch.float32"),
        (
            broken(lambda statistics: margin(statistics) + statistics.positive_logit),
            "a constant added to all logits of a row changes its loss",
        ),
        (broken(lambda statistics: margin(statistics).detach()), "row_loss carries no gradient"),
        (
            broken(lambda statistics: statistics.negative_lse - statistics.positive_logit.detach()),
            "the gradient of row_loss is missing or not finite",
        ),
        (type("Short", (Margin,), {"row_loss": lambda self, statistics: margin(statistics)}), "row_loss raised TypeError"),
        (type("Anonymous", (Margin,), {"name": ""}), "the class has no name"),
    ],
)
def test_broken_objectives_are_named(kind: type[Objective], message: str) -> None:
    with pytest.raises(ConformanceError, match=message):
        check_objective(kind())


class Layered(Objective):
    """Its weights take statistics of their own type alone."""

    name = "layered"

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layer = nn.Linear(1, 1)

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        margin = statistics.negative_lse - statistics.positive_logit
        return softplus(margin) + self.layer(margin[:, None]).squeeze(1).square() / 100


@pytest.mark.parametrize(("kind", "dtype"), every_pair([Biased, Layered], [torch.float64, torch.float32]))
def test_an_objective_is_checked_in_the_type_of_its_parameters(kind: type[Objective], dtype: torch.dtype) -> None:
    check_objective(kind().to(dtype))
    check_objective(Biased().bfloat16())


class Forgotten(Biased):
    """Its bias is no part of its loss."""

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return softplus(statistics.negative_lse - statistics.positive_logit)


def test_a_parameter_without_gradient_is_named() -> None:
    with pytest.raises(ConformanceError, match=r"objective\.offset receives no gradient on the engine 'dense'"):
        check_objective(Forgotten())


class Exponential(PairFunction):
    """That of softmax losses."""

    def value(self, logit: Tensor) -> Tensor:
        return logit.exp()

    def slope(self, logit: Tensor) -> Tensor:
        return logit.exp()


class Halved(Objective):
    """Trains with a tenth of the scale, and so has an exponential that only large logits would overflow."""

    name = "halved"

    def first_map(self, logit_map: LogitMap) -> LogitMap:
        if not isinstance(logit_map, ScaleMap):
            raise ConfigError("objective 'halved' needs one scale: use it with strategy 'fixed'.")
        return ScaleMap(logit_map.scale / 10)

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return torch.log1p(torch.exp(statistics.negative_lse - statistics.positive_logit))


class Odds(Margin):
    """Takes one map alone."""

    def first_map(self, logit_map: LogitMap) -> LogitMap:
        if not isinstance(logit_map, LogOddsMap):
            raise ConfigError("objective 'margin' needs log odds: use it with strategy 'temperature-free'.")
        return logit_map


class Mapless(Margin):
    def first_map(self, logit_map: LogitMap) -> LogitMap:
        return logit_map.temperature  # type: ignore[return-value]


class Summed(Objective):
    """A sum of exp, which float32 holds of logits up to 88, and its logarithm, which none of a negative number has."""

    name = "summed"
    pair_function: PairFunction | None = Exponential()

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        assert statistics.negative_lse.min() > 0
        torch.testing.assert_close(statistics.positive_lse, statistics.positive_logit.neg().exp())
        return (statistics.negative_lse * statistics.positive_lse).log1p()


class Unbounded(Summed):
    pair_function = Softplus()

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return statistics.negative_lse.exp() - statistics.positive_logit


def test_an_objective_with_a_pair_function_is_given_sums_of_its_values() -> None:
    """And no shift of them, which changes every such loss."""
    check_objective(Summed())
    check_objective(create_objective("sigmoid"))
    check_objective(create_objective("sigmoid:relative_bias=true"), strategy="learnable:initial_temperature=0.01")
    check_objective(Unbounded())
    with pytest.raises(ConformanceError, match=r"row_loss is not finite for every logit from -100 to 100 in torch.float32"):
        check_objective(Unbounded(), strategy="fixed:temperature=0.01")


class Learned(Softplus):
    """Softplus of logits with a learned bias, of which the engines know nothing."""

    def __init__(self, bias: Tensor) -> None:
        self.bias = bias

    def value(self, logit: Tensor) -> Tensor:
        return super().value(logit + self.bias)

    def slope(self, logit: Tensor) -> Tensor:
        return super().slope(logit + self.bias)


class Hidden(Objective):
    name = "hidden"

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.tensor(0.5))
        self.pair_function = Learned(self.bias)

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return statistics.positive_lse + statistics.negative_lse


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"slope": lambda self, logit: 1.001 * logit.sigmoid()}, r"slope\(l\) of the pair function is not the derivative"),
        ({"slope": lambda self, logit: logit.sigmoid().mean()}, r"value\(l\) and slope\(l\) of the pair function must have"),
        ({"value": lambda self, logit: 1 + Softplus.value(self, logit)}, r"value\(l\) of the pair function is 1 at l = -inf"),
    ],
)
def test_broken_pair_functions_are_named(parts: dict[str, Callable[..., Tensor]], message: str) -> None:
    pair_function = type("Broken", (Softplus,), parts)()
    row_loss = lambda self, statistics, auxiliary=None: statistics.positive_lse + statistics.negative_lse  # noqa: E731
    with pytest.raises(ConformanceError, match=message):
        check_objective(type("Pairs", (Objective,), {"name": "pairs", "pair_function": pair_function, "row_loss": row_loss})())


def test_a_learned_number_that_no_offset_returns_is_named() -> None:
    with pytest.raises(ConformanceError, match=r"the gradient of objective\.bias differs .* by offset\(logit_map\)"):
        check_objective(Hidden())


def test_an_objective_is_asked_for_the_logits_of_its_own_map() -> None:
    """None of which comes near d = 88, where the exponential overflows."""
    check_objective(Halved())
    check_objective(Halved(), strategy="fixed:temperature=0.05")
    with pytest.raises(ConformanceError, match=r"row_loss is not finite for every d from -197\.9 to 202\.1 in torch.float32"):
        check_objective(Halved(), strategy="fixed:temperature=0.001")


def test_an_objective_that_refuses_maps_says_which_strategy_it_wants() -> None:
    message = "first_map refuses the map of strategy 'fixed': .*use it with strategy 'temperature-free'. Pass strategy="
    with pytest.raises(ConformanceError, match=message):
        check_objective(Odds())
    check_objective(Odds(), strategy="temperature-free")
    with pytest.raises(ConformanceError, match="first_map refuses the map of strategy 'macl'"):
        check_objective(create_objective("amcl-top:top_k=2,beta=0.1"), strategy="macl")
    check_objective(create_objective("amcl-top:top_k=2,beta=0.1"), strategy="amcl:dimension=8")
    with pytest.raises(ConformanceError, match="first_map returned method, not a LogitMap"):
        check_objective(Mapless())
