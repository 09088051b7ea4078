"""Temperature strategies, one file a paper; `tempplug.create_strategy` builds them by name. Importing this loads no torch.

The package is callable, since ``tempplug.strategies()`` lists what there is: a function of that name would hide the package.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING

from tempplug.plugins.info import StrategyInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    __call__: Callable[[], list[StrategyInfo]]


class _Listing(types.ModuleType):
    def __call__(self) -> list[StrategyInfo]:
        """Returns the declarations of all temperature strategies, built in or from plugins."""
        from tempplug.plugins.manager import registry

        return registry().all(StrategyInfo)


sys.modules[__name__].__class__ = _Listing
