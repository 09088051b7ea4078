"""A parameter of the loss that no optimizer has is named once, and nothing else is taken for one."""

from __future__ import annotations

import copy
import pickle
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, multiprocessing, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tempplug import ContrastiveLoss
from tempplug.call import between_calls
from tempplug.objectives.base import Objective
from tempplug.types import Auxiliary, RowStatistics

TOLD = (
    r"^strategy.log_scale of the loss should be learned, but did not change in 100 calls with a gradient, and the encoder "
    r"did: add loss_fn.parameters\(\) to the optimizer"
)


class Shifted(Objective):
    """Learns a number that is added to every margin."""

    name = "shifted"

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(1))

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        return nn.functional.softplus(statistics.negative_lse - statistics.positive_logit + self.shift)


@pytest.fixture(autouse=True)
def soon(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten calls stand for a hundred, but in the tests of the number and of the cost."""
    if not {"hundred", "costs"} & set(request.node.name.replace("[", "_").split("_")):
        monkeypatch.setattr(between_calls, "CALLS", 10)
        monkeypatch.setattr(between_calls, "MOST_CALLS", 100)


def learned(strategy: str = "learnable", **options: Any) -> tuple[nn.Module, ContrastiveLoss]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), ContrastiveLoss(strategy, **options)


def train(
    encoder: Callable[..., Tensor],
    loss_fn: Callable[..., Tensor],
    optimizers: Iterable[torch.optim.Optimizer],
    steps: int | None = None,
    calls: int = 1,
    between: Callable[[int], object] = lambda step: None,
) -> list[str]:
    """Returns the warnings of a plain loop with several calls in each step, by default of a few more than are needed."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for step in range(between_calls.CALLS * 6 // 5 if steps is None else steps):
            for optimizer in optimizers:
                optimizer.zero_grad()
            for _ in range(calls):
                loss_fn(encoder(torch.randn(6, 4)), encoder(torch.randn(6, 4))).backward()
            for optimizer in optimizers:
                optimizer.step()
            between(step)
    return [str(each.message) for each in found]


def sgd(*parts: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([each for part in parts for each in part.parameters()], lr=1e-3)


@pytest.mark.parametrize("engine", ["auto", "dense"])
def test_a_parameter_without_an_optimizer_is_named_once_after_a_hundred_steps(engine: Any) -> None:
    encoder, loss_fn = learned(engine=engine)
    assert train(encoder, loss_fn, [sgd(encoder)], steps=100) == []
    with pytest.warns(RuntimeWarning, match=TOLD) as found:
        loss_fn(encoder(torch.randn(6, 4)), encoder(torch.randn(6, 4)))
    assert [each.filename for each in found] == [__file__], "it points to the call"
    assert train(encoder, loss_fn, [sgd(encoder)], steps=200) == []


def test_every_parameter_of_strategy_and_objective_is_named() -> None:
    for has, named in ((False, "strategy.phi.weight, strategy.phi.bias, objective.shift"), (True, "objective.shift")):
        encoder, loss_fn = learned("amcl:dimension=4", objective=Shifted())
        (told,) = train(encoder, loss_fn, [sgd(encoder, *([loss_fn.strategy] if has else []))])
        assert told.startswith(f"{named} of the loss should be learned")


def test_names_without_weight_decay_are_those_of_named_parameters() -> None:
    loss_fn = ContrastiveLoss("amcl:dimension=4", Shifted())
    assert loss_fn.no_weight_decay() == {"strategy.phi.weight", "strategy.phi.bias", "objective.shift"}
    assert loss_fn.no_weight_decay() == {name for name, _ in loss_fn.named_parameters()}
    assert ContrastiveLoss("learnable").no_weight_decay() == {"strategy.log_scale"}
    assert ContrastiveLoss().no_weight_decay() == set()


# A fused one leaves no version.
OPTIMIZERS = [("SGD", {}), ("AdamW", {}), ("Adafactor", {}), ("Adam", {"foreach": False}), ("Adam", {"fused": True})]


@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS)
def test_any_optimizer_is_seen(kind: str, options: dict[str, bool]) -> None:
    make: Any = getattr(torch.optim, kind)
    encoder, loss_fn = learned()
    assert len(train(encoder, loss_fn, [make(encoder.parameters(), lr=1e-3, **options)])) == 1
    encoder, loss_fn = learned()
    assert train(encoder, loss_fn, [make([*encoder.parameters(), *loss_fn.parameters()], lr=1e-3, **options)]) == []
    assert "fused" in options or loss_fn.memory.unlearned is None, "it has changed, so that nothing is watched any more"


@pytest.mark.parametrize("evaluating", [True, False])
def test_evaluation_between_steps_hides_nothing_and_counts_for_nothing(evaluating: bool) -> None:
    encoder, loss_fn = learned()

    @torch.no_grad()
    def evaluate(step: int) -> None:
        loss_fn.train(not evaluating)
        for _ in range(3):
            loss_fn(encoder(torch.randn(6, 4)), encoder(torch.randn(6, 4)))
        loss_fn.train()

    optimizers = [sgd(encoder)]
    assert train(encoder, loss_fn, optimizers, steps=5, between=evaluate) == []
    assert len(train(encoder, loss_fn, optimizers, steps=10, between=evaluate)) == 1


def write(loss_fn: ContrastiveLoss) -> None:
    """As an optimizer that torch does not count."""
    for parameter in loss_fn.parameters():
        parameter.data.sub_(1e-3)


def replaced(encoder: nn.Module, loss_fn: ContrastiveLoss) -> list[str]:
    found = train(encoder, loss_fn, [sgd(encoder)], steps=5)
    loss_fn.strategy = ContrastiveLoss("fixed").strategy
    return found + train(encoder, loss_fn, [sgd(encoder)])


def beside(encoder: nn.Module, loss_fn: ContrastiveLoss) -> list[str]:
    other = ContrastiveLoss()
    return train(encoder, lambda *views: (loss_fn(*views), other(*views))[1], [sgd(encoder)])


NO_FAULTS: dict[str, Callable[[nn.Module, ContrastiveLoss], list[str]]] = {
    "frozen": lambda encoder, loss_fn: train(encoder, loss_fn.requires_grad_(False), [sgd(encoder)]),
    "a rate of 0": lambda encoder, loss_fn: train(
        encoder, loss_fn, [sgd(encoder), torch.optim.AdamW(loss_fn.parameters(), lr=0.0)]
    ),
    "steps of many calls": lambda encoder, loss_fn: train(encoder, loss_fn, [sgd(encoder, loss_fn)], steps=2, calls=13),
    "a strategy that was replaced": replaced,
    "an uncounted optimizer": lambda encoder, loss_fn: train(
        encoder, loss_fn, [sgd(encoder)], between=lambda step: write(loss_fn)
    ),
    "looked at beside another": beside,
    "embeddings that are leaves": lambda encoder, loss_fn: train(lambda images: images.requires_grad_(), loss_fn, []),
}


@pytest.mark.parametrize("case", NO_FAULTS)
def test_no_false_alarm(case: str) -> None:
    assert NO_FAULTS[case](*learned()) == []


def test_steps_that_a_gradient_scaler_skips_do_not_count() -> None:
    encoder, loss_fn = learned()
    optimizer, scaler = sgd(encoder), torch.amp.GradScaler("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(12):
            optimizer.zero_grad()
            scaler.scale(loss_fn(encoder(torch.randn(6, 4)), encoder(torch.randn(6, 4))) * torch.inf).backward()
            scaler.step(optimizer)
            scaler.update()
    assert scaler.get_scale() < 1e4, "every step was skipped"


def test_watching_ends() -> None:
    _, loss_fn = learned()
    assert train(lambda images: images.requires_grad_(), loss_fn, [], steps=100) == []
    assert loss_fn.memory.unlearned is None
    loss_fn = ContrastiveLoss()
    loss_fn(torch.randn(6, 4), torch.randn(6, 4))
    assert loss_fn.memory.unlearned is None, "nothing is learned"


def test_copies_and_pickles_watch_for_themselves() -> None:
    encoder, loss_fn = learned()
    train(encoder, loss_fn, [sgd(encoder)], steps=8)
    for twin in (copy.deepcopy(loss_fn), pickle.loads(pickle.dumps(loss_fn))):
        twin.zero_grad()
        assert train(encoder, twin, [sgd(encoder)], steps=10) == []
        assert len(train(encoder, twin, [sgd(encoder)], steps=2)) == 1


def test_data_parallel_models_are_watched(tmp_path: Path) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        encoder, loss_fn = learned(gather=True)
        wrapped = DistributedDataParallel(encoder)
        assert len(train(wrapped, loss_fn, [sgd(wrapped)])) == 1
        encoder, loss_fn = learned()
        both = nn.ModuleDict({"encoder": encoder, "loss": DistributedDataParallel(loss_fn)})
        assert train(encoder, both["loss"], [sgd(both)]) == []
    finally:
        distributed.destroy_process_group()


def shard(rank: int, folder: str) -> None:
    distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    for with_loss in (False, True):
        encoder, loss_fn = learned()
        for part in (*encoder, encoder):
            fully_shard(part, mesh=distributed.init_device_mesh("cpu", (2,)))
        found = train(encoder, loss_fn, [sgd(encoder, *([loss_fn] if with_loss else []))])
        assert not (found and with_loss), found
    distributed.barrier()
    distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_a_sharded_encoder_breaks_nothing(tmp_path: Path) -> None:
    """Between two calls the memory of its parameters is gone."""
    multiprocessing.spawn(shard, (str(tmp_path),), nprocs=2)


def test_compiled_models_are_watched_and_a_loss_inside_of_a_graph_is_not() -> None:
    torch._dynamo.reset()
    encoder, loss_fn = learned()
    compiled = torch.compile(encoder, backend="aot_eager")
    assert len(train(compiled, loss_fn, [sgd(encoder)])) == 1
    other = ContrastiveLoss("learnable")
    assert train(compiled, other, [sgd(encoder, other)]) == []
    inside = torch.compile(ContrastiveLoss("learnable"), backend="aot_eager", fullgraph=True)
    assert train(encoder, inside, [sgd(encoder)]) == []


def test_watching_costs_little() -> None:
    """While a parameter is watched: under 30 µs a call beside hundreds."""
    encoder, loss_fn = learned()
    watch = loss_fn.memory.unlearned
    assert watch is not None
    train(encoder, loss_fn, [sgd(encoder)], steps=3)
    embeddings, best = encoder(torch.randn(6, 4)), float("inf")
    for _ in range(20):
        watch._calls = watch._with_gradient = 0
        start = time.perf_counter()
        for _ in range(50):
            watch.begin(loss_fn)
            watch.end(embeddings)
        best = min(best, (time.perf_counter() - start) / 50)
    assert best < 30e-6
