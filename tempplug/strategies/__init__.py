"""Temperature strategies, one file a paper; `tempplug.create_strategy` builds them by name. Importing this loads no torch.

``tempplug.strategies()`` lists what there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tempplug.plugins.info import StrategyInfo
from tempplug.plugins.manager import make_listing

if TYPE_CHECKING:
    __call__: Callable[[], list[StrategyInfo]]

make_listing(__name__, StrategyInfo)
