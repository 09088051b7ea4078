"""`check_strategy`: built-ins and a sound third party pass, and each broken part of the contract is named."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tempplug import Batch, LogitMap, Strategy, create_strategy
from tempplug.errors import TempplugError
from tempplug.strategies.maps import ScaleMap
from tempplug.testing import ConformanceError, check_strategy

STRATEGIES = [
    "fixed",
    "learnable",
    "macl",
    "macl:base_temperature=0.05,alpha=2,threshold=0.2",
    "dystress",
    *[f"dystress:profile={each},detach=false" for each in ("cosine", "linear", "exponential", "monotonic", "shifted")],
    "dystress:profile=shifted,shift=0.2",
    "temperature-free",
    "temperature-free:eps=0.5",
    "schedule",
    "schedule:shape=step",
    "schedule:shape=random",
    "head-tail:class_counts=5/2",
    "uncertainty",
    "amcl:dimension=8",
    "individual:size=16",
]


class Softened(LogitMap):
    """l = s·scale/(1 + s²/4), a sound map that others below break one property of."""

    def __init__(self, scale: Tensor) -> None:
        self.scale = scale

    def logit(self, similarity: Tensor) -> Tensor:
        s = similarity if similarity.dtype == torch.float64 else similarity.float()
        return s * self.scale / (1 + s.square() / 4)

    def slope(self, similarity: Tensor) -> Tensor:
        s = similarity if similarity.dtype == torch.float64 else similarity.float()
        return self.scale.detach() * (1 - s.square() / 4) / (1 + s.square() / 4).square()

    def temperature(self, similarity: Tensor) -> Tensor:
        s = similarity if similarity.dtype == torch.float64 else similarity.float()
        return (1 + s.square() / 4) / self.scale.detach()

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.scale,) if self.scale.requires_grad else ()


class Sound(Strategy):
    """Softened with a learned scale that grows over the epochs: parameter, buffer and map all in order."""

    name = "sound"
    progress: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("progress", torch.zeros((), dtype=torch.float64))

    def set_progress(self, epoch: float, step: int | None = None) -> None:
        self.progress.fill_(epoch)

    def prepare(self, batch: Batch) -> LogitMap:
        return Softened(self.log_scale.exp() * (1 + float(self.progress) / 100))


def with_map(kind: type[LogitMap]) -> Strategy:
    """Returns a strategy that always uses a map of this kind, at the scale 10."""

    class Mapped(Strategy):
        name = "mapped"

        def prepare(self, batch: Batch) -> LogitMap:
            return kind(torch.tensor(10.0, dtype=torch.float64))  # type: ignore[call-arg]

    return Mapped()


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


def test_conformance_error_is_an_error_of_the_library() -> None:
    assert issubclass(ConformanceError, TempplugError)


class WrongSlope(Softened):
    def slope(self, similarity: Tensor) -> Tensor:
        return super().slope(similarity) * (1 + 1e-8)


class Infinite(Softened):
    def logit(self, similarity: Tensor) -> Tensor:
        return 2 * torch.atanh(similarity)


class Cold(Softened):
    def temperature(self, similarity: Tensor) -> Tensor:
        return -super().temperature(similarity)


class WrongTemperature(Softened):
    def temperature(self, similarity: Tensor) -> Tensor:
        return super().temperature(similarity) * 1.001


class Single(Softened):
    def slope(self, similarity: Tensor) -> Tensor:
        return super().slope(similarity).float()


class Narrow(Softened):
    def logit(self, similarity: Tensor) -> Tensor:
        return super().logit(similarity).to(similarity.dtype)


class Detached(Softened):
    def logit(self, similarity: Tensor) -> Tensor:
        return super().logit(similarity).detach()


class Scalar(Softened):
    def temperature(self, similarity: Tensor) -> Tensor:
        return 1 / self.scale


class Frozen(Softened):
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.scale,)


class Unbound(Softened):
    """One scale an anchor, which tiles must select and do not."""

    uniform = symmetric = False

    def logit(self, similarity: Tensor) -> Tensor:
        rows = torch.linspace(1, 2, len(similarity), dtype=torch.float64)
        return super().logit(similarity) * (rows[:, None] if similarity.ndim == 2 else rows)

    def slope(self, similarity: Tensor) -> Tensor:
        rows = torch.linspace(1, 2, len(similarity), dtype=torch.float64)
        return super().slope(similarity) * (rows[:, None] if similarity.ndim == 2 else rows)

    def temperature(self, similarity: Tensor) -> Tensor:
        rows = torch.linspace(1, 2, len(similarity), dtype=torch.float64)
        return super().temperature(similarity) / (rows[:, None] if similarity.ndim == 2 else rows)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (WrongSlope, r"slope\(s\) is not the derivative of logit\(s\): they differ by"),
        (Infinite, r"logit\(s\) is not finite everywhere on \[-1, 1\]"),
        (Cold, r"temperature\(s\) is -.* somewhere"),
        (WrongTemperature, r"temperature\(s\) is not s / logit\(s\)"),
        (Single, r"slope\(s\) of float64 is torch.float32"),
        (Narrow, r"logit\(s\) of torch.bfloat16 is torch.bfloat16"),
        (Detached, r"logit\(s\) carries no gradient of s"),
        (Scalar, r"temperature\(s\) has shape \[\]"),
        (Frozen, r"tensors\(\)\[0\] does not require a gradient"),
        (Unbound, r"logit of a tile, at\(slice, slice\), is not that of the whole"),
    ],
)
def test_broken_maps_are_named(kind: type[LogitMap], message: str) -> None:
    with pytest.raises(ConformanceError, match=r"^strategy 'mapped': " + message):
        check_strategy(with_map(kind))


class PerAnchor(Strategy):
    """One scale an anchor, with flags that may claim otherwise."""

    name = "per-anchor"

    def __init__(self, flag: str) -> None:
        super().__init__()
        self.flag = flag

    def prepare(self, batch: Batch) -> LogitMap:
        assert batch.anchors is not None
        logit_map = ScaleMap(torch.linspace(5, 10, len(batch.anchors), dtype=batch.anchors.dtype))
        if self.flag:
            bound = logit_map.at(slice(None), slice(None))
            setattr(logit_map, self.flag, True)
            logit_map.at = lambda rows, columns, paired=False: _tile(bound, rows, columns, paired)  # type: ignore[method-assign]
        return logit_map


def _tile(bound: LogitMap, rows: slice | Tensor, columns: slice | Tensor, paired: bool) -> LogitMap:
    assert isinstance(bound, ScaleMap)
    return ScaleMap(bound.scale[rows, 0] if paired else bound.scale[rows])


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


class Forgetful(Sound):
    """Keeps its progress in a plain attribute, which no checkpoint holds."""

    epoch = 0.0

    def set_progress(self, epoch: float, step: int | None = None) -> None:
        self.epoch = epoch

    def prepare(self, batch: Batch) -> LogitMap:
        return Softened(self.log_scale.exp() * (1 + self.epoch / 100))


class Unsaved(Sound):
    def state_dict(self, *args: object, **kwargs: object) -> dict[str, Tensor]:  # type: ignore[override]
        return {}


class Idle(Sound):
    """Learns a scale that its map does not let gradients reach."""

    def prepare(self, batch: Batch) -> LogitMap:
        return Softened(self.log_scale.detach().exp())


class Exploding(Sound):
    """Turns a gradient into NaN on its way back."""

    def prepare(self, batch: Batch) -> LogitMap:
        scale = self.log_scale.exp()
        if scale.requires_grad:
            scale.register_hook(lambda gradient: gradient * torch.nan)  # type: ignore[no-untyped-call]
        return Softened(scale)


class Tensorial(Sound):
    def prepare(self, batch: Batch) -> LogitMap:
        return self.log_scale  # type: ignore[return-value]


class Nameless(Sound):
    name = ""


class Greedy(Sound):
    def prepare(self, batch: Batch) -> LogitMap:
        raise self.missing("captions", "captions")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Forgetful, "the logits differ: something that counts is not saved"),
        (Unsaved, r"load_state_dict\(state_dict\(\)\) raised"),
        (Idle, "strategy.log_scale receives no gradient"),
        (Exploding, "the gradient of strategy.log_scale on the engine 'dense' is not finite"),
        (Tensorial, r"prepare\(batch\) returned Parameter, not a LogitMap"),
        (Nameless, "the class has no name"),
        (Greedy, r"prepare\(batch\) raised .*pass captions= to the loss"),
    ],
)
def test_broken_strategies_are_named(kind: type[Strategy], message: str) -> None:
    with pytest.raises(ConformanceError, match=message):
        check_strategy(kind())


@pytest.mark.parametrize("thing", [Sound, "macl", nn.Identity()], ids=["class", "spec", "module"])
def test_what_is_checked_must_be_an_instance(thing: object) -> None:
    with pytest.raises(ConformanceError, match=r"is not an instance of tempplug\.Strategy"):
        check_strategy(thing)  # type: ignore[arg-type]


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_strategy_is_checked_in_the_type_of_its_parameters(dtype: torch.dtype) -> None:
    check_strategy(Networked().to(dtype))


class Reciprocal(Sound):
    """As a newcomer writes it: 1/scale is rounded to the parameter's type."""

    def prepare(self, batch: Batch) -> LogitMap:
        scale = self.log_scale.exp()
        return Divided(scale, 1 / scale)


