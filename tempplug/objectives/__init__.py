"""Contrastive objectives, one file each; `tempplug.create_objective` builds them by name. Importing this loads no torch.

``tempplug.objectives()`` lists what there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tempplug.plugins.info import ObjectiveInfo
from tempplug.plugins.manager import make_listing

if TYPE_CHECKING:
    __call__: Callable[[], list[ObjectiveInfo]]

make_listing(__name__, ObjectiveInfo)
