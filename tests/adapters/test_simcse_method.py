"""``tempplug train simcse`` on generated sentences: a step is the formula's, runs go on bit for bit, recipes have sources."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from method_toys import Kill, Killed, weights, without_seconds
from safetensors.torch import load_file
from simcse_toys import read, recipe, run, write_toys
from torch import Tensor
from torch.nn import functional as F
from transfer_toys import write_tables
from transformers import AutoModelForMaskedLM, AutoTokenizer

from tempplug.cli import main
from tempplug.errors import DataError, UnknownNameError
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.sentence_evaluation.encoder import load_encoder
from tempplug_adapters.sentence_evaluation.sts import evaluate_sts, evaluate_stsb
from tempplug_adapters.sentence_evaluation.transfer import evaluate_transfer
from tempplug_adapters.simcse.method import SimCSEMethod, SimCSEModule
from tempplug_adapters.simcse.recipe import METHOD
from tempplug_adapters.training.method import RESAMPLED_FILE, Run, Source

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toys(tmp_path_factory.mktemp("toys"))


@pytest.fixture(scope="module")
def masked(toys: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tiny encoder with a head for masked tokens."""
    folder = tmp_path_factory.mktemp("masked")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForMaskedLM.from_pretrained(toys / "encoder").save_pretrained(folder)
    AutoTokenizer.from_pretrained(toys / "encoder").save_pretrained(folder)
    return str(folder)


def words(toys: Path, output: Path, file: str, *more: str) -> list[str]:
    return [
        *("train", "simcse", "--model-name-or-path", str(toys / "encoder"), "--dataset", str(toys / file)),
        *("--data-dir", str(toys / "sts"), "--output-dir", str(output)),
        *("--per-device-train-batch-size", "16", *more),
    ]


def module_of(
    toys: Path, file: str, spec: str, negatives: str | None = None, items: Sequence[int] = range(12), **changes: Any
) -> tuple[SimCSEModule, dict[str, Tensor]]:
    """The module with a batch of some samples."""
    method, settings = SimCSEMethod(METHOD), recipe(toys, **changes)
    data = read(toys, file, settings)
    loss = method.create_loss(settings, data, TemperatureArguments(spec, [], None, contrastive_negatives=negatives))
    torch.manual_seed(0)
    return method.build(settings, data, loss).train(), method.collate(settings, data, torch.tensor(items))


def test_the_loss_of_a_batch_is_simcses_cross_entropy(toys: Path) -> None:
    module, batch = module_of(toys, "sentences.txt", "fixed:temperature=0.07")
    torch.manual_seed(1)
    loss = module(**batch)
    torch.manual_seed(1)
    index = batch.pop("index")
    a, b = F.normalize(module.model(**batch)["embedding"]).chunk(2)
    assert torch.equal(index, torch.arange(12))
    assert not torch.allclose(a, b), "dropout must tell the views apart"
    torch.testing.assert_close(loss, F.cross_entropy(a @ b.T / 0.07, index))
    decays = {name: SimCSEMethod(METHOD).treatment(recipe(toys), name, each).decays for name, each in module.named_parameters()}
    assert decays == {name: name.endswith("weight") and "LayerNorm" not in name for name in decays}


def test_hard_negatives_and_masked_tokens_join_the_loss(toys: Path, masked: str) -> None:
    changes = {"model_name_or_path": masked, "mlm_weight": 0.3, "dropout": 0.0, "pooling": "avg"}
    module, batch = module_of(toys, "triplets.csv", "fixed:temperature=0.1", **changes)
    with torch.no_grad():
        found = module.model(**{name: value for name, value in batch.items() if name != "index"})
    a, b, hard = F.normalize(found["embedding"]).chunk(3)
    expected = F.cross_entropy(a @ torch.cat([b, hard]).T / 0.1, torch.arange(12)) + 0.3 * found["mlm_loss"]
    torch.testing.assert_close(module(**batch), expected)
    measured = module.measure()
    assert measured["alignment"] == pytest.approx(float((a - b).square().sum(1).mean()), rel=1e-4)
    assert measured["temperature"] == pytest.approx(0.1)


