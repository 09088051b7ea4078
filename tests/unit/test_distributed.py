"""Gathering over real process groups (gloo): two and three processes must equal one, for loss and gradient."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.functional import normalize

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError, ProcessError, ShapeError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm")]

DIMENSION = 6
CASES = {
    "two-view": ("two-view", "fixed", "infonce", {}),
    "cross-view": ("cross-view", "dystress", "infonce", {}),
    "symmetric": ("cross-view", "macl:alpha=1.5,threshold=0.2", "dcl", {"symmetric": True}),
    "macl": ("two-view", "macl:base_temperature=0.05,alpha=2,threshold=0.1", "reweighted", {}),
    "dclw": ("cross-view", "learnable", "dclw", {}),
    "labels": ("labels", "macl", "infonce", {}),
    "labels-one-view": ("labels", "macl", "infonce", {}),
    "queue": ("queue", "macl", "infonce", {}),
    "dual": ("two-view", "learnable", "dual-temperature", {}),
    "hard": ("cross-view", "temperature-free", "infonce", {}),
    "targets": ("cross-view", "macl", "infonce", {}),
    "targets-hard": ("cross-view", "dystress", "infonce", {}),
    "targets-sigmoid": ("cross-view", "learnable", "sigmoid:initial_bias=-1", {}),
    "targets-both": ("cross-view", "macl", "infonce", {"symmetric": True}),
    "keys": ("cross-view:positives=keys", "macl", "infonce", {}),
    "keys-both": ("cross-view:positives=keys,directions=ab+ba,softmax=separate", "dystress", "sigmoid", {}),
    "amcl": ("two-view", "amcl:dimension=6", "dcl", {}),
    "amcl-top": ("cross-view", "amcl:dimension=6", "amcl-top:top_k=2,beta=0.1", {"symmetric": True}),
    "margin": ("cross-view", "amcl:dimension=6", "infonce:margin=0.2", {"symmetric": True}),
    "labels-margin": ("labels", "amcl:dimension=6", "infonce:margin=0.2", {}),
    "labels-angle": ("labels", "learnable", "infonce:margin=0.3,margin_kind=angular", {}),
    "sigmoid": ("cross-view", "learnable:initial_temperature=0.1,max_scale=none", "sigmoid:relative_bias=true", {}),
    "labels-sigmoid": ("labels", "learnable", "sigmoid", {}),
    "individual": ("two-view", "individual:size=20", "dcl", {}),
    "by-group": ("cross-view", "by-group:temperatures=0.05/0.2,learn=true", "infonce", {"symmetric": True}),
    "sogclr": ("cross-view", "learnable", "sogclr:size=20,gamma=0.4,rho=1", {"symmetric": True}),
    "sogclr-shared": ("two-view", "fixed", "sogclr:size=20,per_view=false,relative=false", {}),
}
# With hard negatives of the rows, some of them absent, and everything that a term may read.
JOINT = "cross-view:directions=ab+aa+ba+bb"
OF_ROWS = {
    "joint": (JOINT, "macl:alpha=1.5,threshold=0.2", "infonce", "false-negatives:margin=-0.1+within-group"),
    "joint-debiased": (JOINT, "uncertainty", "dcl", "hardness:of=hard+debiased:prior=0.02"),
    "own": ("cross-view:hard=own", "learnable", "dclw", "log-q:size=20+same-key"),
    "own-alone": ("cross-view:hard=own,in_batch=false", "fixed", "infonce", "hardness:of=in-batch"),
    "both-ways": ("cross-view:directions=ab+ba,softmax=separate", "dystress", "infonce", "guide+hardness:of=in-batch"),
    "two-view-terms": ("two-view", "individual:size=20", "dcl", "guide:rule=relative,margin=-0.1"),
    "labels-terms": ("labels", "fixed", "infonce", "same-key+log-q"),
    "queue-joint": (JOINT, "learnable", "infonce", "same-key"),
    "queue-terms": ("queue", "temperature-free", "infonce", "false-negatives:margin=-0.1,weight=0.5+log-q:size=20"),
}
CASES |= {name: (layout, *rest, {"negatives": negatives}) for name, (layout, *rest, negatives) in OF_ROWS.items()}


def data(rows: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    a, b, hard, queue = torch.randn(4, max(rows, 7), DIMENSION, generator=generator, dtype=torch.float64)
    found = {"a": a[:rows], "b": (a + b)[:rows], "hard": hard[:rows], "queue": queue[:7], "labels": torch.arange(rows) % 3}
    # Two a row, of which every third is absent.
    found["hard_negatives"] = torch.stack([hard, hard - a], 1)[:rows]
    found["hard_negative_mask"] = torch.arange(2 * rows).view(rows, 2) % 3 > 0
    found["guide"] = torch.cat([a, b, hard, queue], 1)[:rows]
    return found | {"keys": torch.arange(rows) % 4, "items": torch.arange(rows) % 5, "groups": torch.arange(rows) % 2}


def given_of_rows(everything: dict[str, Tensor], rows: slice, case: str) -> dict[str, Any]:
    """What a call of these rows can tell of them, of their hard negatives and of the queue."""
    parts = {name: everything[name][rows] for name in ("hard_negatives", "hard_negative_mask", "labels", "groups")}
    of = {name: everything[name][rows] for name in ("guide", "keys", "items")}
    queue = {"queue": torch.arange(7)} if case.startswith("queue") else {}
    hard = torch.arange(len(everything["a"]))[rows]
    log_q = {name: -values.double() / 3 for name, values in {"view_a": of["keys"], "view_b": of["items"]}.items()}
    parts["guide"] = {
        "view_a": of["guide"],
        "view_b": of["guide"].flip(1),
        "hard_negatives": of["guide"][:, None].expand(-1, 2, -1),
    }
    parts["keys"] = {"view_a": of["keys"], "view_b": of["keys"], "hard_negatives": torch.stack([hard, of["keys"]], 1), **queue}
    parts["candidate_log_q"] = {**log_q, "hard_negatives": -torch.stack([hard, hard], 1).double()}
    parts["index"] = {"view_a": 2 * hard, "view_b": of["items"], "hard_negatives": torch.stack([hard, hard], 1), **queue}
    parts["uncertainty"] = of["guide"][:, 0], of["guide"][:, 1]
    return parts


def step(case: str, rows: slice, total: int, gather: bool, group: Any = None) -> tuple[Tensor, nn.Module, ContrastiveLoss]:
    """One forward and backward of an encoder on some rows; the gradients of both are left on their parameters."""
    layout, strategy, objective, options = CASES[case]
    everything = data(total)
    torch.manual_seed(0)
    encoder = nn.Linear(DIMENSION, DIMENSION, dtype=torch.float64)
    loss_fn = ContrastiveLoss(strategy, objective, layout, gather=gather, group=group, **options).double()
    views = [encoder(everything[name][rows]) for name in (("a",) if case == "labels-one-view" else ("a", "b"))]
    given: dict[str, Any] = {}
    if case.startswith("labels") and case not in OF_ROWS:
        given["labels"] = everything["labels"][rows]
    if case in OF_ROWS:
        given = loss_fn.accepted(**given_of_rows(everything, rows, case))
        given["hard_negatives"] = encoder(given["hard_negatives"])
        if case.startswith("two-view"):
            given["index"] = given["index"]["view_a"]
    if case.startswith(("individual", "sogclr")):
        given["index"] = torch.arange(0, 2 * total, 2)[rows]
    if case == "by-group":
        given["groups"] = everything["groups"][rows]
    if case == "hard":
        given["hard_negatives"] = encoder(everything["hard"][rows])
    if case.startswith("targets"):  # a row without a positive, and a different number of positives on each process
        shares = torch.softmax(everything["a"] @ everything["b"].T, 1) * (torch.arange(total) % 4 < 2)
        shares[1] = 0
        both = [shares / shares.sum(1, keepdim=True).clamp(min=1e-30), torch.softmax(everything["b"] @ everything["b"].T, 1)]
        given["targets"] = (both[0][rows], both[1][rows]) if case == "targets-both" else both[0][rows]
    if case == "targets-hard":  # of which some are positives, as of the queue
        given |= {"queue": everything["queue"], "hard_negatives": encoder(everything["hard"][rows])}
        candidates = normalize(torch.cat([everything[name] for name in ("b", "queue", "hard")]))
        shares = torch.softmax(4 * normalize(everything["a"][rows]) @ candidates.T, 1)
        shares = shares.masked_fill(shares < 0.05, 0.0)
        given["targets"] = shares / shares.sum(1, keepdim=True)
    if case.startswith("keys"):
        given["keys"] = everything["keys"][rows]
        given["hard_negatives"] = encoder(everything["hard"][rows])
    if case.startswith("queue"):
        given["queue"] = everything["queue"]
    loss = loss_fn(*views, **given)
    loss.backward()
    return loss.detach(), encoder, loss_fn


def outcome(loss: Tensor, encoder: nn.Module, loss_fn: ContrastiveLoss) -> list[Tensor]:
    """Returns what must agree: the loss, all gradients, and what a strategy keeps or a term counts."""
    gradients = [parameter.grad for module in (encoder, loss_fn) for parameter in module.parameters()]
    return [loss, *gradients, *(kept.double() for name, kept in loss_fn.named_buffers() if not name.endswith("floor_hits"))]


# Names of two collectives before PyTorch 2.13.
BEFORE = ("all_gather_into_tensor", "reduce_scatter_tensor")


def collectives(case: str, rows: slice, total: int) -> dict[str, int]:
    """How often a step calls each collective."""
    renamed = ("all_gather_single", "reduce_scatter_single") if hasattr(dist, "all_gather_single") else BEFORE
    names = (*renamed, "all_gather", "all_reduce", "broadcast")
    with pytest.MonkeyPatch.context() as patch:
        spies = {name: Mock(wraps=getattr(dist, name)) for name in names}
        for name, spy in spies.items():
            patch.setattr(dist, name, spy)
        step(case, rows, total, gather=True)
    return {("gather", "scatter", *names[2:])[place]: spies[name].call_count for place, name in enumerate(names)}


def worker(rank: int, sizes: tuple[int, ...], folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=len(sizes))
    start = sum(sizes[:rank])
    results = {}
    for case in CASES:
        averaged = outcome(*step(case, slice(start, start + sizes[rank]), sum(sizes), gather=True))
        for value in averaged:
            dist.all_reduce(value)
            value /= len(sizes)
        results[case] = averaged
    own = slice(start, start + sizes[rank])
    results["collectives"] = {case: collectives(case, own, sum(sizes)) for case in ("two-view", "own-alone")}
    others = "process 0" if len(sizes) == 2 else "processes 0, 2"
    message = rf"hard_negatives is 'float32 \[H, 6\]' in {others} and absent in process 1\."
    loss_fn = ContrastiveLoss("fixed", layout="cross-view", gather=True)
    views, hard = torch.randn(2, 3, DIMENSION) + rank, None if rank == 1 else torch.randn(1, DIMENSION)
    with pytest.raises(ProcessError, match=message):
        loss_fn(*views, hard_negatives=hard)
    both = ContrastiveLoss("fixed", layout="cross-view", symmetric=True, gather=True)
    with pytest.raises(ConfigError, match=r"targets= for both directions must be a pair with gather: \(T_ab, T_ba\)"):
        both(*views, targets=torch.eye(3, 3 * len(sizes)))
    by_group = ContrastiveLoss("by-group:temperatures=0.1/0.2", layout="cross-view", gather=True)
    with pytest.raises(ConfigError if rank == 1 else ProcessError, match=r"groups holds 9; temperatures of strategy"):
        by_group(*views, groups=torch.tensor([0, 1, 9 if rank == 1 else 1]))
    if rank == 0:
        torch.save(results, Path(folder) / "results.pt")
    dist.barrier()  # they leave together: one that is left alone may abort
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:layout '.*' leaves .* without a negative:RuntimeWarning")
@pytest.mark.parametrize("sizes", [(4, 4), (2, 4, 3)], ids=str)
def test_processes_together_equal_one(sizes: tuple[int, ...], tmp_path: Path) -> None:
    mp.spawn(worker, (sizes, str(tmp_path)), nprocs=len(sizes))
    results = torch.load(tmp_path / "results.pt")
    for case in CASES:
        single = outcome(*step(case, slice(None), sum(sizes), gather=False))
        assert len(single) == len(results[case])
        for ours, expected in zip(results[case], single, strict=True):
            assert torch.allclose(ours, expected, rtol=1e-11, atol=1e-13), case
    # Sizes; views with what goes with them, and similarities of positives; gradients.
    expected_calls = {"all_gather": 1, "gather": 2, "scatter": 1, "all_reduce": 0, "broadcast": 0}
    assert results["collectives"] == {"two-view": expected_calls, "own-alone": expected_calls}


def in_a_mesh(rank: int, folder: str) -> None:
    """Two halves of a batch on four processes, of which two each hold the same rows, as under tensor parallelism."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))["dp"]
    half = slice(4 * (rank // 2), 4 * (rank // 2) + 4)
    results = {}
    for case in ("macl", "sogclr", "own"):
        for group in (mesh, mesh.get_group()):
            averaged = outcome(*step(case, half, 8, gather=True, group=group))
            for value in averaged:
                dist.all_reduce(value)
                value /= 4
            results[case, group is mesh] = averaged
    with pytest.raises(ProcessError, match=r"processes 0, 1, 2, 3 of 4 hold the same rows.*pass group=.*DistributedSampler"):
        step("macl", half, 8, gather=True)
    loss_fn, embeddings = ContrastiveLoss(gather=True, group=mesh), torch.randn(2, 4, DIMENSION)
    second = dist.get_rank(mesh.get_group()) == 1
    with pytest.raises(ShapeError if second else ProcessError, match="view_a is a list of heads, so view_b must be"):
        loss_fn([embeddings[0]] if second else embeddings[0], embeddings[1])
    assert copy.deepcopy(loss_fn).group is loss_fn.group
    with pytest.raises(ConfigError, match=r"a loss with group= cannot be pickled.*Save its state_dict\(\)"):
        pickle.dumps(loss_fn)
    if rank == 0:
        torch.save(results, Path(folder) / "results.pt")
    dist.barrier()
    dist.destroy_process_group()


def test_a_group_contrasts_its_processes_alone_and_replicated_rows_are_refused(tmp_path: Path) -> None:
    mp.spawn(in_a_mesh, (str(tmp_path),), nprocs=4)
    for (case, _), averaged in torch.load(tmp_path / "results.pt").items():
        for ours, expected in zip(averaged, outcome(*step(case, slice(None), 8, gather=False)), strict=True):
            assert torch.allclose(ours, expected, rtol=1e-11, atol=1e-13), case


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"group": "dp", "gather": True},
            r"group='dp' must be a torch.distributed.ProcessGroup or one dimension of",
        ),
        ({"group": object()}, r"group= names the processes of gather=True, and gather is False\."),
    ],
)
def test_other_groups_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ContrastiveLoss(**options)


def test_without_gathering_the_loss_is_another_and_without_a_process_group_it_is_the_same() -> None:
    together, _, _ = step("macl", slice(None), 8, gather=False)
    halves = [step("macl", rows, 8, gather=False)[0] for rows in (slice(0, 4), slice(4, 8))]
    assert not torch.allclose(torch.stack(halves).mean(), together, rtol=1e-3)
    assert torch.equal(together, step("macl", slice(None), 8, gather=True)[0])
