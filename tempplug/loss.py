"""`ContrastiveLoss`: similarity → strategy → logits → engine → row statistics → objective → reduction, in one module.

Strategies, objectives, engines and layouts are joined here; none of them imports the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Never, get_args

import torch
from torch import Tensor, nn

from tempplug.call.between_calls import Unchanged
from tempplug.call.compiler import OUTSIDE, stays_outside, takes_in
from tempplug.call.memory import Memory
from tempplug.call.parts import Parts
from tempplug.call.read import device_of, split_heads
from tempplug.call.record import Step, build_record
from tempplug.call.reduction import raise_if_nonfinite
from tempplug.call.ring import check_ring
from tempplug.call.run import Run, dense_logits
from tempplug.create import create_negatives, create_objective, create_strategy, message_of_unknown
from tempplug.distributed import LossGroup, chosen_processes, refused_together, using_group
from tempplug.engine.dispatch import check_engine
from tempplug.errors import ConfigError
from tempplug.inputs import check_tensor
from tempplug.layouts import PairLayout, create_layout
from tempplug.negatives.base import NegativeTerm
from tempplug.objectives.base import Objective
from tempplug.precision import plain_precision
from tempplug.strategies.base import Strategy
from tempplug.transforms import dispatching, explained, refuse_fake, transformed
from tempplug.types import EngineName, Gather, LayoutName, ObjectiveName, Reduction, StepRecord

if TYPE_CHECKING:
    from tempplug.types import with_signature_of

Embeddings = Tensor | Sequence[Tensor]
"""Raw rows [B, D], or those of several heads."""


class ContrastiveLoss(nn.Module):
    """A contrastive loss with any temperature strategy, objective and pair layout.

    Args:
        strategy: how similarities become logits: a number for a fixed temperature, or an instance such as
            ``tempplug.MACL(base_temperature=0.05)``.
        objective: how logits become a loss: a name, or an instance such as ``tempplug.DCLW(sigma=0.25)``.
        layout: ``two-view`` (SimCLR), ``cross-view`` (SimCSE, CLIP), ``queue`` (MoCo), ``labels`` (SupCon) or ``masks``, or an
            instance such as ``tempplug.CrossView(directions="ab+aa")``.
        negatives: which negatives count, and how much: an instance such as ``tempplug.FalseNegatives(margin=0.1)``, or several;
            `tempplug.negatives` lists them.
        symmetric: of ``cross-view``: average both directions.
        reduction: ``mean``, ``sum`` or ``none``; anchors without a positive leave the mean (and are 0 under ``none``).
        gather: candidates of all processes; without a process group it changes nothing. ``"ring"``: the same loss and gradient
            from the candidates of one process after the other, which go round; a process then holds those of two at a time, and
            sends half as much again. ``amcl-top`` and ``engine="triton"`` need True (docs/distributed.md).
        group: the processes of ``gather``: a ``ProcessGroup`` or one dimension of a ``DeviceMesh``, e.g. ``mesh["dp"]``; None
            means all. Processes of tensor, sequence or context parallelism hold the same rows and must not be among them.
        engine: ``auto``, ``dense``, ``tiled`` or ``triton``, see `tempplug.engine.dispatch`; ``record.engine`` says which ran.

    The first four also take spec strings such as ``"macl:base_temperature=0.05"``; type checkers know only names.

    ``torch.compile`` and ``torch.export`` trace calls of ``two-view``, ``cross-view`` and ``queue`` with up to 4 million pairs,
    of which ``torch.compile`` takes 32,768 on a CPU, or any number with ``dense``; other calls stay outside of the graph
    (docs/engines.md).

    Raises:
        UnknownNameError: no such strategy, objective, option or layout.
        ConfigError: an option, the reduction or the engine is not allowed, or two parts do not go together.

    >>> loss_fn = ContrastiveLoss("macl:base_temperature=0.05,alpha=2,threshold=0.8", layout="cross-view")
    >>> view_a = torch.eye(3)
    >>> round(loss_fn(view_a, view_a).item(), 6), round(loss_fn.record.temperature_mean.item(), 6)
    (1e-06, 0.07)
    """

    def __init__(
        self,
        strategy: str | float | Strategy = "fixed",
        objective: ObjectiveName | Objective = "infonce",
        layout: LayoutName | PairLayout = "two-view",
        *,
        negatives: str | NegativeTerm | Sequence[NegativeTerm] | None = None,
        symmetric: bool = False,
        reduction: Reduction = "mean",
        gather: Gather = False,
        group: Any = None,
        engine: EngineName = "auto",
        **unknown: Never,
    ) -> None:
        super().__init__()
        if unknown:
            raise ConfigError(message_of_unknown(unknown))
        self.strategy = create_strategy(strategy)
        self.objective = create_objective(objective)
        self.layout = create_layout(layout, symmetric)
        terms = create_negatives(negatives)
        self.negatives = nn.ModuleList(terms)
        if self.strategy.observes and self.objective.pair_function is not None:
            raise ConfigError(
                f"strategy '{self.strategy.name}' learns from the softmax of each row, and objective "
                f"'{self.objective.name}' has none: use another strategy, or another objective."
            )
        if not isinstance(reduction, str) or reduction not in get_args(Reduction):
            raise ConfigError(f"reduction={reduction!r} must be one of {', '.join(get_args(Reduction))}.")
        if not isinstance(gather, bool) and gather != "ring":
            raise ConfigError(f"gather={gather!r} must be True, False or 'ring'.")
        for term in terms:
            term.check_with(self.layout, self.objective)
        if gather and not self.layout.gathers:
            raise ConfigError(f"gather={gather!r} has no meaning for layout '{self.layout.name}', whose roles are given.")
        if gather == "ring":
            check_ring(self.layout, self.objective, engine)
        self.reduction, self.gather, self.engine = reduction, gather, check_engine(engine)
        self.group = None if group is None else LossGroup(group, gather)
        self.memory = Memory()

    def forward(
        self,
        view_a: Embeddings,
        view_b: Embeddings | None = None,
        *,
        queue: Tensor | None = None,
        hard_negatives: Tensor | None = None,
        labels: Tensor | None = None,
        index: Tensor | None = None,
        uncertainty: Tensor | tuple[Tensor, Tensor] | None = None,
        positive_mask: Tensor | None = None,
        negative_mask: Tensor | None = None,
        hard_negative_mask: Tensor | None = None,
        targets: Tensor | tuple[Tensor, Tensor] | None = None,
        **of_rows: Tensor | Mapping[str, Tensor],
    ) -> Tensor:
        """Returns the loss in nats: [] for ``mean`` and ``sum``; for ``none`` [2B] with two-view, else [N], N anchors.

        Args:
            view_a: [B, D] raw embeddings, the anchors; or a list of them, one a head, whose losses are summed.
            view_b: [B, D] raw embeddings, row i the positive of view_a's row i ([M, D] candidates for ``masks``).
            queue: [K, D] past candidates, for ``queue`` and ``cross-view``.
            hard_negatives: [H, D], or [B, k, D] taken as [B·k, D]; all of them join the candidates of every anchor of view_a.
            labels: [B] class of each row, serving both views; equal numbers are one class, -1 as well.
            index: [B] position of each row in the data set, from 0.
            uncertainty: [B] of any size, or a pair of them where both views hold anchors.
            positive_mask: [B, M] boolean, for ``masks``; True where row i of view_a belongs with row j of view_b.
            negative_mask: [B, M] boolean, for ``masks``.
            hard_negative_mask: [B, k] boolean, which of the hard negatives [B, k, D] there are; all by default.
            targets: [B, M] for ``cross-view``, or a pair with view_b's [B, M]: the share of row i's probability that each of
                view_b (of all processes), queue and hard negatives should have. Rows sum to 1, or to 0 without a positive; in
                ``sigmoid`` to anything. What has a target is a positive, and terms act on the rest. No gradient.
            of_rows: what terms or layout read of rows, as ``keys=`` or ``guide=``: a tensor [B, ...] of both views' rows, or a
                dictionary of those of ``view_a``, ``view_b``, ``hard_negatives`` and ``queue``.

        An anchor without a negative, as in a batch of one, has under ``infonce`` the loss of its positives alone, 0 with one
        positive, and leaves the mean under the other objectives, which are not defined there; so does one without a positive.
        Where no anchor is left the loss is 0, with gradients of 0. The first such batch warns.
        Labels and masks must not be changed in place before the backward pass; it raises where they were.

        Raises:
            TensorError: an argument is no dense tensor of the right numbers on view_a's device, see `tempplug.inputs`.
            ShapeError: shapes do not fit.
            ConfigError: strategy or objective misses an input, or neither strategy nor layout reads one that was given.
            NonFiniteError: embeddings hold NaN or infinite values, or a parameter does (on CPU).
            ProcessError: with ``gather``, another process refused its inputs, or its call differs from this one.
        """
        optional = {
            "queue": queue,
            "hard_negatives": hard_negatives,
            "labels": labels,
            "index": index,
            "uncertainty": uncertainty,
            "positive_mask": positive_mask,
            "negative_mask": negative_mask,
            "hard_negative_mask": hard_negative_mask,
            "targets": targets,
            **of_rows,
        }
        arguments: dict[str, Any] = {}
        for name, value in optional.items():
            if value is not None:
                arguments[name] = value
        if torch.compiler.is_compiling() and takes_in(self.parts, self.training, view_a, view_b, arguments):
            return self._graph(view_a, view_b, arguments)
        return self._loss(view_a, view_b, arguments)

    if TYPE_CHECKING:

        @with_signature_of(forward)
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Calls `forward`."""

    def from_scores(
        self,
        scores: Tensor,
        *,
        labels: Tensor | None = None,
        index: Tensor | None = None,
        uncertainty: Tensor | tuple[Tensor, Tensor] | None = None,
        positive_mask: Tensor | None = None,
        negative_mask: Tensor | None = None,
        targets: Tensor | tuple[Tensor, Tensor] | None = None,
        **of_rows: Tensor | Mapping[str, Tensor],
    ) -> Tensor:
        """Returns the loss of scores in place of cosines, such as MaxSim's or a cross encoder's; as a call does, in nats.

        Under ``cross-view`` column i is the positive of row i, and the columns from N on are hard negatives that belong to no
        row; with directions ``ab+ba`` the columns are anchors, too. Under ``masks`` the masks define each score, so that the M
        candidates may be each row's own, as a cross encoder's are. Gradient flows to the scores. Strategies and terms that are
        defined for cosines refuse (their ``cosines_only``). Temperatures and margins are in units of the scores.

        Args:
            scores: [N, M] floating point, up to 3e28 in magnitude; row i is of view_a in what follows, column j of view_b.
            labels: [N], as of a call, as the next two.
            index: [N].
            uncertainty: [N].
            positive_mask: [N, M] boolean, for ``masks``.
            negative_mask: [N, M] boolean, for ``masks``.
            targets: [N, M] as of a call; then the M candidates may be each row's own, and any number.
            of_rows: as of a call, with ``hard_negatives`` for the columns from N on.

        Raises:
            TempplugError: as for a call; `ConfigError` also where a part of the loss, or ``gather=True``, has no meaning for
                scores, and `ShapeError` where there are fewer columns than rows without masks.

        >>> scores = torch.tensor([[9.0, 4.0, 5.0], [3.0, 8.0, 2.0]])
        >>> round(ContrastiveLoss("fixed:temperature=1", layout="cross-view").from_scores(scores).item(), 6)
        0.01696
        """
        check_tensor("scores", scores, scores.device if isinstance(scores, Tensor) else torch.device("cpu"))
        arguments = {
            "labels": labels,
            "index": index,
            "uncertainty": uncertainty,
            "positive_mask": positive_mask,
            "negative_mask": negative_mask,
            "targets": targets,
            **of_rows,
        }
        return self._loss(scores, None, {name: value for name, value in arguments.items() if value is not None}, Run.of_scores)

    def logits(
        self,
        view_a: Tensor,
        view_b: Tensor,
        *,
        labels: Tensor | None = None,
        index: Tensor | None = None,
        uncertainty: Tensor | None = None,
        groups: Tensor | None = None,
    ) -> Tensor:
        """Returns the dense logits of view_a's rows [B, D] against view_b's [M, D], [B, M], for losses that need them.

        The first B rows of view_b count as positives for strategies that read these. The others and errors are as of a call.
        """
        return dense_logits(self.strategy, view_a, view_b, labels=labels, index=index, uncertainty=uncertainty, groups=groups)

    @property
    def takes(self) -> frozenset[str]:
        """The names of the optional arguments of a call that some part of the loss reads; others are refused."""
        return self.parts.takes

    @property
    def terms(self) -> list[NegativeTerm]:
        """The terms on negatives."""
        return list(self.parts.terms)

    @property
    def parts(self) -> Parts:
        """What the loss is made of now, as its helpers take it."""
        # By torch's own dictionaries, because attributes of a module that are modules are found by slow code.
        modules: dict[str, Any] = self._modules
        terms = tuple(modules["negatives"]._modules.values())
        strategy, objective = modules["strategy"], modules["objective"]
        return Parts(strategy, objective, self.layout, terms, self.engine, self.gather, self.group, self.reduction)

    def accepted(self, **offered: Any) -> dict[str, Any]:
        """Returns those of the arguments that some part of the loss reads, for code that has more than every loss reads.

        >>> ContrastiveLoss("individual:size=9").accepted(index=torch.arange(3), labels=torch.zeros(3))
        {'index': tensor([0, 1, 2])}
        """
        return {name: value for name, value in offered.items() if name in self.takes}

    @property
    def record(self) -> StepRecord:
        """The record of the last call, computed on first reading.

        Raises:
            ConfigError: the loss was not called yet.
            RuntimeError: labels or masks were changed in place since the call, before the first reading.
        """
        memory = self.memory
        if memory.step is None or not memory.step.row_losses:
            raise ConfigError("record is empty: call the loss first, outside of the transforms of torch.func and exports.")
        if memory.record is None:
            memory.record = build_record(memory.step, self.strategy)
        return memory.record

    def set_progress(self, epoch: float, step: int | None = None) -> None:
        """Tells all parts how far training is: epochs done (fractions allowed), and optimizer steps done."""
        for part in (self.strategy, self.objective, *self.terms):
            part.set_progress(epoch, step)

    def set_length(self, epochs: float) -> None:
        """Tells all parts the length of the training in epochs."""
        for part in (self.strategy, self.objective, *self.terms):
            part.set_length(epochs)

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay must spare (timm's convention)."""
        of_strategy = {f"strategy.{name}" for name in self.strategy.no_weight_decay()}
        return of_strategy | {f"objective.{name}" for name in self.objective.no_weight_decay()}

    def extra_repr(self) -> str:
        """Shows layout, reduction and engine in ``print(loss)``."""
        return f"layout={self.layout.name}, reduction={self.reduction}, gather={self.gather}, engine={self.engine}"

    @stays_outside(OUTSIDE)
    def _loss(
        self,
        view_a: Embeddings,
        view_b: Embeddings | None,
        arguments: dict[str, Any],
        of_head: Callable[..., Tensor] = Run.of_embeddings,
    ) -> Tensor:
        if self.group is not None and self.group is not chosen_processes():
            with using_group(self.group):
                return self._loss(view_a, view_b, arguments, of_head)
        heads: Sequence[tuple[Tensor, Tensor | None]] = ((view_a, view_b),)  # type: ignore[assignment]
        if type(view_a) is not Tensor or not (view_b is None or isinstance(view_b, Tensor)):
            with refused_together(device_of(view_a), bool(self.gather)):
                heads = split_heads(view_a, view_b, self.objective)
        device = heads[0][0].device.type if isinstance(heads[0][0], Tensor) else "cpu"
        if device != "meta" and torch.is_autocast_enabled(device):
            # Half precision loses whole nats at small temperatures; everything from here on runs in at least float32.
            with torch.autocast(device, enabled=False):
                return self._loss(view_a, view_b, arguments, of_head)
        if transformed() or dispatching():
            return self._inside(heads, arguments, of_head)
        return self._run(heads, arguments, of_head)

    def _run(
        self, heads: Sequence[tuple[Tensor, Tensor | None]], arguments: dict[str, Any], of_head: Callable[..., Tensor]
    ) -> Tensor:
        """Returns the loss outside of transforms and graphs, and keeps what its record needs."""
        parts, memory = self.parts, self.memory
        if memory.unlearned is not None and not memory.unlearned.begin(self):
            memory.unlearned = None
        step = memory.step = Step(Unchanged(arguments, parts.layout.takes) if arguments else None)
        memory.record = None
        if parts.objective._parameters or parts.objective._modules:
            step.learned = self._learned()
        count = len(heads)
        total = of_head(Run(parts, memory, self.training, count, step), *heads[0], arguments)
        for head in heads[1:]:
            total = total + of_head(Run(parts, memory, self.training, count, step), *head, arguments)
        # Inputs were finite. On CUDA, looking would wait for the device.
        if total.is_cpu and not math.isfinite(total.item() if total.ndim == 0 else total.sum().item()):
            raise_if_nonfinite(self)
        if step.unchanged is not None:
            step.unchanged.watch(total)
        if memory.unlearned is not None:
            memory.unlearned.end(heads[0][0])
        return total

    def _inside(
        self, heads: Sequence[tuple[Tensor, Tensor | None]], arguments: dict[str, Any], of_head: Callable[..., Tensor]
    ) -> Tensor:
        """Returns the loss inside of a transform or a mode, of which nothing may be kept."""
        self.memory.step = self.memory.record = None
        if torch.compiler.is_compiling():
            raise ConfigError(f"{OUTSIDE}: leave it out of what is exported.")
        refuse_fake(heads, *arguments.values())
        for part in (self.strategy, self.objective):
            if self.training and part.observes:
                raise ConfigError(
                    f"{part.kind} '{part.name}' learns from every batch, which no transform of torch.func allows: call "
                    "loss_fn.eval(), or use autograd."
                )
        with explained(self.layout.name, self.strategy.name):
            run = partial(Run, self.parts, self.memory, self.training, len(heads), Step(None), transformed())
            return torch.stack([of_head(run(), *head, arguments) for head in heads]).sum(0)

    def _graph(self, view_a: Embeddings, view_b: Embeddings | None, arguments: dict[str, Any]) -> Tensor:
        """Returns the loss as a part of a graph; a compiled one leaves its record behind."""
        step = Step(None)
        if not torch.compiler.is_exporting():
            self.memory.step, self.memory.record = None if transformed() else step, None
            step.learned = self._learned()
        heads = split_heads(view_a, view_b, self.objective)
        run = partial(Run, self.parts, self.memory, self.training, len(heads), step, True)
        with plain_precision(heads[0][0].device.type):
            return torch.stack([run().of_embeddings(*head, arguments) for head in heads]).sum(0)

    def _learned(self) -> dict[str, Tensor]:
        """Returns copies of what the objective learns, as they are in this call."""
        return {name: number.detach().clone() for name, number in self.objective.learned().items()}
