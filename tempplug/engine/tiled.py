"""The tiled engine: row statistics and gradients in O(N·D) memory, whatever the map, the roles or the temperature.

One positive an anchor goes through `stream`, labels and masks through `several`; both need a map with an in-place form. AMCL's
map goes through `bilinear`. What none of them can do (a third party's map, temperatures so small that sums without a maximum
lose digits, other devices than the CPU) goes through the dense formulas, a few rows at a time and computed again in the
backward pass: slower, just as exact.
"""

from __future__ import annotations

import torch
from torch.utils.checkpoint import checkpoint

from tempplug.engine.bilinear import bilinear_statistics
from tempplug.engine.dense import dense_statistics
from tempplug.engine.several import closed_statistics
from tempplug.engine.single import has_form
from tempplug.engine.stream import Stream, Streamed
from tempplug.engine.tiles import Plan, Shape, make_plan
from tempplug.roles import Block, PairRoles
from tempplug.strategies.maps import LogitMap, PairTemperatureMap
from tempplug.types import NOTHING, RowStatistics, Wanted

# Numbers of a slab of whole rows; a GPU wants larger ones.
SLAB = {"cpu": 1 << 19}
SLAB_ELSEWHERE = 64 << 20
# Below so many numbers of the whole matrix one thread is done before others have started.
WORTH_THREADS = 2 << 20


def tiled_statistics(
    block: Block, logit_map: LogitMap, *, mirrored: bool = False, wanted: Wanted = NOTHING
) -> list[RowStatistics]:
    """Returns the statistics of every row, and with ``mirrored`` those of the transposed block from the same pass.

    Args:
        block: anchors, candidates and their roles.
        logit_map: of this batch.
        mirrored: whether the columns' statistics are wanted too; the map is then uniform and symmetric.
        wanted: what beside the log-sum-exps; asking for anything leaves the fast path.
    """
    found = None
    if not wanted:
        found = _closed(block, logit_map) if closes(block, logit_map) else _streamed(block, logit_map, mirrored)
    if found is None:
        found = [_by_slabs(block, logit_map, wanted)]
        if mirrored:
            found.append(_by_slabs(block.mirrored(), logit_map, wanted))
    return found


def streams(block: Block, logit_map: LogitMap) -> bool:
    """Returns whether the block goes through the fast path, small temperatures apart."""
    return has_form(type(logit_map)) and block.roles.positives is not None and block.anchors.device.type == "cpu"


def closes(block: Block, logit_map: LogitMap) -> bool:
    """Returns whether the block has one of the closed forms, small temperatures apart."""
    if block.anchors.device.type != "cpu":
        return False
    if type(logit_map) is PairTemperatureMap:
        return block.roles.positives is not None
    return has_form(type(logit_map)) and block.roles.positives is None


def _closed(block: Block, logit_map: LogitMap) -> list[RowStatistics] | None:
    if isinstance(logit_map, PairTemperatureMap):
        return [bilinear_statistics(block, logit_map)]
    found = closed_statistics(block, logit_map)
    return None if found is None else [found]


def _streamed(block: Block, logit_map: LogitMap, mirrored: bool) -> list[RowStatistics] | None:
    roles, anchors, similarity = block.roles, block.anchors, block.positive_similarity
    form = logit_map.tile_form(roles.candidates, anchors.dtype) if streams(block, logit_map) else None
    if form is None:
        return None
    plan = make_plan(Shape.of(roles), roles.square and logit_map.uniform and logit_map.symmetric)
    stream = Stream(block, form, plan, mirrored, _threads(plan))
    scale = next(iter(logit_map.tensors()), None)
    operands = (anchors,) if block.candidates is anchors else (anchors, block.candidates)
    needs_gradient = torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in (scale, *operands))
    counts = roles.negative_count()
    with torch.no_grad():
        if not stream.forward(counts, keep=needs_gradient):
            return None
    similarity, *every = Streamed.apply(stream, similarity, scale, *operands)  # type: ignore[no-untyped-call]
    positive_logit = _positive_pairs(roles, logit_map).logit(similarity)
    ones = roles.positive_count()
    return [RowStatistics(positive_logit, similarity, positive_logit, lse, ones, counts) for lse in every]


def _positive_pairs(roles: PairRoles, logit_map: LogitMap) -> LogitMap:
    """Returns the map bound to each anchor and its positive."""
    if logit_map.uniform or roles.positives is None:
        return logit_map
    rows = torch.arange(roles.anchors, device="cpu")
    return logit_map.at(rows, roles.positives.columns(rows), paired=True)


def _threads(plan: Plan) -> int:
    """Returns how many tiles are worked on at once."""
    numbers = sum((tile.bottom - tile.top) * (tile.right - tile.left) for tile in plan.tiles)
    return 1 if numbers < WORTH_THREADS else torch.get_num_threads()


def _by_slabs(block: Block, logit_map: LogitMap, wanted: Wanted) -> RowStatistics:
    """Returns the dense engine's statistics, slab by slab of whole rows; a slab is forgotten as soon as it is summed up."""
    size = SLAB.get(block.anchors.device.type, SLAB_ELSEWHERE)
    height = max(1, size // block.roles.candidates)
    parts: list[RowStatistics] = []
    for start in range(0, block.roles.anchors, height):
        rows = slice(start, min(start + height, block.roles.anchors))
        parts.append(
            checkpoint(dense_statistics, block, logit_map, rows, wanted, use_reentrant=False, preserve_rng_state=False)
        )
    return RowStatistics.joined(parts)
