"""CLIP as a method: trains a pretrained dual encoder on images and texts in both directions, and saves it for transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tempplug.arguments import parse_spec
from tempplug.errors import DataError
from tempplug.options import format_spec
from tempplug_adapters.clip.captions import CaptionedImages, load_pairs
from tempplug_adapters.clip.model import Checkpoint, DualEncoder, load_dual_encoder
from tempplug_adapters.clip.recipe import ClipRecipe
from tempplug_adapters.contexts import Temperatures
from tempplug_adapters.data_files.roles import Assigned
from tempplug_adapters.data_files.text_rows import open_texts
from tempplug_adapters.encoder_checks import check_finite_rows
from tempplug_adapters.huggingface.arguments import TemperatureArguments
from tempplug_adapters.huggingface.loading import own_model
from tempplug_adapters.images.image_data import DEFAULT_SIZE, Split, as_images, files_of, find_images, notes_of, tables_of
from tempplug_adapters.images.image_set import ImageSet
from tempplug_adapters.modes import Progress, silent
from tempplug_adapters.storage.files import write_into
from tempplug_adapters.storage.fingerprint import grouped
from tempplug_adapters.training.method import FOLDER, Card, Inputs, Method, Run, Source
from tempplug_adapters.training.optimizer import Treatment
from tempplug_adapters.training.recipe import around

_BATCH = 256
"""Images or texts per forward pass of evaluations."""
AT = (1, 5, 10)
"""Ranks of the recall."""
_CHUNK = 2**24
"""Most similarities in memory at once."""


class Pairs:
    """The data of a training; its length is the number of training images.

    Args:
        checkpoint: of the pretrained model.
        train: images with captions.
        test: others, or None.
    """

    def __init__(self, checkpoint: Checkpoint, train: CaptionedImages, test: CaptionedImages | None) -> None:
        self.checkpoint, self.train, self.test = checkpoint, train, test
        self.tokens = checkpoint.tokens(train.texts)

    def __len__(self) -> int:
        return len(self.train)


class ClipMethod(Method[ClipRecipe, Pairs]):
    """Contrasts the images and texts of a batch with each other; the loss is the mean of both directions.

    A checkpoint with a ``logit_bias`` (SigLIP, SigLIP 2) is trained with ``sigmoid`` by default, from its own scale and bias.

    Source: Radford et al. 2021, Learning Transferable Visual Models From Natural Language Supervision; Zhai et al. 2023,
    Sigmoid Loss for Language Image Pre-Training.
    """

    def load(self, recipe: ClipRecipe, source: Source) -> Pairs:
        """Returns training images and, if there are any, test images with captions, and the checkpoint's settings."""
        checkpoint = Checkpoint.read(recipe.model_name_or_path, recipe.max_length)
        common: dict[str, Any] = {name: getattr(recipe, name) for name in ("templates", "seed")}
        common |= {"size": checkpoint.image_size, "columns": recipe.table_columns}
        train = load_pairs(source.dataset, "train", source.data_dir, count=recipe.count, **common)
        assert train is not None  # its absence is an error
        test_options = {**common, "count": recipe.test_count}
        test = load_pairs(source.dataset, "test", source.data_dir, **test_options) if source.evaluated else None
        return Pairs(checkpoint, train, test)

    def files(self, recipe: ClipRecipe, source: Source, data: Pairs) -> dict[str, Path | str]:
        """Returns the files of the images and captions of both splits."""
        parts: dict[Split, CaptionedImages | None] = {"train": data.train, "test": data.test}
        files: dict[str, Path | str] = {}
        for split, part in parts.items():
            read = {} if part is None else files_of(part.images, source.dataset, split, source.data_dir)
            files |= grouped(f"dataset {split}", read)
        return files

    def tables(self, data: Pairs) -> Sequence[Assigned]:
        """Returns the table of the captions, if there is one."""
        return tables_of(data.train.images)

    def describe(self, data: Pairs) -> str:
        """Returns the numbers of images and captions."""
        tested = "" if data.test is None else f", {len(data.test)} images to be measured with"
        return f"{len(data)} images, {len(data.train.texts)} captions{tested}{notes_of(data.train.images)}"

    def known(self, recipe: ClipRecipe, data: Pairs) -> dict[str, Any]:
        """Returns the number of images, the width of the embeddings, and the number of images of each class."""
        labels = data.train.images.labels
        counts = {} if labels is None else {"class_counts": labels.bincount(minlength=len(data.train.prompts)).tolist()}
        return {"size": len(data), "dimension": data.checkpoint.dimension, **counts}

    def keys(self, recipe: ClipRecipe, data: Pairs) -> np.ndarray | None:
        """Returns numbers of the captions if no batch may have a caption twice, else None."""
        return data.train.keys if recipe.batch_sampler == "no_duplicates" else None

    def offered(self, data: Pairs) -> frozenset[str]:
        """Returns ``index``, and ``keys`` of the captions."""
        return frozenset({"index", "keys"})

    def create_loss(self, recipe: ClipRecipe, data: Pairs, temperature: TemperatureArguments, *, gather: bool = False) -> Any:
        """Returns the loss of the flags; default temperatures, and those of SigLIP objective and bias, are the checkpoint's."""
        checkpoint = data.checkpoint
        loss = replace(recipe.loss, temperatures=_around(checkpoint))
        if checkpoint.bias is not None:
            # iSogCLR has no form without a softmax.
            loss = replace(loss, objective="sigmoid", objectives={"individual": "infonce"})
            default = loss.objective_of(temperature.temperature_strategy or loss.strategy)
            name, options = parse_spec(temperature.contrastive_objective or default)
            if name == "sigmoid":
                own = -checkpoint.bias * checkpoint.temperature if options.get("relative_bias") else checkpoint.bias
                temperature = replace(temperature, contrastive_objective=format_spec(name, {"initial_bias": own} | options))
        return super().create_loss(replace(recipe, loss=loss), data, temperature, gather=gather)

    def build(self, recipe: ClipRecipe, data: Pairs, loss: Any) -> DualEncoder:
        """Returns the pretrained model with its loss."""
        return DualEncoder(own_model(load_dual_encoder(recipe.model_name_or_path), recipe.encoder), data.checkpoint, loss)

    def treatment(self, recipe: ClipRecipe, name: str, parameter: nn.Parameter) -> Treatment:
        """Returns the optimizer settings: no weight decay of gains and biases."""
        return Treatment(decays=parameter.ndim > 1)

    def collate(self, recipe: ClipRecipe, data: Pairs, index: Tensor) -> dict[str, Any]:
        """Returns images as bytes, each with one of its captions, drawn at random."""
        images, chosen = data.train.images, torch.rand(len(index)).tolist()
        pixels = images.batch(index)
        own = [data.train.captions[images.stand_ins.get(position, position)] for position in index.tolist()]
        drawn = [each[int(draw * len(each))] for each, draw in zip(own, chosen, strict=True)]
        labels = None if images.labels is None else images.labels[index]
        texts = data.checkpoint.padded([data.tokens[each] for each in drawn])
        return {"index": index, "pixels": pixels, "labels": labels, "keys": torch.tensor(drawn), **texts}

    @torch.no_grad()
    def evaluate(self, recipe: ClipRecipe, module: Any, data: Pairs, run: Run) -> dict[str, float]:
        """Returns percentages on the test set: recall at 1, 5 and 10 both ways, and zero-shot accuracy if it has classes.

        Images that cannot be read are left out.
        """
        if data.test is None:
            return {}
        test = data.test
        share = len(test) / (len(test) + len(test.texts))
        images = self._of_images(module, test.images, lambda done: run.progress(share * done))
        texts = self._of_texts(module, test.texts, lambda done: run.progress(share + (1 - share) * done))
        read = torch.tensor([position not in test.images.stand_ins for position in range(len(test))])
        pairs = test.pairs[read[test.pairs[:, 0]]]
        images, pairs[:, 0] = images[read], read.cumsum(0)[pairs[:, 0]] - 1
        found = {f"image_to_text_r{k}": value for k, value in recall(images, texts, pairs).items()}
        found |= {f"text_to_image_r{k}": value for k, value in recall(texts, images, pairs.flip(1)).items()}
        if test.prompts and test.images.labels is not None:
            found["zero_shot"] = zero_shot(images, test.images.labels[read], texts, test.prompts)
        run.progress(1.0)
        return found

    def _of_images(self, module: Any, images: ImageSet, progress: Progress = silent) -> Tensor:
        device = next(module.parameters()).device
        return _in_batches(len(images), lambda index: module.embed_images(images.batch(index).to(device)), progress)

    def _of_texts(self, module: Any, texts: Sequence[str], progress: Progress = silent) -> Tensor:
        device, tokens = next(module.parameters()).device, module.checkpoint.tokens(texts)

        def embed(index: Tensor) -> Tensor:
            padded = module.checkpoint.padded([tokens[position] for position in index.tolist()])
            rows: Tensor = module.embed_texts(**{name: value.to(device) for name, value in padded.items()})
            return rows

        return _in_batches(len(tokens), embed, progress)

    def kept(self, recipe: ClipRecipe, module: Any, data: Pairs) -> dict[str, Any]:
        """Returns what happens to images and texts, and the names of the classes, if the images have any."""
        checkpoint = data.checkpoint
        normalised = {name: checkpoint.processor[f"image_{name}"] for name in ("mean", "std")}
        sizes = {"image_size": checkpoint.image_size, "max_length": checkpoint.max_length}
        return {"labels": list(data.train.images.classes), "preprocessing": {"range": [0, 1], **normalised, **sizes}}

    def reopened(self, recipe: ClipRecipe, folder: Path) -> ClipRecipe:
        """Returns the recipe with the trained model as the pretrained one."""
        return recipe.changed(model_name_or_path=str(folder))

    def restore(self, recipe: ClipRecipe, kept: Mapping[str, Any], folder: Path) -> DualEncoder:
        """Returns the model of the folder."""
        return DualEncoder(load_dual_encoder(str(folder)), Checkpoint.read(str(folder), recipe.max_length), None)

    def read(self, recipe: ClipRecipe, source: Source, split: Any) -> Inputs:
        """Returns the lines of a ``.txt`` file as texts; else image files, or the images of a split of a data set."""
        word = source.dataset
        if word.endswith((".txt", ".txt.gz")):
            texts = [sample.anchor for sample in open_texts(word, whole=True, least=1)]
            return Inputs(texts, texts)

        def load() -> ImageSet:
            size = Checkpoint.read(recipe.model_name_or_path, recipe.max_length).image_size
            columns = recipe.table_columns
            pairs = load_pairs(word, split, source.data_dir, size=size, templates=recipe.templates, columns=columns)
            if pairs is None:
                raise DataError(f"'{word}' has no test set: pass --split train.")
            return pairs.images

        return Inputs(*find_images(word, DEFAULT_SIZE, load))

    def embed(self, recipe: ClipRecipe, module: Any, given: Any) -> Tensor:
        """Returns the embeddings [n, D] of texts, or of images: a set, bytes or paths (`pathlib.Path`)."""
        if isinstance(given, list | tuple) and given and all(isinstance(each, str) for each in given):
            return self._of_texts(module, given)
        return self._of_images(module, as_images(given, DEFAULT_SIZE))

    def card(self, recipe: ClipRecipe, module: Any, data: Pairs, results: Mapping[str, Any]) -> Card:
        """Returns the text on dual encoders."""
        return Card(
            about="A dual encoder: images and texts that belong together have vectors of a high cosine similarity.",
            example='["a photo of a dog."]',
            use="Images are given as paths. transformers opens the folder, too, with tokenizer, preprocessing and the trained "
            f"`logit_scale`:\n\n```python\n{_USE}\n```",
            base=recipe.model_name_or_path,
            metadata={"library_name": "transformers", "pipeline_tag": "zero-shot-image-classification"},
        )

    def save(self, recipe: ClipRecipe, module: Any, data: Pairs, output_dir: Path) -> None:
        """Writes model, with the trained temperature, tokenizer and processor as a folder for transformers."""
        device = next(module.parameters()).device
        with torch.random.fork_rng(devices=[]):  # the same pairs, whether the training was interrupted or not
            torch.manual_seed(recipe.seed)
            batch = self.collate(recipe, data, torch.randperm(len(data))[:_BATCH])
        state = module.exported(**{name: None if each is None else each.to(device) for name, each in batch.items()})

        def write(folder: Path) -> None:
            module.encoder.save_pretrained(folder, state_dict=state)
            data.checkpoint.save(folder)

        write_into(output_dir, write)


