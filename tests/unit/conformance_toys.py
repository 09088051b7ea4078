"""Sound strategies, objectives and terms on negatives of third parties, and what breaks one part of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tempplug import Batch, LogitMap, NegativeTerm, Objective, Pairs, Strategy, TermMap
from tempplug.errors import ConfigError
from tempplug.objectives.base import softplus
from tempplug.pair_functions import PairFunction, Softplus
from tempplug.strategies.maps import ScaleMap
from tempplug.types import Auxiliary, RowStatistics


def changed(base: type[Any], **parts: Any) -> Any:
    """A subclass with other methods or attributes."""
    return type("Changed", (base,), parts)


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


class Networked(Strategy):
    """A scale from the anchors by one layer, in the type of the strategy, as a newcomer writes it."""

    name = "networked"

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.of_rows = nn.Linear(8, 1)

    def prepare(self, batch: Batch) -> LogitMap:
        assert batch.anchors is not None
        return Softened(5 + self.of_rows(batch.anchors).mean().tanh())


class PerAnchor(Strategy):
    """One scale an anchor, with flags that may claim otherwise."""

    name = "per-anchor"

    def __init__(self, flag: str = "") -> None:
        super().__init__()
        self.flag = flag

    def prepare(self, batch: Batch) -> LogitMap:
        assert batch.anchors is not None
        scale = torch.linspace(5, 10, len(batch.anchors), dtype=batch.anchors.dtype)
        logit_map = ScaleMap(scale)
        if self.flag:
            setattr(logit_map, self.flag, True)
            logit_map.restrict = lambda rows, columns, paired=False: ScaleMap(scale[rows] if paired else scale[rows, None])  # type: ignore[method-assign]
        return logit_map


class Margin(Objective):
    """Sound: the squared hinge of the margin."""

    name = "margin"

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return (statistics.negative_lse - statistics.positive_logit + 1).clamp(min=0).square()


class Layered(Objective):
    """Its weights take statistics of their own type alone."""

    name = "layered"

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layer = nn.Linear(1, 1)

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        d = margin(statistics)
        return softplus(d) + self.layer(d[:, None]).squeeze(1).square() / 100


class Exponential(PairFunction):
    """That of softmax losses."""

    def value(self, logit: Tensor) -> Tensor:
        return logit.exp()

    slope = value


def summed(statistics: RowStatistics) -> Tensor:
    """The logarithm of a sum of exp, which float32 holds of logits up to 88, and which none of a negative number has."""
    assert statistics.negative_lse.min() > 0
    torch.testing.assert_close(statistics.positive_lse, statistics.positive_logit.neg().exp())
    return (statistics.negative_lse * statistics.positive_lse).log1p()


class Learned(Softplus):
    """Softplus of logits with a learned bias, which no engine has a gradient of."""

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


class Weighed(TermMap):
    """The logarithm of one weight of each candidate."""

    bound = 0.0

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def restrict(self, rows: Any, columns: Any, paired: bool = False) -> TermMap:
        return type(self)(self.values[columns])

    def term(self, similarity: Tensor) -> Tensor:
        return self.values


class Trust(NegativeTerm):
    """A third party's: a weight that the call gives, less with every batch of the training."""

    name = "trust"
    takes: ClassVar[frozenset[str]] = frozenset({"trust"})
    make: Callable[[Tensor], TermMap] = Weighed
    batches: Tensor

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("batches", torch.zeros(()))

    def observe(self, given: Mapping[str, Mapping[str, Tensor]]) -> None:
        self.batches += 1

    def prepare(self, pairs: Pairs) -> TermMap | None:
        return type(self).make(pairs.of_candidates("trust").log() - float(self.batches))


class Forgetful(Trust):
    """Counts batches where no state is."""

    def __init__(self) -> None:
        super().__init__()
        self._buffers.clear()
        self.batches = torch.zeros(())


def without_trust(otherwise: Callable[[], Any]) -> Any:
    """A term that does something else where a call lacks what it takes."""

    def prepare(self: Trust, pairs: Pairs) -> TermMap | None:
        try:
            return Trust.prepare(self, pairs)
        except ValueError:
            return otherwise()  # type: ignore[no-any-return]

    return changed(Trust, prepare=prepare)()


def raising(error: Exception) -> Callable[[], Any]:
    def call() -> Any:
        raise error

    return call


# As a newcomer writes it, 1/scale is rounded to the parameter's type.
RECIPROCAL = changed(Sound, prepare=lambda self, batch: Softened(self.log_scale.exp(), 1 / self.log_scale.exp()))


def mapped(**parts: Any) -> Any:
    """A strategy that always uses a changed map, at the scale 10."""
    kind, ten = changed(Softened, **parts), torch.tensor(10.0, dtype=torch.float64)
    return changed(Strategy, name="mapped", prepare=lambda self, batch: kind(ten))()


def times(method: str, factor: float) -> Callable[[Softened, Tensor], Tensor]:
    return lambda self, s: getattr(Softened, method)(self, s) * factor


def per_row(method: str) -> Callable[[Softened, Tensor], Tensor]:
    """One scale an anchor, which tiles must select and do not."""

    def of_rows(self: Softened, s: Tensor) -> Tensor:
        rows = torch.linspace(1, 2, len(s), dtype=torch.float64)
        rows = rows[:, None] if s.ndim == 2 else rows
        return getattr(Softened, method)(self, s) * (1 / rows if method == "temperature" else rows)

    return of_rows


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


def margin(statistics: RowStatistics) -> Tensor:
    return statistics.negative_lse - statistics.positive_logit


def divided(statistics: RowStatistics) -> Tensor:
    """Finite in value, 0/0 in gradient."""
    return torch.where(margin(statistics) > 80, margin(statistics), margin(statistics).exp().log1p())


def unbounded(statistics: RowStatistics) -> Tensor:
    return statistics.negative_lse.exp() - statistics.positive_logit


def losing(row_loss: Callable[[RowStatistics], Tensor], **parts: Any) -> Any:
    """An objective with this loss of each row."""
    return changed(Margin, row_loss=lambda self, statistics, auxiliary=None: row_loss(statistics), **parts)()


def pairwise(**parts: Any) -> Any:
    """An objective with a changed softplus as its pair function."""
    return losing(lambda of: of.positive_lse + of.negative_lse, pair_function=changed(Softplus, **parts)())


def with_map(**parts: Any) -> Any:
    """The third party's term with another map."""
    return changed(Trust, make=changed(Weighed, **parts))()


def with_sums(negative_lse: Callable[..., Tensor]) -> Any:
    """The third party's term, which changes sums of rows as well."""
    return changed(Trust, negative_lse=lambda self, *arguments: negative_lse(*arguments))()


def training_map(accepts: type[LogitMap], wanted: str, divisor: float = 1.0) -> dict[str, Any]:
    """Parts of an objective that takes maps of one type, at a part of their scale, and has an exponential that overflows."""

    def own(self: Objective, logit_map: LogitMap) -> LogitMap:
        if not isinstance(logit_map, accepts):
            raise ConfigError(f"objective 'margin' needs another map: use it with strategy '{wanted}'.")
        return ScaleMap(logit_map.scale / divisor) if isinstance(logit_map, ScaleMap) else logit_map

    return {"training_map": own}
