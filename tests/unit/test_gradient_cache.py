"""`cached_backward`: loss and gradients of a batch that is embedded in parts must be those of the plain step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from tempplug import ContrastiveLoss, cached_backward
from tempplug.errors import ConfigError, ShapeError, TensorError

B, WIDTH = 11, 6


class Encoder(nn.Module):
    """Two linear layers around a dropout."""

    def __init__(self, rate: float = 0.3, checkpoints: bool = False) -> None:
        super().__init__()
        self.first, self.dropout, self.last = nn.Linear(WIDTH, 8), nn.Dropout(rate), nn.Linear(8, 5)
        self.checkpoints = checkpoints

    def hidden(self, rows: Tensor) -> Tensor:
        return self.dropout(self.first(rows)).tanh()

    def forward(self, rows: Tensor) -> Tensor:
        hidden = checkpoint(self.hidden, rows, use_reentrant=False) if self.checkpoints else self.hidden(rows)
        return self.last(hidden)


def views(dtype: torch.dtype = torch.float64, rows: int = B) -> tuple[Tensor, Tensor]:
    a, b = torch.randn(2, rows, WIDTH, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(dtype)
    return a, b


def parts_of(encoder: Callable[[Tensor], Tensor], rows: Tensor, size: int) -> Tensor:
    """The same random numbers as in parts, in one graph."""
    return torch.cat([encoder(part) for part in rows.split(size)])


def gradients(*modules: nn.Module) -> list[Tensor]:
    found = []
    for module in modules:
        for parameter in module.parameters():
            assert parameter.grad is not None
            found.append(parameter.grad)
    return found


def assert_close(found: Any, expected: Any, dtype: torch.dtype = torch.float64) -> None:
    tolerance = 1e-10 if dtype == torch.float64 else 1e-6
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("size", [1, 4, B, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("strategy", "layout", "negatives"),
    [("learnable", "cross-view", None), ("macl:alpha=1", "two-view", None), ("learnable", "cross-view", "same-key")],
)
def test_it_is_the_plain_step_with_dropout(
    strategy: str, layout: Any, negatives: str | None, dtype: torch.dtype, size: int
) -> None:
    """Also for statistics of the whole batch and its arguments; an uneven last part; one part larger than the batch."""
    torch.manual_seed(0)
    encoder, loss_fn = Encoder().to(dtype), ContrastiveLoss(strategy, layout=layout, negatives=negatives).to(dtype)
    given = {} if negatives is None else {"keys": torch.arange(B) // 2}
    others = copy.deepcopy((encoder, loss_fn))
    a, b = views(dtype)
    torch.manual_seed(3)
    expected = others[1](parts_of(others[0], a, size), parts_of(others[0], b, size), **given)
    (expected * torch.rand(())).backward()
    after = torch.rand(1)
    torch.manual_seed(3)
    loss = cached_backward(loss_fn, encoder, a, b, mini_batch_size=size, scale=lambda loss: loss * torch.rand(()), **given)
    assert not loss.requires_grad
    assert_close(loss, expected.detach(), dtype)
    assert_close(gradients(encoder, loss_fn), gradients(*others), dtype)
    assert torch.equal(torch.rand(1), after), "the random numbers that follow are those after a plain step"


def test_dictionaries_two_networks_and_appended_hard_negatives() -> None:
    torch.manual_seed(0)
    loss_fn, networks = (
        ContrastiveLoss("learnable", layout="cross-view").double(),
        nn.ModuleList([Encoder(0), Encoder(0)]).double(),
    )
    other_loss, others = copy.deepcopy((loss_fn, networks))
    a, b = views()
    hard, weight = views(rows=2 * B)[0], torch.rand(B, 1, dtype=torch.float64)

    def encode(part: dict[str, Tensor]) -> Tensor:
        return networks[0](part["rows"]) * part["weight"] if "weight" in part else networks[1](part["text"])

    def with_hard(queries: Tensor, documents: Tensor) -> Tensor:
        return loss_fn(queries, documents[:B], hard_negatives=documents[B:].unflatten(0, (B, 2)))

    cached_backward(with_hard, encode, {"rows": a, "weight": weight}, {"text": torch.cat([b, hard])}, mini_batch_size=4)
    found = others[0](a) * weight
    other_loss(found, others[1](b), hard_negatives=others[1](hard).unflatten(0, (B, 2))).backward()
    assert_close(gradients(networks, loss_fn), gradients(others, other_loss))


def test_one_view_checkpoints_inside_the_encoder_and_inputs_with_gradient() -> None:
    torch.manual_seed(0)
    labels = torch.arange(B) % 3
    encoder, loss_fn = Encoder(0.4, checkpoints=True).double(), ContrastiveLoss(layout="labels")
    other = copy.deepcopy(encoder)
    a, c = views()[0].requires_grad_(), views()[0].requires_grad_()
    torch.manual_seed(1)
    cached_backward(loss_fn, encoder, a, mini_batch_size=3, labels=labels)
    torch.manual_seed(1)
    loss_fn(parts_of(other, c, 3), labels=labels).backward()
    assert_close([*gradients(encoder), a.grad], [*gradients(other), c.grad])


def test_scale_accumulates_batches_and_serves_a_gradient_scaler() -> None:
    torch.manual_seed(0)
    encoder, loss_fn = Encoder(0).double(), ContrastiveLoss("learnable", layout="cross-view").double()
    others = copy.deepcopy((encoder, loss_fn))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    batches = [views(), views(rows=2 * B)]
    for a, b in batches:
        loss = cached_backward(loss_fn, encoder, a, b, mini_batch_size=4, scale=lambda loss: scaler.scale(loss / 2))
        plain = others[1](others[0](a), others[0](b))
        assert_close(loss, plain.detach())
        (plain / 2).backward()
    assert_close([gradient / 1024 for gradient in gradients(encoder, loss_fn)], gradients(*others))
    optimizer = torch.optim.SGD([*encoder.parameters(), *loss_fn.parameters()], 0.1)
    scaler.step(optimizer)
    torch.optim.SGD([*others[0].parameters(), *others[1].parameters()], 0.1).step()
    assert_close([*encoder.state_dict().values()], [*others[0].state_dict().values()])


def test_autocast_gives_the_gradients_of_its_plain_step() -> None:
    """Autocast caches the weights that it converts, in the first pass those without a graph."""
    torch.manual_seed(0)
    encoder, loss_fn = Encoder(0), ContrastiveLoss(layout="cross-view")
    other = copy.deepcopy(encoder)
    a, b = views(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        cached_backward(loss_fn, encoder, a, b, mini_batch_size=B)
        loss_fn(other(a), other(b)).backward()
    torch.testing.assert_close(gradients(encoder), gradients(other), rtol=0.01, atol=0.01)  # bfloat16


def test_a_part_that_gets_no_gradient_is_left_alone() -> None:
    encoder = Encoder(0).double()
    a, b = views()
    cached_backward(lambda queries, documents: queries.sum(), encoder, a, b, mini_batch_size=4)
    frozen = Encoder(0).double().requires_grad_(False)
    scale = nn.Parameter(torch.ones((), dtype=torch.float64))
    cached_backward(lambda queries, documents: scale * (queries * documents).sum(), frozen, a, b, mini_batch_size=4)
    assert scale.grad is not None
    assert all(parameter.grad is None for parameter in frozen.parameters())


def refused(**changes: Any) -> Tensor:
    a, b = views()
    given = {"loss_fn": ContrastiveLoss(layout="cross-view"), "encode": Encoder(0).double(), "view_a": a, "view_b": b}
    return cached_backward(**{**given, "mini_batch_size": 4, **changes})


@pytest.mark.parametrize(
    ("error", "words", "changes"),
    [
        (ConfigError, "mini_batch_size=0 must be an integer, at least 1", {"mini_batch_size": 0}),
        (ConfigError, "mini_batch_size=2.5 must be an integer, at least 1", {"mini_batch_size": 2.5}),
        (ConfigError, "mini_batch_size=None must be an integer", {"mini_batch_size": None}),
        (ShapeError, "view_b has 10 rows where view_a has 11", {"view_b": views()[1][1:]}),
        (TensorError, "view_a of type list must be a tensor", {"view_a": [1.0]}),
        (TensorError, "view_b of type dict must be a tensor", {"view_b": {}}),
        (TensorError, r"view_a\['text'\] of type list must be a tensor", {"view_a": {"text": ["a"]}}),
        (TensorError, r"view_a\['size'\] of shape \[\] must be a tensor", {"view_a": {"size": torch.tensor(3)}}),
        (ShapeError, "tensors of view_a .* have: x 3, y 4", {"view_a": {"x": torch.ones(3, 2), "y": torch.ones(4, 2)}}),
        (TensorError, "encode returned tuple", {"encode": lambda rows: (rows, rows)}),
        (ShapeError, r"encode returned shape \[3, 6\] for 4 rows", {"encode": lambda rows: rows[1:]}),
        (ShapeError, r"encode returned shape \[4\] for 4 rows", {"encode": lambda rows: rows.sum(1)}),
        (ShapeError, r"loss_fn returned shape \[11\]", {"loss_fn": ContrastiveLoss(layout="cross-view", reduction="none")}),
    ],
)
def test_bad_arguments_are_refused_in_one_line(error: type[Exception], words: str, changes: dict[str, Any]) -> None:
    with pytest.raises(error, match=words) as raised:
        refused(**changes)
    assert "\n" not in str(raised.value)


class Towers(nn.Module):
    """A network for each view, and the loss, as one module that a DistributedDataParallel wraps."""

    def __init__(self, gather: bool) -> None:
        super().__init__()
        self.towers = nn.ModuleDict({"a": Encoder(0), "b": Encoder(0)})
        self.loss_fn = ContrastiveLoss("learnable", layout="cross-view", gather=gather)

    def forward(self, part: dict[str, Tensor]) -> Tensor:
        ((name, rows),) = part.items()
        return self.towers[name](rows)


def step(rows: slice, gather: bool, finds: bool = False) -> list[Tensor]:
    """Loss and gradients of a plain step of the whole batch, or of this process's share in parts."""
    torch.manual_seed(0)
    module = Towers(gather).double()
    a, b = (view[rows] for view in views(rows=12))
    if not gather:
        loss = module.loss_fn(module({"a": a}), module({"b": b}))
        loss.backward()
        return [loss.detach(), *gradients(module)]
    synchronised: list[int] = []

    def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        synchronised.append(bucket.buffer().numel())
        reduced = dist.all_reduce(bucket.buffer() / 2, async_op=True)
        return reduced.get_future().then(lambda future: future.value()[0])

    wrapped = DistributedDataParallel(module, find_unused_parameters=finds)
    hook.__annotations__.clear()  # torch compares them, and these are strings
    wrapped.register_comm_hook(None, hook)
    for _ in range(2):
        module.zero_grad()
        synchronised.clear()
        given = {"distributed_model": wrapped, "encode": lambda part: wrapped(part)} if finds else {"encode": wrapped}
        loss = cached_backward(module.loss_fn, view_a={"a": a}, view_b={"b": b}, mini_batch_size=2, **given)
        assert sum(synchronised) == sum(parameter.numel() for parameter in module.parameters()), "each number is sent once"
    dist.all_reduce(loss)
    return [loss / 2, *gradients(module)]


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    for finds in (False, True):
        torch.save(step(slice(0, 6) if rank == 0 else slice(6, 12), True, finds), f"{folder}/{rank}{finds}.pt")
    dist.destroy_process_group()


def test_two_processes_synchronise_once_and_equal_one(tmp_path: Path) -> None:
    """Two networks, a learned temperature, and candidates of both processes; the second of two steps."""
    mp.spawn(worker, (str(tmp_path),), nprocs=2)
    whole = step(slice(0, 12), False)
    for name in ("0False", "1False", "0True", "1True"):
        assert_close(torch.load(tmp_path / f"{name}.pt"), whole)
