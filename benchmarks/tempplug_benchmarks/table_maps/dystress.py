"""DySTreSS's tables and figures. What it calls DySTreSS* is a shifted profile but in tables 8 and 9, where it is a range."""

from __future__ import annotations

from tempplug_benchmarks.table_maps.record import Answer, Gap, PaperMap, TableMap

_LINEAR = {"linear_top1": "linear", "linear_top5": "linear top-5"}
_BOTH = {**_LINEAR, "knn20_top1": "kNN", "knn20_top5": "kNN top-5"}
_KNN = {"knn200_top1": "kNN"}
_FIXED, _DCL, _OURS = "fixed:temperature=0.1+infonce", "fixed:temperature=0.1+dcl", "dystress+infonce"
_CIFAR = {"CIFAR-10": "cifar10-dystress", "CIFAR-100": "cifar100"}
_MOCO = {"CIFAR-10": "cifar10-dystress-moco", "CIFAR-100": "cifar100-dystress-moco"}
_LONG_TAIL = {"CIFAR-10-LT": "cifar10-lt", "CIFAR-100-LT": "cifar100-lt"}
_STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR", "Avg")
_TRANSFER = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC", "Avg")
_SENTENCES = (("unsupervised", "STS", _STS), ("transfer", "SentEval transfer (accuracy)", _TRANSFER))
_SIMCSE = {"SimCSE (repro.)": "fixed:temperature=0.05+infonce", "w/ MACL (repro.)": "macl+reweighted"}


def _missing(*methods: str) -> Gap:
    return Gap(why=f"methods not built: {', '.join(methods)}", methods=methods)


def _range(low: float, high: float) -> str:
    return f"dystress:temperature_min={low:g},temperature_max={high:g}+infonce"


def _shifted(shift: float, width: float, low: float | None = None, high: float | None = None) -> str:
    bounds = "" if low is None else f",temperature_min={low:g},temperature_max={high:g}"
    return f"dystress:profile=shifted,shift={shift:g},width={width:g}{bounds}+infonce"


def _of_cifar(arms: dict[str, str], metrics: dict[str, str] = _KNN, batch: int = 128) -> tuple[Answer, ...]:
    change = "" if batch == 128 else f"@per_device_train_batch_size={batch}"
    return tuple(
        Answer(task=f"vision/{task}{change}", dataset=dataset, metrics=metrics, arms=arms) for dataset, task in _CIFAR.items()
    )


def _moco(method: str, metrics: dict[str, str] = _KNN) -> tuple[Answer, ...]:
    return tuple(
        Answer(task=f"vision/{task}", dataset=dataset, metrics=metrics, arms={method: _FIXED})
        for dataset, task in _MOCO.items()
    )


def _longest(arms: dict[str, str]) -> tuple[Answer, ...]:
    """Returns what was trained as Kukleva et al. train."""
    return tuple(
        Answer(task=f"long-tail/{task}", dataset=dataset, metrics={"knn10": "kNN@10"}, arms=arms)
        for dataset, task in _LONG_TAIL.items()
    )


def _own_long_tail(number: str, dataset: str) -> TableMap:
    return TableMap(
        number=number,
        title=f"SimCLR and two ranges on {dataset}, DySTreSS's own recipe",
        answers=(
            Answer(
                task=f"long-tail/{_LONG_TAIL[dataset]}-dystress",
                dataset=dataset,
                metrics={"knn1": "kNN@1", "knn10": "kNN@10"},
                arms={"SimCLR": _FIXED, "DySTreSS": _OURS, "DySTreSS* (tau_min 0.1)": "dystress:temperature_min=0.1+infonce"},
            ),
        ),
    )


_RANGES = {f"DySTreSS {low:g}-{high:g}": _range(low, high) for low, high in ((0.07, 0.1), (0.07, 0.2), (0.07, 0.5), (0.1, 0.2))}
_KUKLEVA = {"Kukleva et al. (2023)": "schedule:period={400}+infonce", "DySTreSS": _OURS}
_SHORT_BARLOW = "vision/imagenet-100-barlow-twins@num_train_epochs=200,per_device_train_batch_size=256,warmup_steps=0.05"
_GEOMETRY = {"uniformity": "uniformity", "interclass_uniformity": "interclass uniformity"}
_COMPARED = {"SimCLR": _FIXED, "DCL": _DCL, "DCLW": "fixed:temperature=0.1+dclw", "DySTreSS": _OURS}

