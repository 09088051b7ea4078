"""Two boolean masks give the roles outright."""

from __future__ import annotations

import torch
from torch import Tensor

from tempplug.errors import ConfigError, ShapeError
from tempplug.layouts.base import Direction, PairLayout, Views
from tempplug.roles import roles_of_masks


def _mask(name: str, mask: Tensor | None, wanted: tuple[int, int]) -> Tensor:
    if mask is None:
        raise ShapeError(f"layout 'masks' needs {name}=, a boolean tensor of shape {list(wanted)}.")
    return mask


class Masks(PairLayout):
    """Roles given outright as two boolean masks, PyGCL's contract; view_a are the anchors, view_b the candidates."""

    name = "masks"
    takes = frozenset({"positive_mask", "negative_mask"})

    def build(self, views: Views) -> list[Direction]:
        """Returns the block [N, M] with the given masks."""
        if views.view_b is None:
            raise self.lacks_second()
        wanted = (views.size, views.view_b.shape[0])
        positive = _mask("positive_mask", views.positive_mask, wanted)
        negative = _mask("negative_mask", views.negative_mask, wanted)
        # Their bytes, because a maximum of bytes is many times faster than `any` of booleans.
        if bool((positive.view(torch.uint8) & negative.view(torch.uint8)).max()):
            raise ConfigError("positive_mask and negative_mask overlap: a pair cannot be both.")
        roles = roles_of_masks(positive, negative)
        return [self.direction(views, ("view_a",), ("view_b",), roles, everyone=False)]

    def refuse_gather(self) -> bool:
        """Returns True: the masks speak of the rows at hand."""
        return True

    def refuse_scores(self) -> bool:
        """Returns False: the masks say what each score is."""
        return False
