"""The tables and figures of temperature schedules."""

from __future__ import annotations

from tempplug_benchmarks.table_maps.record import Answer, Gap, PaperMap, TableMap

_FIXED, _SCHEDULE = "fixed:temperature=0.2+infonce", "schedule:period={400}+infonce"
_METRICS = {"knn1": "kNN@1", "knn10": "kNN@10", "FS_LP": "FS LP", "LT_LP": "LT LP"}
_FEW_SHOT = {"FS_LP": "FS LP"}
_GROUPS = {
    f"{printed}/{group.capitalize()}": f"{ours} {group}"
    for printed, ours in _METRICS.items()
    for group in ("head", "mid", "tail")
}
_SIMCLR = {"SimCLR": _FIXED, "SimCLR + TS": _SCHEDULE}
_MOCO = {"MoCo": _FIXED, "MoCo + TS": _SCHEDULE}
_NAMES = {"CIFAR-10-LT": "cifar10-lt", "CIFAR-100-LT": "cifar100-lt", "ImageNet-100-LT": "imagenet-100-lt"}
_LOWEST, _HIGHEST = (0.07, 0.1, 0.2), (0.2, 0.3, 0.4, 0.5, 1.0)
# What table 10 calls TS has table 5's range: their figures on CIFAR-10-LT are the same.
_NARROW = "schedule:temperature_max=0.5+infonce"


def _answer(task: str, dataset: str, arms: dict[str, str], metrics: dict[str, str] = _METRICS, **settings: object) -> Answer:
    return Answer(task=f"long-tail/{task}", dataset=dataset, metrics=metrics, arms=arms, settings=settings)


def _detailed(number: str, dataset: str) -> TableMap:
    return TableMap(
        number=number,
        title=f"SimCLR on {dataset}, by size of the class",
        answers=(_answer(_NAMES[dataset], dataset, _SIMCLR, _GROUPS),),
    )


PAPER = PaperMap(
    key="temperature-schedules",
    citation="Kukleva et al. 2023, Temperature Schedules for Self-Supervised Contrastive Methods on Long-Tail Data",
    tables=(
        TableMap(
            number="1",
            title="MoCo and SimCLR with and without a schedule",
            answers=tuple(
                _answer(f"{_NAMES[dataset]}{suffix}", dataset, arms)
                for dataset in ("CIFAR-10-LT", "CIFAR-100-LT")
                for suffix, arms in (("", _SIMCLR), ("-moco", _MOCO))
            ),
        ),
        TableMap(
            number="2",
            title="MoCo at imbalances of 50 and 150",
            answers=tuple(
                _answer(f"{_NAMES[dataset]}-{ratio}-moco", f"{dataset} imb{ratio}", _MOCO)
                for dataset in ("CIFAR-10-LT", "CIFAR-100-LT")
                for ratio in (50, 150)
            ),
        ),
        TableMap(
            number="3",
            title="SimCLR with a schedule against SDCLR",
            answers=tuple(_answer(name, dataset, _SIMCLR) for dataset, name in _NAMES.items()),
            gaps=(Gap(why="method not built: SDCLR", methods=("SDCLR",)),),
        ),
        TableMap(
            number="4",
            title="a schedule's range, MoCo on CIFAR-10-LT",
            answers=tuple(
                _answer(
                    "cifar10-lt-moco",
                    "CIFAR-10-LT",
                    {"MoCo + TS cos": f"schedule:temperature_min={low:g},temperature_max={high:g}+infonce"},
                    _FEW_SHOT,
                    tau_minus=low,
                    tau_plus=high,
                )
                for low in _LOWEST
                for high in _HIGHEST
            ),
        ),
        TableMap(
            number="5",
            title="a schedule's shape, MoCo on CIFAR-10-LT",
            answers=(
                _answer(
                    "cifar10-lt-moco",
                    "CIFAR-10-LT",
                    {
                        "MoCo TS=fixed": _FIXED,
                        "MoCo TS=cos": _NARROW,
                        "MoCo TS=step": "schedule:shape=step,temperature_max=0.5+infonce",
                        "MoCo TS=rand": "schedule:shape=random,temperature_max=0.5+infonce",
                        "MoCo TS=oscil": "schedule:shape=triangle,temperature_max=0.5+infonce",
                    },
                    _FEW_SHOT,
                ),
            ),
        ),
        TableMap(
            number="6",
            title="a schedule's period, MoCo on CIFAR-10-LT",
            answers=(
                _answer(
                    "cifar10-lt-moco",
                    "CIFAR-10-LT",
                    {
                        "MoCo + TS T=no": _FIXED,
                        **{
                            f"MoCo + TS T={epochs}": f"schedule:period={{{epochs}}}+infonce"
                            for epochs in (200, 400, 1000, 2000, 4000)
                        },
                    },
                    _FEW_SHOT,
                ),
            ),
        ),
        _detailed("7", "CIFAR-10-LT"),
        _detailed("8", "CIFAR-100-LT"),
        _detailed("9", "ImageNet-100-LT"),
        TableMap(
            number="10",
            title="MoCo on balanced and long-tailed CIFAR-10",
            answers=tuple(
                _answer(task, dataset, {"MoCo": _FIXED, "MoCo + TS": _NARROW})
                for task, dataset in (("cifar10-uniform-moco", "CIFAR-10 uniform"), ("cifar10-lt-moco", "CIFAR-10-LT"))
            ),
        ),
        TableMap(
            number="released",
            title="checkpoints that the authors released, as their notebooks measure them",
            gaps=(Gap(why="no training: weights of the authors'; table 1 is the training that they come from"),),
        ),
        TableMap(
            number="figure-1",
            title="how embeddings cover the sphere during training",
            gaps=(
                Gap(why="not measured: a histogram over bins of the sphere (uniformity is: --table temperature-schedules/1)"),
            ),
        ),
        TableMap(
            number="figure-2",
            title="what a negative adds to the loss by its similarity",
            gaps=(Gap(why="drawn from a formula: nothing is trained (tempplug plot draws each strategy's gradient)"),),
        ),
        TableMap(
            number="figure-3",
            title="a head and a tail class in the plane, at two temperatures and coarse supervision",
            command="tempplug train simclr --recipe long-tail ...; tempplug eval vision ... --plots DIR, by t-SNE or PCA",
        ),
        TableMap(
            number="figure-4",
            title="accuracy over the time of one period",
            gaps=(Gap(why="not measured: runs are measured at their end, not along the last period"),),
        ),
        TableMap(
            number="figure-5",
            title="MoCo on CIFAR-10-LT at fixed temperatures and with coarse supervision",
            answers=(
                _answer(
                    "cifar10-lt-moco",
                    "",
                    {
                        **{f"temperature {value}": f"fixed:temperature={value}+infonce" for value in ("0.1", "0.5", "1")},
                        "coarse supervision": "head-tail+infonce",
                    },
                    {"kNN": "kNN@10"},
                ),
            ),
        ),
    ),
)
