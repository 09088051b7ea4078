"""The names of metrics in words, for all training commands, sentence-transformers' evaluators and the guide docs/metrics.md."""

from __future__ import annotations

import re
from collections.abc import Iterable

METRICS: dict[str, tuple[str, str]] = {
    "knn": (r"knn(@\d+)?", "% of test images whose class the most similar training images vote for"),
    "linear": (r"linear", "% of test images that a linear classifier on the vectors gets right"),
    "svc": (r"svc", "% of test images that a linear support vector machine on the vectors gets right"),
    "N labels": (r"\d+ labels", "% right of a logistic regression on N images of each class"),
    "few-shot": (r"few-shot", "% right of a linear machine on as many images of each class as the smallest has"),
    "long-tail": (r"long-tail", "% right of a linear machine on the whole long-tailed set"),
    "alignment": (r"alignment", "mean squared distance of two views of an image; lower is closer"),
    "uniformity": (r"uniformity", "how evenly vectors fill the sphere; lower is more even"),
    "tolerance": (r"tolerance", "mean cosine of two images of a class; higher is closer"),
    "interclass_uniformity": (r"interclass_uniformity", "uniformity of the means of classes; lower is further apart"),
    "f1_micro": (r"f1_(micro|validation)", "% of nodes that a logistic regression on the vectors puts into their class"),
    "f1_macro": (r"f1_macro", "the mean over classes of F1 × 100 of a logistic regression on the vectors"),
    "roc_auc": (r"roc_auc(_before)?", "area under the ROC curve × 100: chance is 50, a perfect ranking 100"),
    "average_precision": (r"average_precision|ap", "area under precision over recall × 100"),
    "accuracy@k": (r"accuracy@\d+", "share of queries with a right document among the first k"),
    "precision@k": (r"precision@\d+", "share of the first k documents that are right"),
    "accuracy": (r"accuracy", "share of test items that get the right class, or the right one of two partners"),
    "stsb_dev, sts": (r"sts\w*|sickr|spearman", "Spearman's rank correlation of cosines with human ratings"),
    "pearson": (r"pearson", "linear correlation of cosines with human ratings"),
    "transfer tasks": (r"mr|cr|subj|mpqa|sst2|trec|mrpc|transfer_average", "% right of a linear classifier on the vectors"),
    "nDCG@k": (r"ndcg@\d+", "right documents or items among the first k, better if they rank higher; 1 or 100 at most"),
    "MRR@k": (r"mrr@\d+", "mean of 1 / rank of the first right document, 0 beyond rank k"),
    "map": (r"map(@\d+)?", "mean over queries of the precision at each right document"),
    "recall@k": (r"recall@\d+|image_to_text_r\d+|text_to_image_r\d+", "share of right partners found among the first k"),
    "HR@k": (r"hr@\d+", "% of users whose next item is among the first k"),
    "zero_shot": (r"zero_shot", "% of images whose class has the most similar text"),
    "stereoset_lm": (r"stereoset_lm", "% of words that fit which are more probable than one that does not"),
    "stereoset_ss": (r"stereoset_ss", "% of stereotypes more probable than their opposites; 50 is no preference"),
    "icat": (r"icat|stereoset_icat", "language modelling without stereotypes, LM · min(SS, 100 − SS) / 50"),
    "crows_pairs": (r"crows_pairs", "% of pairs whose stereotype is more probable; 50 is no preference"),
    "contrastive_accuracy": (r"contrastive_accuracy", "share of items whose partner is the most similar in its batch"),
    "loss": (r"(\w+_)?loss", "mean loss on the evaluation data; it depends on the temperature"),
}
"""Name as shown, by which a reader knows it: the names in logs as a regular expression, and one clause."""
QUALIFIERS: dict[str, tuple[str, str]] = {
    "10/80/10": (r"10/80/10", "of random splits: 10 % of the nodes to learn from, 80 % to choose by, 10 % to test"),
    "10/10/80": (r"10/10/80", "of random splits: 10 % of the nodes to learn from, 10 % to choose by, 80 % to test"),
    "public": (r"public", "the data set's own split"),
    "validation": (r"validation|valid|dev|held_out", "on data to choose settings by, which are held out of the training"),
    "full": (r"full", "among all items"),
    "sampled": (r"sampled", "among 100 items drawn by popularity"),
    "top-5": (r"top-5", "right if the class is among the five best"),
    "head, middle, tail": (r"head|middle|tail", "the largest, middle and smallest classes"),
}
"""Parts of a name that say on which data, likewise."""


def explain(name: str) -> dict[str, str]:
    """Returns what a metric is, by the names of `METRICS` and `QUALIFIERS`; empty if it is unknown.

    Args:
        name: of a metric in a log, without ``eval_``.

    >>> list(explain("f1_micro 10/80/10"))
    ['f1_micro', '10/80/10']
    """
    # The pattern that matches most wins, as in interclass_uniformity.
    matches = {shown: match for shown, (pattern, _) in METRICS.items() if (match := _in_name(pattern, name))}
    metric = max(matches, key=lambda shown: len(matches[shown]), default=None)
    qualifiers = [shown for shown, (pattern, _) in QUALIFIERS.items() if _in_name(pattern, name)]
    words = {shown: clause for shown, (_, clause) in {**METRICS, **QUALIFIERS}.items()}
    return {shown: words[shown] for shown in ([] if metric is None else [metric]) + qualifiers}


def legend(names: Iterable[str]) -> dict[str, str]:
    """Returns what some metrics are, each explanation once."""
    return {shown: clause for name in names for shown, clause in explain(name).items()}


def _in_name(pattern: str, name: str) -> str:
    """Returns the longest part of a name between separators that a pattern matches, or an empty text."""
    return max((match[0] for match in re.finditer(rf"(?<![^\s_])(?:{pattern})(?![^\s_])", name)), key=len, default="")
