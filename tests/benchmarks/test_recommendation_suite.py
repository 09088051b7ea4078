from __future__ import annotations

from pathlib import Path

import pytest
from suite_checks import bench, read, run_context

from tempplug.errors import DataError
from tempplug_adapters.recommendation.dcrec_recipe import METHOD
from tempplug_adapters.recommendation.recipe import METHOD as SASREC
from tempplug_benchmarks.papers import load
from tempplug_benchmarks.tasks import recommendation
from tempplug_benchmarks.tasks.recommendation import SUITE


@pytest.mark.parametrize(
    ("method", "metric", "printed", "deviation"),
    [("Baseline", "HR@1", 13.36, 0.12), ("Ours", "HR@5", 37.41, 0.15), ("Baseline", "NDCG@10", 30.31, 0.08)],
)
def test_cells_stand_as_printed(method: str, metric: str, printed: float, deviation: float) -> None:
    cells = [cell for cell in load("recommendation").cells if (cell.method, cell.metric) == (method, f"{metric} sampled")]
    assert [(cell.value, cell.std) for cell in cells] == [(printed, deviation)]


def test_an_arm_without_a_strategy_is_the_transformer_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    monkeypatch.setattr(recommendation, "run_method", lambda context: ran.append(context) or {})  # type: ignore[func-returns-value]
    for label in ("sasrec", "untrained", "macl+infonce"):
        recommendation.run_recommender(run_context(SUITE, tmp_path, label, "quick", "reddit", seed=3))
    assert [each.method for each in ran] == [SASREC, SASREC, METHOD]
    shared = ran[2].recipe.values()
    assert all(shared[name] == value for name, value in ran[0].recipe.values().items()), "the same settings"
    assert ran[0].recipe.seed == 3
    assert ran[1].recipe.num_train_epochs == 0


def test_movielens_is_read_as_it_is_downloaded(tmp_path: Path) -> None:
    folder = tmp_path / "recsys" / "ml-20m"
    folder.mkdir(parents=True)
    rows = [f"{user},{10 * item},{4.5},{1_000_000 + item}" for user in range(30) for item in range(user % 4, 8)]
    (folder / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + "\n".join(rows) + "\n")
    recipe, data = read(SUITE.task("ml-20m").profile("paper"), tmp_path, tmp_path)
    assert (data.user_count, data.item_count, len(data.items)) == (30, 8, len(rows))
    assert (recipe.num_train_epochs, recipe.per_device_train_batch_size) == (300, 512)
    (folder / "ratings.csv").write_text("userId,movieId,rating,timestamp\n1,2,3.5,now\n")
    with pytest.raises(DataError, match=r"ratings\.csv, line 2: column 'timestamp' is 'now'"):
        read(SUITE.task("ml-20m").profile("paper"), tmp_path, tmp_path)


def test_real_data_are_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "recommendation", "--profile", "small", "--output", str(tmp_path / "out"), "--data-dir", str(tmp_path)]
    assert bench(words) == 2
    assert "needs recsys/reddit.tar.xz" in capsys.readouterr().err
