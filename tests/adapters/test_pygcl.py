"""The PyGCL contract inside the real PyGCL 0.1.2."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from covering import every_pair
from pygcl_toys import importable_pygcl
from torch import Tensor

import tempplug
from tempplug.errors import ConfigError, ShapeError, UnknownNameError
from tempplug.types import EngineName
from tempplug_adapters.graph.pygcl import PyGCLLoss

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")

TEMPERATURE = 0.3
NODES, GRAPHS = 11, 4
# Nodes a graph, with as many nodes as twice the graphs.
PAIRS = torch.tensor([0, 0, 0, 1, 2, 2, 3, 3])


@pytest.fixture(scope="module")
def gcl() -> Iterator[Any]:
    """PyGCL's models and losses."""
    with importable_pygcl():
        yield SimpleNamespace(models=importlib.import_module("GCL.models"), losses=importlib.import_module("GCL.losses"))


def embeddings(rows: int, seed: int) -> Tensor:
    return torch.randn(rows, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def inputs(mode: str) -> dict[str, Tensor]:
    """Arguments of DualBranchContrast: nodes h, graphs g, corrupted nodes h3 and h4."""
    nodes = {name: embeddings(NODES, seed) for seed, name in enumerate(("h1", "h2", "h3", "h4"))}
    if mode == "L2L":
        return {"h1": nodes["h1"], "h2": nodes["h2"]}
    if mode == "G2G":
        return {"g1": embeddings(GRAPHS, 4), "g2": embeddings(GRAPHS, 5)}
    if mode == "G2L, one graph":
        return {**nodes, "g1": embeddings(1, 4), "g2": embeddings(1, 5)}
    batch = torch.arange(NODES).clamp(max=GRAPHS - 1).sort().values if mode == "G2L" else PAIRS
    h1, h2 = embeddings(len(batch), 6), embeddings(len(batch), 7)
    return {"h1": h1, "h2": h2, "g1": embeddings(GRAPHS, 4), "g2": embeddings(GRAPHS, 5), "batch": batch}


def dual(gcl: Any, loss: Any, mode: str, **more: Any) -> Tensor:
    intra = {"intraview_negs": more.pop("intraview_negs")} if "intraview_negs" in more else {}
    given = more.pop("given", None) or inputs(mode)
    value: Tensor = gcl.models.DualBranchContrast(loss, mode=mode[:3], **intra)(**given, **more)
    return value


def gradients(loss: Tensor, given: dict[str, Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(loss, [value for value in given.values() if value.requires_grad]))


@pytest.mark.parametrize("mode", ["L2L", "G2G", "G2L", "G2L, two nodes a graph", "G2L, one graph"])
def test_a_fixed_temperature_is_pygcls_infonce(gcl: Any, mode: str) -> None:
    given = inputs(mode)
    theirs, ours = (dual(gcl, loss, mode, given=given) for loss in (gcl.losses.InfoNCE(tau=0.3), PyGCLLoss(tau=0.3)))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradients(ours, given), gradients(theirs, given), rtol=1e-10, atol=1e-14)
    assert isinstance(PyGCLLoss(), gcl.losses.Loss)
    assert not isinstance(torch.nn.Identity(), gcl.losses.Loss)
    if "," in mode:
        single = {"h": embeddings(len(PAIRS), 0), "g": embeddings(1 if "one" in mode else GRAPHS, 1)}
        single |= {"hn": embeddings(len(PAIRS), 2)} if "one" in mode else {"batch": PAIRS}
        kind = gcl.models.SingleBranchContrast
        theirs, ours = (kind(loss, mode="G2L")(**single) for loss in (gcl.losses.InfoNCE(tau=0.3), PyGCLLoss(tau=0.3)))
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)


STRATEGIES = (f"fixed:temperature={TEMPERATURE}", "macl", "dystress", "temperature-free")


@pytest.mark.parametrize(("strategy", "mode", "engine"), every_pair(STRATEGIES, ("L2L", "G2G"), ("auto", "dense")))
def test_intra_view_negatives_leave_out_the_anchor(gcl: Any, mode: str, strategy: str, engine: EngineName) -> None:
    given = inputs(mode)
    value = dual(gcl, PyGCLLoss(strategy, engine=engine), mode, given=given, intraview_negs=True)
    grace = tempplug.ContrastiveLoss(strategy, layout="two-view", engine="dense")(*given.values())
    torch.testing.assert_close(value, grace, rtol=1e-10, atol=0)
    torch.testing.assert_close(gradients(value, given), gradients(grace, given), rtol=1e-9, atol=1e-14)
    if strategy.startswith("fixed"):
        unrepaired = dual(gcl, gcl.losses.InfoNCE(tau=TEMPERATURE), mode, given=given, intraview_negs=True)
        assert unrepaired > value + 0.1, "PyGCL no longer takes the anchor for a negative: the repair can go"


