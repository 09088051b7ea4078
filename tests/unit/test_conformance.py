"""`check_strategy`: built-ins and a sound third party pass, and each broken part of the contract is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from covering import every_pair
from torch import Tensor, nn

from tempplug import Batch, LogitMap, Strategy, create_strategy
from tempplug.errors import TempplugError
from tempplug.strategies.maps import ScaleMap
from tempplug.testing import ConformanceError, check_negative, check_objective, check_strategy

STRATEGIES = [
    "fixed",
    "learnable",
    "macl:base_temperature=0.05,alpha=2,threshold=0.2",
    *[f"dystress:profile={each},detach=false" for each in ("cosine", "linear", "exponential", "monotonic", "shifted")],
    "dystress:profile=shifted,shift=0.2",
    "temperature-free",
    "temperature-free:eps=0.5",
    "schedule:shape=step",
    "schedule:shape=random",
    "head-tail:class_counts=5/2",
    "uncertainty",
    "amcl:dimension=8",
    "individual:size=16",
    "individual:size=16,per_view=true,relative=true",
    "mm-ts:class_counts=5/2",
    "tempnet:dimension=8,per_view=true",
]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def wide(similarity: Tensor) -> Tensor:
    return similarity if similarity.dtype == torch.float64 else similarity.float()


class Softened(LogitMap):
    """l = s·scale/(1 + s²/4), a sound map; ``divisor`` is 1/scale where that was rounded before."""

    def __init__(self, scale: Tensor, divisor: Tensor | None = None) -> None:
        self.scale, self.divisor = scale, (1 / scale if divisor is None else divisor).detach()

    def logit(self, similarity: Tensor) -> Tensor:
        s = wide(similarity)
        return s * self.scale / (1 + s.square() / 4)

    def slope(self, similarity: Tensor) -> Tensor:
        s = wide(similarity)
        return self.scale.detach() * (1 - s.square() / 4) / (1 + s.square() / 4).square()

    def temperature(self, similarity: Tensor) -> Tensor:
        return (1 + wide(similarity).square() / 4) * self.divisor

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.scale,) if self.scale.requires_grad else ()


def changed(base: type[Any], **parts: Any) -> type[Any]:
    """A subclass with other methods or attributes."""
    return type("Changed", (base,), parts)


class Sound(Strategy):
    """Softened with a learned scale that grows over the epochs: parameter, buffer and map all in order."""

    name = "sound"
    progress: Tensor
    make: Callable[..., LogitMap] = Softened

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("progress", torch.zeros((), dtype=torch.float64))

    def set_progress(self, epoch: float, step: int | None = None) -> None:
        self.progress.fill_(epoch)

    def prepare(self, batch: Batch) -> LogitMap:
        return type(self).make(self.log_scale.exp() * (1 + float(self.progress) / 100))


def with_map(kind: Callable[..., LogitMap]) -> Strategy:
    """Returns a strategy that always uses a map of this kind, at the scale 10."""
    prepare = lambda self, batch: kind(torch.tensor(10.0, dtype=torch.float64))  # noqa: E731
    return changed(Strategy, name="mapped", prepare=prepare)()  # type: ignore[no-any-return]


@pytest.mark.parametrize("spec", STRATEGIES)
def test_built_in_strategies_conform(spec: str) -> None:
    check_strategy(create_strategy(spec))


def test_third_party_strategy_conforms_and_is_left_alone() -> None:
    strategy = Sound()
    before = {key: value.clone() for key, value in strategy.state_dict().items()}
    check_strategy(strategy)
    check_strategy(with_map(Softened))
    torch.testing.assert_close(strategy.state_dict(), before, rtol=0, atol=0)
    assert strategy.log_scale.grad is None
    assert issubclass(ConformanceError, TempplugError)


def per_row(method: str) -> Callable[[Softened, Tensor], Tensor]:
    """One scale an anchor, which tiles must select and do not."""

    def of_rows(self: Softened, s: Tensor) -> Tensor:
        rows = torch.linspace(1, 2, len(s), dtype=torch.float64)
        rows = rows[:, None] if s.ndim == 2 else rows
        return getattr(Softened, method)(self, s) * (1 / rows if method == "temperature" else rows)

    return of_rows


def times(method: str, factor: float) -> Callable[[Softened, Tensor], Tensor]:
    return lambda self, s: getattr(Softened, method)(self, s) * factor


METHODS = ("logit", "slope", "temperature")
BROKEN_MAPS: list[tuple[dict[str, Any], str]] = [
    ({"slope": times("slope", 1 + 1e-8)}, r"slope\(s\) is not the derivative of logit\(s\): they differ by"),
    ({"logit": lambda self, s: 2 * torch.atanh(s)}, r"logit\(s\) is not finite everywhere on \[-1, 1\]"),
    ({"temperature": times("temperature", -1)}, r"temperature\(s\) is -.* somewhere"),
    ({"temperature": times("temperature", 1.001)}, r"temperature\(s\) is not s / logit\(s\)"),
    ({"bound": 7.9}, "bound is 7.9, but a logit is 8, up or down"),
    ({"slope": lambda self, s: Softened.slope(self, s).float()}, r"slope\(s\) of float64 is torch.float32"),
    ({"logit": lambda self, s: Softened.logit(self, s).to(s.dtype)}, r"logit\(s\) of torch.bfloat16 is torch.bfloat16"),
    ({"logit": lambda self, s: Softened.logit(self, s).detach()}, r"logit\(s\) carries no gradient of s"),
    ({"temperature": lambda self, s: 1 / self.scale}, r"temperature\(s\) has shape \[\]"),
    ({"tensors": lambda self: (self.scale,)}, r"tensors\(\)\[0\] does not require a gradient"),
    (
        {"uniform": False, "symmetric": False, **{method: per_row(method) for method in METHODS}},
        r"logit of a tile, at\(slice, slice\), is not that of the whole",
    ),
]


@pytest.mark.parametrize(("parts", "message"), BROKEN_MAPS)
def test_broken_maps_are_named(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(ConformanceError, match=r"^strategy 'mapped': " + message):
        check_strategy(with_map(changed(Softened, **parts)))


class PerAnchor(Strategy):
    """One scale an anchor, with flags that may claim otherwise."""

    name = "per-anchor"

    def __init__(self, flag: str) -> None:
        super().__init__()
        self.flag = flag

    def prepare(self, batch: Batch) -> LogitMap:
        assert batch.anchors is not None
        scale = torch.linspace(5, 10, len(batch.anchors), dtype=batch.anchors.dtype)
        logit_map = ScaleMap(scale)
        if self.flag:
            setattr(logit_map, self.flag, True)
            logit_map.at = lambda rows, columns, paired=False: ScaleMap(scale[rows] if paired else scale[rows, None])  # type: ignore[method-assign]
        return logit_map


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("symmetric", r"symmetric is True, but the logit of \(i, j\) is not that of \(j, i\)"),
        ("uniform", "uniform is True, but the map is not the same for every pair"),
    ],
)
def test_wrong_flags_are_named(flag: str, message: str) -> None:
    check_strategy(PerAnchor(""))
    with pytest.raises(ConformanceError, match=message):
        check_strategy(PerAnchor(flag))


def exploding(scale: Tensor) -> LogitMap:
    """Turns a gradient into NaN on its way back."""
    if scale.requires_grad:
        scale.register_hook(lambda gradient: gradient * torch.nan)  # type: ignore[no-untyped-call]
    return Softened(scale)


def keep(self: Any, epoch: float, step: int | None = None) -> None:
    """Keeps the progress in a plain attribute, which no checkpoint holds."""
    self.epoch = epoch


def of_kept(self: Any, batch: Batch) -> LogitMap:
    return Softened(self.log_scale.exp() * (1 + getattr(self, "epoch", 0) / 100))


def greedy(self: Any, batch: Batch) -> LogitMap:
    raise self.missing("captions", "captions")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"set_progress": keep, "prepare": of_kept}, "the logits differ: something that counts is not saved"),
        ({"state_dict": lambda self, *arguments, **more: {}}, r"load_state_dict\(state_dict\(\)\) raised"),
        ({"make": lambda scale: Softened(scale.detach())}, "strategy.log_scale receives no gradient"),
        (
            {"make": changed(Softened, tensors=lambda self: ())},
            "the gradient of strategy.log_scale differs between the engines",
        ),
        ({"make": exploding}, "the gradient of strategy.log_scale on the engine 'dense' is not finite"),
        ({"prepare": lambda self, batch: self.log_scale}, r"prepare\(batch\) returned Parameter, not a LogitMap"),
        ({"name": ""}, "the class has no name"),
        ({"prepare": greedy}, r"prepare\(batch\) raised .*pass captions= to the loss"),
        ({"cosines_only": False}, r"cosines_only is False, but logit\(s\) does not rise with s everywhere on \[-4, 4\]"),
    ],
)
def test_broken_strategies_are_named(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(ConformanceError, match=message):
        check_strategy(changed(Sound, **parts)())


@pytest.mark.parametrize("thing", [Sound, "macl", nn.Identity()], ids=["class", "spec", "module"])
def test_what_is_checked_must_be_an_instance(thing: Any) -> None:
    for check, kind in ((check_strategy, "Strategy"), (check_objective, "Objective"), (check_negative, "NegativeTerm")):
        with pytest.raises(ConformanceError, match=rf"is not an instance of tempplug\.{kind}"):
            check(thing)


class Curved(LogitMap):
    """l = s·scale + f(s), f a small network that takes similarities of its weights' type alone."""

    def __init__(self, network: nn.Module, scale: Tensor) -> None:
        self.network, self.scale = network, scale

    def logit(self, similarity: Tensor) -> Tensor:
        return similarity * self.scale + self.network(similarity.unsqueeze(-1)).squeeze(-1)

    def slope(self, similarity: Tensor) -> Tensor:
        with torch.enable_grad():
            s = similarity.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.logit(s).sum(), s)
        return slope.detach()

    def temperature(self, similarity: Tensor) -> Tensor:
        return torch.ones_like(similarity, dtype=self.scale.dtype)

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(each for each in (self.scale, *self.network.parameters()) if each.requires_grad)


class Networked(Strategy):
    """A scale from the anchors by one layer, and a map with two: all in the type of the strategy, as a newcomer writes it."""

    name = "networked"

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.of_rows = nn.Linear(8, 1)
            self.network = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))

    def prepare(self, batch: Batch) -> LogitMap:
        assert batch.anchors is not None
        return Curved(self.network, 5 + self.of_rows(batch.anchors).mean().tanh())


# As a newcomer writes it, 1/scale is rounded to the parameter's type.
RECIPROCAL = changed(Sound, prepare=lambda self, batch: Softened(self.log_scale.exp(), 1 / self.log_scale.exp()))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [*every_pair([Sound, RECIPROCAL], DTYPES), *every_pair([Networked], DTYPES[:2])],
)
def test_a_strategy_is_checked_in_the_type_of_its_parameters(kind: type[Strategy], dtype: torch.dtype) -> None:
    check_strategy(kind().to(dtype))


@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_a_wrong_slope_is_found_beside_parameters_of_either_type(dtype: torch.dtype) -> None:
    wrong = changed(Sound, make=changed(Softened, slope=times("slope", 1.001)))
    with pytest.raises(ConformanceError, match="slope"):
        check_strategy(wrong().to(dtype))
