"""The ranking losses: `fixed` equals the library's own, alone and wrapped, and what the losses refuse."""

from __future__ import annotations

import copy
import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from covering import every_pair
from moving import Moving
from sentence_transformer_toys import features, gradients, read, tiny
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import dot_score, euclidean_sim
from tokenizers import Tokenizer, models
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoTokenizer, set_seed

import tempplug
from tempplug.errors import ConfigError, ShapeError, UnknownNameError
from tempplug_adapters.sentence_transformers import CachedTemperatureRankingLoss, TemperatureRankingLoss
from tempplug_adapters.sentence_transformers.columns import text_keys, token_rows
from tempplug_adapters.sentence_transformers.library import CachedLossMixin, losses as library, modules
from tempplug_benchmarks.data.tiny_encoder import bert_tokenizer

FORWARD, BACKWARD, QUERIES, DOCS = "query_to_doc", "doc_to_query", "query_to_query", "doc_to_doc"
BOTH: dict[str, Any] = {"directions": (FORWARD, BACKWARD), "partition_mode": "per_direction"}
OTHERS = [way for count in range(4) for way in itertools.combinations((QUERIES, BACKWARD, DOCS), count)]
WAYS: list[dict[str, Any]] = [BOTH, *({"directions": (FORWARD, *way)} for way in OTHERS)]
HARDNESS: list[dict[str, Any]] = [
    {},
    *({"hardness_mode": f"{mode}_negatives", "hardness_strength": 5.0} for mode in ("in_batch", "hard", "all")),
]

BY_TOKENS = hasattr(CachedLossMixin, "mini_batch_num_tokens")
"""Whether the installed library splits batches by tokens."""


@pytest.fixture(scope="module")
def model(tiny_bert: Path) -> SentenceTransformer:
    return tiny(tiny_bert).double()


def value_and_gradients(model: nn.Module, loss: Any, columns: int) -> tuple[float, dict[str, torch.Tensor]]:
    model.zero_grad()
    set_seed(0)  # wrappers sample dimensions and layers
    value = loss(features(model, columns=columns), None)
    value.backward()
    return value.item(), gradients(model)


def assert_same(model: nn.Module, ours: Any, theirs: nn.Module, columns: int = 3) -> None:
    (value, own), (expected, others) = (value_and_gradients(model, loss, columns) for loss in (ours, theirs))
    assert value == pytest.approx(expected, abs=1e-9, rel=1e-9)
    assert own.keys() == others.keys()
    for name, gradient in own.items():
        torch.testing.assert_close(gradient, others[name], atol=1e-9, rtol=1e-6)


def of_embeddings(engine: Any = "auto", **options: Any) -> list[Any]:
    """Our loss and the library's, as functions of the embeddings by column."""
    ours = TemperatureRankingLoss(nn.Identity(), engine=engine, **options)
    theirs = library.MultipleNegativesRankingLoss(nn.Identity(), **options)  # type: ignore[arg-type]
    return [each.compute_loss_from_embeddings for each in (ours, theirs)]


def made_rows(columns: int, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    """Of lengths around 1, so that dot products and distances are no larger than cosines."""
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(9, 24, generator=generator, dtype=dtype) / 5).requires_grad_() for _ in range(columns)]


def assert_close(found: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float) -> None:
    """Losses relatively, and gradients relatively to the largest of all."""
    for part in (slice(0, 1), slice(1, None)):
        ours, theirs = (torch.cat([each.detach().flatten() for each in all_of[part]]) for all_of in (found, expected))
        assert float((ours - theirs).abs().max() / theirs.abs().max()) <= tolerance


def test_fixed_equals_the_librarys_loss_of_embeddings() -> None:
    """With any number of hard negatives, in all directions, hardness modes and similarities, by either engine."""
    cosines = every_pair(WAYS, HARDNESS, [{}], [torch.float64, torch.float32], [2, 3, 5], ["tiled", "dense"])
    scores = [{"scale": 0.7, "similarity_fct": function} for function in (dot_score, euclidean_sim)]
    others = every_pair([{}, BOTH], HARDNESS[::3], scores, [torch.float64], [2, 4], ["auto"])
    for way, hardness, similarity, dtype, columns, engine in cosines + others:
        ours, theirs = of_embeddings(engine, **way, **hardness, **similarity)
        rows = made_rows(columns, dtype)
        exact = [each.detach().double().requires_grad_() for each in rows]  # in float32 the library itself is off by 1e-6
        both = [[value := loss(of, None), *torch.autograd.grad(value, of)] for loss, of in ((ours, rows), (theirs, exact))]
        assert_close(*both, 1e-10 if dtype == torch.float64 else 1e-6)