def test_extra_masks_and_keywords_of_the_contrast_model_are_used(gcl: Any) -> None:
    friends, spared = torch.zeros(NODES, NODES), torch.ones(NODES, NODES)
    friends[0, 1] = friends[1, 0] = 1
    spared[2, 3] = 0
    masks = {"extra_pos_mask": friends, "extra_neg_mask": spared - friends}
    theirs, ours = (dual(gcl, loss, "L2L", **masks) for loss in (gcl.losses.InfoNCE(tau=0.3), PyGCLLoss(tau=0.3)))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)
    assert abs(ours - dual(gcl, PyGCLLoss(tau=0.3), "L2L")) > 1e-3
    overlapping = {"extra_pos_mask": friends, "extra_neg_mask": spared}
    torch.testing.assert_close(dual(gcl, PyGCLLoss(tau=0.3), "L2L", **overlapping), ours)
    contrasts = (
        gcl.models.DualBranchContrast(PyGCLLoss("uncertainty"), mode="L2L", uncertainty=torch.full((NODES,), value))
        for value in (0.0, 1.0)
    )
    certain, unsure = (contrast(**inputs("L2L")) for contrast in contrasts)
    assert abs(certain - unsure) > 1e-3


@pytest.mark.parametrize(("appended", "dtype", "roll"), every_pair((False, True), (torch.float32, torch.bool), (0, 1)))
def test_any_masks_are_taken(appended: bool, dtype: torch.dtype, roll: int) -> None:
    anchor, other = embeddings(NODES, 0), embeddings(NODES, 1)
    sample = torch.cat([other, anchor]) if appended else other
    positive = torch.eye(NODES, len(sample)).roll(roll, 1)
    negative = 1 - positive
    negative[1, 4] = 0
    value = PyGCLLoss(tau=TEMPERATURE)(anchor, sample, positive.to(dtype), negative.to(dtype))
    logits = torch.nn.functional.normalize(anchor) @ torch.nn.functional.normalize(sample).T / TEMPERATURE
    negative[:, NODES:].fill_diagonal_(0)  # an appended anchor is no negative of itself
    kept = logits.masked_fill((positive + negative) == 0, -torch.inf)
    torch.testing.assert_close(value, (kept.logsumexp(1) - (logits * positive).sum(1)).mean(), rtol=1e-10, atol=0)


def test_a_graph_without_nodes_leaves_the_mean(gcl: Any) -> None:
    h, g = embeddings(len(PAIRS), 0), embeddings(GRAPHS + 1, 1)
    masks = torch.nn.functional.one_hot(PAIRS, GRAPHS + 1).T.double()
    loss = PyGCLLoss(tau=TEMPERATURE)
    value = loss(anchor=g, sample=h, pos_mask=masks, neg_mask=1 - masks)
    torch.testing.assert_close(value, loss(anchor=g[:-1], sample=h, pos_mask=masks[:-1], neg_mask=1 - masks[:-1]))
    assert gcl.losses.InfoNCE(tau=TEMPERATURE)(g, h, masks, 1 - masks).isnan()


def test_a_learned_temperature_trains_and_is_saved_with_the_contrast_model(gcl: Any) -> None:
    model = gcl.models.DualBranchContrast(PyGCLLoss("learnable"), mode="L2L")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model(**inputs("L2L")).backward()
    torch.optim.Adam(model.parameters(), lr=0.1).step()
    after = model.state_dict()
    assert after.keys() == before.keys() != set()
    assert any(not torch.equal(after[name], before[name]) for name in before)


NEEDY = {"head-tail", "mm-ts", "uncertainty", "individual", "by-group"}  # need something of each anchor


@pytest.mark.parametrize("strategy", [info.name for info in tempplug.strategies() if info.name not in NEEDY])
def test_every_strategy_works_where_anchors_have_several_positives(gcl: Any, strategy: str) -> None:
    loss = PyGCLLoss(f"{strategy}:dimension=6" if strategy in ("amcl", "tempnet") else strategy)
    loss.contrastive_loss.set_progress(epoch=1.0)
    given = inputs("G2L")
    value = dual(gcl, loss, "G2L", given=given)
    assert value.isfinite()
    assert all(gradient.isfinite().all() and gradient.any() for gradient in gradients(value, given))


