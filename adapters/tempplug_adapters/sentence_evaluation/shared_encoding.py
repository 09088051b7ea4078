"""Encoding that processes share: each takes its part of the sentences, and all get all vectors. Knows no models or tasks."""

from __future__ import annotations

import torch
from torch import Tensor, distributed

from tempplug.distributed import active
from tempplug_adapters.sentence_evaluation.encoding import Encode


def shared(encode: Encode) -> Encode:
    """Returns an encoder that all processes must call together, with the same sentences; one process has its own back.

    Args:
        encode: of this process; on all of them it must give the same vectors, on a device that they can communicate from.
    """
    if not active():
        return encode
    rank, world = distributed.get_rank(), distributed.get_world_size()

    def encode_together(sentences: list[str]) -> Tensor:
        most = -(-len(sentences) // world)
        # every other one, so that the shares of batches by length are equal work; who has none left repeats one
        share = (sentences[rank::world] + sentences[:1])[:most]
        own = encode(share).contiguous()
        parts = [torch.empty_like(own) for _ in range(world)]
        distributed.all_gather(parts, own)
        return torch.stack(parts, dim=1).flatten(0, 1)[: len(sentences)]

    return encode_together
