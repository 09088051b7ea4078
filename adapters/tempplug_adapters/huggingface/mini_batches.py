"""Trainers that embed a batch in parts, as `tempplug.cached_backward` does, within the training step of the Trainer.

``compute_loss`` embeds without a graph and returns the loss of the embeddings, whose backward pass is the Trainer's own, with
its scale; the second pass follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from tempplug.errors import ConfigError, ShapeError
from tempplug.gradient_cache import MINI_BATCH_SIZE, EmbeddedParts, second_pass
from tempplug_adapters.huggingface.parameters import sharded_by

# a Trainer for type checkers; at run time, the mixin precedes one in the list of base classes
if TYPE_CHECKING:
    from transformers import Trainer as _Base
else:
    _Base = object


class TwoPassMixin(_Base):
    """Follows the backward pass of the loss by the second pass of the parts that ``compute_loss`` embedded.

    Attributes:
        second_pass: set by ``compute_loss`` where it embedded in parts; None after a step.
    """

    second_pass: Callable[[], None] | None = None

    def training_step(self, model: nn.Module, *args: Any, **kwargs: Any) -> Tensor:
        """Runs forward and backward of a micro-batch, with both passes."""
        loss: Tensor = super().training_step(model, *args, **kwargs)
        follow, self.second_pass = self.second_pass, None
        if follow is not None:
            with self.compute_loss_context_manager():
                follow()
        return loss

    def continue_with(self, embedded: Sequence[EmbeddedParts], model: nn.Module, loss: nn.Module) -> None:
        """Sets the second pass of this step.

        Args:
            embedded: embeddings of the batch.
            model: the model, wrapped in distributed training.
            loss: the loss, inside of the model or not.
        """
        self.second_pass = partial(second_pass, embedded, model, list(loss.parameters()))


def check_mini_batches(size: int | None) -> int | None:
    """Returns the rows of a mini-batch, None for whole batches.

    Raises:
        ConfigError: ``size`` is less than 1, or FSDP or DeepSpeed shards the model.
    """
    if size is not None:
        MINI_BATCH_SIZE.check(f"contrastive_mini_batch_size={size}", size)
        if backend := sharded_by():
            raise ConfigError(
                f"contrastive_mini_batch_size={size} needs two passes of a model on each process, and {backend} shards it: "
                "leave it out, or train with DistributedDataParallel."
            )
    return size


def embed_outputs(
    embed: Callable[[Mapping[str, Tensor]], Any], inputs: Mapping[str, Tensor], size: int
) -> tuple[Any, EmbeddedParts]:
    """Returns what a function returns of a whole batch, from its parts: tuples and dictionaries of joined tensors.

    Args:
        embed: maps a part of the batch to tensors [b, ...] in tuples, lists or dictionaries, and other values; the first tensor
            has a row for each row of the part.
        inputs: the batch, tensors [B, ...].
        size: the most rows of a part.

    Raises:
        TensorError: the batch holds something else than tensors.
        ShapeError: a tensor is a single number, parts of the batch have different outputs or widths, or their rows are not the
            items.
    """
    forms: list[Any] = []
    widths: list[Any] = []

    def encode(part: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        values, form = tree_flatten(embed(part))
        are_tensors = [isinstance(value, Tensor) for value in values]
        forms.append((form, are_tensors))
        if forms[-1] != forms[0]:
            raise ShapeError(f"all parts of a batch must have outputs of one form, not {forms[0][0]} and {form}.")
        others[:] = [None if isinstance(value, Tensor) else value for value in values]
        tensors = tuple(value for value in values if isinstance(value, Tensor))
        if any(not tensor.ndim for tensor in tensors):
            raise ShapeError(
                "an output of shape [] belongs to no row of the batch: leave it out, or train without mini-batches."
            )
        widths.append([list(tensor.shape[1:]) for tensor in tensors])
        if widths[-1] != widths[0]:
            raise ShapeError(
                f"outputs of mini-batches have rows of the shapes {widths[0]} and {widths[-1]}: a matrix with a column for "
                "each item of the batch, such as targets [B, B], must come with the inputs, from the data collator."
            )
        count = len(next(iter(part.values())))
        if len(tensors[0]) != count:
            raise ShapeError(
                f"{len(tensors[0])} embeddings of {count} rows of a mini-batch: row i of every input must belong to item i, "
                "so that a batch can be split; put the texts of a second view into inputs of their own."
            )
        return tensors

    others: list[Any] = []
    embedded = EmbeddedParts(encode, "inputs", inputs, size)
    (form, are_tensors), joined = forms[0], iter(embedded.embeddings)
    values = [next(joined) if is_tensor else other for is_tensor, other in zip(are_tensors, others, strict=True)]
    return tree_unflatten(values, form), embedded
