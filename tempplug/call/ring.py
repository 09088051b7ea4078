"""A ring of processes: the candidates of each go round, so that no process holds more than those of two at a time.

Each process compares its own rows with the candidates of one process after the other, while the next are on their way. With L_k
a row's log-sum-exp over the candidates of process k (of a pair function, the sum),

    L = ln Σ_k exp L_k,    dL/dL_k = exp(L_k - L),

so that the statistics of all candidates are sums of parts, and so are their gradients. The backward pass goes round once more:
each process computes its part of every process's candidates again, and the gradient of the candidates travels with them, until
it reaches their owner. Which pairs are positives, negatives or left out, layouts and terms say of each part by itself.

The parts of a sum have the derivative 1. If all sums of a pair function get one gradient, as those of a mean do, it is a factor
of all gradients: these are computed for 1 and travel on the first way round, and the backward pass multiplies them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tempplug import distributed
from tempplug.block import Block
from tempplug.call.blocks import pairs_of, statistics_of, term_maps, terms_of
from tempplug.call.parts import Parts
from tempplug.call.ring_messages import Load, going_round, in_order, pack, passed, unpack
from tempplug.embeddings import UnitRows
from tempplug.errors import ConfigError
from tempplug.layouts import PairLayout, Views
from tempplug.objectives.base import Objective
from tempplug.pair_functions import PairFunction
from tempplug.strategies.maps import LogitMap
from tempplug.term_map import TermMap
from tempplug.types import EngineName, RowStatistics, Wanted

HARD = "hard_negatives"
# The statistics of a block that carry a gradient.
NUMBERS = ("positive_logit", "positive_similarity", "positive_lse", "negative_lse")


def check_ring(layout: PairLayout, objective: Objective, engine: str) -> None:
    """Raises `ConfigError` where a part of the loss needs the candidates of all processes at once."""
    why = None
    if not layout.rings:
        why = f"layout '{layout.name}' does not say what the pairs with the candidates of one process are"
    elif objective.top:
        why = f"objective '{objective.name}' ranks all negatives of a row"
    elif engine == "triton":
        why = "engine='triton' has no kernel for candidates without positives"
    if why is not None:
        raise ConfigError(f"gather='ring' has the candidates of one process at a time, and {why}: use gather=True.")


def make_ring(parts: Parts, views: Views, blocks: Sequence[Block]) -> Ring | None:
    """Returns the ring of a call, given its blocks of this process's candidates; None if it has no candidates of others."""
    rows, of_hard, local = views.rows, views.hard_sizes, views.own.by_name()
    names = {name for block in blocks for name in block.arguments[1] if block.everyone or name == HARD} - {"queue"}
    if not names:
        return None
    loads = [Load(name, tensor, of_hard if name == HARD else rows.sizes) for name, tensor in local.items() if name in names]
    of_candidates = {"all_labels": (views.labels, rows.sizes)} if blocks[0].roles.anchor_labels is not None else {}
    if HARD in names:
        of_candidates |= {"hard_rows": (views.hard_rows, of_hard), "hard_mask": (views.hard_mask, of_hard)}
        names.add("view_a")  # hard negatives of a row may have what is given of that row
    loads += [Load(place, values, sizes) for place, (values, sizes) in of_candidates.items() if values is not None]
    for argument, of in views.row_arguments.items():
        loads += [Load((argument, name), of[name][0], of_hard if name == HARD else rows.sizes) for name in of if name in names]
    return Ring(parts, views, in_order(loads), local)