@pytest.mark.parametrize(("file", "views"), [("sentences.txt", 2), ("triplets.csv", 3)])
def test_same_key_leaves_out_the_text_of_the_positive(toys: Path, file: str, views: int) -> None:
    """Samples that stand in a batch twice, and a hard negative that is the positive of the sample before."""
    items = [5, 6, 5, 7]
    given = {"negatives": "same-key", "items": items, "dropout": 0.0, "pooling": "avg"}
    module, batch = module_of(toys, file, "fixed:temperature=0.1", **given)
    with torch.no_grad():
        found = module.model(**{name: value for name, value in batch.items() if name != "index"})
    a, b, *hard = F.normalize(found["embedding"]).chunk(views)
    logits = a @ torch.cat([b, *hard]).T / 0.1
    texts = [tuple(row[row > 0].tolist()) for row in batch["input_ids"].chunk(views)[1]]
    candidates = texts + [tuple(row[row > 0].tolist()) for row in batch["input_ids"].chunk(views)[-1]] * (views - 2)
    same = torch.tensor([[text == other for other in candidates] for text in texts])
    same[:, :4].fill_diagonal_(False)
    assert int(same.sum()) == (2 if views == 2 else 5)
    expected = F.cross_entropy(logits.masked_fill(same, -torch.inf), torch.arange(4))
    torch.testing.assert_close(module(**batch), expected)
    assert not any("text_keys" in name for name in module.state_dict())


