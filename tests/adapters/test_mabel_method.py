"""``tempplug train mabel`` on generated pairs: a step is the formula's, runs go on bit for bit, faults are named."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from bias_toys import random_model, save
from method_toys import Kill, Killed, weights, without_seconds
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModelForMaskedLM, AutoTokenizer

from tempplug.cli import main
from tempplug_adapters.bias_evaluation.crows_pairs import evaluate_crows_pairs, read_crows_pairs
from tempplug_adapters.bias_evaluation.masked_language_model import load_masked_language_model
from tempplug_adapters.bias_evaluation.stereoset import DEVELOPMENT_FILE, evaluate_stereoset, read_stereoset
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.mabel.method import MabelMethod, MabelModule, Quadruples
from tempplug_adapters.mabel.recipe import METHOD, MabelRecipe
from tempplug_adapters.training.method import Source
from tempplug_adapters.training.train import train
from tempplug_benchmarks.data.gendered_sentences import vocabulary, write_gendered
from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toys")
    write_gendered(folder, pairs=96, seed=0, tested=20)
    save(random_model([*vocabulary(), "her", "him", "his"]), folder / "model")
    write_tiny_encoder(folder / "bare", seed=0, layers=1, width=32, words=vocabulary())
    lines = [*(folder / "pairs.tsv").read_text().splitlines()[:9], "a dog sold .\ta dog .", "the king found her car .\this ."]
    (folder / "mixed.tsv").write_text("\n".join(lines))
    (folder / "list.tsv").write_text((folder / "gender_words.tsv").read_text() + "him\ther\nhis\ther\n")
    (folder / "labels.tsv").write_text(
        "gold_label\tpremise\thypothesis\nentailment\tthe king\tthe man\nneutral\ta queen\tthe king\n"
    )
    (folder / "words.tsv").write_text("premise\tn\n" + "the king\t1\n" * 3)
    (folder / "none.tsv").write_text("premise\thypothesis\n" + "a dog sold\ta dog\n" * 3)
    return folder


def recipe(toys: Path, **changes: Any) -> MabelRecipe:
    small = {"model_name_or_path": str(toys / "model"), "per_device_train_batch_size": 8, "learning_rate": 2e-3}
    return MabelRecipe(**{**small, "num_train_epochs": 1, **changes})


def read(toys: Path, settings: MabelRecipe) -> Quadruples:
    return MabelMethod(METHOD).load(settings, Source(str(toys / "pairs.tsv"), toys, toys))


def run(toys: Path, output: Path, strategy: str = "fixed", **more: Any) -> dict[str, Any]:
    settings = recipe(toys, **{name: more.pop(name) for name in list(more) if name in MabelRecipe.kinds()})
    training = {"save_steps": 5, "logging_steps": 1}
    temperature = TemperatureArguments(strategy, [], None)
    return train(MabelMethod(METHOD), settings, read(toys, settings), temperature, output, training=training, **more)


def module_of(
    toys: Path, spec: str, negatives: str | None = None, items: Sequence[int] = range(6), **changes: Any
) -> tuple[MabelModule, dict[str, Tensor]]:
    """The module with a batch of some quadruples."""
    method, settings = MabelMethod(METHOD), recipe(toys, **changes)
    data = read(toys, settings)
    given = TemperatureArguments(spec, [], None, contrastive_negatives=negatives)
    torch.manual_seed(0)
    module = method.build(settings, data, method.create_loss(settings, data, given))
    return module.train(), method.collate(settings, data, torch.tensor(items))


def expected_terms(module: MabelModule, batch: dict[str, Tensor], temperature: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """The three terms by their formulas, from the sentences' vectors and the model's own loss of masked tokens."""
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    hidden = module.model.encoder.bert(**inputs).last_hidden_state[:, 0]
    p, h, q, k = F.normalize(module.model.head(hidden)).chunk(4)
    cosines = torch.cat([p, q]) @ torch.cat([h, k]).T
    logits = cosines / temperature if temperature else torch.log1p(cosines) - torch.log1p(-cosines)
    contrastive = -logits.log_softmax(1).diagonal().mean()
    alignment = sum((logits[i, :6] - logits[6 + i, 6:]).norm() ** 2 for i in range(6)) / 6
    masked = {"input_ids": batch["mlm_input_ids"], "attention_mask": batch["attention_mask"], "labels": batch["mlm_labels"]}
    return contrastive.detach(), torch.as_tensor(alignment).detach(), module.model.encoder(**masked).loss.detach()


@pytest.mark.parametrize(
    ("spec", "weight"), [("fixed:temperature=0.07", 0.0), ("temperature-free", None), ("macl:alpha=1,threshold=0", 2.0)]
)
def test_the_loss_of_a_batch_is_its_three_terms(toys: Path, spec: str, weight: float | None) -> None:
    """MACL's one temperature follows the positives of all premises; one for each gender would not align equal rows."""
    module, batch = module_of(toys, spec, contrastive_weight=weight, alignment_weight=0.3, mlm_weight=0.2)
    module.eval()  # dropout would tell the two calls apart
    loss, measured = module(**batch), module.measure()
    contrastive, alignment, mlm = expected_terms(module, batch, None if "free" in spec else measured["temperature"])
    torch.testing.assert_close(loss, (1 if weight is None else weight) * contrastive + 0.3 * alignment + 0.2 * mlm)
    found = [measured[name] for name in ("contrastive_loss", "alignment_loss", "mlm_loss")]
    assert found == pytest.approx([float(contrastive), float(alignment), float(mlm)], rel=1e-4)