class Ring:
    """The rows of one call that go round; ``local`` are those of this process by the names of the arguments."""

    def __init__(self, parts: Parts, views: Views, loads: list[Load], local: Mapping[str, Tensor]) -> None:
        self.parts, self.views, self.loads, self.local = parts, views, loads, local
        self.counted_terms: dict[tuple[int, int], tuple[TermMap, ...]] = {}

    def with_candidates(self, views: Views, owner: int, loads: Sequence[Load], tensors: Sequence[Tensor]) -> Views:
        """Returns the views of this process's anchors with the candidates of another."""
        if owner == views.rows.rank:
            return views
        arguments = {name: dict(of) for name, of in views.row_arguments.items()}
        fields: dict[str, Any] = {}
        rows = views.own.by_name()
        for load, tensor in zip(loads, tensors, strict=True):
            if isinstance(load.place, str):
                (rows if load.place in rows else fields)[load.place] = tensor
            elif isinstance(load.place[0], str):
                of = arguments[load.place[0]]
                of[load.place[1]] = of[load.place[1]][0], tensor
        return replace(views, chunk=owner, plan=None, everyone=UnitRows.of_tensors(rows), row_arguments=arguments, **fields)

    @torch.no_grad()
    def positive_similarity(self, number: int) -> tuple[Tensor, Tensor]:
        """Returns each anchor's mean similarity and number of positives of all processes, [N], of a block by its number."""
        totals, counts = [], []
        for owner, tensors in going_round(self.views.rows, self.loads):
            block = self.parts.layout.build(self.with_candidates(self.views, owner, self.loads, tensors))[number]
            counts.append(block.roles.positive_count)
            weighed = block.roles.targets is not None  # by what they have of the total over all processes
            totals.append(block.roles.positive_similarity(*block.detached) * (1 if weighed else counts[-1]))
        count = torch.stack(counts).sum(0)
        return torch.stack(totals).sum(0) / (1 if weighed else count.clamp(min=1)), count

    def statistics(
        self, blocks: Sequence[Block], maps: Sequence[LogitMap], wanted: Wanted
    ) -> tuple[list[RowStatistics], EngineName]:
        """Returns the statistics of each block over the candidates of all processes; arguments as of `statistics_of`."""
        call = _Call(self, blocks, maps, wanted)
        if torch.is_grad_enabled() and call.operands:
            flat: Sequence[Tensor] = _Round.apply(call, *call.operands)  # type: ignore[no-untyped-call]
        else:
            with torch.no_grad():
                flat = call.forward()
        of_blocks = zip(call.statistics, zip(*[iter(flat)] * len(NUMBERS), strict=True), strict=True)
        return [replace(merged, **dict(zip(NUMBERS, numbers, strict=True))) for merged, numbers in of_blocks], call.engine


def _leaf(tensor: Tensor) -> Tensor:
    """Returns the same numbers, from which no gradient flows to others."""
    return tensor.detach().requires_grad_(tensor.requires_grad)


class _Shifted(PairFunction):
    """A pair function with the offset of one map, as the function gives it (``operand``) and as a ``leaf``."""

    def __init__(self, function: PairFunction, logit_map: LogitMap) -> None:
        self._function, self.operand = function, function.offset(logit_map)
        self.leaf = _leaf(self.operand)

    def offset(self, logit_map: LogitMap) -> Tensor:
        return self.leaf

    def value(self, logit: Tensor) -> Tensor:
        return self._function.value(logit)

    def slope(self, logit: Tensor) -> Tensor:
        return self._function.slope(logit)


