"""The blocks of a network in the order in which an image meets them, and freezing the first of them.

It must not know any particular network.
"""

from __future__ import annotations

from torch import nn

from tempplug.errors import ConfigError


def blocks_of(network: nn.Module) -> list[nn.Module]:
    """Returns the parts of a network that have parameters, in order: lists, sequences and mere wrappers are opened.

    A stage of a ResNet counts as its residual blocks, an encoder of a transformer as its layers.

    Args:
        network: any module that registers its parts in the order in which they run.

    >>> stage = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3))
    >>> [type(block).__name__ for block in blocks_of(nn.ModuleDict({"stage": stage, "norm": nn.LayerNorm(3)}))]
    ['Linear', 'Linear', 'LayerNorm']
    """
    children = list(network.children())
    if len(children) == 1 and not _own(network):
        return blocks_of(children[0])
    return [block for child in children for block in _opened(child)] or ([network] if _has_parameters(network) else [])


def freeze_blocks(network: nn.Module, count: int) -> None:
    """Takes the first blocks out of training: their parameters want no gradient any more, all others do.

    Parameters beside the blocks (a transformer's class token) belong to its input, and are frozen with the first block.

    Args:
        network: see `blocks_of`.
        count: how many blocks, from 0 to all but one.

    Raises:
        ConfigError: the count is out of range.
    """
    blocks = blocks_of(network)
    if not 0 <= count < len(blocks):
        raise ConfigError(
            f"frozen_blocks={count} must be at least 0 and less than {len(blocks)}, the blocks of {type(network).__name__}: "
            "something must be left to train."
        )
    network.requires_grad_(count == 0)
    for block in blocks[count:]:
        block.requires_grad_(True)


def _opened(module: nn.Module) -> list[nn.Module]:
    children = list(module.children())
    # A residual block without a projection is no wrapper: beside its one part with parameters it has an identity or activation.
    if isinstance(module, nn.ModuleList | nn.Sequential) or (len(children) == 1 and not _own(module)):
        return [block for child in children for block in _opened(child)]
    return [module] if _has_parameters(module) else []


def _own(module: nn.Module) -> bool:
    return any(True for _ in module.parameters(recurse=False))


def _has_parameters(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())
