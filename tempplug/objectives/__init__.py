"""Contrastive objectives, one file each; `tempplug.create_objective` builds them by name. Importing this loads no torch.

The package is callable, since ``tempplug.objectives()`` lists what there is: a function of that name would hide the package.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING

from tempplug.plugins.info import ObjectiveInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    __call__: Callable[[], list[ObjectiveInfo]]


class _Listing(types.ModuleType):
    def __call__(self) -> list[ObjectiveInfo]:
        """Returns the declarations of all contrastive objectives, built in or from plugins."""
        from tempplug.plugins.manager import registry

        return registry().all(ObjectiveInfo)


sys.modules[__name__].__class__ = _Listing