def test_terms_on_negatives_change_the_contrastive_term_alone(toys: Path) -> None:
    """Two quadruples with equal hypotheses: those of one are no negatives of the other's premises."""
    module, batch = module_of(toys, "fixed:temperature=0.07", "same-key+log-q", items=[1, 2, 5])
    module.text_keys[5, 1::2] = module.text_keys[1, 1::2]  # type: ignore[index]
    plain, _ = module_of(toys, "fixed:temperature=0.07")
    for each in (module, plain):
        each.eval()
        each(**batch)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    p, h, q, k = F.normalize(module.model.head(module.model.encoder.bert(**inputs).last_hidden_state[:, 0])).chunk(4)
    logits = torch.cat([p, q]) @ torch.cat([h, k]).T / 0.07
    for row, copy_of in ((0, 2), (2, 0), (3, 5), (5, 3)):
        logits[row, copy_of] = -torch.inf
    # Nothing is counted in evaluation, so that q is the same for all.
    expected = -logits.detach().log_softmax(1).diagonal().mean()
    assert module.measure()["contrastive_loss"] == pytest.approx(float(expected), rel=1e-4)
    assert module.measure()["alignment_loss"] == plain.measure()["alignment_loss"]


def test_similarities_are_aligned_without_temperature_and_masked_tokens_may_be_absent(toys: Path) -> None:
    module, batch = module_of(toys, "fixed:temperature=0.07", alignment_of="similarities")
    module.eval()
    batch["mlm_labels"].fill_(-100)
    module(**batch)
    assert module.measure()["alignment_loss"] == pytest.approx(float(expected_terms(module, batch, 1.0)[1]), rel=1e-4)
    assert module.measure()["mlm_loss"] == 0


def test_sentences_are_seen_in_order_and_a_batch_masks_all_of_them(toys: Path) -> None:
    settings = recipe(toys, mlm_probability=0.9)
    data = read(toys, settings)
    batch = MabelMethod(METHOD).collate(settings, data, torch.tensor([3, 1]))
    texts = [text.replace(" ", "") for text in data.tokenizer.batch_decode(batch["input_ids"], skip_special_tokens=True)]
    rows = [line.replace(" ", "").split("\t") for line in (toys / "pairs.tsv").read_text().splitlines()]
    assert texts[:4] == [rows[4][0], rows[2][0], rows[4][1], rows[2][1]]
    assert len(texts) == 8
    assert texts[4] != texts[0]
    assert (batch["mlm_labels"] != -100).any(1).all(), "premises, hypotheses and both counterfactuals"


