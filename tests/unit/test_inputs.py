"""The arguments of a call: what each must be, what is converted, and what is refused by name."""

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
VIEWS = {"view_a": A, "view_b": B}
OWN = torch.eye(6, dtype=torch.bool)
MASKS = {"positive_mask": OWN, "negative_mask": ~OWN}
CLASSES, INDEX = torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([0, 3, 19, 2, 5, 4])
WORKING: dict[str, tuple[str, str, dict[str, Any]]] = {
    "view_a": ("fixed", "two-view", VIEWS),
    "view_b": ("fixed", "cross-view", VIEWS),
    "scores": ("fixed", "cross-view", {"scores": 30 * QUEUE[:4]}),
    "queue": ("fixed", "queue", {**VIEWS, "queue": QUEUE}),
    "hard_negatives": ("fixed", "two-view", {**VIEWS, "hard_negatives": QUEUE}),
    "labels": ("fixed", "labels", {**VIEWS, "labels": CLASSES}),
    "index": ("individual:size=20", "cross-view", {**VIEWS, "index": INDEX}),
    "uncertainty": ("uncertainty", "cross-view", {**VIEWS, "uncertainty": QUEUE[:6, 0]}),
    "positive_mask": ("fixed", "masks", {**VIEWS, **MASKS}),
    "negative_mask": ("fixed", "masks", {**VIEWS, **MASKS}),
    "targets": ("fixed", "cross-view", {**VIEWS, "targets": OWN.float()}),
    "hard_negative_mask": (
        "fixed",
        "cross-view",
        {**VIEWS, "hard_negatives": torch.stack([QUEUE[:6], QUEUE[3:]], 1), "hard_negative_mask": OWN[:, :2]},
    ),
}


def call(argument: str, layout: str = "", **changed: Any) -> Tensor:
    strategy, own, given = WORKING[argument]
    loss_fn = ContrastiveLoss(strategy, layout=layout or own)
    return (loss_fn.from_scores if argument == "scores" else loss_fn)(**{**given, **changed})  # type: ignore[arg-type]


