"""Projection heads: each method's layers, in its papers' order and sizes."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from tempplug.errors import ConfigError, ShapeError
from tempplug_adapters.vision.projection_heads import (
    ProjectionHead,
    barlow_twins_projection_head,
    moco_projection_head,
    nnclr_prediction_head,
    nnclr_projection_head,
    simclr_projection_head,
    simsiam_prediction_head,
    simsiam_projection_head,
)


def layers(head: ProjectionHead) -> str:
    """The layers in a short notation: ``2048>128+`` is a linear layer with bias, ``bn`` normalises, ``bn0`` without scale."""
    words = []
    for layer in head.layers:
        if isinstance(layer, nn.Linear):
            words.append(f"{layer.in_features}>{layer.out_features}{'+' if layer.bias is not None else ''}")
        elif isinstance(layer, nn.BatchNorm1d):
            words.append("bn" if layer.affine else "bn0")
        else:
            words.append(type(layer).__name__.lower())
    return " ".join(words)


# a head, its layers in its paper, its parameters counted by hand
PAPERS: dict[str, tuple[ProjectionHead, str, int]] = {}
with torch.device("meta"):
    PAPERS |= {
        "simclr": (simclr_projection_head(2048), "2048>2048 bn relu 2048>128 bn", 4_460_800),
        "dystress cifar": (simclr_projection_head(512), "512>512 bn relu 512>128 bn", 328_960),
        "amcl": (simclr_projection_head(512, layers=3), "512>512 bn relu 512>512 bn relu 512>128 bn", 592_128),
        "moco v2": (moco_projection_head(2048), "2048>2048+ relu 2048>128+", 4_458_624),
        "moco v1, ts": (moco_projection_head(512, layers=1), "512>128+", 65_664),
        "nnclr": (nnclr_projection_head(2048), "2048>2048 bn relu 2048>2048 bn relu 2048>256 bn", 8_921_600),
        "nnclr predictor": (nnclr_prediction_head(256), "256>4096 bn relu 4096>256+", 2_105_600),
        "simsiam": (simsiam_projection_head(2048), "2048>2048 bn relu 2048>2048 bn relu 2048>2048 bn0", 12_591_104),
        "simsiam cifar": (simsiam_projection_head(512, layers=2), "512>2048 bn relu 2048>2048 bn0", 5_246_976),
        "simsiam predictor": (simsiam_prediction_head(2048), "2048>512 bn relu 512>2048+", 2_100_224),
        "barlow twins": (barlow_twins_projection_head(2048), "2048>8192 bn relu 8192>8192 bn relu 8192>8192", 151_027_712),
        "barlow twins cifar": (
            barlow_twins_projection_head(512, out_dimension=2048),
            "512>2048 bn relu 2048>2048 bn relu 2048>2048",
            9_445_376,
        ),
    }


@pytest.mark.parametrize("paper", PAPERS)
def test_methods_have_the_layers_of_their_papers(paper: str) -> None:
    head, expected, parameters = PAPERS[paper]
    assert layers(head) == expected
    assert sum(each.numel() for each in head.parameters()) == parameters
    assert (head.in_dimension, head.out_dimension) == (head.layers[0].in_features, int(re.findall(r">(\d+)", expected)[-1]))


def test_sizes_and_layers_are_free() -> None:
    given = {"hidden_dimension": 16, "out_dimension": 4}
    for head, expected in [
        (simclr_projection_head(8, **given), "8>16 bn relu 16>4 bn"),
        (moco_projection_head(8, **given), "8>16+ relu 16>4+"),
        (nnclr_projection_head(8, **given), "8>16 bn relu 16>16 bn relu 16>4 bn"),
        (nnclr_prediction_head(4, hidden_dimension=16), "4>16 bn relu 16>4+"),
        (simsiam_projection_head(8, hidden_dimension=6, out_dimension=4), "8>6 bn relu 6>6 bn relu 6>4 bn0"),
        (simsiam_prediction_head(8), "8>2 bn relu 2>8+"),
        (simsiam_prediction_head(2), "2>1 bn relu 1>2+"),
        (simsiam_prediction_head(8, hidden_dimension=5), "8>5 bn relu 5>8+"),
        (ProjectionHead(8, 16, 4), "8>16 bn relu 16>4+"),
        (ProjectionHead(8, 16, 4, layers=1, last_batch_norm=True), "8>4 bn"),
        (ProjectionHead(8, 16, 4, batch_norm=False, last_batch_norm=True), "8>16+ relu 16>4 bn"),
        (ProjectionHead(8, 16, 4, last_batch_norm=True, bias=True), "8>16 bn relu 16>4+ bn"),
        (ProjectionHead(8, 16, 4, bias=False), "8>16 bn relu 16>4"),
    ]:
        assert layers(head) == expected


def test_faults_are_named() -> None:
    for call, message in [
        (lambda: ProjectionHead(0, 8, 4), "in_dimension=0 of a projection head must be at least 1"),
        (lambda: ProjectionHead(8, 0, 4), "hidden_dimension=0"),
        (lambda: ProjectionHead(8, 8, -1), "out_dimension=-1"),
        (lambda: ProjectionHead(8, 8, 4, layers=0), "layers=0"),
        (lambda: ProjectionHead(8, 8, 4, last_affine=False), "last_affine=False needs last_batch_norm=True"),
        (lambda: simclr_projection_head(8, hidden_dimension=0), "hidden_dimension=0"),
    ]:
        with pytest.raises(ConfigError, match=message):
            call()
    for shape in ((4, 7), (8,), (2, 4, 8)):
        with pytest.raises(ShapeError, match=r"shape .*takes \[N, 8\]"):
            simclr_projection_head(8)(torch.zeros(shape))
