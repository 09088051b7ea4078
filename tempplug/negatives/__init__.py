"""Terms on negatives, one file each; `tempplug.create_negatives` builds them by name. Importing this loads no torch.

``tempplug.negatives()`` lists what there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tempplug.plugins.info import NegativeInfo
from tempplug.plugins.manager import make_listing

if TYPE_CHECKING:
    __call__: Callable[[], list[NegativeInfo]]

make_listing(__name__, NegativeInfo)