class _Call:
    """One round of statistics, and the round of its gradient.

    Attributes:
        operands: what the statistics are functions of, and has a gradient.
        leaves: what is computed with in their place, so that an operand's gradient holds none that flows through another.
        statistics: of each block, after `forward`.
        ahead: the gradients of the operands where those of all sums of a pair function are 1, after `forward`.
    """

    engine: EngineName
    ahead: list[Tensor | None] | None = None

    def __init__(self, ring: Ring, blocks: Sequence[Block], maps: Sequence[LogitMap], wanted: Wanted) -> None:
        self.ring, self.maps, self.wanted = ring, maps, wanted
        self.blocks = [replace(block) for block in blocks]  # which a backward pass reads, when the record has dropped theirs
        views, pair = ring.views, wanted.pair_function
        self.rows = views.rows
        self.pairs = [None if pair is None else _Shifted(pair, logit_map) for logit_map in maps]
        self.statistics: list[RowStatistics] = []
        products = [load for number, logit_map in enumerate(maps) for load in self._products(number, logit_map)]
        self.loads = in_order([*ring.loads, *products])
        self.learned = [load for load in self.loads if load.local.requires_grad]
        local = {name: _leaf(tensor) for name, tensor in ring.local.items()}
        units = UnitRows.of_tensors(local)
        self.views = replace(views, own=units, everyone=units)
        leaves = {id(tensor): (tensor, local[name]) for name, tensor in ring.local.items()}
        leaves |= {id(tensor): (tensor, tensor) for logit_map in maps for tensor in logit_map.tensors()}
        leaves |= {id(shifted.operand): (shifted.operand, shifted.leaf) for shifted in self.pairs if shifted is not None}
        for load in self.learned:
            leaves.setdefault(id(load.local), (load.local, load.local))
        learned = [both for both in leaves.values() if both[0].requires_grad]
        self.operands, self.leaves = [operand for operand, _ in learned], [leaf for _, leaf in learned]

    def _products(self, number: int, logit_map: LogitMap) -> list[Load]:
        """Returns the rows of candidates that a map reads beside the similarity."""
        logit_map.with_candidates([right for _, right in logit_map.products])  # raises where it cannot
        block, views = self.blocks[number], self.ring.views
        of_views = sum(name != HARD for name in block.arguments[1]) if block.everyone else 0
        of_hard = views.hard_sizes if HARD in block.arguments[1] else [0] * views.rows.world
        sizes = [of_views * size + hard for size, hard in zip(views.rows.sizes, of_hard, strict=True)]
        count = sizes[views.rows.rank]
        candidates = [right if len(right) == count else right[len(right) - count :] for _, right in logit_map.products]
        return [Load((number, place), rows, sizes) for place, rows in enumerate(candidates)]

    def forward(self, ahead: bool = False) -> tuple[Tensor, ...]:
        """Returns the `NUMBERS` of one block after the other, without gradient; ``ahead`` is for sums."""
        if ahead:
            self.ahead = self._round(self._ones(), True)
        else:
            for owner, tensors in going_round(self.rows, self.loads):
                for number, statistics, _ in self.parts(owner, tensors, True):
                    self._merge(number, statistics)
                del tensors  # before the next are on their way
        return tuple(getattr(merged, name).clone() for merged in self.statistics for name in NUMBERS)

    def _merge(self, number: int, statistics: RowStatistics) -> None:
        if number == len(self.statistics):
            self.statistics.append(statistics)
        else:
            weighed = self.blocks[number].roles.targets is not None
            self.statistics[number] = _merged(self.statistics[number], statistics, self.pairs[number] is not None, weighed)

    def _ones(self) -> list[float | None]:
        """Returns 1 for each of the `NUMBERS` of each block that a pair function's loss adds up, None for others."""
        used = [{"negative_lse", "positive_lse"} if block.paired else {"negative_lse"} for block in self.blocks]
        return [1.0 if name in names else None for names in used for name in NUMBERS]

    def parts(self, owner: int, tensors: Sequence[Tensor], merging: bool) -> Iterator[tuple[int, RowStatistics, bool]]:
        """Yields each block's number, its statistics over the candidates of one process, and whether positives may be there.

        Without ``merging`` they hold sums alone.
        """
        views = self.ring.with_candidates(self.views, owner, self.loads, tensors)
        parts = zip(self.ring.parts.layout.build(views), self.blocks, self.maps, strict=True)
        for number, (block, local_block, logit_map) in enumerate(parts):
            block.terms, block.keeps = local_block.terms, False
            if owner != views.rows.rank:
                if not block.roles.candidates:
                    continue
                places = [(tensor, load.place) for load, tensor in zip(self.loads, tensors, strict=True)]
                logit_map = logit_map.with_candidates([tensor for tensor, place in places if place[0] == number])
                block.terms = self._terms(local_block, block, views, (owner, number))
            block.positive_similarity = block.roles.positive_similarity(*block.detached)
            mean, count = self.wanted.negative_similarity and merging, self.wanted.negative_count and merging
            wanted = Wanted(mean, 0, self.pairs[number], count)
            (statistics,), self.engine = statistics_of(self.ring.parts.engine, [block], [logit_map], wanted)
            yield number, statistics, block.roles.positives is None or bool(block.roles.positives.runs)

    def _terms(self, local_block: Block, block: Block, views: Views, key: tuple[int, int]) -> tuple[TermMap, ...]:
        if local_block.pairs is None:
            return ()
        pairs = pairs_of(block, views, local_block.positive_similarity, local_block.pairs.main or local_block.pairs)
        terms = terms_of(self.ring.parts.terms, block)
        # Those that count may have counted more when the backward pass comes.
        counted = self.ring.counted_terms.setdefault(key, term_maps([term for term in terms if term.observes], pairs))
        return counted + term_maps([term for term in terms if not term.observes], pairs)

    def backward(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Returns the gradients of the operands."""
        if self.ahead is not None and (factor := self._factor(gradients)) is not None:
            return [None if gradient is None else gradient * factor.to(gradient) for gradient in self.ahead]
        return self._round(gradients)

    def _factor(self, gradients: Sequence[Tensor | None]) -> Tensor | None:
        """Returns the gradient of each sum, [], where those of all processes are equal and nothing else has one; or None."""
        bounds = torch.full((2,), torch.inf, device=self.ring.views.device)
        present = [gradient for gradient in gradients if gradient is not None]
        if [gradient is None for gradient in gradients] == [one is None for one in self._ones()]:
            least, most = torch.cat(present).aminmax()
            bounds = torch.stack([most, -least]).nan_to_num(torch.inf, torch.inf, -torch.inf)
        most, least = distributed.largest(bounds.double(), self.rows) * bounds.new_tensor([1, -1])
        return most if most == least else None

    def _round(self, gradients: Sequence[Tensor | float | None], merging: bool = False) -> list[Tensor | None]:
        """Goes round once; returns the gradients of the operands, and with ``merging`` finds the statistics as well."""
        total: dict[int, Tensor] = {}
        arrived: Callable[[], Tensor] | None = None
        for owner, tensors in going_round(self.rows, self.loads):
            candidate_gradients = self._add_part(owner, tensors, gradients, total, merging)
            del tensors
            if candidate_gradients is not None:
                packed = _added(candidate_gradients, self.learned, owner, arrived)
                del candidate_gradients, arrived  # nothing is held beside what goes on
                arrived = passed(self.rows, packed, self.learned, owner)
        if arrived is not None:
            for load, gradient in zip(self.learned, unpack(arrived(), self.learned, self.rows.rank), strict=True):
                _add(total, load.local, gradient)
        return [total.get(id(operand)) for operand in self.operands]

    def _add_part(
        self,
        owner: int,
        tensors: Sequence[Tensor],
        gradients: Sequence[Tensor | float | None],
        total: dict[int, Tensor],
        merging: bool,
    ) -> list[tuple[Tensor, Tensor | None]] | None:
        """Adds the gradients from one process's candidates; returns other processes' candidates, each with its gradient."""
        pairs = zip(self.loads, tensors, strict=True)
        of_others = [
            tensor.requires_grad_() for load, tensor in pairs if load.local.requires_grad and owner != self.views.rows.rank
        ]
        # One number, because gradients given to `torch.autograd.grad` make it load sympy, for seconds.
        along: list[Tensor] = []
        with torch.enable_grad():
            for number, statistics, positives in self.parts(owner, tensors, merging):
                if merging:
                    self._merge(number, statistics.detached())
                weighed = self.blocks[number].roles.targets is not None
                shares = _shares(statistics, self.statistics[number], self.pairs[number] is not None, positives, weighed)
                of_block = gradients[number * len(NUMBERS) :]
                for name, gradient, share in zip(NUMBERS, of_block, shares, strict=False):
                    value = getattr(statistics, name)
                    if gradient is not None and share is not None and value.requires_grad:
                        along.append((value * (gradient * share)).sum())
        inputs = [*self.leaves, *of_others]
        leaf_gradients = torch.autograd.grad(along, inputs, allow_unused=True) if along else [None] * len(inputs)
        for operand, leaf_gradient in zip(self.operands, leaf_gradients, strict=False):
            _add(total, operand, leaf_gradient)
        return list(zip(of_others, leaf_gradients[len(self.operands) :], strict=True)) or None


def _added(
    gradients: list[tuple[Tensor, Tensor | None]], loads: Sequence[Load], owner: int, arrived: Callable[[], Tensor] | None
) -> Tensor:
    """Returns the message of the gradients of one process's candidates: those found here and those that arrived."""
    if arrived is None:
        return pack(torch.zeros_like(rows) if gradient is None else gradient for rows, gradient in gradients)
    packed = arrived()
    for total, (_, gradient) in zip(unpack(packed, loads, owner), gradients, strict=True):
        if gradient is not None:
            total.add_(gradient)
    return packed


def _add(total: dict[int, Tensor], operand: Tensor, gradient: Tensor | None) -> None:
    """Adds a gradient of an operand."""
    if gradient is not None and id(operand) in total:
        total[id(operand)].add_(gradient)
    elif gradient is not None:
        total[id(operand)] = gradient.clone()  # autograd may have given it to others as well


def _share(portion: Tensor, whole: Tensor) -> Tensor:
    """Returns the share of sums in larger ones, given their logarithms; 0 where both are 0."""
    return torch.exp(portion - whole).nan_to_num(nan=0.0, posinf=0.0)


def _of_positives(rows: RowStatistics, summed: bool) -> Tensor:
    """Returns the sum over the positives, or its logarithm, [N], where there are none as well."""
    return rows.positive_lse.detach().masked_fill(rows.positive_count == 0, 0.0 if summed else -torch.inf)


def _shares(
    portion: RowStatistics, whole: RowStatistics, summed: bool, positives: bool, weighed: bool
) -> tuple[Tensor | None, ...]:
    """Returns the derivatives of the `NUMBERS` of rows along those of a part of their candidates; None for 0."""
    one = torch.ones_like(whole.negative_lse)
    of_negatives = one if summed else _share(portion.negative_lse.detach(), whole.negative_lse)
    if not positives:
        return None, None, None, of_negatives
    mean = one if weighed else portion.positive_count / whole.positive_count.clamp(min=1).to(one)
    return mean, mean, one if summed else _share(_of_positives(portion, False), _of_positives(whole, False)), of_negatives


def _merged(first: RowStatistics, second: RowStatistics, summed: bool, weighed: bool) -> RowStatistics:
    """Returns the statistics of rows over the candidates of both.

    ``summed``: sums are those of a pair function, not logarithms; ``weighed``: means over positives add up, because targets
    have weighed them by their total over all processes.
    """
    both, add = (first, second), torch.add if summed else torch.logaddexp
    count = first.positive_count + second.positive_count
    counts = (count.clamp(min=1),) * 2 if weighed else (first.positive_count, second.positive_count)
    shares = [portion / count.clamp(min=1).to(first.positive_lse) for portion in counts]
    positive = add(*(_of_positives(statistics, summed) for statistics in both))
    negative = add(first.negative_lse, second.negative_lse)
    similarity = None
    if first.negative_similarity is not None and second.negative_similarity is not None:
        similarity = _share(first.negative_lse, negative) * first.negative_similarity
        similarity += _share(second.negative_lse, negative) * second.negative_similarity
    return RowStatistics(
        positive_logit=shares[0] * first.positive_logit + shares[1] * second.positive_logit,
        positive_similarity=shares[0] * first.positive_similarity + shares[1] * second.positive_similarity,
        positive_lse=positive if summed else positive.masked_fill(count == 0, 0.0),  # unused without positives
        negative_lse=negative,
        positive_count=count,
        negative_count=first.negative_count + second.negative_count,
        negative_similarity=similarity,
    )


class _Round(torch.autograd.Function):
    """A round of statistics, with gradient."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *operands: Tensor) -> tuple[Tensor, ...]:
        """Returns what `_Call.forward` does."""
        ctx.call = call
        ctx.set_materialize_grads(False)
        # For what autograd checks: that nothing that is read again was changed in place.
        ctx.save_for_backward(*operands, *(load.local for load in call.loads if not load.local.requires_grad))
        # Hooks of a checkpoint are not meant for what is computed and gone within this function.
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
            return call.forward(ahead=call.pairs[0] is not None)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Returns the gradients of the operands."""
        if torch.is_grad_enabled():
            raise RuntimeError("gather='ring' has no second derivative: call backward without create_graph=True.")
        device = ctx.saved_tensors[0].device.type
        with torch.autocast(device, enabled=False):
            return None, *ctx.call.backward(gradients)
