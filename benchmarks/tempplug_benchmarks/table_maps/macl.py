"""MACL's tables and figures."""

from __future__ import annotations

from tempplug_benchmarks.table_maps.record import Answer, Gap, PaperMap, TableMap

_LINEAR = {"linear_top1": "linear"}
_BOTH = {**_LINEAR, "linear_top5": "linear top-5"}
_FIXED = "fixed:temperature=0.1+infonce"
_SIMCLR = {"SimCLR": _FIXED, "w/ MACL": "macl+reweighted"}
_REWEIGHTED = {
    "NT-Xent": _FIXED,
    "DCL": "fixed:temperature=0.1+dcl",
    "FlatNCE": "fixed:temperature=0.1+flatnce",
    "Dual": "fixed:temperature=0.1+dual-temperature",
    "MACL": "macl+reweighted",
}
_STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")
_TRANSFER = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
_SENTENCES = {name: name for name in (*_STS, "Avg")}
_SIMCSE = "fixed:temperature=0.05+infonce"
_BATCHES = (64, 128, 256, 512, 1024)
# what table 8 varies, the others being 0.1, 0.5 and 0
_OPTIONS = {
    **{f"MACL tau0={value}": f"base_temperature={value}" for value in ("0.05", "0.1", "0.5", "1")},
    **{f"MACL alpha={value}": f"alpha={value}" for value in ("0", "0.1", "0.5", "1")},
    **{f"MACL A0={value}": f"threshold={value}" for value in ("0", "0.2", "0.6", "0.8")},
}
_SETS = {
    "MUTAG": "mutag",
    "PROTEINS": "proteins",
    "NCI1": "nci1",
    "DD": "dd",
    "IMDB-B": "imdb-binary",
    "RDT-B": "reddit-binary",
}
_MOLECULES = ("BBBP", "Tox21", "ToxCast", "SIDER", "ClinTox", "MUV", "HIV", "BACE")


def _batch(task: str, size: int, usual: int = 256) -> str:
    return task if size == usual else f"{task}@per_device_train_batch_size={size}"


def _reweighting(number: str, title: str, metric: str, ours: str) -> TableMap:
    return TableMap(
        number=number,
        title=title,
        answers=tuple(
            Answer(
                task=_batch("vision/cifar10", size),
                dataset="CIFAR-10",
                metrics={metric: ours},
                arms=_REWEIGHTED,
                settings={"batch": size},
            )
            for size in _BATCHES
        ),
    )


