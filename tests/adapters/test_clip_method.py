"""CLIP as a method: its loss beside transformers' own, temperatures from the checkpoint, data, resume and what is written."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from clip_toys import COLOURS, SIZE, WORDS, save_clip, save_pictures, save_siglip
from method_toys import Kill, Killed, weights, without_seconds
from PIL import Image
from torch.nn import functional as F
from transformers import AutoTokenizer, CLIPModel, SiglipModel

from tempplug.errors import ConfigError, DataError, UnknownNameError
from tempplug_adapters.clip.captions import load_pairs
from tempplug_adapters.clip.method import Pairs, recall, zero_shot
from tempplug_adapters.clip.model import Checkpoint
from tempplug_adapters.clip.recipe import METHOD
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.training.method import Run, Source
from tempplug_adapters.training.train import train

PHOTO = ("a photo of a {}.",)
FAST = {"learning_rate": 3e-3, "warmup_steps": 0, "per_device_train_batch_size": 5, "lr_scheduler_type": "constant"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_clip(tmp_path_factory.mktemp("clip"), [*WORDS, *map(str, range(10))])


@pytest.fixture(scope="module")
def siglip(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_siglip(tmp_path_factory.mktemp("siglip"), model)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The library `datasets` keeps tables in a cache of the user's, and tries five times to reach the hub."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        yield


@cache
def load(model: Path, dataset: Path | str, *, evaluated: bool = True, **settings: Any) -> tuple[Any, Any, Pairs]:
    recipe = METHOD.recipe(model_name_or_path=str(model), **{**FAST, **settings})
    method = METHOD.load()
    return method, recipe, method.load(recipe, Source(str(dataset), None, Path(), evaluated))


def loss_of(method: Any, recipe: Any, data: Pairs, strategy: str, objective: str | None = None) -> Any:
    loss = method.create_loss(recipe, data, TemperatureArguments(strategy, [], objective))
    loss.set_progress(epoch=0.0)
    return loss


def run(folder: Path, model: Path, dataset: Path | str, strategy: str | None = None, **more: Any) -> dict[str, Any]:
    settings = {name: more.pop(name) for name in list(more) if name in METHOD.recipe().kinds()}
    method, recipe, data = load(model, dataset, **settings)
    return train(method, recipe, data, TemperatureArguments(strategy, [], None), folder, dataset=str(dataset), **more)


@pytest.mark.parametrize(
    ("kind", "strategy", "tolerance"),
    [
        (CLIPModel, "fixed", 1e-9),
        (CLIPModel, "learnable", 1e-9),
        (SiglipModel, "learnable", 1e-5),  # the temperature is an option, which has the digits of float32
    ],
)
def test_loss_and_gradients_are_those_of_transformers(
    model: Path, siglip: Path, pictures: Path, kind: Any, strategy: str, tolerance: float
) -> None:
    """SigLIP's from its own scale of 112 and bias, with texts of full length and without a mask."""
    folder = siglip if kind is SiglipModel else model
    method, recipe, data = load(folder, pictures)
    # in double precision: in single, sums of another order differ by more than the gradients' small entries
    module = method.build(recipe, data, loss_of(method, recipe, data, strategy)).double()
    batch = method.collate(recipe, data, torch.arange(8))
    loss = module(**batch)
    loss.backward()
    theirs = kind.from_pretrained(folder).double()
    pixels = (batch["pixels"] / 255 - module.mean) / module.std
    texts = {name: batch[name] for name in ("input_ids", "attention_mask") if name in batch}
    assert kind is CLIPModel or (texts.keys() == {"input_ids"} and texts["input_ids"].shape == (8, 12))
    expected = theirs(pixel_values=pixels, **texts, return_loss=True).loss
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=tolerance / 10, abs=1e-12)
    own_names = {"logit_scale": "loss_fn.strategy.log_scale", "logit_bias": "loss_fn.objective.bias"}
    own = dict(module.named_parameters())
    for name, parameter in theirs.named_parameters():
        if name != "logit_scale" or strategy == "learnable":
            found = own[own_names.get(name, f"encoder.{name}")].grad.reshape(parameter.grad.shape)
            torch.testing.assert_close(found, parameter.grad, rtol=tolerance, atol=tolerance / 100)
    unlearned = {name for name, each in module.named_parameters() if not each.requires_grad}
    assert unlearned == {f"encoder.{name}" for name in own_names if name in dict(theirs.named_parameters())}