def test_terms_on_negatives_are_said_logged_and_those_of_a_resumed_run(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    terms = ["--contrastive-negatives", "log-q+same-key+false-negatives:margin=0.1"]
    more = words(toys, tmp_path, "sentences.txt", *("--eval-strategy", "no", "--logging-steps", "2", "--save-steps", "2"))
    assert main([*more, "--max-steps", "4", *terms]) == 0
    spec = "log-q:size=160+same-key+false-negatives:margin=0.1,rule=absolute,weight=0,blocks=none"
    assert f"\nnegatives {spec}\nlayout cross-view\n" in capsys.readouterr().out
    results = json.loads((tmp_path / "metrics.json").read_text())
    assert results["negatives"] == spec
    logged = [entry for entry in results["history"] if "loss" in entry]
    assert all(0 <= entry["negatives_left_out"] < 1 < entry["negative_weight"] for entry in logged)
    assert f"| negatives | `{spec}` |" in (tmp_path / "README.md").read_text()
    (tmp_path / "metrics.json").unlink()
    again = [*more, "--max-steps", "4", "--resume-from-checkpoint", "auto"]
    assert main(again) == 2
    assert f"negatives=None differs from the checkpoint's {spec}" in capsys.readouterr().err
    assert main([*again, *terms]) == 0
    assert without_seconds(json.loads((tmp_path / "metrics.json").read_text())) == without_seconds(results)


def test_a_run_reports_and_keeps_an_encoder(toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--pooling", "avg", "--temperature-strategy", "macl", "--learning-rate", "1e-3"]
    more += ["--eval-steps", "5", "--save-steps", "5", "--logging-steps", "5"]
    assert main(words(toys, tmp_path, "triplets.csv", *more)) == 0
    out = capsys.readouterr().out
    for shown in (
        "strategy macl:base_temperature=0.05,alpha=2,threshold=0.8",
        "objective infonce",
        "triplets.csv: 160 triplets",
    ):
        assert shown in out
    results = json.loads((tmp_path / "metrics.json").read_text())
    assert (results["steps"], results["items"]) == (10, 160)
    logged = next(entry for entry in results["history"] if "loss" in entry)
    assert {"temperature", "positive_similarity", "negative_similarity", "gradient_scale"} <= set(logged)
    assert not {"uniformity", "alignment", "infonce", "floor_hits"} & set(logged)
    assert {"uniformity", "alignment"} <= set(results["course"])
    evaluated = [entry["eval_stsb_dev"] for entry in results["history"] if "eval_stsb_dev" in entry]
    assert results["evaluation"] == {"stsb_dev": max(evaluated)}
    assert out.splitlines()[-2].split() == ["stsb_dev", f"{max(evaluated):.4g}"]
    encoder = load_encoder(tmp_path)
    assert encoder.pooling == "avg"
    assert evaluate_stsb(encoder, toys / "sts") == pytest.approx(max(evaluated))


def test_the_encoder_that_is_kept_is_the_best_not_the_last(toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([3.0, 2.0, 1.0])
    monkeypatch.setattr(SimCSEMethod, "evaluate", lambda *given: {"stsb_dev": next(scores)})
    run(toys, tmp_path)
    best, last = (torch.load(tmp_path / f"checkpoint-{step}/pytorch_model.bin") for step in (5, 10))
    name = "embeddings.word_embeddings.weight"
    kept = load_file(tmp_path / "model.safetensors")[name]
    assert torch.equal(kept, best[f"model.encoder.{name}"])
    assert not torch.equal(kept, last[f"model.encoder.{name}"])


def test_at_the_end_sts_and_transfer_tasks_are_measured(
    toys: Path, tmp_path: Path, sts_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempplug_adapters.simcse.method.RESAMPLES", 20)
    settings = recipe(toys, tasks=("sts", "TREC", "SST2"), pooling="cls_before_pooler")
    write_tables(tmp_path / "transfer")
    (tmp_path / "sts").symlink_to(sts_folder)
    method = SimCSEMethod(METHOD)
    data = method.load(settings, Source(str(toys / "pairs.tsv"), tmp_path, tmp_path))
    module = method.build(settings, data, None)
    during = method.evaluate(settings, module, data, Run(tmp_path, final=False))
    assert during.keys() == {"stsb_dev"}
    assert not (tmp_path / RESAMPLED_FILE).exists()
    encoder = load_encoder(toys / "encoder", "cls_before_pooler")
    sts = evaluate_sts(encoder, sts_folder, resamples=20)
    transfer = evaluate_transfer(encoder, tmp_path, ["TREC", "SST2"]).accuracy
    expected = {name.lower(): value for name, value in (sts.spearman | transfer).items()}
    expected |= {**during, "sts_average": sts.average, "transfer_average": sum(transfer.values()) / 2}
    found = method.evaluate(settings, module, data, Run(tmp_path))
    assert found == pytest.approx(expected)
    assert json.loads((tmp_path / RESAMPLED_FILE).read_text())["sts_average"] == pytest.approx(sts.resampled, abs=1e-4)
    for tasks, kind, message in (
        (("MR",), DataError, "holds none of"),
        (("STS12",), DataError, "STS12"),
        (("STS11",), UnknownNameError, "unknown task 'STS11'. Did you mean 'STS1"),
    ):
        with pytest.raises(kind, match=message):
            method.load(recipe(toys, tasks=tasks), Source(str(toys / "pairs.tsv"), toys / "sts", tmp_path))


def test_further_flags_train(toys: Path, masked: str, tmp_path: Path) -> None:
    more = ["--max-steps", "3", "--eval-strategy", "no", "--model-name-or-path", masked, "--mlm-weight", "0.1", "--bf16"]
    more += ["--dropout", "0.2", "--max-length", "8", "--max-train-samples", "50"]
    assert main(words(toys, tmp_path, "sentences.txt", *more)) == 0
    assert json.loads((tmp_path / "metrics.json").read_text())["items"] == 50
    assert all(torch.isfinite(value).all() for value in load_file(tmp_path / "model.safetensors").values())


SCHEDULE = "schedule:shape=triangle,temperature_min=0.03,temperature_max=0.2,period=0.4"


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "step"), [(SCHEDULE, 6), ("individual", 13)])
def test_a_killed_run_ends_as_if_it_had_not_been(toys: Path, tmp_path: Path, strategy: str, step: int) -> None:
    whole = run(toys, tmp_path / "whole", strategy=strategy, num_train_epochs=2)
    with pytest.raises(Killed):
        run(toys, tmp_path / "killed", strategy=strategy, num_train_epochs=2, callbacks=[Kill(step)])
    torch.manual_seed(99)
    again = run(toys, tmp_path / "killed", strategy=strategy, num_train_epochs=2, resume_from_checkpoint="auto")
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    kept, again_kept = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    assert all(torch.equal(kept[name], again_kept[name]) for name in kept)
    assert without_seconds(again) == without_seconds(whole)
    assert len({entry["temperature"] for entry in whole["history"] if "temperature" in entry}) > 1


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--dataset", "nothing.txt"], "nothing.txt does not exist"),
        (["--model-name-or-path", "./nothing"], "cannot be loaded"),
        (["--data-dir", "nowhere"], "--data-dir nowhere is not a folder."),
        (["--tasks", "sts"], "STS12"),
        (["--tasks", "MRR"], "unknown task 'MRR'. Did you mean 'MR"),
        (["--max-train-samples", "1"], "max_train_samples=1 must be an integer, at least 2."),
        (["--max-length", "2"], "max_length=2 must be an integer, at least 3."),
        (["--dropout", "1"], "dropout=1 must be at least 0 and less than 1."),
        (["--columns", "a"], "pairs.tsv has no column 'a'. It has: 'anchor' (text, such as"),
        (["--where", "a"], "where='a' must be written column=value."),
        (["--contrastive-negatives", "guide"], "'guide' reads guide=, which `tempplug train simcse` does not have: leave"),
        (["--contrastive-negatives", "same-kye"], "unknown negative term 'same-kye'. Did you mean 'same-key'?"),
        (["--save-steps", "7", "--eval-steps", "5"], "transformers refuses the training arguments"),
    ],
)
def test_faults_end_with_one_line(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str], message: str
) -> None:
    assert main(words(toys, tmp_path, "pairs.tsv", *extra)) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.rstrip().splitlines()[-1].startswith("error: ")
    assert "Traceback" not in err
    assert not list(tmp_path.glob("checkpoint-*"))


