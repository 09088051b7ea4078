"""The oracle's strategies: similarity to logit in float64, straight from the papers' formulas.

It must not know the strategies and maps that are tested against it. Random schedules (a matter of the generator, not of a
formula) and strategies that learn one temperature a sample are not covered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tempplug.errors import ConfigError


@dataclass(frozen=True)
class _Context:
    """What a temperature may depend on beside the similarity itself; see `oracle_logit`."""

    positive_similarity: Tensor | None = None
    labels: Tensor | None = None
    uncertainty: Tensor | None = None
    epoch: float = 0.0
    learned: Sequence[Tensor] = ()
    anchors: Tensor | None = None
    candidates: Tensor | None = None
    groups: Tensor | None = None


def _given(value: Tensor | None, name: str, strategy: str) -> Tensor:
    if value is None:
        raise ConfigError(f"{name}=None: the oracle of strategy '{strategy}' needs it.")
    return value


def _fixed(s: Tensor, context: _Context, *, temperature: float = 0.1) -> Tensor:
    return s / temperature


def _learnable(s: Tensor, context: _Context, *, initial_temperature: float = 0.07, max_scale: float | None = 100.0) -> Tensor:
    if not context.learned:
        return s / initial_temperature
    t = context.learned[0].double()
    if max_scale is None:
        return s * torch.exp(t)
    # CLIP clamps the parameter after the step: its gradient at the bound is that of the bound, not zero.
    return s * torch.exp(t + (t.clamp(max=math.log(max_scale)) - t).detach())


def _macl(
    s: Tensor,
    context: _Context,
    *,
    base_temperature: float = 0.1,
    alpha: float = 0.5,
    threshold: float = 0.0,
    floor_ratio: float = 0.1,
) -> Tensor:
    alignment = _given(context.positive_similarity, "positive_similarity", "macl").detach().double().mean()
    adapted = base_temperature * (1 + alpha * (alignment - threshold))
    return s / adapted.clamp(min=floor_ratio * base_temperature)


def _dystress(
    s: Tensor,
    context: _Context,
    *,
    temperature_min: float = 0.1,
    temperature_max: float = 0.2,
    profile: str = "cosine",
    shift: float = 0.0,
    width: float | None = None,
    rate: float = 3.5,
    detach: bool = True,
) -> Tensor:
    spread = temperature_max - temperature_min
    x = s.detach() if detach else s
    if profile == "cosine":
        tau = temperature_min + spread / 2 * (1 + torch.cos(math.pi * (1 + x)))
    elif profile == "linear":
        tau = temperature_min + spread * x.abs()
    elif profile == "exponential":
        tau = temperature_min + spread * (1 - torch.exp(-rate * x.abs())) / (1 - math.exp(-rate))
    elif profile == "monotonic":
        tau = temperature_min + spread / 2 * (1 + torch.sin(math.pi * x / 2))
    elif profile == "shifted":
        k = (1 + abs(shift)) / 2 if width is None else width
        active = x <= -shift if shift <= 0 else x >= -shift
        wave = temperature_min + spread / 2 * (1 + torch.cos(math.pi * (shift + x) / k))
        tau = torch.where(active, wave, torch.full_like(x, temperature_max))
    else:
        raise ConfigError(f"profile={profile} of the oracle of 'dystress' is not known.")
    return s / tau


def _temperature_free(s: Tensor, context: _Context, *, eps: float = 1e-4) -> Tensor:
    clamped = s.clamp(-(1 - eps), 1 - eps)
    return torch.log((1 + clamped) / (1 - clamped))


def _schedule(
    s: Tensor,
    context: _Context,
    *,
    shape: str = "cosine",
    temperature_min: float = 0.1,
    temperature_max: float = 1.0,
    period: float = 400.0,
    granularity: str = "step",
) -> Tensor:
    spread = temperature_max - temperature_min
    t = context.epoch // 1 + 1 if granularity == "epoch" and period >= 20 else context.epoch
    phase = math.fmod(t, period) / period
    if shape == "cosine":
        tau = temperature_min + spread * (1 + math.cos(2 * math.pi * phase)) / 2
    elif shape == "triangle":
        tau = temperature_max - spread * 2 * (phase if phase <= 0.5 else 1 - phase)
    elif shape == "step":
        tau = temperature_min if math.floor(t / (period / 2)) % 2 == 0 else temperature_max
    else:
        raise ConfigError(f"shape={shape} of 'schedule' has no formula: the oracle knows cosine, triangle and step.")
    return s / tau


def _head_tail(
    s: Tensor,
    context: _Context,
    *,
    class_counts: Sequence[float],
    temperature_head: float = 1.0,
    temperature_tail: float = 0.1,
    head_classes: int | Sequence[int] | None = None,
) -> Tensor:
    labels = _given(context.labels, "labels", "head-tail")
    if head_classes is None:
        head_classes = math.ceil(len(class_counts) / 2)
    if isinstance(head_classes, int):
        by_frequency = sorted(range(len(class_counts)), key=lambda index: (-class_counts[index], index))
        head_classes = by_frequency[:head_classes]
    tau = [temperature_head if int(label) in head_classes else temperature_tail for label in labels]
    return s / torch.tensor(tau, dtype=s.dtype)[:, None]


def _uncertainty(s: Tensor, context: _Context, *, base_temperature: float = 0.1) -> Tensor:
    u = _given(context.uncertainty, "uncertainty", "uncertainty").double()
    return s * torch.sigmoid(u)[:, None] / base_temperature


def _amcl(s: Tensor, context: _Context, *, dimension: int, span: float = 2.0, floor: float = 0.05, beta: float = 1.0) -> Tensor:
    anchors, candidates = _given(context.anchors, "anchors", "amcl"), _given(context.candidates, "candidates", "amcl")
    weight, bias = (parameter.double() for parameter in context.learned)
    product = (anchors @ weight.T + bias) @ (candidates @ weight.T + bias).T
    tau = span / (1 + torch.exp(product)) + floor
    return s / tau - beta * (dimension / 2 * torch.log(tau) + 1 / tau)


def _mm_ts(
    s: Tensor,
    context: _Context,
    *,
    class_counts: Sequence[float],
    temperature_min: float = 0.05,
    temperature_max: float = 0.2,
    amplitude: float = 0.08,
    period: float = 400.0,
) -> Tensor:
    sizes = torch.tensor([class_counts[int(label)] for label in _given(context.labels, "labels", "mm-ts")], dtype=s.dtype)
    share = (sizes - min(class_counts)) / (max(class_counts) - min(class_counts))
    tau = amplitude / 2 * math.cos(2 * math.pi * context.epoch / period)
    return s / (tau + share * (temperature_max - temperature_min) + temperature_min)[:, None]


def _tempnet(
    s: Tensor, context: _Context, *, temperature_min: float = 0.01, temperature_max: float = 0.05, **sizes: object
) -> Tensor:
    prototypes, log_sharpness, readout, weight, bias = (parameter.double() for parameter in context.learned)
    x = _given(context.anchors, "anchors", "tempnet").detach()
    activations = 1 / (1 + torch.exp(-(x @ weight.T + bias)))
    p = activations @ (prototypes / prototypes.norm(dim=1, keepdim=True)).T
    share = (p / log_sharpness.exp()).softmax(dim=1) - 1 / len(prototypes)
    height = (share / (1 + torch.exp(-p)) * readout[1:]).sum(dim=1) + readout[0]
    return s / ((temperature_max - temperature_min) / (1 + torch.exp(-height)) + temperature_min)[:, None]


def _by_group(
    s: Tensor, context: _Context, *, temperatures: Sequence[float], max_scale: float = 100.0, **others: object
) -> Tensor:
    groups = _given(context.groups, "groups", "by-group")
    if not context.learned:
        return s / torch.tensor([temperatures[int(group)] for group in groups], dtype=s.dtype)[:, None]
    t = context.learned[0].double()
    return s * torch.exp(t + (t.clamp(max=math.log(max_scale)) - t).detach())[groups][:, None]


_LOGITS: dict[str, Callable[..., Tensor]] = {
    "fixed": _fixed,
    "learnable": _learnable,
    "macl": _macl,
    "dystress": _dystress,
    "temperature-free": _temperature_free,
    "schedule": _schedule,
    "head-tail": _head_tail,
    "uncertainty": _uncertainty,
    "amcl": _amcl,
    "mm-ts": _mm_ts,
    "tempnet": _tempnet,
    "by-group": _by_group,
}
ROW_STRATEGIES = ("head-tail", "uncertainty", "mm-ts", "tempnet", "by-group")
SCALAR_STRATEGIES = ("fixed", "learnable", "macl", "schedule")


def oracle_logit(
    strategy: str,
    similarity: Tensor,
    *,
    positive_similarity: Tensor | None = None,
    labels: Tensor | None = None,
    uncertainty: Tensor | None = None,
    epoch: float = 0.0,
    learned: Sequence[Tensor] = (),
    anchors: Tensor | None = None,
    candidates: Tensor | None = None,
    groups: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Returns the logits of a strategy, in float64, in the shape of ``similarity``.

    Args:
        strategy: the name of a built-in strategy; ``options`` have their public names and defaults.
        similarity: cosine similarities in [-1, 1]; [N, M] where the temperature is one per anchor.
        positive_similarity: [N] similarity of each anchor to its positives (``macl``).
        labels: [N] class of each anchor (``head-tail``, ``mm-ts``).
        uncertainty: [N] learned scalar of each anchor (``uncertainty``).
        epoch: epochs done, at least 0 (``schedule``, ``mm-ts``).
        learned: the parameters of the strategy: ln(1/τ) [] of ``learnable`` (absent, that of ``initial_temperature``); weight
            [D, D] and bias [D] of ``amcl``'s φ; of ``tempnet`` prototypes [M, D], ln κ [1], bias and weights of the readout
            [1 + M], W [D, D] and b [D]; ln(1/τ) [G] of a learned ``by-group``.
        anchors: [N, D] unit rows (``amcl``, ``tempnet``), as ``candidates`` [M, D] (``amcl``).
        groups: [N] group of each anchor (``by-group``).

    Raises:
        ConfigError: no formula of that name, or an input that it needs is missing.

    >>> oracle_logit("temperature-free", torch.tensor(0.2, dtype=torch.float64))
    tensor(0.4055, dtype=torch.float64)
    """
    if strategy not in _LOGITS:
        raise ConfigError(f"strategy='{strategy}' has no oracle: known are {', '.join(_LOGITS)}.")
    context = _Context(positive_similarity, labels, uncertainty, epoch, learned, anchors, candidates, groups)
    return _LOGITS[strategy](similarity.double(), context, **options)