def test_a_premise_and_its_counterfactual_are_examples_of_their_own(toys: Path) -> None:
    module, batch = module_of(toys, "individual")
    before = copy.deepcopy(module.loss_fn.strategy.state_dict())
    module(**batch).backward()
    assert all(each.grad is not None for each in module.parameters())
    after = module.loss_fn.strategy.state_dict()
    moved = [(before[name] != after[name]).nonzero().flatten().tolist() for name in before if before[name].shape == (192,)]
    assert [*range(6), *range(96, 102)] in moved


def test_without_its_loss_the_head_stays_as_it_is(toys: Path) -> None:
    module, batch = module_of(toys, "fixed", mlm_weight=0.0)
    assert "mlm_input_ids" not in batch
    module(**batch).backward()
    for name, each in module.named_parameters():
        assert (each.grad is None) == (not each.requires_grad) == (".cls.predictions." in name and "decoder.weight" not in name)
    assert "mlm_loss" not in module.measure()


def test_all_three_terms_fall_and_a_masked_language_model_is_kept(toys: Path, tmp_path: Path) -> None:
    results = run(toys, tmp_path, "temperature-free", num_train_epochs=3, learning_rate=1e-2)
    logs = [entry for entry in results["history"] if "mlm_loss" in entry]
    for name, share in (("contrastive_loss", 0.99), ("alignment_loss", 0.6), ("mlm_loss", 0.9)):
        first, last = (sum(entry[name] for entry in part) / 6 for part in (logs[:6], logs[-6:]))
        assert last < share * first, name
    kept = AutoModelForMaskedLM.from_pretrained(tmp_path)
    for name, value in weights(tmp_path).items():
        if name.startswith("model.encoder.") and name != "model.encoder.cls.predictions.decoder.bias":
            assert torch.equal(kept.state_dict()[name.removeprefix("model.encoder.")], value), name
    assert AutoTokenizer.from_pretrained(tmp_path).tokenize("The king.") == ["the", "king", "."]
    model = load_masked_language_model(tmp_path, "cpu")
    found, developed = (evaluate_stereoset(model, read_stereoset(toys, *file)) for file in ((), (DEVELOPMENT_FILE,)))
    crows = evaluate_crows_pairs(model, read_crows_pairs(toys), "differing")
    expected = {"stereoset_lm": found.lm, "stereoset_ss": found.ss, "stereoset_icat": found.icat, "crows_pairs": crows.score}
    assert results["evaluation"] == pytest.approx({**expected, "validation_icat": developed.icat})


@pytest.mark.slow
def test_a_killed_run_ends_as_if_it_had_not_been(toys: Path, tmp_path: Path) -> None:
    whole = run(toys, tmp_path / "whole", "individual")
    with pytest.raises(Killed):
        run(toys, tmp_path / "killed", "individual", callbacks=[Kill(8)])
    torch.manual_seed(99)
    again = run(toys, tmp_path / "killed", "individual", resume_from_checkpoint="auto")
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert without_seconds(again) == without_seconds(whole)


def words(toys: Path, output: Path, *more: str) -> list[str]:
    return [
        *("train", "mabel", "--model-name-or-path", str(toys / "model"), "--dataset", str(toys / "pairs.tsv")),
        *("--data-dir", str(toys), "--output-dir", str(output), "--per-device-train-batch-size", "8"),
        *("--max-steps", "2", "--no-evaluate", *more),
    ]


