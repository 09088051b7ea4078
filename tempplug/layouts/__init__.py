"""Pair layouts: which embeddings are anchors, which are candidates, and which pairs are positives.

A layout turns the tensors of a call into one or several blocks of anchors × candidates. It must not know any strategy,
engine or objective. Shapes: B local pairs, G global ones, N local anchors, M candidates, D dimensions, K queue rows.
"""

from __future__ import annotations

import warnings
from typing import Any

from tempplug.arguments import parse_spec
from tempplug.block import Block
from tempplug.errors import ConfigError, unknown
from tempplug.layouts.base import BlockPlan as BlockPlan, PairLayout as PairLayout, Part as Part, Sizes as Sizes, Views as Views
from tempplug.layouts.built_in import (
    CrossView as CrossView,
    Labels as Labels,
    Masks as Masks,
    Queue as Queue,
    TwoView as TwoView,
)
from tempplug.options import build
from tempplug.types import LayoutName

LAYOUTS: dict[str, type[PairLayout]] = {layout.name: layout for layout in (TwoView, CrossView, Queue, Labels, Masks)}


def __getattr__(name: str) -> Any:
    """Returns `tempplug.block.Block` under its former name, with a warning."""
    if name == "Direction":
        warnings.warn("tempplug.layouts.Direction is called tempplug.block.Block now.", DeprecationWarning, stacklevel=2)
        return Block
    raise AttributeError(f"module 'tempplug.layouts' has no attribute {name!r}")


def create_layout(layout: LayoutName | str | PairLayout, symmetric: bool = False) -> PairLayout:
    """Returns the layout of a spec string, such as ``cross-view`` with options as of strategies; an instance as it is.

    ``symmetric`` is short for ``cross-view:directions=ab+ba,softmax=separate``.

    Raises:
        UnknownNameError: there is no such layout, or no such option.
        ConfigError: ``symmetric`` with another layout or beside options, or an argument of another type.

    >>> create_layout("cross-view", symmetric=True).spec()
    'cross-view:directions=ab+ba,softmax=separate,hard=shared,in_batch=true,positives=row'
    """
    if not isinstance(symmetric, bool):
        raise ConfigError(f"symmetric={symmetric!r} must be True or False.")
    if not isinstance(layout, str | PairLayout):
        raise ConfigError(f"layout={layout!r} must be the name of a layout, one of {', '.join(LAYOUTS)}, or an instance.")
    if symmetric and layout != "cross-view":
        shown = layout if isinstance(layout, str) else layout.name
        raise ConfigError(f"symmetric=True belongs to layout 'cross-view' without options, not to '{shown}'.")
    if not isinstance(layout, str):
        return layout
    name, options = parse_spec(layout)
    if name not in LAYOUTS:
        raise unknown("layout", name, LAYOUTS)
    return build(LAYOUTS[name], "layout", name, {"directions": "ab+ba", "softmax": "separate"} if symmetric else options)