def test_fixed_equals_the_librarys_loss(model: SentenceTransformer) -> None:
    """Of pairs, of a hard negative and of several; as a spec, as a scale and by default; cached too."""
    for columns, given, options in (
        (2, {"strategy": "fixed:temperature=0.05"}, BOTH),
        (3, {"scale": 20}, {**WAYS[-1], **HARDNESS[2]}),
        (4, {}, {"similarity_fct": dot_score}),
    ):
        ours, cached = (kind(model, **given, **options) for kind in (TemperatureRankingLoss, CachedTemperatureRankingLoss))
        cached.mini_batch_size = 5
        theirs = library.CachedMultipleNegativesRankingLoss(model, scale=20, mini_batch_size=5, **options)
        assert_same(model, ours, library.MultipleNegativesRankingLoss(model, scale=20, **options), columns)
        assert_same(model, cached, theirs, columns)
    assert ours.get_config_dict()["similarity_fct"] == "dot_score"


def of_an_encoder(loss: Any, rows: list[torch.Tensor]) -> torch.Tensor:
    """Value and gradient of a linear encoder, [1 + 24·24]."""
    encoder = torch.eye(24, dtype=torch.float64).requires_grad_()
    value = loss([each.detach() @ encoder for each in rows], None)
    return torch.cat([value.detach().reshape(1), *torch.autograd.grad(value, encoder)[0]])


