"""Temperature-Free's tables and figures."""

from __future__ import annotations

from tempplug_benchmarks.table_maps.record import Answer, Gap, PaperMap, TableMap

_ARMS = {
    **{f"temperature {value}": f"fixed:temperature={value}+infonce" for value in ("0.1", "0.25", "0.5", "1")},
    "temperature free": "temperature-free+infonce",
}
_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CURVE = (Gap(why="drawn from a formula: nothing is trained (tempplug plot draws each strategy's gradient)"),)
_TWO = {"free": "temperature-free+infonce", "baseline tau 0.05": "fixed:temperature=0.05+infonce"}

PAPER = PaperMap(
    key="temperature-free",
    citation="Kim and Kim 2025, Temperature-Free Loss Function for Contrastive Learning",
    tables=(
        TableMap(number="1", title="temperatures of other studies", gaps=(Gap(why="a list: nothing is measured"),)),
        TableMap(
            number="2",
            title="SimCLR on Imagenette",
            answers=(Answer(task="vision/imagenette", dataset="Imagenette", metrics={"knn_top1": "kNN"}, arms=_ARMS),),
        ),
        TableMap(
            number="3",
            title="GRACE on CiteSeer",
            answers=(
                Answer(
                    task="node/citeseer",
                    dataset="CiteSeer",
                    metrics={"F1-micro": "F1-micro", "F1-macro": "F1-macro"},
                    arms=_ARMS,
                ),
            ),
        ),
        TableMap(
            number="4",
            title="MSC on CIFAR-10, each class being normal",
            answers=tuple(
                Answer(task=f"anomaly/{name}", dataset=f"CIFAR-10/{name}", metrics={"ROC-AUC": "ROC-AUC"}, arms=_ARMS)
                for name in _CLASSES
            ),
            gaps=(Gap(why="no run of its own: the mean of the ten classes", datasets=("CIFAR-10/mean",)),),
        ),
        TableMap(
            number="5",
            title="MABEL's gender bias",
            answers=(
                Answer(
                    task="bias/mabel",
                    dataset="StereoSet",
                    metrics={name: name for name in ("LM", "SS", "ICAT")},
                    arms=_TWO,
                ),
                Answer(task="bias/mabel", dataset="CrowS-Pairs", metrics={"SS": "CrowS-Pairs"}, arms=_TWO),
            ),
        ),
        TableMap(
            number="6",
            title="DCRec on MovieLens-20M, ranked among 100 sampled items",
            answers=(
                Answer(
                    task="recommendation/ml-20m",
                    dataset="MovieLens-20M",
                    metrics={f"{kind}@{k}": f"{kind}@{k} sampled" for kind in ("HR", "NDCG") for k in (1, 5, 10)},
                    arms={"baseline tau 0.8": "fixed:temperature=0.8+infonce", "free": "temperature-free+infonce"},
                ),
            ),
        ),
        TableMap(number="figure-1", title="the idea", gaps=(Gap(why="a drawing: nothing is measured"),)),
        TableMap(number="figure-2", title="the gradient's scale at several temperatures", gaps=_CURVE),
        TableMap(number="figure-3", title="the gradient's scale at several similarities", gaps=_CURVE),
        TableMap(number="figure-4", title="the gradient's scale with several negatives", gaps=_CURVE),
        TableMap(number="figure-5", title="the gradient's scale of the temperature-free loss", gaps=_CURVE),
    ),
)