def test_masks_may_be_left_out() -> None:
    view_a, view_b, loss, same = embeddings(5, 0), embeddings(5, 1), PyGCLLoss(), torch.eye(5)
    assert torch.equal(loss(view_a, view_b), loss.compute(view_a, view_b, same, 1 - same))
    assert torch.equal(loss(view_a, view_b, same), loss(view_a, view_b, same.bool(), ~same.bool()))
    with pytest.warns(RuntimeWarning, match="leaves 1 of 1 anchors without a negative"):
        assert loss(view_a[:1], view_b[:1]).item() == 0


def test_terms_on_negatives_see_the_negatives_of_the_masks(gcl: Any) -> None:
    """A node's key is that of its candidates, its own among them and appended ones too."""
    keys = torch.arange(NODES) % 3
    anchor, other = embeddings(NODES, 0), embeddings(NODES, 1)
    sample = torch.cat([other, anchor])
    given = {"keys": {"view_a": keys, "view_b": torch.cat([keys, keys])}}
    same = torch.eye(NODES, 2 * NODES)
    value = PyGCLLoss(tau=0.3, negatives="same-key")(anchor, sample, same, 1 - same, **given)
    logits = torch.nn.functional.normalize(anchor) @ torch.nn.functional.normalize(sample).T / 0.3
    alike = (keys[:, None] == torch.cat([keys, keys])) & (same == 0)
    expected = torch.nn.functional.cross_entropy(logits.masked_fill(alike, -torch.inf), torch.arange(NODES))
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=0)
    model = gcl.models.DualBranchContrast(PyGCLLoss(tau=0.3, negatives="same-key"), mode="L2L", keys=keys)
    assert abs(model(**inputs("L2L")) - dual(gcl, PyGCLLoss(tau=0.3), "L2L")) > 1e-3


def test_pygcls_own_spelling_of_the_temperature() -> None:
    assert PyGCLLoss("learnable", tau=0.2).contrastive_loss.strategy.initial_temperature == 0.2
    assert PyGCLLoss("macl:alpha=1", tau=0.2).contrastive_loss.strategy.spec().startswith("macl:base_temperature=0.2,alpha=1,")
    schedule = PyGCLLoss("schedule:period=4", tau=0.2).contrastive_loss.strategy
    assert (schedule.temperature_min, schedule.temperature_max) == (0.1, 0.4)


def test_options_and_masks_that_do_not_fit_are_refused(gcl: Any) -> None:
    free, twice = "tau=0.2 has no meaning for strategy 'temperature-free'", "given twice: tau=0.2 and temperature of strat"
    no_option, hard = r"tau_plus=0\.1 of PyGCL's debiased .*: negatives='debiased:prior", "negatives='hardness:strength="
    options: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        ("temperature-free", {"tau": 0.2}, ConfigError, free),
        ("fixed:temperature=0.3", {"tau": 0.2}, ConfigError, twice),
        (tempplug.create_strategy("fixed"), {"tau": 0.2}, ConfigError, "tau=0.2 cannot be given beside a Fixed instance"),
        ("macle", {"tau": 0.2}, UnknownNameError, "Did you mean 'macl'"),
        ("fixed", {"tau_plus": 0.1}, ConfigError, no_option),
        ("fixed", {"beta": 1}, ConfigError, f"beta=1 .* {hard}"),
        ("fixed", {"negatives": "same-kye"}, UnknownNameError, "Did you mean 'same-key'"),
        ("fixed", {"temperature": 0.2}, TypeError, "unexpected keyword argument 'temperature'"),
    ]
    for strategy, more, error, message in options:
        with pytest.raises(error, match=message):
            PyGCLLoss(strategy, **more)
    loss, same, reweighted = PyGCLLoss(), torch.eye(5), PyGCLLoss(objective="reweighted")
    views, intra = (embeddings(5, 0), embeddings(5, 1)), {"intraview_negs": True}
    for call, error, message in [
        (lambda: loss(*views, 0.5 * same, 1 - same), ConfigError, "pos_mask must hold zeros and ones alone.* In place o"),
        (lambda: loss(*views, same, same[:, 1:]), ShapeError, r"neg_mask of shape \[5, 4\] must be \[5, 5\], anchors by"),
        (lambda: dual(gcl, reweighted, "G2L"), ConfigError, "'reweighted' has no form for several"),
        (lambda: dual(gcl, loss, "G2L, one graph", **intra), ShapeError, "intraview_negs=True makes such masks in"),
    ]:
        with pytest.raises(error, match=message):
            call()