def gathered(rank: int, folder: str) -> None:
    """Two processes with half of the rows each; the first one keeps the mean of their losses and gradients."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    found = []
    for way, hardness, columns in every_pair(WAYS, HARDNESS, [2, 4]):
        means = []
        for loss in of_embeddings(gather_across_devices=True, **way, **hardness):
            means.append(of_an_encoder(loss, [each[:8][4 * rank : 4 * rank + 4] for each in made_rows(columns)]) / 2)
            dist.all_reduce(means[-1])
        found.append(means)
    if rank == 0:
        torch.save(found, Path(folder) / "found.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_gathered_over_two_processes_it_is_the_librarys_and_that_of_one(tmp_path: Path) -> None:
    mp.spawn(gathered, (str(tmp_path),), nprocs=2)
    cases = every_pair(WAYS, HARDNESS, [2, 4])
    for (way, hardness, columns), (ours, theirs) in zip(cases, torch.load(tmp_path / "found.pt"), strict=True):
        alone = of_an_encoder(of_embeddings(**way, **hardness)[0], [each[:8] for each in made_rows(columns)])
        for other in (theirs, alone):
            torch.testing.assert_close(ours, other, rtol=1e-10, atol=1e-12)


def other_words(folder: Path, tiny_bert: Path) -> SentenceTransformer:
    """Returns the tiny BERT with the words of its vocabulary in another order."""
    shutil.copytree(tiny_bert, folder)
    words = list(AutoTokenizer.from_pretrained(tiny_bert).get_vocab())
    bert_tokenizer(folder, words[:5] + words[:4:-1]).save_pretrained(folder)
    return tiny(folder)


@pytest.mark.filterwarnings("ignore:.*without a negative:RuntimeWarning")
def test_a_guide_equals_the_librarys_gist_loss(model: SentenceTransformer, tiny_bert: Path, tmp_path: Path) -> None:
    """With every kind of margin; cached, the guide and the model see parts of the batch, and the loss all of it."""
    guides = tiny(tiny_bert), other_words(tmp_path / "guide", tiny_bert)
    for parameter in (each for guide in guides for each in guide.parameters()):
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    margins: list[tuple[str, dict[str, Any]]] = [
        ("guide", {}),
        ("guide:margin=-0.05", {"margin": 0.05}),
        ("guide:margin=-0.1", {"margin": 0.1}),
        ("guide:margin=-0.05,rule=relative", {"margin": 0.05, "margin_strategy": "relative"}),
    ]

    def gist(guide: Any, way: tuple[str, ...], cached: bool, options: dict[str, Any]) -> nn.Module:
        kind = library.CachedGISTEmbedLoss if cached else library.GISTEmbedLoss
        contrasts = {"contrast_anchors": QUERIES in way, "contrast_positives": DOCS in way}
        return kind(model, guide, temperature=0.05, **options, **contrasts, **({"mini_batch_size": 5} if cached else {}))

    for guide, (negatives, options), way, (columns, cached) in every_pair(
        guides,
        margins,
        [(FORWARD,), (FORWARD, QUERIES), (FORWARD, DOCS), (FORWARD, QUERIES, DOCS)],
        [(2, False), (2, True), (3, False), (3, True)],
        # of hard negatives the library has only the first direction
        allowed=lambda guide, margin, way, batch: batch[0] == 2 or way == (FORWARD,),
    ):
        kind = CachedTemperatureRankingLoss if cached else TemperatureRankingLoss
        sizes = {"mini_batch_size": 5} if cached else {}
        ours = kind(model, "fixed:temperature=0.05", negatives=negatives, guide=guide, directions=way, **sizes)
        assert_same(model, ours, gist(guide, way, cached, options), columns)
        assert 0 < ours.contrastive_loss.record.negatives_left_out.item() < 1
        assert ours._of_rows == {}
        assert all(each is not parameter for each in guide.parameters() for parameter in ours.parameters())
    layout = "cross-view:directions=ab+aa+bb,hard=ab"
    core = tempplug.ContrastiveLoss("fixed:temperature=0.05", layout=layout, negatives="guide")

    def of_the_core(features: list[dict[str, torch.Tensor]], labels: None) -> torch.Tensor:
        names = ("view_a", "view_b", "hard_negatives")
        own, guided = ([each(dict(column))["sentence_embedding"] for column in features] for each in (model, guides[0]))
        return core(**dict(zip(names, own, strict=True)), guide=dict(zip(names, guided, strict=True)))

    assert_same(model, of_the_core, gist(guides[0], (FORWARD, QUERIES, DOCS), False, {}))


def test_same_key_leaves_out_the_texts_that_equal_the_positive(model: SentenceTransformer) -> None:
    """Of padded, flattened and StaticEmbedding's batches; the number is that of masks made of the texts."""
    texts = {
        "anchor": ["man runs", "dog sleeps", "man runs", "horse runs in park"],
        "positive": ["woman", "red dog", "green park", "woman"],
        "negative": ["green park", "woman", "piano", "red dog"],
    }
    for cached in (False, True):
        kind = CachedTemperatureRankingLoss if cached else TemperatureRankingLoss
        loss = kind(model, "fixed:temperature=0.05", negatives="same-key")
        batch = [read(model, column) for column in texts.values()]
        found = loss([dict(each) for each in batch], None)
        a, *others = (nn.functional.normalize(model(dict(each))["sentence_embedding"], dim=1) for each in batch)
        logits = a @ torch.cat(others).T / 0.05
        candidates = texts["positive"] + texts["negative"]
        for row, positive in enumerate(texts["positive"]):
            for column, candidate in enumerate(candidates):
                if candidate == positive and column != row:
                    logits[row, column] = -torch.inf
        assert found.item() == pytest.approx(nn.functional.cross_entropy(logits, torch.arange(4)).item(), rel=1e-9)
    rows = [[3, 4], [5], [3, 4], [6, 7, 8]]
    flat = torch.tensor([token for row in rows for token in row])
    padded = torch.tensor([[0] * (3 - len(row)) + row for row in rows])
    columns: list[dict[str, torch.Tensor]] = [
        {"input_ids": padded, "attention_mask": (padded > 0).long()},
        {"input_ids": flat[None], "cu_seq_lens_q": torch.tensor([0, 2, 3, 5, 8])},
        {"input_ids": flat, "offsets": torch.tensor([0, 2, 3, 5])},
    ]
    assert [token_rows(column) for column in columns] == [rows] * 3
    first, _, third, _ = text_keys(rows).tolist()
    assert first == third
    assert len(set(text_keys(rows).tolist())) == 3


def test_fixed_equals_the_librarys_loss_inside_its_wrappers(model: SentenceTransformer) -> None:
    plain = TemperatureRankingLoss(model, "fixed:temperature=0.05"), library.MultipleNegativesRankingLoss(model)
    kinds = CachedTemperatureRankingLoss, library.CachedMultipleNegativesRankingLoss
    for inner in (plain, [kind(model, mini_batch_size=5) for kind in kinds]):
        assert_same(model, *(library.MatryoshkaLoss(model, loss, [16, 8, 4], [1.0, 0.5, 0.25]) for loss in inner))
    assert_same(model, *(library.AdaptiveLayerLoss(model, loss) for loss in plain))
    assert_same(model, *(library.Matryoshka2dLoss(model, loss, [16, 8]) for loss in plain))