PAPER = PaperMap(
    key="macl",
    citation="Huang et al. 2023, Model-Aware Contrastive Learning: Towards Escaping the Dilemmas",
    tables=(
        TableMap(
            number="1",
            title="SimCLR on ImageNet after 200, 400 and 800 epochs",
            answers=tuple(
                Answer(
                    task="vision/imagenet"
                    + ("" if epochs == 200 else f"@num_train_epochs={epochs},warmup_steps={10 / epochs:g}"),
                    dataset="ImageNet-1K",
                    metrics=_LINEAR,
                    arms=_SIMCLR,
                    settings={"epochs": epochs},
                )
                for epochs in (200, 400, 800)
            ),
        ),
        TableMap(
            number="2",
            title="transfer to object detection on VOC07+12",
            gaps=(Gap(why="method not built: object detection (tempplug export writes the encoder for detectron2)"),),
        ),
        TableMap(
            number="3",
            title="SimCSE with RoBERTa on STS and transfer",
            answers=tuple(
                Answer(
                    task=f"sentence/{task}",
                    dataset=dataset,
                    metrics={name: name for name in names},
                    arms={"SimCSE-RoBERTa": _SIMCSE, "w/ MACL": "macl+infonce"},
                )
                for task, dataset, names in (
                    ("unsupervised-roberta", "STS", _STS),
                    ("transfer-roberta", "SentEval transfer", _TRANSFER),
                )
            ),
        ),
        TableMap(
            number="4",
            title="GraphCL on six TU data sets",
            answers=tuple(
                Answer(
                    task=f"graph/{task}",
                    dataset=printed,
                    metrics={"accuracy": "accuracy"},
                    arms={"GraphCL": "fixed:temperature=0.2+dcl", "w/ MACL": "macl+dcl"},
                )
                for printed, task in _SETS.items()
            ),
        ),
        TableMap(
            number="5",
            title="GraphCL's transfer to MoleculeNet",
            answers=tuple(
                Answer(
                    task=f"molecule/{printed.lower()}",
                    dataset=printed,
                    metrics={"ROC-AUC": "ROC-AUC"},
                    arms={"GraphCL": "fixed:temperature=0.1+dcl", "w/ MACL": "macl+dcl"},
                )
                for printed in _MOLECULES
            ),
        ),
        TableMap(
            number="6",
            title="adaptive temperature and reweighting apart, at two learning rates, on ImageNet",
            answers=tuple(
                Answer(
                    task=f"vision/imagenet@per_device_train_batch_size=512{rate}",
                    dataset="ImageNet-1K",
                    metrics=_LINEAR,
                    arms={
                        "baseline": _FIXED,
                        "adaptive only": "macl+infonce",
                        "reweighting only": "fixed:temperature=0.1+reweighted",
                        "both": "macl+reweighted",
                    },
                    settings={"lr": printed},
                )
                # the recipe's rate grows with the batch: 0.3 is 0.6 here
                for printed, rate in (("LR-s 0.6", ""), ("LR-l 2.4", ",learning_rate=1.2"))
            ),
        ),
        TableMap(
            number="7",
            title="SimCLR on ImageNet-100: NT-Xent, DCL, MACL, reweighting alone",
            answers=(
                Answer(
                    task="vision/imagenet-100",
                    dataset="ImageNet-100",
                    metrics=_BOTH,
                    arms={
                        "NT-Xent": _FIXED,
                        "DCL": "fixed:temperature=0.1+dcl",
                        "MACL": "macl:threshold=0.2+reweighted",
                        "MACL w/o adaptive": "fixed:temperature=0.1+reweighted",
                    },
                ),
            ),
        ),
        TableMap(
            number="8",
            title="MACL's parameters on ImageNet-100",
            answers=(
                Answer(
                    task="vision/imagenet-100",
                    dataset="ImageNet-100",
                    metrics=_BOTH,
                    arms={printed: f"macl:{option}+reweighted" for printed, option in _OPTIONS.items()},
                ),
            ),
        ),
        _reweighting("9", "five objectives on CIFAR-10 with batches of 64 to 1024, linear probe", "linear_top1", "linear"),
        TableMap(
            number="B.1",
            title="MoCo v2 on ImageNet-100 with queues of 256 to 65,536",
            answers=tuple(
                Answer(
                    task="vision/imagenet-100-moco" + ("" if size == 65_536 else f"@queue_size={size}"),
                    dataset="ImageNet-100",
                    metrics=_BOTH,
                    arms={"MoCo v2": "fixed:temperature=0.2+infonce", "w/ MACL": "macl+reweighted"},
                    settings={"queue": size},
                )
                for size in (256, 512, 4096, 65_536)
            ),
        ),
        TableMap(
            number="B.2",
            title="NNCLR on ImageNet-100",
            answers=tuple(
                Answer(
                    task="vision/imagenet-100-nnclr",
                    dataset="ImageNet-100",
                    metrics=_BOTH,
                    arms={method: arm},
                    settings={"alpha": alpha, "A0": threshold},
                )
                for method, arm, alpha, threshold in (
                    ("NNCLR", _FIXED, None, None),
                    *(
                        ("NNCLR w/ MACL", f"macl:alpha={alpha},threshold={threshold}+reweighted", alpha, threshold)
                        for alpha, threshold in ((0.5, 0), (0.5, 0.2), (0.5, 0.6), (1, 0), (1, 0.6))
                    ),
                )
            ),
        ),
        _reweighting("B.3", "the same as table 9, nearest neighbours", "knn200_top1", "kNN"),
        TableMap(
            number="B.4",
            title="SimCSE with BERT on STS",
            answers=(
                Answer(
                    task="sentence/unsupervised",
                    dataset="STS",
                    metrics=_SENTENCES,
                    arms={"SimCSE-BERT": _SIMCSE, "w/ MACL": "macl+infonce"},
                ),
            ),
        ),
        TableMap(
            number="B.5",
            title="SimCSE on STS as published and reproduced",
            answers=tuple(
                Answer(
                    task=f"sentence/{task}",
                    dataset="STS",
                    metrics=_SENTENCES,
                    arms={
                        f"SimCSE-{model}": _SIMCSE,
                        f"SimCSE-{model} (repro)": _SIMCSE,
                        f"w/ MACL {model}": "macl+infonce",
                    },
                )
                for model, task in (("BERT", "unsupervised"), ("RoBERTa", "unsupervised-roberta"))
            ),
        ),
        TableMap(number="figure-1", title="the idea", gaps=(Gap(why="a drawing: nothing is measured"),)),
        TableMap(
            number="figure-2",
            title="how the gradient's scale depends on temperature and negatives",
            gaps=(Gap(why="drawn from a formula: nothing is trained"),),
        ),
        TableMap(
            number="figure-3",
            title="SimCLR on ImageNet with batches of 256 to 2048",
            answers=tuple(
                Answer(
                    task=_batch("vision/imagenet", size),
                    dataset="ImageNet-1K",
                    metrics=_LINEAR,
                    arms=_SIMCLR,
                    settings={"batch": size},
                )
                for size in (256, 512, 1024, 2048)
            ),
        ),
        TableMap(
            number="figure-4",
            title="representations of ImageNet-100 in the plane, by UMAP",
            command="tempplug train simclr --recipe macl-imagenet ...; tempplug eval vision ... --plots DIR, by t-SNE or PCA",
        ),
    ),
)
