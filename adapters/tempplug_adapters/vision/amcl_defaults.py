"""AMCL's options by method of vision, where the strategy's own defaults do not train it. Light: no torch.

The paper gives ranges of search alone (η and ι from 1e-5 to 2, or 5; β from 1e-5 to 10). These were found on scikit-learn's
digits: 1,297 images of 8 x 8 to train on and 500 to test; two convolutions of 16 and 32 channels and a layer of 64; random
rotation, scale, shift, brightness, noise and a hidden patch; batches of 128, 300 steps of SGD (rate 0.06 with cosine decay,
momentum 0.9, weight decay 5e-4), three projection heads, objective ``dcl``. Embeddings have the recipes' width, but 256 in
SimSiam and Barlow Twins. Accuracy is that of the 20 nearest neighbours, seed by seed (94.6 untrained); temperatures are the
mean of all and the ends of their range, of the last batch of the first seed.

============  ==================  ==================  =================  ===================  ==============
method        without AMCL        with these options  temperatures       share on a bound     with none
============  ==================  ==================  =================  ===================  ==============
simclr        96.4 95.4           95.6 96.4           0.22 (0.15 0.31)   0                    95.2 95.0, 1.0
nnclr         95.8 96.4           96.2 95.4           0.22 (0.12 0.46)   0                    91.0 79.8, 1.0
moco          97.0 96.6           96.4 96.2           0.20 (0.20 0.20)   1.0                  92.6 93.0, 1.0
simsiam       91.4 93.0 91.6      92.4 94.0 90.6      0.92 (0.86 1.09)   0                    92.0 91.6, 0
barlow-twins  88.2 93.2 88.0      88.2 92.2 89.8      1.04 (0.85 1.24)   0                    88.2 63.2, 0 1.0
============  ==================  ==================  =================  ===================  ==============

"Without AMCL" is ``fixed`` (0.2 in MoCo, else 0.1) with one head and ``infonce``, and three heads of SimSiam and Barlow Twins
as they are. "With none" is the accuracy and the share on a bound with the strategy's own defaults.

With β = 1 the regulariser, (D/2)·ln τ, outweighs the similarities of a softmax: 0.03 leaves it a few units. SimSiam and Barlow
Twins, which count temperatures in units of 2/D, have room for a β that keeps them around 1, where Ω is lowest.

In MoCo temperatures do not adapt, whatever the options: tried were β from 0.001 to 1, floors from 0.01 to 0.2 and spans of 0.5
to 2, and within 600 steps all temperatures, of positives and negatives, lay on the floor. Its head normalises nothing, so that
all embeddings come to share a direction, which lowers every temperature and every distance together and costs nothing. The
floor here is MoCo v2's own temperature, so that it trains like ``fixed:temperature=0.2`` (98.2 against 98.0 after 600 steps),
and the loss's record warns of it. With SimCLR's head, which ends in a normalisation, they adapt: 0.13 to 0.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

AMCL_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "simclr": {"beta": 0.03},
    "nnclr": {"beta": 0.03},
    "moco": {"beta": 0.03, "floor": 0.2, "span": 0.5},
    "simsiam": {"beta": 3.0},
    "barlow-twins": {"beta": 10.0},
}
"""Options of strategy ``amcl`` by method, those alone that differ from its own defaults."""