def test_same_key_leaves_out_equal_captions(model: Path, pictures: Path) -> None:
    method, recipe, data = load(model, pictures)
    given = TemperatureArguments("fixed:temperature=0.1", [], None, contrastive_negatives="same-key")
    module = method.build(recipe, data, method.create_loss(recipe, data, given)).double()
    batch = method.collate(recipe, data, torch.tensor([0, 1, 2, 0, 1, 0]))
    texts = {name: batch[name] for name in ("input_ids", "attention_mask")}
    a, b = (F.normalize(each, dim=1) for each in (module.embed_images(batch["pixels"]), module.embed_texts(**texts)))
    same = (texts["input_ids"][:, None] == texts["input_ids"]).all(2).fill_diagonal_(False)
    assert same.any()
    logits = (a @ b.T / 0.1).masked_fill(same, -torch.inf)
    expected = (F.cross_entropy(logits, torch.arange(6)) + F.cross_entropy(logits.T, torch.arange(6))) / 2
    torch.testing.assert_close(module(**batch), expected)
    assert "logit_scale" in module.exported(**batch)


def test_temperatures_begin_at_that_of_the_checkpoint(model: Path, pictures: Path, tmp_path: Path) -> None:
    made = {
        name: loss_of(*load(model, pictures, evaluated=False), name).strategy
        for name in ("learnable", "fixed", "dystress", "individual", "fixed:temperature=0.3")
    }
    begun = pytest.approx(math.exp(-2))
    assert (made["learnable"].initial_temperature, made["fixed"].temperature) == (begun, begun)
    assert (made["dystress"].temperature_min, made["dystress"].temperature_max) == (pytest.approx(math.exp(-2) / 2), begun)
    assert made["individual"].temperature_min < made["individual"].temperature_init == begun
    assert made["fixed:temperature=0.3"].temperature == 0.3
    # OpenAI's checkpoints have ln 100 in single precision, which is above CLIP's bound by its rounding
    given = load(save_clip(tmp_path / "bound", WORDS, scale=4.6052), pictures, evaluated=False)
    assert loss_of(*given, "learnable").strategy.initial_temperature == 0.01
    assert loss_of(*given, "individual").strategy.temperature_init == 0.01


def test_a_training_is_measured_and_written_as_a_folder_for_transformers(model: Path, pictures: Path, tmp_path: Path) -> None:
    seen = run(tmp_path, model, pictures, num_train_epochs=12)
    assert seen["strategy"].startswith("learnable:initial_temperature=0.1353")
    figures = seen["evaluation"]
    assert figures.keys() == {f"{way}_r{k}" for way in ("image_to_text", "text_to_image") for k in (1, 5, 10)}
    assert figures["image_to_text_r1"] > 50, "by chance it would be 20"
    written = CLIPModel.from_pretrained(tmp_path).requires_grad_(False)
    state = weights(tmp_path)
    assert float(written.logit_scale) == pytest.approx(float(state["loss_fn.strategy.log_scale"]), abs=1e-6)
    for name, value in written.state_dict().items():
        assert name == "logit_scale" or torch.equal(value, state[f"encoder.{name}"]), name
    assert AutoTokenizer.from_pretrained(tmp_path)("a red picture")["input_ids"][-1] == 3
    processor = json.loads((tmp_path / "preprocessor_config.json").read_text())
    assert processor["image_std"] == pytest.approx([0.2686, 0.2613, 0.2758], abs=1e-4)
    assert Checkpoint.read(str(tmp_path)).temperature == pytest.approx(math.exp(-float(written.logit_scale)))


@pytest.mark.parametrize(
    ("strategy", "last"), [("amcl", None), ("fixed:temperature=0.3", 0.3), ("macl:base_temperature=0.3,alpha=2", None)]
)
def test_the_written_scale_is_that_of_the_temperatures_of_training(
    strategy: str, last: float | None, model: Path, pictures: Path, tmp_path: Path
) -> None:
    """Not that of the checkpoint, from which it began; of strategies with many temperatures it is their mean."""
    seen = run(tmp_path, model, pictures, strategy, num_train_epochs=4)
    written, begun = (float(CLIPModel.from_pretrained(folder).logit_scale.detach()) for folder in (tmp_path, model))
    expected = pytest.approx(-math.log(seen["temperature"]["last"]), abs=0.15)
    assert written == (expected if last is None else pytest.approx(-math.log(last)))
    assert abs(written - begun) > 0.04


