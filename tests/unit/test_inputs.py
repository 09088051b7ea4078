"""The input door: what each argument of a call must be, what is converted, and what everything else is told."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError, NonFiniteError, ShapeError, TensorError
from tempplug.inputs import ARGUMENTS

GENERATOR = torch.Generator().manual_seed(0)
A, B, QUEUE = (torch.randn(rows, 4, generator=GENERATOR) for rows in (6, 6, 9))
OWN = torch.eye(6, dtype=torch.bool)
WORKING: dict[str, tuple[str, str, dict[str, Any]]] = {
    "view_a": ("fixed", "two-view", {"view_a": A, "view_b": B}),
    "view_b": ("fixed", "cross-view", {"view_a": A, "view_b": B}),
    "queue": ("fixed", "queue", {"view_a": A, "view_b": B, "queue": QUEUE}),
    "hard_negatives": ("fixed", "two-view", {"view_a": A, "view_b": B, "hard_negatives": QUEUE}),
    "labels": ("fixed", "labels", {"view_a": A, "view_b": B, "labels": torch.tensor([0, 1, 2, 0, 1, 2])}),
    "index": ("individual:size=20", "cross-view", {"view_a": A, "view_b": B, "index": torch.tensor([0, 3, 19, 2, 5, 4])}),
    "uncertainty": ("uncertainty", "cross-view", {"view_a": A, "view_b": B, "uncertainty": QUEUE[:6, 0]}),
    "positive_mask": ("fixed", "masks", {"view_a": A, "view_b": B, "positive_mask": OWN, "negative_mask": ~OWN}),
    "negative_mask": ("fixed", "masks", {"view_a": A, "view_b": B, "positive_mask": OWN, "negative_mask": ~OWN}),
}


def call(argument: str, **changed: Any) -> Tensor:
    strategy, layout, given = WORKING[argument]
    given = {**given, **changed}
    loss_fn = ContrastiveLoss(strategy, layout=layout)  # type: ignore[arg-type]
    return loss_fn(given.pop("view_a"), given.pop("view_b"), **given)


def nested(tensor: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor(list(tensor))


def test_every_argument_has_its_row_and_its_cases() -> None:
    assert WORKING.keys() == ARGUMENTS.keys()


@pytest.mark.parametrize("argument", WORKING)
def test_what_is_no_dense_tensor_here_is_named_and_told_what_to_write(argument: str) -> None:
    value = WORKING[argument][2][argument]
    numbers = ARGUMENTS[argument].numbers
    for wrong, message in [
        (
            value.numpy(),
            f"{argument} is a numpy.ndarray; wanted .*: write torch.as_tensor\\({argument}, dtype={numbers.creation}",
        ),
        (0.5, f"{argument} is a float; wanted a tensor"),
        ("text", f"{argument} is a str; wanted a tensor"),
        (value.to_sparse(), f"{argument} is a tensor of layout sparse_coo; wanted a dense one .*: {argument}.to_dense()"),
        (nested(value), f"{argument} is a tensor of layout nested; wanted a dense one"),
        (
            value.to(torch.complex64),
            f"{argument} of dtype torch.complex64 must be .*: write {argument}.{numbers.conversion[:-2]}",
        ),
    ]:
        with pytest.raises(TensorError, match=message):
            call(argument, **{argument: wrong})
        with pytest.raises(TypeError):
            call(argument, **{argument: wrong})
    if not argument.startswith("view"):
        with pytest.raises(TensorError, match=f"{argument} is a list; wanted .*: write torch.as_tensor"):
            call(argument, **{argument: value.tolist()})


@pytest.mark.parametrize("argument", WORKING)
def test_another_device_is_named(argument: str) -> None:
    value = WORKING[argument][2][argument].to("meta")
    # With view_a elsewhere, whatever comes next is on another device than it.
    wanted = "view_a is on meta, a device without" if argument == "view_a" else f"{argument} is on meta where view_a is on cpu"
    with pytest.raises(TensorError, match=wanted):
        call(argument, **{argument: value})


@pytest.mark.parametrize("argument", ["view_a", "view_b", "queue", "hard_negatives"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn])
def test_embeddings_are_floating_point(argument: str, dtype: torch.dtype) -> None:
    value = WORKING[argument][2][argument]
    message = (
        rf"{argument} of dtype {dtype} must be floating point \(float16, bfloat16, float32 or float64\): write {argument}.f"
    )
    with pytest.raises(TensorError, match=message):
        call(argument, **{argument: value.to(dtype)})


@pytest.mark.parametrize("argument", ["labels", "index"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bool])
def test_integers_are_integers(argument: str, dtype: torch.dtype) -> None:
    """A boolean index would be a mask, and NaN a class of its own."""
    value = WORKING[argument][2][argument]
    with pytest.raises(TensorError, match=f"{argument} of dtype {dtype} must be integers: write {argument}.long"):
        call(argument, **{argument: value.to(dtype)})


UNSIGNED = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, *UNSIGNED])
@pytest.mark.parametrize("argument", ["labels", "index"])
def test_integers_of_any_width_mean_the_same(argument: str, dtype: torch.dtype) -> None:
    value = WORKING[argument][2][argument]
    assert torch.equal(call(argument, **{argument: value.to(dtype)}), call(argument))


def test_classes_of_any_width_choose_temperatures() -> None:
    """A uint8 tensor indexes like a mask."""
    classes = WORKING["labels"][2]["labels"]
    loss_fn = ContrastiveLoss("head-tail:class_counts=9/2/1", layout="cross-view")
    assert torch.equal(loss_fn(A, B, labels=classes.to(torch.uint8)), loss_fn(A, B, labels=classes))


def test_integers_beyond_int64_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"labels holds numbers beyond int64: the largest is 9223372036854775807\."):
        call("labels", labels=torch.full((6,), 2**63, dtype=torch.uint64))


@pytest.mark.parametrize("argument", ["view_a", "view_b", "queue", "hard_negatives", "uncertainty"])
@pytest.mark.parametrize("layout", ["two-view", "cross-view"])
def test_float64_beside_float32_is_computed_in_float64(argument: str, layout: str) -> None:
    strategy, own, given = WORKING[argument]
    own = layout if own in ("two-view", "cross-view") and argument != "uncertainty" else own
    given = {name: value.clone().requires_grad_() for name, value in given.items()}
    exact = {name: value.detach().double().requires_grad_() for name, value in given.items()}
    given[argument] = exact[argument].detach().clone().requires_grad_()
    loss_fn = ContrastiveLoss(strategy, layout=own)  # type: ignore[arg-type]
    found, expected = loss_fn(**given), loss_fn(**exact)
    if argument != "uncertainty":
        assert found.dtype == torch.float64
        assert found.item() == expected.item()
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    for name, gradient in zip(given, torch.autograd.grad(found, list(given.values())), strict=True):
        assert gradient.dtype == given[name].dtype


def test_half_types_meet_in_float32() -> None:
    low, high = A.bfloat16(), B.half()
    assert torch.equal(ContrastiveLoss()(low, high), ContrastiveLoss()(low.float(), high.float()))


@pytest.mark.parametrize(
    ("argument", "changed", "message"),
    [
        ("view_a", {"view_a": A[0]}, r"view_a of shape \[4\] must be \[B, D\]"),
        ("view_a", {"view_a": A[:, :0]}, r"view_a of shape \[6, 0\] must be \[B, D\]"),
        ("queue", {"queue": QUEUE[:0]}, r"queue of shape \[0, 4\] must be \[K, D\]"),
        ("queue", {"queue": QUEUE[:, :3]}, "queue has 3 dimensions where view_a has 4"),
        ("hard_negatives", {"hard_negatives": QUEUE[None, None]}, r"hard_negatives of shape \[1, 1, 9, 4\] must be \[H, D\]"),
        ("labels", {"labels": torch.zeros(6, 1).long()}, r"labels of shape \[6, 1\] must have shape \[6\]"),
        ("index", {"index": torch.tensor(3)}, r"index of shape \[\] must have shape \[6\]"),
        ("uncertainty", {"uncertainty": (A[:, 0], A[:5, 0])}, r"uncertainty\[1\] of shape \[5\] must have shape \[6\]"),
        ("uncertainty", {"uncertainty": (A[:, 0],) * 3}, "uncertainty holds 3 tensors; wanted one, or a pair"),
        ("positive_mask", {"positive_mask": OWN[:, :5]}, r"positive_mask of shape \[6, 5\] must be of shape \[6, 6\]"),
    ],
)
def test_shapes_are_named(argument: str, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        call(argument, **changed)


def test_uncertainty_is_finite_and_a_pair_of_tensors() -> None:
    bad = torch.tensor([0.0, 1.0, float("nan"), 0.0, 0.0, 0.0])
    with pytest.raises(NonFiniteError, match=r"uncertainty holds NaN or infinite values in 1 of 6 rows \(first: row 2\)"):
        call("uncertainty", uncertainty=bad)
    with pytest.raises(TensorError, match=r"uncertainty\[1\] is a float; wanted a tensor \[B\]"):
        call("uncertainty", uncertainty=(A[:, 0], 0.5))


@pytest.mark.parametrize(
    ("strategy", "layout", "argument", "reader"),
    [
        ("fixed", "two-view", "labels", "layout 'labels' (supervised contrastive learning) and strategy 'head-tail' do"),
        ("macl", "cross-view", "index", "strategy 'individual' does"),
        ("dystress", "queue", "uncertainty", "strategy 'uncertainty' does"),
        ("individual:size=9", "masks", "labels", "layout 'labels'"),
        ("fixed", "masks", "hard_negatives", "every layout but 'masks' does"),
        ("fixed", "cross-view", "positive_mask", "layout 'masks' does"),
        ("fixed", "two-view", "negative_mask", "layout 'masks' does"),
        ("fixed", "two-view", "queue", "layout 'queue' does"),
    ],
)
def test_what_nobody_reads_is_refused(strategy: str, layout: Any, argument: str, reader: str) -> None:
    """With labels= under the default layout, a user of supervised contrastive learning would train without them."""
    value = WORKING[argument][2][argument]
    with pytest.raises(ConfigError) as caught:
        ContrastiveLoss(strategy, layout=layout)(A, B, **{argument: value})
    name = strategy.partition(":")[0]
    assert f"{argument}= is read neither by layout '{layout}' nor by strategy '{name}': {reader}" in str(caught.value)


def test_a_loss_says_what_it_takes() -> None:
    offered = {"index": torch.arange(3), "labels": torch.zeros(3), "uncertainty": None}
    assert ContrastiveLoss().accepted(**offered) == {}
    assert list(ContrastiveLoss(layout="labels").accepted(**offered)) == ["labels"]
    assert list(ContrastiveLoss("individual:size=3", layout="labels").accepted(**offered)) == ["index", "labels"]
    assert ContrastiveLoss("uncertainty", layout="queue").takes == {"queue", "hard_negatives", "uncertainty"}


def test_dense_logits_go_through_the_same_door() -> None:
    loss_fn = ContrastiveLoss("individual:size=20", layout="cross-view")
    index = WORKING["index"][2]["index"]
    assert torch.equal(loss_fn.logits(A, B, index=index.to(torch.uint8)), loss_fn.logits(A, B, index=index))
    assert loss_fn.logits(A.double(), B, index=index).dtype == torch.float64
    with pytest.raises(TensorError, match="view_b is a list; wanted a tensor"):
        loss_fn.logits(A, B.tolist(), index=index)
    with pytest.raises(ConfigError, match="labels= is not read by strategy 'individual'"):
        loss_fn.logits(A, B, index=index, labels=index)
    with pytest.raises(ShapeError, match="uncertainty is a pair; wanted one tensor"):
        ContrastiveLoss("uncertainty").logits(A, B, uncertainty=(A[:, 0], B[:, 0]))


@pytest.mark.parametrize(
    ("spec", "given"),
    [
        ("individual:size=20", {"index": torch.arange(6)}),
        ("head-tail:class_counts=9/2", {"labels": torch.arange(6) % 2}),
        ("amcl:dimension=4", {}),
    ],
)
def test_state_on_another_device_is_named(spec: str, given: dict[str, Tensor]) -> None:
    loss_fn = ContrastiveLoss(spec, layout="cross-view").to("meta")
    with pytest.raises(TensorError, match=r"of strategy '.*' is on meta where the embeddings are on cpu: move the loss"):
        loss_fn(A, B, **given)


@pytest.mark.parametrize(("spec", "name"), [("learnable", "strategy.log_scale"), ("amcl:dimension=4", "strategy.phi.weight")])
@pytest.mark.parametrize("engine", ["dense", "tiled", "auto"])
def test_parameters_that_are_no_numbers_any_more_are_named(spec: str, name: str, engine: Any) -> None:
    loss_fn = ContrastiveLoss(spec, engine=engine)
    with torch.no_grad():
        dict(loss_fn.named_parameters())[name].view(-1)[0] = float("nan")
    with pytest.raises(NonFiniteError, match=rf"parameter {name} of this loss became nan \(1 of \d+ numbers\)"):
        loss_fn(A, B)


def test_a_saved_temperature_that_is_no_number_is_named() -> None:
    loss_fn = ContrastiveLoss("individual:size=9", reduction="none")
    loss_fn.strategy.temperatures[4] = float("nan")
    loss_fn(A, B, index=torch.tensor([0, 1, 2, 3, 5, 6]))
    with pytest.raises(NonFiniteError, match=r"buffer strategy\.temperatures of this loss holds NaN in 1 of 9 numbers"):
        loss_fn(A, B, index=torch.arange(6))


def test_arrays_convert_as_the_message_says() -> None:
    labels = np.array([0, 1, 2, 0, 1, 2], dtype=np.int32)
    assert torch.equal(call("labels", labels=torch.as_tensor(labels, dtype=torch.int64)), call("labels"))
