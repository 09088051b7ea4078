"""Projection heads: each method's layers, in its papers' order and sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tempplug.errors import ConfigError, ShapeError
from tempplug_adapters.vision.projection_heads import (
    ProjectionHead,
    barlow_twins_projection_head,
    moco_projection_head,
    nnclr_prediction_head,
    nnclr_projection_head,
    projection_heads,
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


METHODS: dict[str, tuple[Callable[[], ProjectionHead], str, int]] = {
    # method: its head, its layers, its parameters counted by hand
    "simclr": (partial(simclr_projection_head, 2048), "2048>2048 bn relu 2048>128 bn", 4_460_800),
    "dystress cifar": (partial(simclr_projection_head, 512), "512>512 bn relu 512>128 bn", 328_960),
    "amcl, 3 layers": (
        partial(simclr_projection_head, 512, layers=3),
        "512>512 bn relu 512>512 bn relu 512>128 bn",
        328_960 + 512 * 512 + 1024,
    ),
    "moco v2": (partial(moco_projection_head, 2048), "2048>2048+ relu 2048>128+", 4_458_624),
    "moco v1, ts": (partial(moco_projection_head, 512, layers=1), "512>128+", 65_664),
    "nnclr": (
        partial(nnclr_projection_head, 2048),
        "2048>2048 bn relu 2048>2048 bn relu 2048>256 bn",
        8_921_600,
    ),
    "nnclr predictor": (partial(nnclr_prediction_head, 256), "256>4096 bn relu 4096>256+", 2_105_600),
    "simsiam": (
        partial(simsiam_projection_head, 2048),
        "2048>2048 bn relu 2048>2048 bn relu 2048>2048 bn0",
        12_591_104,
    ),
    "simsiam cifar": (
        partial(simsiam_projection_head, 512, layers=2),
        "512>2048 bn relu 2048>2048 bn0",
        512 * 2048 + 4096 + 2048 * 2048,
    ),
    "simsiam predictor": (partial(simsiam_prediction_head, 2048), "2048>512 bn relu 512>2048+", 2_100_224),
    "barlow twins": (
        partial(barlow_twins_projection_head, 2048),
        "2048>8192 bn relu 8192>8192 bn relu 8192>8192",
        151_027_712,
    ),
    "barlow twins cifar": (
        partial(barlow_twins_projection_head, 512, out_dimension=2048),
        "512>2048 bn relu 2048>2048 bn relu 2048>2048",
        512 * 2048 + 2 * 2048 * 2048 + 2 * 4096,
    ),
}


@pytest.mark.parametrize("method", METHODS)
def test_methods_have_the_layers_of_their_papers(method: str) -> None:
    make, expected, parameters = METHODS[method]
    with torch.device("meta"):
        head = make()
    assert layers(head) == expected
    assert sum(each.numel() for each in head.parameters()) == parameters
    first, last = (int(each.strip("+")) for each in (expected.partition(">")[0], expected.split(">")[-1].split()[0]))
    assert (head.in_dimension, head.out_dimension) == (first, last)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (partial(simclr_projection_head, 8, hidden_dimension=16, out_dimension=4), "8>16 bn relu 16>4 bn"),
        (partial(moco_projection_head, 8, hidden_dimension=16, out_dimension=4), "8>16+ relu 16>4+"),
        (partial(nnclr_projection_head, 8, hidden_dimension=16, out_dimension=4), "8>16 bn relu 16>16 bn relu 16>4 bn"),
        (partial(nnclr_prediction_head, 4, hidden_dimension=16), "4>16 bn relu 16>4+"),
        (partial(simsiam_projection_head, 8, hidden_dimension=6, out_dimension=4), "8>6 bn relu 6>6 bn relu 6>4 bn0"),
        (partial(simsiam_prediction_head, 8), "8>2 bn relu 2>8+"),
        (partial(simsiam_prediction_head, 2), "2>1 bn relu 1>2+"),
        (partial(simsiam_prediction_head, 8, hidden_dimension=5), "8>5 bn relu 5>8+"),
        (partial(ProjectionHead, 8, 16, 4), "8>16 bn relu 16>4+"),
        (partial(ProjectionHead, 8, 16, 4, layers=1, last_batch_norm=True), "8>4 bn"),
        (partial(ProjectionHead, 8, 16, 4, batch_norm=False, last_batch_norm=True), "8>16+ relu 16>4 bn"),
        (partial(ProjectionHead, 8, 16, 4, last_batch_norm=True, bias=True), "8>16 bn relu 16>4+ bn"),
        (partial(ProjectionHead, 8, 16, 4, bias=False), "8>16 bn relu 16>4"),
    ],
)
def test_sizes_and_layers_are_free(make: Callable[[], ProjectionHead], expected: str) -> None:
    assert layers(make()) == expected


def normalised(values: Tensor) -> Tensor:
    return (values - values.mean(0)) / (values.var(0, correction=0) + 1e-5).sqrt()


def test_embeddings_are_those_of_the_formula() -> None:
    torch.manual_seed(0)
    head = simclr_projection_head(6, hidden_dimension=5, out_dimension=3).double()
    representations = torch.randn(10, 6, dtype=torch.float64)
    first, last = (each for each in head.layers if isinstance(each, nn.Linear))
    expected = normalised(normalised(representations @ first.weight.T).clamp(min=0) @ last.weight.T)
    torch.testing.assert_close(head(representations), expected)


def test_a_bias_before_a_normalisation_changes_nothing() -> None:
    head = simclr_projection_head(6, out_dimension=3).double()
    representations = torch.randn(10, 6, dtype=torch.float64)
    first = head.layers[0]
    with_bias = nn.Linear(6, 6).double()
    with_bias.weight.data.copy_(first.weight)
    expected = head(representations)
    head.layers[0] = with_bias
    torch.testing.assert_close(head(representations), expected)


def test_several_heads_are_independent() -> None:
    torch.manual_seed(0)
    heads = projection_heads(3, partial(simclr_projection_head, 8))
    weights = [each.layers[0].weight for each in heads]
    assert len(heads) == 3
    assert len({each.data_ptr() for each in weights}) == 3
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"in_dimension": 0}, "in_dimension=0 of a projection head must be at least 1"),
        ({"hidden_dimension": 0}, "hidden_dimension=0"),
        ({"out_dimension": -1}, "out_dimension=-1"),
        ({"layers": 0}, "layers=0"),
        ({"last_affine": False}, "last_affine=False needs last_batch_norm=True"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ProjectionHead(**{"in_dimension": 8, "hidden_dimension": 8, "out_dimension": 4, **options})


def test_no_size_is_replaced_silently() -> None:
    for make in (simclr_projection_head, moco_projection_head, simsiam_projection_head, simsiam_prediction_head):
        with pytest.raises(ConfigError, match="hidden_dimension=0"):
            make(8, hidden_dimension=0)
    with pytest.raises(ConfigError, match="count=0 of projection heads must be at least 1"):
        projection_heads(0, partial(simclr_projection_head, 8))


@pytest.mark.parametrize("shape", [(4, 7), (8,), (2, 4, 8)])
def test_representations_are_checked(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"representations has shape .*the projection head takes \[N, 8\]"):
        simclr_projection_head(8)(torch.zeros(shape))