def test_a_killed_training_goes_on_to_the_same_weights_and_figures(model: Path, pictures: Path, tmp_path: Path) -> None:
    more = {"num_train_epochs": 2, "training": {"save_steps": 2}}
    whole = run(tmp_path / "whole", model, pictures, "learnable", **more)
    with pytest.raises(Killed):
        run(tmp_path / "killed", model, pictures, "learnable", callbacks=[Kill(5)], **more)
    resumed = run(tmp_path / "killed", model, pictures, "learnable", resume_from_checkpoint="auto", **more)
    assert without_seconds(resumed) == without_seconds(whole)
    first, second = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert all(torch.equal(first[name], second[name]) for name in first)
    before = (tmp_path / "killed" / "model.safetensors").read_bytes()
    run(tmp_path / "killed", model, pictures, "learnable", resume_from_checkpoint="auto", **more)
    assert (tmp_path / "killed" / "model.safetensors").read_bytes() == before, "a training that is done writes the same"


def test_every_strategy_has_a_step(model: Path) -> None:
    method, recipe, data = load(model, "digits", count=12, evaluated=False)
    batch = method.collate(recipe, data, torch.arange(12))
    for strategy in ("macl", "dystress", "temperature-free", "schedule", "individual", "head-tail", "amcl"):
        module = method.build(recipe, data, loss_of(method, recipe, data, strategy))
        module(**batch).backward()
        assert module.encoder.text_projection.weight.grad.any()
        assert module.encoder.visual_projection.weight.grad.any()
        assert module.measure()["temperature"] > 0


def test_names_of_classes_are_captions(model: Path) -> None:
    method, recipe, data = load(model, "digits", count=30, test_count=20, templates=("a photo of {}.", "all {}"))
    assert data.train.texts[:2] == ("a photo of 0.", "all 0")
    assert len(data.train.texts) == 20
    label = int(data.train.images.labels[7])
    assert [data.train.texts[each] for each in data.train.captions[7]] == [f"a photo of {label}.", f"all {label}"]
    pixels = method.collate(recipe, data, torch.arange(4))["pixels"]
    assert pixels.shape == (4, 3, 8, 8)
    module = method.build(recipe, data, loss_of(method, recipe, data, "fixed")).eval()
    assert module.embed_images(pixels).shape == (4, 16)
    shares: list[float] = []
    found = method.evaluate(recipe, module, data, Run(Path(), progress=shares.append))
    images, texts = (
        module.embed_images(data.test.images.batch(torch.arange(20))),
        module.embed_texts(**data.checkpoint.padded(data.checkpoint.tokens(data.test.texts))),
    )
    assert found["zero_shot"] == zero_shot(images, data.test.images.labels, texts, data.test.prompts)
    assert found["image_to_text_r5"] == recall(images, texts, data.test.pairs)[5]
    assert found["text_to_image_r5"] == recall(texts, images, data.test.pairs.flip(1))[5]
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_each_of_several_captions_is_drawn(model: Path, pictures: Path) -> None:
    method, recipe, data = load(model, pictures)
    assert data.train.pairs[:4].tolist() == [[0, 0], [0, 1], [1, 2], [1, 3]]
    assert data.train.keys.shape == (20, 2)
    assert len(data.train.texts) == 2 * len(COLOURS)
    torch.manual_seed(0)
    drawn = {int(method.collate(recipe, data, torch.tensor([0, 1]))["attention_mask"][0].sum()) for _ in range(20)}
    assert drawn == {4, 5}, "all red; a red picture"
    apart = load(model, pictures, batch_sampler="no_duplicates")
    assert apart[0].keys(apart[1], apart[2]).shape == (20, 2)
    assert method.keys(recipe, data) is None


@pytest.mark.parametrize(
    ("strategy", "objective", "specs"),
    [
        (None, None, ("learnable:initial_temperature=0.0089", "sigmoid:initial_bias=-16.5,")),
        ("fixed", "sigmoid:relative_bias=true", ("fixed:temperature=0.0089", "sigmoid:initial_bias=0.1468")),
        ("dystress", "sigmoid:initial_bias=-3", ("dystress:temperature_min=0.0044", "sigmoid:initial_bias=-3,")),
        ("individual", None, ("individual:size=20,temperature_init=0.0089", "infonce")),
    ],
)
def test_scale_and_bias_of_siglip_are_written_back(
    strategy: str | None, objective: str | None, specs: tuple[str, str], siglip: Path, pictures: Path, tmp_path: Path
) -> None:
    """Neither clamped nor left as they were; only an objective without a bias leaves that of the checkpoint."""
    method, recipe, data = load(siglip, pictures, num_train_epochs=1, learning_rate=1e-3)
    given = TemperatureArguments(strategy, [], objective)
    seen = train(method, recipe, data, given, tmp_path, dataset=str(pictures))
    assert [seen["strategy"][: len(specs[0])], seen["objective"][: len(specs[1])]] == list(specs)
    written, state = SiglipModel.from_pretrained(tmp_path).requires_grad_(False), weights(tmp_path)
    scale, bias = written.logit_scale.exp().item(), written.logit_bias.item()
    if strategy is None:
        assert 100 < scale == pytest.approx(state["loss_fn.strategy.log_scale"].exp().item(), rel=1e-6)
    if specs[1] == "infonce":
        assert bias == -16.5
    else:
        learned = state["loss_fn.objective.bias"].item()
        assert bias != -16.5
        assert bias == pytest.approx(-scale * learned if objective and "relative" in objective else learned, rel=1e-5)
    again = Checkpoint.read(str(tmp_path))
    assert (again.temperature, again.bias) == pytest.approx((1 / scale, bias))


