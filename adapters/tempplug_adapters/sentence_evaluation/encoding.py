"""Encoding for all evaluations: each distinct sentence once, in batches of similar length, on one or several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, distributed

from tempplug.distributed import active
from tempplug.errors import ConfigError, ShapeError
from tempplug_adapters.encoder_checks import check_finite_rows

Encode = Callable[[list[str]], Tensor]
"""From n sentences to their vectors [n, D], without gradient."""
Progress = Callable[[float, str], None]
"""Called with the completed fraction of an evaluation, and the name of what is being done."""


def no_progress(fraction: float, doing: str) -> None:
    """Shows nothing."""


def check_batch_size(batch_size: int) -> None:
    """Raises `ConfigError` unless the batch size is a whole number of at least 1."""
    if not isinstance(batch_size, int) or batch_size < 1:
        raise ConfigError(f"batch_size={batch_size} must be a whole number of at least 1.")


def check_tasks(tasks: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Returns the tasks; raises `ConfigError` unless they are a list of one or more different names."""
    if isinstance(tasks, str) or not tasks or len(set(tasks)) != len(tasks):
        raise ConfigError(f"tasks={tasks!r} must be a list of one or more different names out of {', '.join(known)}.")
    return tuple(tasks)


def encode_distinct(
    encode: Encode, sentences: Iterable[str], batch_size: int, progress: Callable[[float], None] = lambda fraction: None
) -> tuple[dict[str, int], Tensor]:
    """Returns the row of each distinct sentence, and the vectors [U, D] on the CPU in at least float32.

    Long sentences come first, so that batches contain sentences of similar length.

    Args:
        encode: any dtype, any device, any norm.
        sentences: at least one.
        batch_size: maximum number of sentences per call.
        progress: called after each batch with the completed fraction of the letters.

    Raises:
        ShapeError: ``encode`` does not return one vector a sentence, or vectors of different widths.
        NonFiniteError: a vector is not finite.
    """
    ordered = sorted(dict.fromkeys(sentences), key=len, reverse=True)
    letters, read = max(1, sum(map(len, ordered))), 0
    batches: list[Tensor] = []
    for start in range(0, len(ordered), batch_size):
        batch = ordered[start : start + batch_size]
        vectors = torch.as_tensor(encode(batch)).detach()
        count, wanted = len(batch), batches[0].shape[1] if batches else "D"
        if vectors.ndim != 2 or len(vectors) != count or wanted not in ("D", vectors.shape[1]):
            raise ShapeError(f"the encoder returned {list(vectors.shape)} for {count} sentences, not [{count}, {wanted}].")
        vectors = vectors.to("cpu", torch.promote_types(vectors.dtype, torch.float32))
        check_finite_rows(vectors, "the vectors of a batch of texts", batch)
        batches.append(vectors)
        read += sum(map(len, batch))
        progress(read / letters)
    return {sentence: row for row, sentence in enumerate(ordered)}, torch.cat(batches)


def shared(encode: Encode) -> Encode:
    """Returns an encoder that divides the sentences among all processes; a single process gets ``encode`` itself.

    Args:
        encode: encoder of this process, equal on all processes, with vectors on a device for communication. All processes must
            call the result together with the same sentences.
    """
    if not active():
        return encode
    rank, world = distributed.get_rank(), distributed.get_world_size()

    def encode_together(sentences: list[str]) -> Tensor:
        most = -(-len(sentences) // world)
        # every WORLDth sentence, for equal work with sentences sorted by length; a short share repeats a sentence
        share = (sentences[rank::world] + sentences[:1])[:most]
        own = encode(share).contiguous()
        parts = [torch.empty_like(own) for _ in range(world)]
        distributed.all_gather(parts, own)
        return torch.stack(parts, dim=1).flatten(0, 1)[: len(sentences)]

    return encode_together
