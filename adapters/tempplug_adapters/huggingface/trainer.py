"""The Trainer mixin: contrastive training with any temperature strategy, in any `transformers.Trainer` subclass.

The loss stays outside the model, so that ``save_pretrained`` writes only the encoder. This module and
`tempplug_adapters.huggingface.parameters` treat the parameters of the loss as the Trainer treats those of the model.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from accelerate.utils import send_to_device
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.trainer_utils import EvalLoopOutput

import tempplug
from tempplug.errors import ConfigError
from tempplug_adapters.data_parallel import use_accelerate
from tempplug_adapters.huggingface.callback import Embeddings, GainCallback, LogFile, TemperatureCallback
from tempplug_adapters.huggingface.loss_files import LossMixin
from tempplug_adapters.huggingface.mini_batches import TwoPassMixin, check_mini_batches, embed_outputs
from tempplug_adapters.huggingface.parameters import LossParametersCallback, average_gradients
from tempplug_adapters.ring_buffer import add_past_batches, loss_with_past_batches

logger = logging.getLogger(__name__)

REFERENCE_TEMPERATURE = 0.1
"""Temperature of the InfoNCE metric, which is comparable across strategies and steps."""
NAMES = ("contrastive_accuracy", "infonce_loss")
"""Names of the columns of `of_pairs`; Trainers minimise metrics that end in ``loss``."""


class Views(NamedTuple):
    """Result of `TemperatureTrainerMixin.contrastive_views`, which may also be a tuple of the first two to four values.

    Attributes:
        view_a: [B, D] embeddings, or one such matrix per head.
        view_b: likewise; None for a layout with one view.
        arguments: further keyword arguments of the loss: ``{"hard_negatives": [H, D]}``, ``{"labels": [B]}``, ``{"targets":
            [B, M]}``, … In mini-batches, targets come with ``inputs``, [B, M], from the data collator.
        auxiliary_loss: [] a weighted loss that is added, such as that of a masked language model.
    """

    view_a: Embeddings
    view_b: Embeddings | None
    arguments: Mapping[str, Any] = {}
    auxiliary_loss: Tensor | None = None


class TemperatureTrainerMixin(TwoPassMixin, LossMixin):
    """Trains with a `tempplug.ContrastiveLoss`: put it before `Trainer` and override `contrastive_views`.

    The optimizer gets the parameters of the loss, with the separate learning rate of a strategy or objective and without
    weight decay if they are exempt. Their gradients are averaged over processes, clipped separately, and zeroed with the
    model's. Schedules receive the length of the run, which sets a period that is not given, and the progress at every step.
    Each checkpoint contains the state of the loss, ``contrastive_loss.pt``, which is restored on resume and with the best
    model, and ``manifest.json``, the checksums of its files, which are verified before loading:
    `tempplug.errors.DataError` names a damaged file, or a checkpoint that is incomplete because its run was killed.
    Logs contain the results of `TemperatureCallback.measure`. Evaluation reports the loss of the views in evaluation mode, and
    ``contrastive_accuracy`` and ``infonce_loss`` over all items of all processes. These two do not depend on the temperature,
    so that they are suitable for ``metric_for_best_model``. A Trainer that evaluates also evaluates the untrained model, and
    says what the training gained.

    A last batch of one item has no negatives in most layouts: its loss and gradients are 0, also on one of several processes.
    Gradient accumulation does not enlarge the batch: negatives, and MACL's mean similarity, are those of one micro-batch.

    Args:
        *args: arguments of the Trainer.
        contrastive_loss: the loss, with ``reduction="mean"``; it gathers over processes if it was created with ``gather``.
        temperature_space: strategies that `hyperparameter_search` tries in addition to ``hp_space``, see
            `tempplug.search_space`; every trial has a new strategy. ``temperature_space.suggest(best.hyperparameters)`` is the
            spec string of the best one.
        log_record: ``brief`` or ``full``, see `TemperatureCallback.measure`.
        contrastive_mini_batch_size: the most rows of a training batch to embed at once, at least 1. `contrastive_views` is then
            called with parts of ``inputs``, tensors [B, ...], twice each; gradients are those of the whole batch, see
            `tempplug.cached_backward`. None embeds whole batches.
        queue_size: most rows of view_b of past training batches that stay negatives, at least 1, or None. The memory starts
            empty and is saved with the loss; it has the rows of all processes if the loss gathers. The loss is ``cross-view``
            with the term ``same-key``, and `contrastive_views` returns ``keys``, numbers of the rows, equal for equal ones.
        **kwargs: arguments of the Trainer.

    Raises:
        ConfigError: the loss is not a `tempplug.ContrastiveLoss` that returns a mean, or ``compute_loss_func`` is given; or
            mini-batches are smaller than 1, or of a model that FSDP or DeepSpeed shards; or ``queue_size`` does not go with the
            loss.
    """

    contrastive_loss: tempplug.ContrastiveLoss
    # a mean over the micro-batch: the Trainer has to divide it by the accumulation steps
    loss_is_scaled_for_ga: bool | None = False

    def __init__(
        self,
        *args: Any,
        contrastive_loss: tempplug.ContrastiveLoss,
        temperature_space: tempplug.SearchSpace | None = None,
        log_record: str = "brief",
        contrastive_mini_batch_size: int | None = None,
        queue_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(contrastive_loss, tempplug.ContrastiveLoss):
            raise ConfigError(f"contrastive_loss of type {type(contrastive_loss).__name__} must be a tempplug.ContrastiveLoss.")
        if contrastive_loss.reduction != "mean":
            raise ConfigError(f"reduction='{contrastive_loss.reduction}' of contrastive_loss must be 'mean'.")
        if kwargs.get("compute_loss_func") is not None:
            raise ConfigError("compute_loss_func must be None: the loss of this Trainer is contrastive_loss.")
        self.contrastive_loss = contrastive_loss
        self.past_batches = None if queue_size is None else add_past_batches(contrastive_loss, queue_size)
        self.temperature_space = temperature_space
        self._initial_strategy = contrastive_loss.strategy
        super().__init__(*args, **kwargs)
        # otherwise the Trainer would count label tokens, and divide by them in releases without loss_is_scaled_for_ga
        self.model_accepts_loss_kwargs = False
        self.contrastive_mini_batch_size = check_mini_batches(contrastive_mini_batch_size)
        self.contrastive_loss.to(self.args.device)
        use_accelerate(contrastive_loss, self.accelerator)
        self._keep_columns()
        self._pairs: list[Tensor] | None = None
        self.temperature_callback = TemperatureCallback(contrastive_loss, log_record=log_record)
        self.add_callback(self.temperature_callback)
        parameters = LossParametersCallback(contrastive_loss)
        self.add_callback(parameters)
        self.add_callback(LogFile())
        self.add_callback(GainCallback())
        self.look_after(contrastive_loss, parameters)

    def _keep_columns(self) -> None:
        """Prevents the Trainer from dropping columns that `contrastive_views` may read but ``model.forward`` does not name."""
        if not self.args.remove_unused_columns:
            return
        self.args.remove_unused_columns = False
        columns = getattr(self.train_dataset, "column_names", None)
        named = () if self.model is None else inspect.signature(self.model.forward).parameters
        kept = [each for each in columns if each not in named] if isinstance(columns, list) else []
        if kept and self.is_world_process_zero():
            logger.warning(
                "remove_unused_columns is off, because contrastive_views may read what %s.forward does not name: %s.",
                type(self.model).__name__,
                ", ".join(kept),
            )

    def contrastive_views(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, ...]:
        """Returns the embeddings of a batch: the first two to four values of `Views` as a tuple or a list. Override it.

        Call ``model``, which is wrapped in distributed training, once for both views: under DistributedDataParallel, a
        second call may overwrite buffers (batch normalisation) that the backward pass of the first needs.
        """
        raise NotImplementedError(f"{type(self).__name__} must override contrastive_views(model, inputs).")

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Returns the loss of a batch, or with ``return_outputs`` the pair (loss, {"view_a", "view_b"}).

        Args:
            model: the model, wrapped in distributed training; the loss gets the same training mode.
            inputs: a batch, on the device.
            return_outputs: whether to return the embeddings.
            num_items_in_batch: not used; the loss is a mean over the anchors.

        Raises:
            ConfigError: the result of `contrastive_views` does not have the form of `Views`.
        """
        size = self.contrastive_mini_batch_size
        if size is None or not model.training:
            views = self._views(model, inputs)
        else:
            views, embedded = embed_outputs(partial(self._views, model), inputs, size)
            self.continue_with([embedded], model, self.contrastive_loss)
        if not model.training:
            # a log after this evaluation must still describe the last training batch
            self.temperature_callback.record()
        self.contrastive_loss.train(model.training)
        if self.past_batches is not None and model.training:
            loss = loss_with_past_batches(self.contrastive_loss, self.past_batches, *views[:2], dict(views.arguments))
        else:
            loss = self.contrastive_loss(views.view_a, views.view_b, **views.arguments)
        if model.training:
            self.temperature_callback.observe(views.view_a, views.view_b)
        if views.auxiliary_loss is not None:
            loss = loss + views.auxiliary_loss
        return (loss, {"view_a": views.view_a, "view_b": views.view_b}) if return_outputs else loss

    def _views(self, model: nn.Module, inputs: Any) -> Views:
        """Returns the checked result of `contrastive_views`."""
        returned = self.contrastive_views(model, inputs)
        if not isinstance(returned, tuple | list) or not 2 <= len(returned) <= 4:
            raise ConfigError(
                f"contrastive_views returned {type(returned).__name__}, but must return (view_a, view_b), "
                "(view_a, view_b, arguments) or (view_a, view_b, arguments, auxiliary_loss)."
            )
        views = Views(*returned)
        if views.auxiliary_loss is not None and model.training and self.contrastive_mini_batch_size is not None:
            raise ConfigError(
                f"contrastive_mini_batch_size={self.contrastive_mini_batch_size} takes no auxiliary_loss, which is of a whole "
                "batch: leave one of them out."
            )
        return views

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """Runs forward and backward of a micro-batch; after the last of a step, averages the gradients of the loss."""
        # here, because gradient scaling and clipping follow and need equal gradients on all processes
        loss: Tensor = super().training_step(*args, **kwargs)
        if self.accelerator.sync_gradients:
            average_gradients(self.contrastive_loss)
        return loss

    def prediction_step(
        self, model: nn.Module, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[Any, Any, Any]:
        """Returns (loss, (view_a, view_b), labels) of an evaluation batch; labels are optional."""
        inputs = send_to_device(inputs, self.args.device)
        labels = tuple(inputs.get(name) for name in self.label_names)
        with torch.no_grad(), self.compute_loss_context_manager():
            loss, outputs = self.compute_loss(model, inputs, return_outputs=True)
        rows = None if self._pairs is None else of_pairs(outputs["view_a"], outputs["view_b"])
        if self._pairs is not None and rows is not None:
            # without the items that fill up the last batch of some processes
            padded = self.accelerator.pad_across_processes(rows, dim=0, pad_index=torch.nan)
            self._pairs.append(self.accelerator.gather_for_metrics(padded))
        if prediction_loss_only:
            return loss.detach(), None, None
        known = labels if labels and all(label is not None for label in labels) else None
        return loss.detach(), tuple(outputs.values()), known[0] if known and len(known) == 1 else known

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Evaluates, and adds metrics that do not depend on the temperature: see `of_pairs`."""
        self._pairs = []
        try:
            output = super().evaluation_loop(dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix)
            found = {f"{metric_key_prefix}_{name}": value for name, value in means(self._pairs).items()}
        finally:
            self._pairs = None
        return output._replace(metrics={**(output.metrics or {}), **found})

    def restart_loss(self, trial: Any) -> None:
        """Restores the initial state of the loss, or sets the trial's strategy."""
        self.contrastive_loss.strategy = self._initial_strategy
        super().restart_loss(trial)
        if trial is not None and self.temperature_space is not None:
            strategy = tempplug.create_strategy(self.temperature_space.suggest(trial))
            self.contrastive_loss.strategy = strategy.to(self.args.device)

    def hyperparameter_search(self, hp_space: Callable[[Any], dict[str, Any]] | None = None, *args: Any, **kwargs: Any) -> Any:
        """Searches as the Trainer does, in ``hp_space`` and ``temperature_space``; the first may be None."""
        if self.temperature_space is not None:
            hp_space = joint_space(self.temperature_space, hp_space)
        return super().hyperparameter_search(hp_space, *args, **kwargs)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Logs; training logs (with a loss) also get the measurements of the last training batch."""
        if "loss" in logs:
            logs.update(self.temperature_callback.measure())
        super().log(logs, *args, **kwargs)


@torch.no_grad()
def of_pairs(view_a: Embeddings, view_b: Embeddings | None) -> Tensor | None:
    """Returns accuracy and InfoNCE of each item of view_a among view_b, [B, 2] float32; NaN for a batch of one.

    Column 0 is 1 if the item's own row of view_b is strictly the most similar, otherwise 0. Column 1 is InfoNCE in nats at
    `REFERENCE_TEMPERATURE`. Both are averaged over the heads. Only the B local rows are compared, so values depend on the
    batch size but not on the number of processes.

    Args:
        view_a: [B, D] embeddings, or one such matrix per head.
        view_b: embeddings of the same shape, or None.

    Returns:
        None if the views are not paired row by row, that is, view_b is missing or has another shape.
    """
    heads_a, heads_b = ([each] if isinstance(each, Tensor) else list(each or ()) for each in (view_a, view_b))
    if not heads_b or any(a.shape != b.shape for a, b in zip(heads_a, heads_b, strict=True)):
        return None
    return torch.stack([_of_head(a.float(), b.float()) for a, b in zip(heads_a, heads_b, strict=True)]).mean(0)


def _of_head(view_a: Tensor, view_b: Tensor) -> Tensor:
    if len(view_a) < 2:
        return view_a.new_full((len(view_a), 2), torch.nan)
    similarity = F.normalize(view_a) @ F.normalize(view_b).T
    own = torch.arange(len(view_a), device=view_a.device)
    others = similarity.masked_fill(own[:, None] == own, -torch.inf)
    found = (similarity.diagonal() > others.amax(1)).float()
    return torch.stack([found, F.cross_entropy(similarity / REFERENCE_TEMPERATURE, own, reduction="none")], 1)


def means(rows: Sequence[Tensor]) -> dict[str, float]:
    """Returns the means of the rows of `of_pairs`, [B, 2] each, by name, without rows of NaN; empty if no row is left."""
    if not rows:
        return {}
    every = torch.cat(list(rows))
    every = every[~every.isnan().any(1)]
    return dict(zip(NAMES, every.double().mean(0).tolist(), strict=True)) if len(every) else {}


def joint_space(
    space: tempplug.SearchSpace, hp_space: Callable[[Any], dict[str, Any]] | None
) -> Callable[[Any], dict[str, Any]]:
    """Returns an ``hp_space`` of a Trainer that includes the options of a strategy.

    With Optuna, the trial suggests and stores the options of the strategy; Ray Tune gets their distributions.

    Args:
        space: options of the strategy.
        hp_space: the Trainer's arguments, if they are searched.
    """

    def joint(trial: Any) -> dict[str, Any]:
        found = {} if hp_space is None else dict(hp_space(trial))
        if trial is not None:
            space.suggest(trial)
            return found
        from ray import tune  # the only backend for which the Trainer passes no trial

        return {**found, **space.ray(tune)}

    return joint