class Divided(Softened):
    def __init__(self, scale: Tensor, temperature: Tensor) -> None:
        super().__init__(scale)
        self.divisor = temperature

    def temperature(self, similarity: Tensor) -> Tensor:
        s = similarity if similarity.dtype == torch.float64 else similarity.float()
        return (1 + s.square() / 4) * self.divisor.detach()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", [Sound, Reciprocal])
def test_parameters_of_any_type_pass(kind: type[Strategy], dtype: torch.dtype) -> None:
    check_strategy(kind().to(dtype))


@pytest.mark.parametrize("spec", ["learnable", "amcl:dimension=8"])
def test_built_in_strategies_conform_in_float64_too(spec: str) -> None:
    """Where a slope may be wrong by 1e-9 alone."""
    check_strategy(create_strategy(spec).double())


class SlightlyWrong(Sound):
    """Learns its scale, and has a slope that is wrong by a thousandth."""

    def prepare(self, batch: Batch) -> LogitMap:
        return Steepened(self.log_scale.exp())


class Steepened(Softened):
    def slope(self, similarity: Tensor) -> Tensor:
        return super().slope(similarity) * 1.001


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_wrong_slope_is_found_beside_parameters_of_either_type(dtype: torch.dtype) -> None:
    with pytest.raises(ConformanceError, match="slope"):
        check_strategy(SlightlyWrong().to(dtype))
