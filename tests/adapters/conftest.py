"""Small stand-ins shared by the adapters' tests: a tiny BERT with its tokenizer, and a folder with all STS data sets."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel

from tempplug_adapters.sentence_evaluation.sts_data import TASKS
from tempplug_benchmarks.data.tiny_encoder import bert_tokenizer

WORDS = ["a", "the", "man", "woman", "dog", "horse", "plays", "runs", "sleeps", "guitar", "piano", "park", "red", "green", "in"]


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random BERT of two layers, width 16 and 40 positions, in the plain transformers layout."""
    folder = tmp_path_factory.mktemp("tiny-bert")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    bert_tokenizer(folder, tokens).save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
        config = BertConfig(vocab_size=len(tokens), max_position_embeddings=40, initializer_range=0.5, **sizes)
        BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def sts_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file of the seven STS data sets, a dozen random pairs each."""
    folder = tmp_path_factory.mktemp("sts")
    chance = random.Random(0)
    for task in TASKS.values():
        (folder / task.name).mkdir()
        for split in task.splits:
            for file in task.files(split):
                rows = [f"{chance.randrange(500) / 100}\t{_sentence(chance)}\t{_sentence(chance)}" for _ in range(12)]
                (folder / task.name / file).write_text(
                    "score\tsentence1\tsentence2\n" + "\n".join(rows) + "\n", encoding="utf-8"
                )
    return folder


def _sentence(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(2, 15)))


@pytest.fixture(scope="session")
def toy_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small data for every training command, and pretrained models in ``encoder``, ``masked`` and ``clip``."""
    # imported here, as few tests need all of them
    from bias_toys import random_model, save
    from clip_toys import WORDS as CAPTIONS, save_clip, save_pictures
    from graphcl_toys import toy_set
    from molecule_toys import write_files
    from recommendation_toys import walks, write_log
    from simcse_toys import write_toys

    from tempplug_benchmarks.data.gendered_sentences import vocabulary, write_gendered
    from tempplug_benchmarks.tasks.node import citation_graph

    folder = write_files(write_toys(tmp_path_factory.mktemp("toys")))
    write_gendered(folder / "gendered", pairs=32, seed=0, tested=4)
    save(random_model(vocabulary()), folder / "masked")
    save_clip(folder / "clip", [*CAPTIONS, *map(str, range(10))])
    save_pictures(folder / "pictures", count=8, tested=False)
    write_log(folder / "log.csv", walks())
    torch.save(citation_graph(0), folder / "node.pt")
    torch.save(toy_set(40).graphs(), folder / "graphs.pt")
    return folder


@pytest.fixture(scope="session")
def trained_folder(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Gives the output folder of a small training of a method by name, of which tests must change copies only."""
    from trained_toys import DATA, forgotten

    folders: dict[str, Path] = {}

    def of(method: str, data: Path | None = None) -> Path:
        if method not in folders:
            place = tmp_path_factory.mktemp(method)
            folders[method] = forgotten(method, place, toy_data, data or toy_data / DATA.get(method, ""))
        return folders[method]

    return of