PAPER = PaperMap(
    key="dystress",
    citation="Manna et al. 2024, Dynamically Scaled Temperature in Self-Supervised Contrastive Learning",
    tables=(
        TableMap(
            number="1",
            title="SimCLR, DCL, MACL, DySTreSS and others on ImageNet-100",
            answers=(
                Answer(
                    # MACL's own figures
                    task="vision/imagenet-100",
                    dataset="ImageNet-100",
                    metrics=_LINEAR,
                    arms={"SimCLR": _FIXED, "DCL": _DCL, "MACL": "macl:threshold=0.2+reweighted"},
                ),
                Answer(
                    task="vision/imagenet-100-dystress",
                    dataset="ImageNet-100",
                    metrics=_LINEAR,
                    arms={"DySTreSS": _OURS, "DySTreSS*": _shifted(-0.4, 0.7)},
                ),
                Answer(task=_SHORT_BARLOW, dataset="ImageNet-100", metrics=_LINEAR, arms={"Barlow Twins": "plain@heads=1"}),
                Answer(
                    # in the text: its accuracy minus that of DCL
                    task="vision/imagenet-100-dystress",
                    dataset="ImageNet-100",
                    metrics={"linear_top1_gain_over_Table1": "linear"},
                    arms={"SimCLR+DCL+DySTreSS": "dystress+dcl"},
                ),
            ),
            gaps=(_missing("BYOL", "VICReg"),),
        ),
        TableMap(
            number="2",
            title="SimCLR, DCL, MACL, DySTreSS and others on ImageNet after 100 epochs",
            answers=(
                Answer(
                    task="vision/imagenet-dystress",
                    dataset="ImageNet-1K",
                    metrics=_LINEAR,
                    arms={**_COMPARED, "MACL": "macl+reweighted"},
                ),
                Answer(
                    task="vision/imagenet-amcl-barlow-twins@per_device_train_batch_size=256",
                    dataset="ImageNet-1K",
                    metrics=_LINEAR,
                    arms={"Barlow Twins": "plain@heads=1"},
                ),
            ),
            gaps=(_missing("BYOL", "VICReg"),),
        ),
        TableMap(
            number="3",
            title="SimCLR, MoCo v2, DCL, MACL and DySTreSS on CIFAR",
            answers=(
                *_of_cifar({"SimCLR": _FIXED, "SimCLR+DCL": _DCL, "MACL (repro.)": "macl+reweighted", "DySTreSS": _OURS}),
                *_moco("MoCoV2"),
            ),
        ),
        TableMap(
            number="4",
            title="SimCLR, a schedule and DySTreSS on long-tailed CIFAR",
            answers=(
                *_longest(_KUKLEVA),
                *(
                    Answer(
                        task=f"long-tail/{task}-dystress",
                        dataset=dataset,
                        metrics={"knn10": "kNN@10"},
                        arms={"SimCLR": _FIXED, "DySTreSS (200 ep)": _OURS},
                    )
                    for dataset, task in _LONG_TAIL.items()
                ),
            ),
        ),
        TableMap(
            number="5",
            title="SimCSE with BERT on STS and transfer",
            answers=tuple(
                Answer(
                    task=f"sentence/{task}",
                    dataset=dataset,
                    metrics={name: name for name in names},
                    arms={**_SIMCSE, "w/ DySTreSS": _OURS, "w/ DySTreSS*": _shifted(-0.4, 0.7)},
                )
                for task, dataset, names in _SENTENCES
            ),
        ),
        TableMap(
            number="6",
            title="DySTreSS's range on ImageNet-100",
            answers=(
                Answer(
                    task="vision/imagenet-100-dystress",
                    dataset="ImageNet-100",
                    metrics={**_BOTH, "interclass_uniformity": "interclass uniformity"},
                    arms=_RANGES,
                ),
            ),
        ),
        TableMap(
            number="7",
            title="shifted profiles on ImageNet-100",
            answers=(
                Answer(
                    task="vision/imagenet-100-dystress",
                    dataset="ImageNet-100",
                    metrics=_BOTH,
                    arms={
                        f"shift {shift} scale {width}": _shifted(shift, width)
                        for shift, width in ((0.0, 0.5), (0.2, 0.6), (0.4, 0.7), (-0.2, 0.6), (-0.4, 0.7))
                    },
                ),
            ),
        ),
        _own_long_tail("8", "CIFAR-10-LT"),
        _own_long_tail("9", "CIFAR-100-LT"),
        TableMap(
            number="10",
            title="a schedule and DySTreSS on three long-tailed sets",
            answers=(
                *_longest(_KUKLEVA),
                Answer(
                    task="long-tail/imagenet-100-lt",
                    dataset="ImageNet-100-LT",
                    # not said; the schedule's figure is that of few-shot probes in its own paper
                    metrics={"unstated": "FS LP"},
                    arms={**_KUKLEVA, "DySTreSS": "dystress:temperature_min=0.1+infonce"},
                ),
            ),
        ),
        TableMap(
            number="11",
            title="SimCSE with BERT on STS and transfer: shifts and ranges",
            answers=(
                *(
                    Answer(
                        task=f"sentence/{task}",
                        dataset=dataset,
                        metrics={name: name for name in names},
                        arms={
                            **_SIMCSE,
                            "w/ DySTreSS": _OURS,
                            "w/ DySTreSS+": _shifted(-0.2, 0.6),
                            "w/ DySTreSS**": _shifted(-0.6, 0.8),
                        },
                    )
                    for task, dataset, names in _SENTENCES
                ),
                *(
                    Answer(
                        task=f"sentence/{task}",
                        dataset=dataset,
                        metrics={name: name for name in names},
                        arms={"w/ DySTreSS*": _shifted(-0.4, 0.7, low, high)},
                        settings={"tau_min": low, "tau_max": high},
                    )
                    for task, dataset, names in _SENTENCES
                    for low, high in ((0.03, 0.05), (0.02, 0.05), (0.05, 0.07), (0.04, 0.05))
                ),
            ),
        ),
        TableMap(
            number="12",
            title="uniformity on CIFAR and ImageNet",
            answers=(
                *_of_cifar(_COMPARED, {**_GEOMETRY, "accuracy": "kNN"}),
                *_moco("MoCov2", {**_GEOMETRY, "accuracy": "kNN"}),
                Answer(
                    task="vision/imagenet-dystress",
                    dataset="ImageNet-1K",
                    metrics={**_GEOMETRY, "accuracy": "linear"},
                    arms=_COMPARED,
                ),
            ),
        ),
        TableMap(
            number="13",
            title="cosine, linear and exponential profiles on CIFAR",
            answers=_of_cifar(
                {
                    "Cosine": _OURS,
                    "Linear": "dystress:profile=linear+infonce",
                    "Exponential": "dystress:profile=exponential+infonce",
                }
            ),
        ),
        TableMap(
            number="14",
            title="a monotonic profile on CIFAR",
            answers=_of_cifar({"Proposed Cosine": _OURS, "Monotonic Cosine": "dystress:profile=monotonic+infonce"}),
        ),
        TableMap(
            number="15",
            title="DySTreSS, DINO and W-MSE on CIFAR with batches of 256",
            answers=_of_cifar({"DySTreSS": _OURS}, batch=256),
            gaps=(_missing("DINO", "WMSE"),),
        ),
        TableMap(
            number="16",
            title="DySTreSS and methods without negatives on ImageNet-100 after 400 epochs",
            answers=(
                Answer(
                    task="vision/imagenet-100-dystress@num_train_epochs=400,warmup_steps=0.025,"
                    "per_device_train_batch_size=128,embedding_dimension=2048",
                    dataset="ImageNet-100",
                    metrics=_LINEAR,
                    arms={"DySTreSS": _OURS},
                ),
                *(
                    Answer(
                        task=f"vision/imagenet-100-{task}",
                        dataset="ImageNet-100",
                        metrics=_LINEAR,
                        arms={method: "plain@heads=1"},
                    )
                    for method, task in (("SimSiam", "simsiam"), ("Barlow Twins", "barlow-twins"))
                ),
            ),
            gaps=(_missing("DINO", "WMSE", "ZeroCL", "ZeroFCL", "ARB"),),
        ),
        TableMap(
            number="figure-1",
            title="similarities of pairs before and after training",
            command="tempplug train simclr --recipe dystress-cifar ...; tempplug eval vision ... --plots DIR",
        ),
        TableMap(
            number="figure-2",
            title="temperature functions for several ranges",
            command="tempplug plot dystress dystress:temperature_min=0.07 dystress:temperature_min=0.07,temperature_max=0.5",
        ),
        TableMap(
            number="figure-3",
            title="uniformity and tolerance against accuracy on ImageNet-100",
            answers=(
                Answer(
                    task="vision/imagenet-100-dystress",
                    metrics={"uniformity": "uniformity", "tolerance": "tolerance", "accuracy": "kNN"},
                    arms=_RANGES,
                ),
            ),
        ),
        TableMap(
            number="figure-4",
            title="shifted temperature functions",
            command="tempplug plot dystress dystress:profile=shifted,shift=-0.4 dystress:profile=shifted,shift=0.4",
        ),
        TableMap(
            number="figure-5",
            title="ranges on CIFAR",
            command="tempplug bench run vision --tasks cifar10-dystress cifar100 --profile paper --strategies "
            "dystress:temperature_min=LOW,temperature_max=HIGH --output DIR, of ranges that are drawn alone",
        ),
        TableMap(
            number="figure-6",
            title="shifts on CIFAR",
            answers=tuple(
                Answer(
                    task=f"vision/{task}",
                    metrics={"accuracy": "kNN", "uniformity": "uniformity", "tolerance": "tolerance"},
                    arms={
                        "vanilla": _OURS,
                        **{
                            f"shift {shift:g}": _shifted(shift, width)
                            for shift, width in ((0.0, 0.5), (0.2, 0.6), (0.4, 0.7), (-0.2, 0.6), (-0.4, 0.7))
                        },
                    },
                )
                for task in _CIFAR.values()
            ),
        ),
        TableMap(
            number="figure-7",
            title="learning rates on CIFAR",
            command="tempplug bench run vision --tasks cifar10-dystress@learning_rate=RATE --profile paper --output DIR, of "
            "rates that are drawn alone",
        ),
        TableMap(
            number="figure-8",
            title="solutions of a differential equation",
            gaps=(Gap(why="drawn from a formula: nothing is trained"),),
        ),
    ),
)
