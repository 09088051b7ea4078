"""``tempplug plot``: curves are the strategies' formulas, pictures are files without a date, wrong input is named."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread

import tempplug
from tempplug.cli import main
from tempplug.errors import ConfigError
from tempplug_benchmarks.plot import curves, draw

NEEDED = {name: f"{name}:class_counts=450/270/162" for name in ("head-tail", "mm-ts")}
NEEDED["by-group"] = "by-group:temperatures=0.05/0.1"
# Their temperature belongs to embeddings or to an example, not to a similarity.
WITHOUT_CURVE = ("amcl", "individual", "tempnet")


@pytest.mark.slow
def test_every_built_in_strategy_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "curves.png"
    for name in (info.name for info in tempplug.strategies() if info.name not in WITHOUT_CURVE):
        assert main(["plot", NEEDED.get(name, name), "--output", str(out)]) == 0
        assert capsys.readouterr().out == f"wrote {out}\n"
        picture = imread(out)
        assert picture.shape[1] > 1500
        assert 0.01 < float((picture[..., :3].min(axis=2) < 0.9).mean()) < 0.5, f"{name} is neither blank nor black"


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_ending_chooses_the_format_and_there_is_no_date(
    suffix: str, start: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for day in ("0", "1000000000"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", day)  # the day that matplotlib writes
        found = [curve for spec in ("fixed", "dystress:detach=false,temperature_min=0.01") for curve in curves(spec)]
        draw(found, tmp_path / f"{day}.{suffix}", "none")
        made.append((tmp_path / f"{day}.{suffix}").read_bytes())
    assert made[0] == made[1]
    assert made[0].startswith(start)


def test_curves_are_the_formulas() -> None:
    (fixed,) = curves("fixed:temperature=0.05")
    assert torch.allclose(fixed.logit, fixed.similarity / 0.05)
    assert torch.allclose(fixed.temperature, torch.full_like(fixed.similarity, 0.05))
    assert torch.allclose(fixed.gradient, torch.full_like(fixed.similarity, 20.0))
    (free,) = curves("temperature-free")
    middle = free.similarity.abs() < 0.99
    assert torch.allclose(free.logit[middle], 2 * torch.atanh(free.similarity[middle]))
    (curve,) = curves("dystress:detach=false")
    numeric = torch.gradient(curve.logit, spacing=(curve.similarity,))[0]
    assert torch.allclose(curve.gradient[1:-1], numeric[1:-1], rtol=1e-3, atol=1e-2)
    spec = "macl:base_temperature=0.05,alpha=2,threshold=0.8"
    temperatures = [float(curves(spec, positive_similarity=a)[0].temperature[0]) for a in (0.8, 0.9)]
    assert temperatures == pytest.approx([0.05, 0.06])
    schedule = "schedule:temperature_min=0.1,temperature_max=1,period=10"
    temperatures = [float(curves(schedule, epoch=epoch)[0].temperature[0]) for epoch in (0, 5)]
    assert temperatures == pytest.approx([1.0, 0.1])


def test_a_map_that_differs_among_anchors_is_drawn_for_each_kind() -> None:
    head, tail = curves("head-tail:class_counts=450/270/162,temperature_head=1,temperature_tail=0.1")
    assert (head.label.endswith("classes 0, 1"), tail.label.endswith("class 2")) == (True, True)
    assert (float(head.temperature[0]), float(tail.temperature[0])) == pytest.approx((1.0, 0.1))
    by_uncertainty = {curve.label: float(curve.temperature[0]) for curve in curves("uncertainty:base_temperature=0.1")}
    expected = {f"uncertainty:base_temperature=0.1, u = {u}": 0.1 * (1 + math.exp(-u)) for u in (-2, 0, 2)}
    assert by_uncertainty == pytest.approx(expected)


def test_a_strategy_that_needs_embeddings_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Needy(tempplug.Strategy):
        name = "needy"

        def prepare(self, batch: tempplug.Batch) -> tempplug.LogitMap:
            raise self.missing("the embeddings", "anchors")

    monkeypatch.setattr("tempplug_benchmarks.plot.create_strategy", lambda spec: Needy())
    with pytest.raises(ConfigError, match=r"'needy' cannot be drawn .* strategy 'needy' needs the embeddings"):
        curves("needy")