def test_sts_data_are_looked_for_before_the_training_and_only_where_they_are_needed(toys: Path, tmp_path: Path) -> None:
    nothing = ["--data-dir", str(tmp_path), "--max-steps", "2", "--tasks", "STS13"]
    never = ["--eval-strategy", "no", "--no-evaluate"]
    for needed in (never[:2], never[2:]):
        assert main(words(toys, tmp_path / "run", "pairs.tsv", *nothing, *needed)) == 2
    assert not (tmp_path / "run" / "settings.json").exists()
    assert main(words(toys, tmp_path / "run", "pairs.tsv", *nothing, *never)) == 0


def test_the_temperatures_are_those_of_the_papers(toys: Path) -> None:
    """SimCSE, appendix A; MACL, appendix B.4; DySTreSS, section 4 and table 5."""
    method, settings = SimCSEMethod(METHOD), recipe(toys, num_train_epochs=3)
    data = read(toys, "pairs.tsv", settings)
    for given, strategy in {
        "schedule": "schedule:shape=cosine,temperature_min=0.025,temperature_max=0.1,period=0.6,",
        "learnable": "learnable:initial_temperature=0.05,",
        "individual": "individual:size=160,temperature_init=0.05,temperature_min=0.025,",
        "amcl": "amcl:dimension=32,",
    }.items():
        loss = method.create_loss(settings, data, TemperatureArguments(given, [], None))
        assert loss.strategy.spec().startswith(strategy)
        assert (loss.objective.name, loss.layout.name) == ("infonce", "cross-view")