@pytest.mark.parametrize("strategy", ["learnable:initial_temperature=0.1", "macl"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["alone", "in Matryoshka"])
def test_the_cached_loss_equals_the_plain_one_and_its_gradients(
    model: SentenceTransformer, strategy: str, wrapped: bool
) -> None:
    """The weights of Matryoshka, and whatever factor the loss gets later, reach the temperature's gradient too."""
    found = []
    for kind, options in (
        (TemperatureRankingLoss, {}),
        (CachedTemperatureRankingLoss, {"mini_batch_size": 5}),
        *([(CachedTemperatureRankingLoss, {"mini_batch_num_tokens": 20})] if BY_TOKENS else []),
    ):
        loss = kind(model, strategy, **options)
        loss.take_charge()
        whole = library.MatryoshkaLoss(model, loss, [16, 8], [1.0, 0.5]) if wrapped else loss
        model.zero_grad()
        value = 0.25 * whole(features(model), None)
        assert gradients(loss.contrastive_loss) == {}
        value.backward()
        found.append((value.item(), gradients(model), gradients(loss.contrastive_loss)))
    plain, weights, own = found[0]
    assert list(own) == (["strategy.log_scale"] if strategy.startswith("learnable") else [])
    for cached, *others in found[1:]:
        assert cached == pytest.approx(plain, rel=1e-9)
        for first, second in zip((weights, own), others, strict=True):
            assert first.keys() == second.keys()
            for name, gradient in first.items():
                torch.testing.assert_close(second[name], gradient, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("wrapper", ["alone", "in mini-batches", "MatryoshkaLoss", "AdaptiveLayerLoss", "Matryoshka2dLoss"])
def test_under_a_checkpoint_each_call_of_a_batch_has_the_state_of_its_first_computation(
    model: SentenceTransformer, wrapper: str
) -> None:
    """A loss for each of several dimensions and layers, of the same texts."""
    results = []
    for checkpointed in (False, True):
        kind = CachedTemperatureRankingLoss if wrapper == "in mini-batches" else TemperatureRankingLoss
        loss = kind(model, Moving(5))
        loss.take_charge()
        whole: Any = loss
        if wrapper.endswith("Loss"):  # every layer and dimension, because the backward pass would draw others
            dimensions = [] if wrapper.startswith("Adaptive") else [[16, 8, 4]]
            drawn = {"Matryoshka2dLoss": ("n_layers_per_step", "n_dims_per_step"), "AdaptiveLayerLoss": ("n_layers_per_step",)}
            whole = getattr(library, wrapper)(model, loss, *dimensions, **dict.fromkeys(drawn.get(wrapper, ()), -1))
        model.zero_grad()
        total = torch.zeros((), dtype=torch.float64)
        for items in (12, 9):  # two parts of a step
            batch = features(model, items=items)
            total = total + (checkpoint(whole, batch, None, use_reentrant=False) if checkpointed else whole(batch, None))
        total.backward()
        results.append([total.detach(), *loss.contrastive_loss.buffers(), *gradients(model).values()])
    for recomputed, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(recomputed, expected, atol=1e-9, rtol=1e-7)


def test_a_cached_loss_without_gradient_is_the_plain_one_and_leaves_wrappers_alone(model: SentenceTransformer) -> None:
    model = copy.deepcopy(model).eval()
    loss = CachedTemperatureRankingLoss(model, "learnable", mini_batch_size=5)
    with torch.no_grad():
        value = loss(features(model), None)
        assert value.item() == pytest.approx(TemperatureRankingLoss(model, "learnable")(features(model), None).item())
    assert not value.requires_grad
    assert "calculate_loss" not in vars(loss)
    wrapper = library.MatryoshkaLoss(model, loss, [16, 8])
    decorated = loss.calculate_loss
    with torch.no_grad():
        wrapper(features(model), None)
    assert loss.calculate_loss is decorated


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "macl", "scale": 20}, "scale=20 belongs to 'fixed' alone"),
        ({"strategy": "fixed", "scale": 20}, "scale=20 belongs to 'fixed' alone"),
        ({"scale": 0}, "scale=0 must be a number greater than 0"),
        ({"scale": float("nan")}, "scale=nan must be a number greater than 0"),
        ({"similarity_fct": "dot"}, "similarity_fct='dot' must be a function such as cos_sim"),
        ({"similarity_fct": dot_score, "strategy": "macl"}, "dot_score gives scores: strategy 'macl' is defined"),
        ({"similarity_fct": dot_score, "negatives": "debiased:prior=0.1"}, "negative term 'debiased' is defined for cosines"),
        ({"similarity_fct": dot_score, "directions": (FORWARD, DOCS)}, "dot_score gives scores: layout .* needs similarities"),
        ({"similarity_fct": dot_score, "hardness_mode": "hard_negatives"}, "dot_score gives scores, which belong to no row"),
        ({"similarity_fct": dot_score, "gather_across_devices": True}, "dot_score gives scores: gather=True has no meaning"),
        ({"hardness_mode": "all"}, "hardness_mode='all' must be None or one of in_batch_negatives, "),
        ({"directions": (BACKWARD,)}, r"directions=.* must be query_to_doc and any of query_to_query, "),
        (
            {"directions": (FORWARD, DOCS), "partition_mode": "per_direction"},
            "per_direction' must be joint where a direction holds no",
        ),
        ({"partition_mode": "both"}, "partition_mode='both' must be one of joint, per_direction"),
        ({"negatives": "guide"}, "term 'guide' reads guide=, which .*TemperatureRankingLoss without guide= does not have"),
        ({"guide": nn.Linear(2, 2)}, "guide=.* is read by no term: pass negatives='guide'"),
        ({"negatives": "guide", "guide": nn.Linear(2, 2)}, "guide of type Linear has none"),
        ({"strategy": "macl:alpha=-1"}, "alpha=-1 of strategy 'macl'"),
        ({"strategy": 20.0}, "strategy=20.0 is a number: write scale=20.0 for the library's"),
    ],
)
def test_wrong_options_are_refused(model: SentenceTransformer, options: dict[str, Any], message: str) -> None:
    for loss in (TemperatureRankingLoss, CachedTemperatureRankingLoss):
        with pytest.raises(ConfigError, match=message):
            loss(model, **options)


