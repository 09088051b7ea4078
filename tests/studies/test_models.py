"""The models of `studies.train_cells` that are no word vectors, on real texts, nodes and images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from studies import views
from studies.cells import Cell
from studies.texts import encode, load_bert
from studies.train_cells import train
from studies.views import load_nodes
from tempplug.errors import DataError


def test_a_bert_starts_pretrained_or_random_and_is_the_mean_of_its_states(data_dir: Path) -> None:
    whole = load_bert("quora", "quora", data_dir, 200)
    data = replace(whole, measured=dict.fromkeys(("held_out", "test"), whole.measured["held_out"]))
    cell, arm = Cell(passes=1, batch=64, noise=0.2, hard=True, start="pretrained"), "fixed:temperature=0.05"
    own = train(data, cell, arm, 0)
    assert own == train(data, cell, arm, 0), "also after a training, which must not change the pretrained network"
    assert own["held_out"] != train(data, replace(cell, start="random"), arm, 0)["held_out"]
    with pytest.raises(DataError, match="start='vectors' of a cell must be one of pretrained, random for this model"):
        train(data, replace(cell, start="vectors"), arm, 0)
    # A text alone, without padding, has the same embedding.
    model = data.model("pretrained", torch.Generator()).eval()
    together = encode(model, data.documents)[:3]
    for row in range(3):
        one = data.documents.of(torch.tensor([row]))
        hidden = model.network(one.words[None]).last_hidden_state[0]
        torch.testing.assert_close(together[row], hidden.mean(0).detach(), rtol=1e-4, atol=1e-5)
    # In bfloat16 its vectors are float32 and differ by a share of about 2⁻⁸.
    rough = encode(replace(data, bf16=True).model("pretrained", torch.Generator()), data.documents)[:3]
    assert rough.dtype == torch.float32
    assert 1e-4 < (rough - together).norm() / together.norm() < 0.02


def test_copied_nodes_are_seen_in_another_view(data_dir: Path) -> None:
    data = load_nodes("Cora", "", data_dir, 0)
    rows, copied = torch.tensor([3, 5, 3]), torch.tensor([False, False, True])
    model = data.model("random", torch.Generator())
    inputs = data.inputs(rows, copied, True, torch.Generator())
    first, other, repeated = model(inputs["view_a"])
    assert not torch.allclose(first, repeated)
    expected = model.grace([inputs["view_a"].view], model.features)[0][[3, 5]]
    torch.testing.assert_close(torch.stack([first, other]), expected)
    assert torch.equal(inputs["hard_negatives"].rows, data.hard[rows])
    assert inputs["hard_negatives"].view is inputs["view_b"].view
    plain = data.inputs(rows, torch.zeros(3, dtype=torch.bool), False, torch.Generator())
    assert [*plain] == ["view_a", "view_b"]
    assert plain["view_a"].again is None
    cell = Cell(passes=1, batch=512, noise=0.1, hard=True, start="random")
    found = train(data, cell, "fixed:temperature=0.5", 0)
    assert found == train(data, cell, "fixed:temperature=0.5", 0)
    assert 30 < found["test"] < 100, "far above one class in seven"


def test_images_are_trained_on_and_measured(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MEASURED", 200), ("TESTED", 200), ("LABELLED", 256), ("EPOCHS", 1)):
        monkeypatch.setattr(views, name, value)
    data = views.load_image_views.__wrapped__("cifar10", "tiny-imagenet", data_dir, 256)
    assert len(data) == 256
    rows, copied = torch.tensor([3, 5, 3]), torch.tensor([False, False, True])
    inputs = data.inputs(rows, copied, True, torch.Generator())
    assert {name: tuple(each.shape) for name, each in inputs.items()} == dict.fromkeys(
        ("view_a", "view_b", "hard_negatives"), (3, 3, 16, 16)
    )
    assert not torch.equal(inputs["view_a"][0], inputs["view_a"][2]), "a copy is another random view"
    cell = Cell(passes=1, batch=64, start="pretrained")
    found = [train(data, each, "fixed:temperature=0.1", 0) for each in (cell, cell, replace(cell, start="random"))]
    assert found[0] == found[1] != found[2]
    # No image is both trained on, held out or in the test.
    pixels = [images.batch(torch.arange(len(images))) for images in (data.trained, *data.measured.values())]
    assert len({each.numpy().tobytes() for part in pixels for each in part}) == sum(map(len, pixels))
