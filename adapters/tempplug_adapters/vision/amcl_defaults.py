"""AMCL's options by method of vision, where the strategy's own defaults do not train it. Light: no torch.

The paper gives ranges of search alone (η and ι from 1e-5 to 2, or 5; β from 1e-5 to 10). These were found on scikit-learn's
digits: 1,297 images of 8 x 8 to train on, 500 to test; two convolutions of 16 and 32 channels and a layer of 64; random
rotation, scale, shift, brightness, noise and a hidden patch; batches of 128, 300 steps of SGD (rate 0.06 with cosine decay,
momentum 0.9, weight decay 5e-4), three projection heads, objective ``dcl``. Embeddings have the recipes' width, but 256 in
SimSiam and Barlow Twins. Accuracy is that of the 20 nearest neighbours, seed by seed (94.6 untrained). Temperatures are mean,
lowest and highest of the last batch of the first seed; their share on a bound is that of each seed.

============  ===============  =====================================================  ==================================
method        without AMCL     with these options                                     with the strategy's own
============  ===============  =====================================================  ==================================
simclr        96.4 95.4        96.2 97.4, temperatures 0.75 (0.41, 1.19), on bound 0  95.2 95.0, on bound 1
nnclr         95.8 96.4        95.0 95.6, temperatures 0.71 (0.45, 1.06), on bound 0  91.0 79.8, on bound 1
moco          97.0 96.6        96.4 96.6, temperatures 0.20 (0.20, 0.20), on bound 1  92.6 93.0, on bound 1
simsiam       91.4 93.0 91.6   92.4 94.0 90.6, temp. 0.92 (0.86, 1.09), on bound 0    92.0 91.6 90.6, on bound 0
barlow-twins  88.2 93.2 88.0   88.2 92.2 89.8, temp. 1.04 (0.85, 1.24), on bound 0    88.2 63.2, on bound 0 and 1
============  ===============  =====================================================  ==================================

Without AMCL are ``fixed`` (0.2 in MoCo, else 0.1) with ``infonce`` and one head, and SimSiam and Barlow Twins with three.
The last column is ``amcl:dimension=…`` alone, of SimSiam and Barlow Twins in the form that they have here.

With β = 1, (D/2)·ln τ outweighs the similarities of a softmax. But where all temperatures move alike, the regulariser of
positives and negatives cancels, and to fall together lowers the loss while positives are more similar than the hardest
negatives: nothing but the floor ends that, whatever β. SimCLR's fall slowly, to 0.56 (0.25, 1.04) after 1,000 steps (98.6
against 98.0 without AMCL, one seed). On data where views are told apart with ease all of them end at the floor: give one there
that would do as a fixed temperature.

MoCo's do so always: tried were β from 0.01 to 1, floors from 0.01 to 0.2 and spans from 0.5 to 2, and within 600 steps all
temperatures, of positives and negatives, lay on the floor. Its head normalises nothing, so that all embeddings come to share a
direction, which shrinks distances and temperatures together at no cost. The floor here is MoCo v2's own temperature: AMCL then
trains like ``fixed:temperature=0.2`` (98.2 against 98.0 after 600 steps, one seed), and reading the loss's record warns that
nothing adapts. With SimCLR's head, which ends in a normalisation, they adapt in MoCo, too (0.13 to 0.23 after 600 steps).

SimSiam and Barlow Twins count temperatures in units of 2/D, see there: β keeps them around 1, where the regulariser is lowest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

AMCL_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "simclr": {"beta": 0.1},
    "moco": {"beta": 0.1, "floor": 0.2},
    "nnclr": {"beta": 0.1},
    "simsiam": {"beta": 3.0},
    "barlow-twins": {"beta": 10.0},
}
"""Options of strategy ``amcl`` by method, those alone that differ from its own defaults."""