def test_pairs_without_gender_words_are_left_out_and_guesses_counted(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--gender-words", str(toys / "list.tsv"), "--dataset", str(toys / "mixed.tsv")]
    assert main(words(toys, tmp_path, *given)) == 0
    out = capsys.readouterr().out
    assert "9 pairs and their counterfactuals, 1 without gender words left out; ambiguous words: her 1\n" in out
    results = json.loads((tmp_path / "metrics.json").read_text())
    names = ("items", "pairs_without_gender_words", "ambiguous_words")
    assert [results[name] for name in names] == [9, 1, {"her": 1}]


def test_counterfactuals_that_a_file_has_are_kept(toys: Path, tmp_path: Path) -> None:
    (tmp_path / "four.csv").write_text("a,b,c,d,both\n" + "the king sold a car,b,the queen sold a car,the king,1\n" * 3)
    settings = recipe(toys, columns=("a", "b", "c", "d"), max_train_samples=2)
    data = MabelMethod(METHOD).load(settings, Source(str(tmp_path / "four.csv"), None, tmp_path, evaluated=False))
    assert len(data) == 2
    decoded = [data.tokenizer.decode(ids, skip_special_tokens=True) for ids in data.views.rows([0])[0]]
    assert decoded[2:] == ["the queen sold a car", "the king"]
    assert MabelMethod(METHOD).describe(data) == "2 pairs and their counterfactuals; ambiguous words: none"


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--gender-words", "nothing.tsv"], "gender_words='nothing.tsv' is not a file"),
        (["--data-dir", "."], "MABEL's list of words needs gender_words.tsv, which is not in ., its text/bias or its bias"),
        (["--evaluate", "--data-dir", "."], "StereoSet needs stereoset_test_gender_intrasentence.jsonl.gz, which is not in .,"),
        (["--columns", "premise"], "columns=premise must be two names, a pair, or four, with its counterfactual."),
        (["--dataset", "TOYS/labels.tsv"], "differ in their label, column 'gold_label' (such as 'entailment' and 'neutral')"),
        (["--dataset", "TOYS/words.tsv"], "no column is clearly the hypothesis. Name it: --columns hypothesis=COLUMN"),
        (["--dataset", "TOYS/none.tsv"], "holds 0 pairs with a gender word; training needs at least 2."),
        (["--model-name-or-path", "TOYS/bare"], "masked language model with the head that it was pretrained with."),
    ],
)
def test_faults_end_with_one_line(
    toys: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    extra: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words(toys, tmp_path / "out", *(word.replace("TOYS", str(toys)) for word in extra))) == 2
    assert message in capsys.readouterr().err
    if "bare" not in extra[1]:  # a model is loaded after the settings are written
        assert not (tmp_path / "out" / "settings.json").exists()


def test_the_recipe_is_that_of_the_papers(toys: Path) -> None:
    """MABEL's code (run.sh); Kim & Kim 2025, section 5.4, with batches of 16."""
    expected = {"num_train_epochs": 2, "per_device_train_batch_size": 32, "learning_rate": 5e-5, "max_length": 128}
    expected |= {"alignment_weight": 0.05, "mlm_weight": 0.1, "mlm_probability": 0.15, "alignment_of": "logits"}
    own, free = (METHOD.recipe(name).values() for name in ("mabel", "temperature-free"))
    assert own | expected == own
    assert own | {"per_device_train_batch_size": 16} == free
    assert own["model_name_or_path"] == "bert-base-uncased"
    method, settings = MabelMethod(METHOD), recipe(toys)
    data = read(toys, settings)
    specs = {"fixed": "fixed:temperature=0.05", "individual": "individual:size=192,", "amcl": "amcl:dimension=16,"}
    for given, strategy in specs.items():
        loss = method.create_loss(settings, data, TemperatureArguments(given, [], None))
        assert loss.strategy.spec().startswith(strategy)
        assert (loss.objective.name, loss.layout.name) == ("infonce", "cross-view")


def test_without_a_development_set_its_figure_is_absent(toys: Path, tmp_path: Path) -> None:
    (toys / DEVELOPMENT_FILE).unlink()
    assert "validation_icat" not in run(toys, tmp_path, num_train_epochs=0)["evaluation"]
