"""`cached_backward`: the gradient of a large batch, with the activations of a small part of it in memory.

The rows of a batch are embedded in parts without a graph; the loss of all embeddings gives their gradients; a second pass
embeds each part again, with the random state of the first pass, and continues the backward pass into the encoder.

Source: Gao et al. 2021, Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup (GradCache), section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tempplug.errors import ShapeError, TensorError
from tempplug.options import Number

Rows = Tensor | Mapping[str, Tensor]
"""What an encoder reads: a tensor [B, ...], or a dictionary of such tensors."""
RandomState = Mapping[torch.device, Callable[[], None]]
"""What sets the generator of each device to the state that it had."""
MINI_BATCH_SIZE = Number(at_least=1, integer=True)


def cached_backward(
    loss_fn: Callable[..., Tensor],
    encode: Callable[[Any], Tensor],
    view_a: Rows,
    view_b: Rows | None = None,
    *,
    mini_batch_size: int,
    scale: Callable[[Tensor], Tensor] | None = None,
    distributed_model: Any = None,
    **arguments: Any,
) -> Tensor:
    """Computes the loss of a batch and adds its gradients to ``.grad``, in the place of ``loss.backward()``.

    The gradients of the encoder and of the loss are those of the whole batch up to rounding, with dropout as well. Memory is
    that of a step with ``mini_batch_size`` rows, and of the embeddings; the encoder computes each row twice. Layers that mix
    rows, such as batch normalisation, see one part at a time, and their running statistics count it twice.

    Args:
        loss_fn: maps embeddings [B, D] and ``arguments`` to the loss, []: a `tempplug.ContrastiveLoss` or a function. For hard
            negatives, append their rows to ``view_b`` and pass a function that separates their embeddings.
        encode: maps a part of a view to its embeddings [b, D]. Both views use it; a function can choose a network by the names
            of the tensors.
        view_a: the rows that ``encode`` reads, B at first dimension: a tensor, or a dictionary of tensors.
        view_b: likewise; None for a loss of one view.
        mini_batch_size: the most rows to encode at once, at least 1; it affects only speed and memory.
        scale: maps the loss to the number whose gradient is computed: ``lambda loss: scaler.scale(loss / 4)`` with a gradient
            scaler and four accumulated batches. None computes the gradient of the loss.
        distributed_model: the DistributedDataParallel that ``encode`` calls, whose gradients only the last backward pass
            averages, those of the loss too if it belongs to the model. By default ``encode`` itself, if it is one. Without its
            ``find_unused_parameters=True``, the last parts of both views are in memory together.
        **arguments: further arguments of ``loss_fn``, for the whole batch.

    Returns:
        The loss, [], without a graph.

    Raises:
        ConfigError: ``mini_batch_size`` is no integer of at least 1.
        TensorError: a view is neither a tensor nor a dictionary of tensors, or ``encode`` returns no tensor.
        ShapeError: tensors of a view have different numbers of rows, ``encode`` returns another number of rows than it was
            given, or the loss is not a single number.

    >>> from tempplug import ContrastiveLoss
    >>> encoder = nn.Linear(4, 3)
    >>> loss_fn = ContrastiveLoss("fixed:temperature=0.05", layout="cross-view")
    >>> loss = cached_backward(loss_fn, encoder, torch.eye(4), torch.eye(4), mini_batch_size=2)
    >>> loss.requires_grad, encoder.weight.grad.shape
    (False, torch.Size([3, 4]))
    """
    views = {"view_a": view_a} if view_b is None else {"view_a": view_a, "view_b": view_b}
    embedded = [EmbeddedParts(_checked(encode), name, rows, mini_batch_size) for name, rows in views.items()]
    loss = loss_fn(*(part.embeddings[0] for part in embedded), **arguments)
    scaled = loss if scale is None else scale(loss)
    if scaled.ndim:
        raise ShapeError(
            f"loss_fn returned shape {list(loss.shape)} and must return one number: use reduction='mean' or 'sum'."
        )
    scaled.backward()  # type: ignore[no-untyped-call]
    model = encode if distributed_model is None else distributed_model
    second_pass(embedded, model, loss_fn.parameters() if isinstance(loss_fn, nn.Module) else ())
    return loss.detach()


class EmbeddedParts:
    """The embeddings of some rows, computed in parts without a graph; `second_pass` continues their backward pass.

    Args:
        encode: maps a part of the rows to a tuple of tensors, whose first dimensions are joined over the parts.
        name: name of the rows in messages.
        rows: a tensor [B, ...] or a dictionary of such tensors.
        size: the most rows of a part.

    Attributes:
        embeddings: the joined tensors; those of floating point are leaves of the graph and hold their gradient in ``.grad``.

    Raises:
        ConfigError: ``size`` is no integer of at least 1.
        TensorError: the rows are neither a tensor nor a dictionary of tensors.
        ShapeError: the tensors of a dictionary have different numbers of rows.
    """

    def __init__(self, encode: Callable[[Any], tuple[Tensor, ...]], name: str, rows: Rows, size: int) -> None:
        MINI_BATCH_SIZE.check(f"mini_batch_size={size}", size)
        self.encode, self.parts = encode, _split(name, rows, size)
        self.random_states: list[RandomState] = []
        outputs = []
        with torch.no_grad():
            for part in self.parts:
                self.random_states.append(_random_state(part))
                outputs.append(encode(part))
        # before PyTorch 2.11, autocast would use weights that it converted without a graph in the second pass
        torch.clear_autocast_cache()
        self.sizes = [[len(tensor) for tensor in tensors] for tensors in zip(*outputs, strict=True)]
        joined = [torch.cat(tensors) for tensors in zip(*outputs, strict=True)]
        self.embeddings = tuple(tensor.requires_grad_(tensor.is_floating_point()) for tensor in joined)

    def encode_again(self, number: int) -> list[tuple[Tensor, Tensor]]:
        """Returns the embeddings of a part, with a graph, and their gradients; without those that have none."""
        with _replayed(self.random_states[number]):
            outputs = self.encode(self.parts[number])
        pairs = []
        for output, embedding, sizes in zip(outputs, self.embeddings, self.sizes, strict=True):
            if embedding.grad is not None and output.requires_grad:
                pairs.append((output, torch.split(embedding.grad, sizes)[number]))
        return pairs


def second_pass(embedded: Sequence[EmbeddedParts], model: Any, of_loss: Iterable[nn.Parameter]) -> None:
    """Embeds each part again and adds the gradients of the encoder, after the backward pass of the loss.

    Args:
        embedded: embeddings that hold their gradients.
        model: what encodes. If it has ``no_sync``, as a DistributedDataParallel, only the last backward pass synchronises.
        of_loss: parameters of the loss, which hold their gradients already.
    """
    jobs = [(rows, number) for rows in embedded for number in range(len(rows.parts))]
    no_sync = getattr(model, "no_sync", None)
    last: list[tuple[EmbeddedParts, int]] = []
    if no_sync is not None:
        # DistributedDataParallel waits for all parameters in one backward pass, unless it looks for those outside of its graph
        finds = getattr(model, "find_unused_parameters", False)
        last = [(rows, len(rows.parts) - 1) for rows in (embedded[-1:] if finds else embedded)]
        of_loss = () if finds else of_loss
    with nullcontext() if no_sync is None else no_sync():
        for rows, number in jobs:
            if (rows, number) not in last:
                _backward(rows.encode_again(number))
    pairs = [pair for rows, number in last for pair in rows.encode_again(number)]
    held = [parameter for parameter in of_loss if last and parameter.grad is not None]
    _backward([*pairs, *((parameter.view_as(parameter), torch.zeros_like(parameter)) for parameter in held)])


def _backward(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    if pairs:
        outputs, gradients = zip(*pairs, strict=True)
        torch.autograd.backward(outputs, gradients)


def _checked(encode: Callable[[Any], Tensor]) -> Callable[[Any], tuple[Tensor, ...]]:
    def checked(part: Any) -> tuple[Tensor, ...]:
        embeddings = encode(part)
        if not isinstance(embeddings, Tensor):
            raise TensorError(f"encode returned {type(embeddings).__name__} and must return the embeddings, a tensor [b, D].")
        count = len(_tensors(part)[0])
        if embeddings.ndim < 2 or len(embeddings) != count:
            shape = list(embeddings.shape)
            raise ShapeError(f"encode returned shape {shape} for {count} rows and must return their embeddings, [{count}, D].")
        return (embeddings,)

    return checked


def _tensors(rows: Rows) -> list[Tensor]:
    return [rows] if isinstance(rows, Tensor) else list(rows.values())


def _split(name: str, rows: Rows, size: int) -> list[Any]:
    """Returns the parts of some rows, each of the type that the encoder reads."""
    named = {name: rows} if isinstance(rows, Tensor) else rows
    if not isinstance(named, Mapping) or not named:
        raise TensorError(f"{name} of type {type(rows).__name__} must be a tensor [B, ...] or a dictionary of such tensors.")
    for key, tensor in named.items():
        where = name if tensor is rows else f"{name}[{key!r}]"
        if not isinstance(tensor, Tensor) or not tensor.ndim:
            kind = "shape []" if isinstance(tensor, Tensor) else f"type {type(tensor).__name__}"
            raise TensorError(f"{where} of {kind} must be a tensor [B, ...]: leave it out, and pass it on in encode.")
    counts = {key: len(tensor) for key, tensor in named.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{key} {count}" for key, count in counts.items())
        raise ShapeError(f"tensors of {name} must have one first dimension, the rows of the batch, and have: {listed}.")
    if isinstance(rows, Tensor):
        return list(torch.split(rows, size))
    parts = zip(*(torch.split(tensor, size) for tensor in rows.values()), strict=True)
    return [dict(zip(rows, part, strict=True)) for part in parts]


def _random_state(part: Any) -> RandomState:
    """Returns the states of the generators that encoding a part can use: of the CPU, its devices and the current GPU."""
    devices = {torch.device("cpu"), *(tensor.device for tensor in _tensors(part))}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        devices.add(torch.device("cuda", torch.cuda.current_device()))
    return _states(devices)


def _states(devices: Iterable[torch.device]) -> RandomState:
    states = {}
    for device in devices:
        generators: Any = torch if device.type == "cpu" else torch.get_device_module(device)
        place = () if device.type in ("cpu", "mps") else (device,)  # which are one device each
        states[device] = partial(generators.set_rng_state, generators.get_rng_state(*place), *place)
    return states


@contextmanager
def _replayed(state: RandomState) -> Iterator[None]:
    """Sets random states for the block, and those before it afterwards."""
    before = _states(state)
    try:
        for restore in state.values():
            restore()
        yield
    finally:
        for restore in before.values():
            restore()
