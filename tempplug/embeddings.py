"""Raw embeddings to unit rows, and the similarity of pairs: normalisation, dot products.

It must not know layouts, strategies or engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from typing import Any

import torch
from torch import Tensor

from tempplug.precision import HALF, at_least_float32
from tempplug.transforms import plain_only

# Rows shorter than this have no direction: similarity 0 and gradient 0, where torch's own normalize multiplies by 1e12.
SMALLEST_NORM = 1e-12
# By type: numbers of float16 below its smallest normal one lose digits, and gradients of shorter rows would overflow.
SMALLEST = {torch.float16: torch.finfo(torch.float16).tiny}


# The gradient of x/‖x‖ in one pass over memory: that of weights with a gain, here of unit rows with a gain of 1/‖x‖.
_normalised_backward = torch.ops.aten._weight_norm_interface_backward.default


class _Divide(torch.autograd.Function):
    """Rows over their norm, keeping nothing but the result and the norms; inputs of one group come out one behind the other."""

    @staticmethod
    def forward(ctx: Any, twice: bool, groups: list[list[int]], zero: list[Tensor], *raw: Tensor) -> tuple[Tensor, ...]:
        alone = len(raw) == 1
        wide = raw[0].contiguous() if alone else torch.cat(raw)
        if wide.dtype in HALF:
            wide, alone = wide.float(), False
        norm, largest, without = torch.linalg.vector_norm(wide, dim=1, keepdim=True), None, None
        low, high = torch.aminmax(norm) if wide.is_cpu else (None, None)
        smallest = SMALLEST.get(raw[0].dtype, SMALLEST_NORM)
        # Of norms of a size at which squares are exact; a NaN fails both comparisons.
        if low is None or high is None or not (low.item() > max(1e-6, smallest) and high.item() < 1e6):
            # The largest entry is divided out first, so that squares neither overflow nor underflow; the result does not
            # change with it, so neither does the gradient.
            largest = wide.abs().amax(1, keepdim=True)
            without = norm < smallest
            largest = largest.masked_fill_(without, 1)
            wide, alone = wide / largest, False
            norm = torch.linalg.vector_norm(wide, dim=1, keepdim=True).masked_fill_(without, 1)
            zero.append(without.squeeze(1))
        # By division, because a product with 1/‖x‖ is not exactly 1 or -1 where rows have one dimension.
        unit = wide / norm if alone else wide.div_(norm)
        if without is not None:
            unit.masked_fill_(without, 0)
        ctx.dtype, ctx.groups = raw[0].dtype, groups
        # What has no gradient, such as a queue, may be filled anew before the backward pass.
        needed = ctx.needs_input_grad[3:]
        again = [each if learns else each.clone() for each, learns in zip(raw, needed, strict=True)] if twice else []
        ctx.save_for_backward(largest, without, norm, unit, *again)
        # No engine multiplies for the gradient of a group without one, such as detached keys and a queue.
        ctx.set_materialize_grads(False)
        if len(groups) == 1:
            return (unit,)
        units = unit.split_with_sizes(list(map(sum, groups)))
        if False in needed:
            ends = list(accumulate(map(len, groups), initial=0))
            constant = (not any(needed[start:end]) for start, end in pairwise(ends))
            ctx.mark_non_differentiable(*(each for each, fixed in zip(units, constant, strict=True) if fixed))
        return units

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        largest, without, norm, unit, *raw = ctx.saved_tensors
        again = torch.is_grad_enabled()
        if again:
            if not raw:
                raise RuntimeError(
                    "this engine has no second derivative: call backward without create_graph=True, or use engine='dense'."
                )
            # The gradient has a gradient of its own: result and norm anew, as functions of the input.
            wide = at_least_float32(torch.cat(raw))
            scaled = wide if largest is None else wide / largest
            norm = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
            norm = norm if without is None else norm.masked_fill(without, 1)
            unit = scaled / norm
        needed, groups, found, start = ctx.needs_input_grad[3:], ctx.groups, [None, None, None], 0
        if len(groups) > 1 and all(needed) and all(each is not None for each in gradients):
            gradients, groups = (torch.cat(gradients),), [list(chain(*groups))]  # type: ignore[arg-type]
        for gradient, sizes in zip(gradients, groups, strict=True):
            count = len(sizes)
            wanted = needed[len(found) - 3 : len(found) - 3 + count]
            end = start + sum(sizes)
            if gradient is not None and False in wanted:
                # Of a group whose last inputs need no gradient, such as a queue, what comes before.
                sizes = list(sizes)
                while sizes and not wanted[len(sizes) - 1]:
                    sizes.pop()
                gradient = gradient[: sum(sizes)]
            if gradient is not None and sizes:
                part = slice(start, start + gradient.shape[0])
                if again:
                    radial = (unit[part] * gradient).sum(1, keepdim=True)
                    of_rows = torch.addcmul(gradient, unit[part], radial, value=-1) / norm[part]
                else:
                    own, inverse = (unit, norm) if part.stop == unit.shape[0] == gradient.shape[0] else (unit[part], norm[part])
                    gain = _ones(gradient.shape[0], norm.dtype, norm.device)
                    of_rows = _normalised_backward(gradient.contiguous(), own, inverse.reciprocal(), gain, 0)[0]
                if largest is not None:
                    of_rows = (of_rows / largest[part]).masked_fill(without[part], 0)
                if of_rows.dtype is not ctx.dtype:
                    of_rows = of_rows.to(ctx.dtype)
                found += (of_rows,) if len(sizes) == 1 else of_rows.split_with_sizes(sizes)
            else:
                sizes = []
            found += [None] * (count - len(sizes))
            start = end
        return tuple(found)


@lru_cache(maxsize=64)
def _ones(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns the gain of each row, [count, 1]."""
    with torch.inference_mode(False):
        return torch.ones(count, 1, dtype=dtype, device=device)


