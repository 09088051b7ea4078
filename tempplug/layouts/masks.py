"""Two boolean masks give the roles outright."""

from __future__ import annotations

import torch
from torch import Tensor

from tempplug.errors import ConfigError, ShapeError
from tempplug.layouts.base import Direction, PairLayout, Part, Views, given, one_uncertainty
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
        view_a, view_b = given(views.view_a, self.name), given(views.view_b, self.name)
        wanted = (view_a.shape[0], view_b.shape[0])
        positive = _mask("positive_mask", views.positive_mask, wanted)
        negative = _mask("negative_mask", views.negative_mask, wanted)
        # Their bytes, because a maximum of bytes is many times faster than `any` of booleans.
        if bool((positive.view(torch.uint8) & negative.view(torch.uint8)).max()):
            raise ConfigError("positive_mask and negative_mask overlap: a pair cannot be both.")
        return [
            Direction(
                anchors=view_a,
                candidates=view_b,
                roles=roles_of_masks(positive, negative),
                labels=views.labels,
                index=views.index,
                uncertainty=one_uncertainty(views, 0, self.name),
                parts=((Part("view_a", views.size, False),), (Part("view_b", view_b.shape[0], False),)),
            )
        ]

    def refuse_gather(self) -> bool:
        """Returns True: the masks speak of the rows at hand."""
        return True

    def refuse_scores(self) -> bool:
        """Returns False: the masks say what each score is."""
        return False