def nested(tensor: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor(list(tensor))


def test_every_argument_has_its_row_and_its_cases() -> None:
    assert WORKING.keys() == ARGUMENTS.keys()


@pytest.mark.parametrize("argument", WORKING)
def test_what_is_no_dense_tensor_of_the_right_kind_here_is_named_with_what_to_write(argument: str) -> None:
    value, numbers = WORKING[argument][2][argument], ARGUMENTS[argument].numbers
    # With view_a elsewhere, whatever comes next is on another device than it.
    place = "on meta, a device without" if argument in ("view_a", "scores") else "on meta where view_a is on cpu"
    wrong: list[tuple[Any, str]] = [
        (value.numpy(), f"is a numpy.ndarray; wanted .*: write torch.as_tensor\\({argument}, dtype={numbers.creation}"),
        (0.5, "is a float; wanted a tensor"),
        ("text", "is a str; wanted a tensor"),
        (value.to_sparse(), f"is a tensor of layout sparse_coo; wanted a dense one .*: {argument}.to_dense()"),
        (nested(value), "is a tensor of layout nested; wanted a dense one"),
        (value.to(torch.complex64), f"of dtype torch.complex64 must be .*: write {argument}.{numbers.conversion[:-2]}"),
        (value.to("meta"), f"is {place}"),
    ]
    if not argument.startswith("view"):
        wrong.append((value.tolist(), "is a list; wanted .*: write torch.as_tensor"))
    if argument in ("view_a", "view_b", "scores", "queue", "hard_negatives", "targets"):
        kinds = (torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn)
        message = r"must be floating point \(float16, bfloat16, float32 or float64\): write"
        wrong += [(value.to(kind), f"of dtype {kind} {message} {argument}.f") for kind in kinds]
    if argument in ("labels", "index"):  # a boolean index would be a mask, and NaN a class of its own
        kinds = (torch.float32, torch.float16, torch.bool)
        wrong += [(value.to(kind), f"of dtype {kind} must be integers: write {argument}.long") for kind in kinds]
    for each, message in wrong:
        with pytest.raises(TensorError, match=f"{argument} {message}") as caught:
            call(argument, **{argument: each})
        assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("argument", ["labels", "index"])
def test_integers_of_any_width_mean_the_same(argument: str) -> None:
    value = WORKING[argument][2][argument]
    narrow = (torch.int8, torch.int16, torch.int32, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
    assert all(torch.equal(call(argument, **{argument: value.to(dtype)}), call(argument)) for dtype in narrow)
    with pytest.raises(ConfigError, match=rf"{argument} holds numbers beyond int64: the largest is 9223372036854775807\."):
        call(argument, **{argument: torch.full((6,), 2**63, dtype=torch.uint64)})
    # A uint8 tensor indexes like a mask.
    loss_fn = ContrastiveLoss("head-tail:class_counts=9/2/1", layout="cross-view")
    assert torch.equal(loss_fn(A, B, labels=CLASSES.to(torch.uint8)), loss_fn(A, B, labels=CLASSES))


@pytest.mark.parametrize("argument", ["view_a", "view_b", "queue", "hard_negatives", "uncertainty"])
def test_float64_beside_float32_is_computed_in_float64(argument: str) -> None:
    strategy, layout, given = WORKING[argument]
    given = {name: value.clone().requires_grad_() for name, value in given.items()}
    exact = {name: value.detach().double().requires_grad_() for name, value in given.items()}
    given[argument] = exact[argument].detach().clone().requires_grad_()
    loss_fn = ContrastiveLoss(strategy, layout=layout)  # type: ignore[arg-type]
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
    ("argument", "changed", "error", "message"),
    [
        ("view_a", {"view_a": A[0]}, ShapeError, "view_a of shape [4] must be [B, D]"),
        ("view_a", {"view_a": A[:0], "view_b": B[:0]}, ShapeError, "view_a of shape [0, 4]"),
        ("view_a", {"view_a": A[:, :0]}, ShapeError, "view_a of shape [6, 0] must be [B, D]"),
        ("view_a", {"view_a": A.tolist()}, ShapeError, "view_a is a list of heads"),
        ("view_a", {"view_a": [A, A], "view_b": [B]}, ShapeError, "view_b must be a list of as many"),
        ("view_b", {"view_b": B[:3]}, ShapeError, "view_b has 3 rows where view_a has 6"),
        ("view_a", {"view_b": B[:, :2]}, ShapeError, "view_b has 2 dimensions where view_a has 4."),
        (
            "view_a",
            {"view_b": None},
            ShapeError,
            "layout 'two-view' needs view_b beside view_a; scores in place of embeddings go to from_scores.",
        ),
        ("scores", {"scores": A[0]}, ShapeError, "scores of shape [4] must be [N, M]"),
        ("scores", {"scores": A[:, :0]}, ShapeError, "scores of shape [6, 0] must be [N, M]"),
        ("scores", {"scores": A}, ShapeError, "scores of shape [6, 4] must have at least 6 columns"),
        ("scores", {"queue": QUEUE}, ConfigError, "queue= is no argument of from_scores"),
        ("scores", {"index": INDEX}, ConfigError, "index= is read neither by layout 'cross-view' nor by strategy 'fixed'"),
        ("queue", {"queue": None}, ShapeError, "layout 'queue' needs queue=, the past candidates [K, D]."),
        ("queue", {"queue": QUEUE[:0]}, ShapeError, "queue of shape [0, 4] must be [K, D]"),
        ("queue", {"queue": QUEUE[:, :3]}, ShapeError, "queue has 3 dimensions where view_a has 4"),
        ("hard_negatives", {"hard_negatives": QUEUE[None, None]}, ShapeError, "of shape [1, 1, 9, 4] must be [H, D]"),
        ("hard_negatives", {"hard_negatives": B[None]}, ShapeError, "must be [H, D] or [6, k, D]"),
        ("labels", {"labels": CLASSES[:, None]}, ShapeError, "labels of shape [6, 1] must have shape [6]"),
        ("labels", {"labels": None}, ConfigError, "layout 'labels' needs labels="),
        ("index", {"index": torch.tensor(3)}, ShapeError, "index of shape [] must have shape [6]"),
        ("uncertainty", {"uncertainty": (A[:, 0], A[:5, 0])}, ShapeError, "uncertainty[1] of shape [5] must have shape [6]"),
        ("uncertainty", {"uncertainty": (A[:, 0],) * 3}, ShapeError, "uncertainty holds 3 tensors; wanted one, or a pair"),
        ("uncertainty", {"uncertainty": (A[:, 0], 0.5)}, TensorError, "uncertainty[1] is a float; wanted a tensor [B]"),
        ("uncertainty", {"layout": "two-view"}, ShapeError, "uncertainty must be a pair"),
        ("positive_mask", {"positive_mask": OWN[:, :5]}, ShapeError, "positive_mask of shape [6, 5] must be of shape [6, 6]"),
        ("positive_mask", {"negative_mask": None}, ShapeError, "layout 'masks' needs negative_mask="),
        ("positive_mask", {"negative_mask": OWN}, ConfigError, "overlap"),
        ("positive_mask", {"positive_mask": OWN.float()}, TensorError, "must be boolean: write positive_mask.bool() if that"),
    ],
)
def test_a_call_with_a_wrong_argument_is_refused(
    argument: str, changed: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        call(argument, **changed)
    assert message in str(caught.value)


ROWS_OF_HARD = [QUEUE[:2], QUEUE[:3], QUEUE[:1], QUEUE[:2], QUEUE[:2], QUEUE[:3]]
PADDED = (
    "pad them to [B, k, D], as torch.nn.utils.rnn.pad_sequence does, and say in hard_negative_mask= [B, k] which are there."
)
DIFFERENT = "its items have different lengths; "
ONE_HOT = torch.nn.functional.one_hot(CLASSES)


@pytest.mark.parametrize(
    ("argument", "changed", "message"),
    [
        ("hard_negatives", ROWS_OF_HARD, DIFFERENT + PADDED),
        ("hard_negatives", tuple(each.tolist() for each in ROWS_OF_HARD), DIFFERENT + PADDED),
        ("hard_negatives", np.array([*map(Tensor.numpy, ROWS_OF_HARD), None][:-1], dtype=object), DIFFERENT + PADDED),
        ("hard_negatives", nested(torch.ones(6, 2, 4)), "wanted a dense one [H, D] or [B, k, D]: " + PADDED),
        ("hard_negatives", [A, B], "write torch.stack(hard_negatives)."),
        (
            "hard_negatives",
            torch.stack([A, B, A]),
            "must be [H, D] or [6, k, D]: write hard_negatives.transpose(0, 1) if it is",
        ),
        ("queue", [A, B[:2]], DIFFERENT + "a tensor has one for all."),
        ("queue", list(QUEUE), "write torch.stack(queue)."),
        ("queue", QUEUE.T, "queue has 9 dimensions where view_a has 4: write queue.T if it is transposed."),
        ("view_b", B.T, "view_b has 6 dimensions where view_a has 4: write view_b.T if it is transposed."),
        (
            "view_a",
            A[:, None],
            "view_a of shape [6, 1, 4] must be [B, D], embeddings one a row, neither number 0: pool the tok",
        ),
        (
            "labels",
            ONE_HOT,
            "labels of shape [6, 3] must have shape [6], one value a row of view_a: write labels.argmax(1) if th",
        ),
        ("labels", ONE_HOT.float(), "one value a row of view_a: write labels.argmax(1) if they are one-hot."),
        ("labels", CLASSES[:, None], "one value a row of view_a: write labels.squeeze(1)."),
        (
            "labels",
            torch.cat([CLASSES, CLASSES]),
            "must have shape [6], one value a row of view_a, which serves view_b as well.",
        ),
        ("labels", list("abcabc"), "it holds words; number them, equal words alike in all batches, and pass the numbers."),
        ("labels", np.array(list("abcabc")), "it holds words; number them"),
        ("labels", [0, 1, None, 0, 1, 2], "it holds None; every row needs a value."),
        ("labels", list(CLASSES), "write torch.stack(labels)."),
        (
            "index",
            INDEX[:, None],
            "index of shape [6, 1] must have shape [6], one value a row of view_a: write index.squeeze(1).",
        ),
        ("index", INDEX + 1, "index holds 20; size=20 of strategy 'individual' allows 0 to 19."),
        (
            "uncertainty",
            A[:, :1],
            "uncertainty of shape [6, 1] must have shape [6], one value a row of view_a: write uncertainty.s",
        ),
        ("uncertainty", [0.5] * 6, "write torch.as_tensor(uncertainty, dtype=torch.float32)."),
        ("positive_mask", [[True], [True, False]], DIFFERENT + "a tensor has one for all."),
        (
            "hard_negative_mask",
            OWN[:2, :],
            "must be of shape [6, 2], one value a hard negative: write hard_negative_mask.T if it",
        ),
    ],
)
def test_a_typical_mistake_is_told_what_to_write(argument: str, changed: Any, message: str) -> None:
    with pytest.raises((TensorError, ShapeError, ConfigError)) as caught:
        call(argument, **{argument: changed})
    told = str(caught.value)
    assert argument in told
    assert message in told
    assert "\n" not in told


def test_what_is_told_works() -> None:
    """Ragged hard negatives: padded and masked they are those of each row."""
    loss_fn = ContrastiveLoss(layout="cross-view:hard=own,in_batch=false", reduction="none")
    padded = torch.nn.utils.rnn.pad_sequence(ROWS_OF_HARD, batch_first=True)
    mask = torch.arange(3) < torch.tensor([len(each) for each in ROWS_OF_HARD])[:, None]
    found = loss_fn(A, B, hard_negatives=padded, hard_negative_mask=mask)
    rows = [loss_fn(A[i : i + 1], B[i : i + 1], hard_negatives=each[None]) for i, each in enumerate(ROWS_OF_HARD)]
    torch.testing.assert_close(found, torch.cat(rows))
    with pytest.raises(ConfigError, match=r"True exactly where hard_negatives are rows of zeros: .* pass ~hard_negative_mask"):
        loss_fn(A, B, hard_negatives=padded, hard_negative_mask=~mask)


@pytest.mark.parametrize("other", [B, torch.cat([B, A[:2]])])
def test_masks_that_are_swapped_are_refused(other: Tensor) -> None:
    """Where each row is a negative of its own row alone; with two rows that may be meant."""
    own = torch.eye(6, len(other), dtype=torch.bool)
    loss_fn = ContrastiveLoss(layout="masks")
    with pytest.raises(ConfigError, match=r"negative_mask holds the pairs \(i, i\) alone, and positive_mask all others"):
        loss_fn(A, other, positive_mask=~own, negative_mask=own)
    loss_fn(A, other, positive_mask=own, negative_mask=~own)
    loss_fn(A, other, positive_mask=~own.roll(1, 1), negative_mask=own.roll(1, 1))
    loss_fn(A[:2], B[:2], positive_mask=~OWN[:2, :2], negative_mask=OWN[:2, :2])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["view_a", "view_b", "scores", "queue", "hard_negatives", "uncertainty"])
def test_values_that_are_not_finite_are_named_with_their_row(name: str, bad: float) -> None:
    value = WORKING[name][2][name].clone()
    value.view(len(value), -1)[3, -1] = bad
    with pytest.raises(NonFiniteError, match=rf"{name} holds NaN or infinite values in 1 of \d rows \(first: row 3\)"):
        call(name, **{name: value})


@pytest.mark.parametrize(
    ("strategy", "layout", "argument", "reader"),
    [
        ("fixed", "two-view", "labels", "layout 'labels' (supervised contrastive learning) and strategy 'head-tail' do"),
        ("macl", "cross-view", "index", "strategy 'individual' and objective 'sogclr' do"),
        ("dystress", "queue", "uncertainty", "strategy 'uncertainty' does"),
        ("individual:size=9", "masks", "labels", "layout 'labels'"),
        ("fixed", "masks", "hard_negatives", "every layout but 'masks' does"),
        ("fixed", "cross-view", "positive_mask", "layout 'masks' does"),
        ("fixed", "two-view", "negative_mask", "layout 'masks' does"),
        ("fixed", "two-view", "queue", "layouts 'queue' and 'cross-view' do"),
    ],
)
def test_an_argument_that_is_not_read_is_refused(strategy: str, layout: Any, argument: str, reader: str) -> None:
    """With labels= under the default layout, a user of supervised contrastive learning would train without them."""
    with pytest.raises(ConfigError) as caught:
        ContrastiveLoss(strategy, layout=layout)(A, B, **{argument: WORKING[argument][2][argument]})
    name = strategy.partition(":")[0]
    assert f"{argument}= is read neither by layout '{layout}' nor by strategy '{name}': {reader}" in str(caught.value)


def test_a_loss_tells_what_it_takes() -> None:
    offered = {"index": torch.arange(3), "labels": torch.zeros(3), "uncertainty": None}
    assert ContrastiveLoss().accepted(**offered) == {}
    assert list(ContrastiveLoss(layout="labels").accepted(**offered)) == ["labels"]
    assert list(ContrastiveLoss("individual:size=3", layout="labels").accepted(**offered)) == ["index", "labels"]
    assert ContrastiveLoss("uncertainty", layout="queue").takes == {
        "queue",
        "hard_negatives",
        "hard_negative_mask",
        "uncertainty",
    }


def test_dense_logits_check_their_arguments_as_a_call_does() -> None:
    loss_fn = ContrastiveLoss("individual:size=20", layout="cross-view")
    assert torch.equal(loss_fn.logits(A, B, index=INDEX.to(torch.uint8)), loss_fn.logits(A, B, index=INDEX))
    assert loss_fn.logits(A.double(), B, index=INDEX).dtype == torch.float64
    with pytest.raises(TensorError, match="view_b is a list; wanted a tensor"):
        loss_fn.logits(A, B.tolist(), index=INDEX)
    with pytest.raises(ConfigError, match="labels= is not read by strategy 'individual'"):
        loss_fn.logits(A, B, index=INDEX, labels=INDEX)
    with pytest.raises(ShapeError, match="uncertainty is a pair; wanted one tensor"):
        ContrastiveLoss("uncertainty").logits(A, B, uncertainty=(A[:, 0], B[:, 0]))


@pytest.mark.parametrize(
    ("spec", "given"),
    [("individual:size=20", {"index": INDEX}), ("head-tail:class_counts=9/2/1", {"labels": CLASSES}), ("amcl:dimension=4", {})],
)
def test_state_on_another_device_is_named(spec: str, given: dict[str, Tensor]) -> None:
    loss_fn = ContrastiveLoss(spec, layout="cross-view").to("meta")
    with pytest.raises(TensorError, match=r"of strategy '.*' is on meta where the embeddings are on cpu: move the loss"):
        loss_fn(A, B, **given)


@pytest.mark.parametrize(
    ("spec", "name", "engine"), [("learnable", "log_scale", "tiled"), ("amcl:dimension=4", "phi.weight", "dense")]
)
def test_state_that_is_not_finite_any_more_is_named(spec: str, name: str, engine: Any) -> None:
    loss_fn = ContrastiveLoss(spec, engine=engine)
    with torch.no_grad():
        dict(loss_fn.named_parameters())[f"strategy.{name}"].view(-1)[0] = float("nan")
    with pytest.raises(NonFiniteError, match=rf"parameter strategy.{name} of this loss became nan \(1 of \d+ numbers\)"):
        loss_fn(A, B)
    loss_fn = ContrastiveLoss("individual:size=20", reduction="none")
    loss_fn.strategy.temperatures[4] = float("nan")
    loss_fn(A, B, index=INDEX + torch.tensor([0, 0, 0, 0, 0, 2]))
    with pytest.raises(NonFiniteError, match=r"buffer strategy\.temperatures of this loss holds NaN in 1 of 20 numbers"):
        loss_fn(A, B, index=INDEX)


def test_arrays_convert_as_the_message_tells() -> None:
    labels = np.array([0, 1, 2, 0, 1, 2], dtype=np.int32)
    assert torch.equal(call("labels", labels=torch.as_tensor(labels, dtype=torch.int64)), call("labels"))