def test_unknown_names_and_single_columns_are_refused(model: SentenceTransformer) -> None:
    static = SentenceTransformer(modules=[modules.StaticEmbedding(Tokenizer(models.WordLevel({"a": 0}, "a")), embedding_dim=4)])
    for error, message, call in (
        (UnknownNameError, r"unknown strategy 'macle'\. Did you mean", lambda: TemperatureRankingLoss(model, "macle")),
        (ShapeError, "embeddings of 1 column", lambda: TemperatureRankingLoss(model)(features(model, columns=1), None)),
        (ConfigError, "mini_batch_size=0 must be", lambda: CachedTemperatureRankingLoss(model, mini_batch_size=0)),
        (ConfigError, "StaticEmbedding", lambda: CachedTemperatureRankingLoss(static)),
    ):
        with pytest.raises(error, match=message):
            call()


def test_scale_and_temperature_are_those_of_fixed(model: SentenceTransformer) -> None:
    loss = TemperatureRankingLoss(model)
    assert (loss.scale, loss.temperature) == (20.0, 0.05)
    loss.scale = 50
    assert loss.temperature == 0.02
    assert_same(model, loss, library.MultipleNegativesRankingLoss(model, scale=50))
    with pytest.raises(ConfigError, match="scale=-1 must be"):
        loss.scale = -1
    adaptive = TemperatureRankingLoss(model, "macl")
    assert not hasattr(adaptive, "scale")
    assert adaptive.temperature == adaptive.contrastive_loss.strategy.spec()
    with pytest.raises(ConfigError, match="cannot be set: strategy 'macl' decides"):
        adaptive.scale = 20


def test_card_and_samplers_know_the_loss(model: SentenceTransformer) -> None:
    loss = CachedTemperatureRankingLoss(model, "macl:alpha=2", "dclw", mini_batch_size=4)
    assert isinstance(loss, library.MultipleNegativesRankingLoss)
    assert loss.get_config_dict() == {
        "strategy": "macl:base_temperature=0.05,alpha=2,threshold=0,floor_ratio=0.1,strict=false",
        **{"objective": "dclw:sigma=0.5", "gather_across_devices": False, "directions": ("query_to_doc",)},
        **{"partition_mode": "joint", "mini_batch_size": 4, "mini_batch_num_tokens": None},
    }
    library_citation = library.MultipleNegativesRankingLoss(model).citation
    assert loss.citation.startswith("@misc{tempplug-macl,\n    title = {Model-Aware Contrastive Learning: ")
    assert "note = {eq. 7; strategy macl of tempplug}," in loss.citation
    assert loss.citation.endswith(library_citation.lstrip())
    assert TemperatureRankingLoss(model).citation == library_citation