def test_faults_are_named(model: Path, tiny_bert: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is a BertModel and has no get_text_features\. Wanted is a dual encoder"):
        Checkpoint.read(str(tiny_bert))
    (tmp_path / "train").mkdir()
    Image.new("RGB", (SIZE, SIZE)).save(tmp_path / "train" / "0.png")
    for dataset, row, error, message in [
        (
            str(tmp_path),
            {"place": 3},
            ConfigError,
            r"metadata\.jsonl: no column is clearly the caption\. Name it: --caption-column COLUMN",
        ),
        (str(tmp_path), {"id": "a", "label": "b"}, ConfigError, "no column is clearly the caption"),
        (
            str(tmp_path),
            {"text": "a", "title": "b"},
            ConfigError,
            "could each be the caption. Choose one: --caption-column text",
        ),
        (str(tmp_path), {"text": ""}, ConfigError, r"no column is clearly the caption.* 'text' \(missing, without values\)"),
        ("cifar1O", {}, UnknownNameError, r"no data set 'cifar1O'\. Did you mean 'cifar10'\?"),
        ("no-one/nothing", {}, DataError, "no-one/nothing cannot be loaded as images with captions"),
    ]:
        (tmp_path / "train" / "metadata.jsonl").write_text(json.dumps({"file_name": "0.png", **row}) + "\n")
        with pytest.raises(error, match=message):
            load_pairs(dataset, "train", None, size=SIZE, templates=PHOTO)
    with pytest.raises(ConfigError, match=r"templates='a photo' must have one \{\}, the place of a class's name"):
        load(model, "digits", templates=("a photo",))


def test_a_set_may_be_without_a_test_part_and_of_parquet(model: Path, tmp_path: Path) -> None:
    method, recipe, data = load(model, save_pictures(tmp_path / "pictures", tested=False))
    assert data.test is None
    assert method.evaluate(recipe, None, data, Run(Path())) == {}
    assert method.describe(data) == "20 images, 10 captions"
    rows = datasets.Dataset.from_dict(
        {"image": [Image.new("RGB", (SIZE, SIZE), colour) for colour in COLOURS.values()], "caption": list(COLOURS)},
        features=datasets.Features({"image": datasets.Image(), "caption": datasets.Value("string")}),
    )
    rows.to_parquet(tmp_path / "table" / "train.parquet")
    pairs = load_pairs(str(tmp_path / "table"), "train", None, size=SIZE, templates=PHOTO, count=3)
    assert pairs is not None
    assert len(pairs) == 3
    for position, (text,) in enumerate(pairs.captions):
        assert pairs.images.batch(torch.tensor([position]))[0, :, 0, 0].tolist() == list(COLOURS[pairs.texts[text]])


@pytest.mark.filterwarnings("ignore:.*is used in its place:UserWarning")
def test_an_image_that_cannot_be_read_gets_no_caption_of_another(model: Path, tmp_path: Path) -> None:
    folder = save_pictures(tmp_path / "pictures")
    for split, name in (("train", "3.png"), ("test", "1.png")):
        (folder / split / name).write_bytes(b"no picture")
    method, recipe, data = load(model, folder)
    assert data.test is not None
    batch = method.collate(recipe, data, torch.arange(6))
    assert torch.equal(batch["pixels"][3], batch["pixels"][4])
    assert "white" in data.train.texts[int(batch["keys"][3])], "the caption of the image in its place"
    module = method.build(recipe, data, loss_of(method, recipe, data, "fixed")).eval()
    found = method.evaluate(recipe, module, data, Run(Path()))
    rows = [json.loads(line) for line in (folder / "test" / "metadata.jsonl").read_text().splitlines()]
    (folder / "test" / "metadata.jsonl").write_text(
        "".join(f"{json.dumps(row)}\n" for row in rows if row["file_name"] != "1.png")
    )
    assert found == method.evaluate(recipe, module, load(model, folder)[2], Run(Path()))