# Without what `torch.autograd.Function` does for the transforms of `torch.func`, for which there are plain operations.
_apply_divide: Any = super(torch.autograd.Function, _Divide).apply


def unit_groups(
    groups: Sequence[Sequence[Tensor]], twice: bool = False, plain: bool | None = None
) -> tuple[tuple[Tensor, ...], Tensor | None]:
    """Returns what `unit_rows` does of several groups at once: one tensor a group, and one of booleans over all rows.

    Args:
        groups: each holds one or several [B, D], all of one floating-point type.
        twice: whether second derivatives are wanted.
        plain: whether plain operations alone will do; None to have that found out.
    """
    if plain_only() if plain is None else plain:
        # Groups apart, because a compiler would write one tensor of all anew.
        found = [_plain_unit_rows(each[0] if len(each) == 1 else torch.cat(list(each))) for each in groups]
        return tuple(unit for unit, _ in found), torch.cat([zero for _, zero in found])
    raw: list[Tensor] = []
    sizes: list[list[int]] = []
    for group in groups:
        raw += group
        sizes.append([each.shape[0] for each in group])
    zero: list[Tensor] = []
    units: tuple[Tensor, ...] = _apply_divide(twice, sizes, zero, *raw)
    return units, zero[0] if zero else None


def unit_rows(*embeddings: Tensor) -> tuple[Tensor, Tensor | None]:
    """Returns the rows of one or several [B, D] divided by their norm, in at least float32, and which rows had none.

    The latter are [B] booleans: True where the norm is below the smallest that has a direction; those rows are 0 with zero
    gradient. None in their place means that every norm is an ordinary number, so that no value is NaN or infinite either.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    (tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]]), tensor([False,  True]))
    """
    (unit,), without = unit_groups([embeddings])
    return unit, without


def _plain_unit_rows(embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """Returns what `unit_rows` does, in plain operations for graphs and `torch.func`; rows of infinite norm become NaN."""
    wide = at_least_float32(embeddings)
    norm = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    zero = norm < SMALLEST.get(embeddings.dtype, SMALLEST_NORM)
    inverse = norm.masked_fill(zero, 1.0).reciprocal().masked_fill(zero, 0.0)
    return wide * inverse.masked_fill(norm.isinf(), torch.nan), zero.squeeze(1)