_USE = f"""from pathlib import Path

from transformers import AutoModel

images = model.embed([Path("image.jpg")])
network = AutoModel.from_pretrained({FOLDER})"""


def _in_batches(size: int, embed: Callable[[Tensor], Tensor], progress: Progress) -> Tensor:
    """Returns rows [size, D] in float32 or more that a function computes from positions [b]."""
    rows = []
    for index in torch.split(torch.arange(size), _BATCH):
        rows.append(embed(index).float())
        progress((int(index[-1]) + 1) / size)
    found = torch.cat(rows)
    check_finite_rows(found, "the vectors")
    return found


def _around(checkpoint: Checkpoint) -> Temperatures:
    temperature = checkpoint.temperature
    learnable = {"initial_temperature": temperature} | ({} if checkpoint.bias is None else {"max_scale": None})
    # The lowest temperature of iSogCLR is 0.05 by default, which is above CLIP's temperatures.
    individual = {"temperature_init": temperature, "temperature_min": temperature / 2}
    return around(temperature, learnable=learnable, individual=individual)


@torch.no_grad()
def recall(anchors: Tensor, candidates: Tensor, pairs: Tensor) -> dict[int, float]:
    """Returns the percentage of anchors with an own candidate among their k most similar ones, by k of `AT`.

    A rank is the number of other candidates that are at least as similar as the best own one, so ties and NaN count as misses.
    Anchors without a candidate are left out.

    Args:
        anchors: [N, D] raw embeddings.
        candidates: [M, D] raw embeddings.
        pairs: [P, 2] int64, each an anchor and one of its candidates.

    >>> eye = torch.eye(3)
    >>> recall(eye, eye.roll(1, 0), torch.tensor([[0, 1], [1, 2], [2, 2]]))[1]
    66.66666666666667
    """
    anchors, candidates = (F.normalize(each.float(), dim=1) for each in (anchors, candidates))
    ranks = []
    for rows in torch.split(torch.arange(len(anchors)), max(1, _CHUNK // max(1, len(candidates)))):
        inside = pairs[(pairs[:, 0] >= rows[0]) & (pairs[:, 0] <= rows[-1])].to(anchors.device)
        own = torch.zeros(len(rows), len(candidates), dtype=torch.bool, device=anchors.device)
        own[inside[:, 0] - rows[0].item(), inside[:, 1]] = True
        similarity = anchors[rows[0] : rows[-1] + 1] @ candidates.T
        best = similarity.masked_fill(~own, -torch.inf).amax(1, keepdim=True)
        ranks.append(((~(similarity < best)) & ~own).sum(1)[own.any(1)])
    found = torch.cat(ranks)
    return {k: 100 * int((found < k).sum()) / max(1, len(found)) for k in AT}


@torch.no_grad()
def zero_shot(images: Tensor, labels: Tensor, texts: Tensor, prompts: tuple[tuple[int, ...], ...]) -> float:
    """Returns the zero-shot accuracy in percent; a class is the mean of its unit prompt embeddings (CLIP, section 3.1.4)."""
    texts = F.normalize(texts.float(), dim=1)
    classes = torch.stack([texts[list(each)].mean(0) for each in prompts])
    return recall(images, classes, torch.stack([torch.arange(len(labels)), labels.cpu()], 1))[1]