BERT, ROBERTA = "bert-base-uncased", "roberta-base"
FIXED, MACL = "fixed:temperature=0.05", "macl:base_temperature=0.05,alpha=2,threshold=0.8,floor_ratio=0.1,strict=false"
# Epochs, batch, learning rate, encoder, whether the MLP is left out in the end, strategy.
PAPERS = {
    "unsupervised-bert": (1, 64, 3e-5, BERT, True, FIXED),
    "unsupervised-roberta": (1, 512, 1e-5, ROBERTA, True, FIXED),
    "supervised-bert": (3, 512, 5e-5, BERT, False, FIXED),
    "supervised-roberta": (3, 512, 5e-5, ROBERTA, False, FIXED),
    "macl-bert": (1, 64, 3e-5, BERT, True, MACL),
    "macl-roberta": (1, 64, 1e-5, ROBERTA, True, MACL),
    "dystress-bert": (1, 64, 3e-5, BERT, True, "dystress:temperature_min=0.03,temperature_max=0.05,profile=cosine,"),
}
SHORT = ["--max-steps", "2", "--eval-strategy", "no", "--save-strategy", "no"]


@pytest.mark.parametrize("name", PAPERS)
def test_a_recipe_is_that_of_its_paper(name: str) -> None:
    assert list(METHOD.recipes) == list(PAPERS)
    recipe, values = METHOD.recipe(name), METHOD.recipe(name).values()
    fields = ("num_train_epochs", "per_device_train_batch_size", "learning_rate", "model_name_or_path", "mlp_only_train")
    assert tuple(values[field] for field in fields) == PAPERS[name][:-1]
    assert (values["pooling"], values["max_length"], values["dropout"]) == ("cls", 32, None)
    assert [values[each] for each in ("lr_scheduler_type", "warmup_steps", "weight_decay")] == ["linear", 0, 0]
    assert recipe.running["eval_steps"] == 125
    assert recipe.training()["max_grad_norm"] == 1, "the default of the Trainer that the authors' code uses"
    assert PAPERS[name][-1].startswith(recipe.loss.strategy)


@pytest.mark.parametrize(
    ("name", "flags", "strategy"),
    [
        ("supervised-bert", [], FIXED),
        ("dystress-bert", [], PAPERS["dystress-bert"][-1]),
        ("macl-roberta", [], MACL),
        ("macl-bert", ["--temperature-args", "alpha=1"], "macl:base_temperature=0.05,alpha=1,threshold=0.8"),
        ("macl-bert", ["--temperature-strategy", "fixed"], FIXED),
    ],
)
def test_a_recipe_trains_and_flags_come_before_its_strategy(
    toys: Path, tmp_path: Path, name: str, flags: list[str], strategy: str
) -> None:
    file = "triplets.csv" if name.startswith("supervised") else "sentences.txt"
    assert main(words(toys, tmp_path, file, "--recipe", name, *SHORT, *flags)) == 0
    results = json.loads((tmp_path / "metrics.json").read_text())
    assert results["strategy"].startswith(strategy)
    assert (results["objective"], results["steps"]) == ("infonce", 2)
    encoder = load_encoder(tmp_path)
    assert encoder.pooling == ("cls" if name.startswith("supervised") else "cls_before_pooler")
    assert evaluate_stsb(encoder, toys / "sts") == pytest.approx(results["evaluation"]["stsb_dev"], abs=1e-4)
    card = (tmp_path / "README.md").read_text()
    assert f"| strategy | `{results['strategy']}` |" in card
    assert f"| STS-B dev | {results['evaluation']['stsb_dev']:.2f} |" in card


@pytest.mark.slow
def test_thirty_steps_on_real_entailment_pairs_raise_stsb_dev(data_dir: Path, tmp_path: Path) -> None:
    model = data_dir / "text/bert-wiki-mini"
    given = ["--model-name-or-path", str(model), "--dataset", str(data_dir / "text/nli/nli_pairs.tsv.gz"), "--data-dir"]
    given += [str(data_dir), "--columns", "premise", "hypothesis", "--where", "label=entailment", "--pooling", "avg", *SHORT]
    given += ["--learning-rate", "6e-4", "--max-steps", "30", "--temperature-strategy", "macl"]
    assert main(["train", "simcse", *given, "--output-dir", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "metrics.json").read_text())
    assert results["items"] == 20600
    assert results["evaluation"]["stsb_dev"] > 65.5, "untrained it is 60.5"
