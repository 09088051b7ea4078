"""Candidates that go round a real process group (gloo): three processes must equal one, for loss, gradient and state."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import test_distributed as gathered
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tempplug import ContrastiveLoss
from tempplug.distributed import bytes_of
from tempplug.errors import ConfigError
from tempplug.layouts import CrossView
from tempplug.strategies.maps import ScaleMap

CASES = [case for case in gathered.CASES if case != "amcl-top"]
LABELS_GUIDE = "negative term 'guide' needs an anchor's positives of all processes at once.*use gather=True"
FIRST = 2
"""Rows of the first process."""
COUNTS = "negative term 'log-q' counts, so a checkpoint cannot.*use gather=True"
# A softmax with one learned temperature: two directions, inside of a checkpoint, and with two heads. Then the sigmoid loss,
# whose gradient is computed in the forward pass: with four blocks, and with weights of rows or of a process, which need a
# second trip.
WAYS = {"float32": torch.float32, "dense": torch.float64, "checkpoint": torch.float64, "heads": torch.float64}
SUMS = ("sums", "sums-joint", "sums-checkpoint", "sums-rows", "sums-process")
WAYS |= dict.fromkeys(SUMS, torch.float64)


def way(name: str, rows: slice, total: int, gather: Any) -> list[Tensor]:
    """Returns loss and gradients of a step in another way than `gathered.step` takes."""
    dtype, everything = WAYS[name], gathered.data(total)
    torch.manual_seed(0)
    encoder = nn.Linear(gathered.DIMENSION, gathered.DIMENSION, dtype=dtype)
    joint = name == "sums-joint"
    loss_fn = ContrastiveLoss(
        "learnable",
        "sigmoid" if name in SUMS else "infonce",
        symmetric=not joint,
        layout="cross-view:directions=ab+aa+ba+bb" if joint else "cross-view",
        gather=gather,
        engine="dense" if name == "dense" else "auto",
        reduction="none" if name in ("sums-rows", "sums-process") else "mean",
    )
    loss_fn.to(dtype)
    views = [encoder(everything[each][rows].to(dtype)) for each in ("a", "b")]
    if name.endswith("checkpoint"):
        loss = checkpoint(loss_fn, *views, use_reentrant=False)
    elif name == "heads":
        loss = loss_fn([views[0], views[1]], [views[1], views[0]])
    else:
        loss = loss_fn(*views)
    if loss.ndim:
        processes = dist.get_world_size() if gather else 1
        weights = torch.arange(total, dtype=dtype) if name == "sums-rows" else (torch.arange(total) < FIRST).to(dtype)
        loss = (weights[rows] * loss).sum() * processes / total
    loss.backward()
    return gathered.outcome(loss.detach(), encoder, loss_fn)


def sent(step: Any) -> int:
    """How many bytes a step sends to the next process."""
    with pytest.MonkeyPatch.context() as patch:
        spy = Mock(wraps=dist.batch_isend_irecv)
        patch.setattr(dist, "batch_isend_irecv", spy)
        step()
    return sum(each.tensor.nbytes for call in spy.call_args_list for each in call.args[0] if each.op is dist.isend)


def worker(rank: int, sizes: tuple[int, ...], folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=len(sizes))
    total, start = sum(sizes), sum(sizes[:rank])
    own = slice(start, start + sizes[rank])
    results: dict[Any, Any] = {case: gathered.outcome(*gathered.step(case, own, total, gather="ring")) for case in CASES}
    results |= {(name,): way(name, own, total, "ring") for name in WAYS}
    for values in results.values():
        for value in values:
            dist.all_reduce(value)
            value /= len(sizes)
    results["sent"] = {
        case: sent(lambda case=case: gathered.step(case, own, total, gather="ring"))
        for case in ("two-view", "dclw", "queue", "sigmoid")
    }
    results["sent"] |= {name: sent(lambda name=name: way(name, own, total, "ring")) for name in SUMS}
    everything = gathered.data(total)
    views = [everything[name][own] for name in ("a", "b")]
    guided = ContrastiveLoss(layout="labels", negatives="guide", gather="ring")
    with pytest.raises(ConfigError, match=LABELS_GUIDE):
        guided(
            *views,
            labels=everything["labels"][own],
            guide={"view_a": everything["guide"][own], "view_b": everything["guide"][own]},
        )
    counted = ContrastiveLoss(layout="cross-view", negatives="log-q:size=9", gather="ring")
    loss = checkpoint(counted, *(each.requires_grad_() for each in views), index=everything["items"][own], use_reentrant=False)
    with pytest.raises(ConfigError, match=COUNTS):
        loss.backward()
    if rank == 0:
        torch.save(results, Path(folder) / "results.pt")
    dist.barrier()  # they leave together: one that is left alone may abort
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:layout '.*' leaves .* without a negative:RuntimeWarning")
@pytest.mark.parametrize("sizes", [(FIRST, 4, 3)], ids=str)
def test_a_ring_equals_one_process(sizes: tuple[int, ...], tmp_path: Path) -> None:
    mp.spawn(worker, (sizes, str(tmp_path)), nprocs=len(sizes))
    results = torch.load(tmp_path / "results.pt")
    for case in CASES:
        single = gathered.outcome(*gathered.step(case, slice(None), sum(sizes), gather=False))
        assert len(single) == len(results[case])
        for ours, expected in zip(results[case], single, strict=True):
            assert torch.allclose(ours, expected, rtol=1e-12, atol=1e-13), case
    for name, dtype in WAYS.items():
        for ours, expected in zip(results[name,], way(name, slice(None), sum(sizes), False), strict=True):
            tolerance = 2e-5 if dtype is torch.float32 else 1e-12
            assert torch.allclose(ours, expected, rtol=tolerance, atol=tolerance / 10), name
    # Candidates go round, all but the next process's, and behind them the gradients of all but its own.
    candidates, gradients = ((sum(sizes) - size) * 8 * gathered.DIMENSION for size in (sizes[1], sizes[0]))
    logarithms, sums = 2 * candidates + gradients, candidates + gradients
    assert results["sent"] == {
        "two-view": 2 * logarithms,
        "dclw": logarithms,
        "queue": 0,
        "sigmoid": sums,
        "sums": 2 * sums,
        "sums-joint": 2 * sums,
        "sums-checkpoint": 4 * sums,
        "sums-rows": 4 * sums,
        "sums-process": 4 * sums,
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "masks"}, "gather='ring' has no meaning for layout 'masks'"),
        (
            {"strategy": "amcl:dimension=4", "objective": "amcl-top:top_k=2,beta=0.1"},
            "objective 'amcl-top' ranks all.*use gather=True",
        ),
        ({"engine": "triton"}, "engine='triton' has no kernel for candidates without positives: use gather=True"),
        (
            {"layout": type("Own", (CrossView,), {"name": "own", "rings": False})()},
            "layout 'own' does not say.*use gather=True",
        ),
    ],
    ids=["masks", "top", "triton", "layout"],
)
def test_what_needs_all_candidates_at_once_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ContrastiveLoss(gather="ring", **options)


def test_a_map_that_knows_candidates_in_a_way_of_its_own_is_refused() -> None:
    class OfCandidates(ScaleMap):
        linear = False

        def logit(self, similarity: Tensor) -> Tensor:
            return similarity * self.scale

    with pytest.raises(
        ConfigError, match=r"logit map OfCandidates does not say.*use gather=True, or implement its method with_candidates\(\)"
    ):
        OfCandidates(torch.ones(3)).with_candidates([])


def test_bytes_of_one_row_of_a_table_are_found() -> None:
    column = torch.arange(6).view(3, 2)[:, 1]
    assert bytes_of(column[:1]).tolist() == [1, *[0] * 7]
    assert torch.equal(bytes_of(column).view(torch.int64), column)


def test_without_a_process_group_a_ring_changes_nothing() -> None:
    together = gathered.step("macl", slice(None), 8, gather=False)[0]
    assert torch.equal(together, gathered.step("macl", slice(None), 8, gather="ring")[0])
