"""AMCL's tables and figures.

AMCL stands for its top-κ form with three heads wherever there is a softmax: ``amcl+dcl``, its soft form, is compared with that
in figure 5 alone. The paper prints neither κ (but for STL-10), nor β, nor the bounds of its temperatures.
"""

from __future__ import annotations

from tempplug_benchmarks.table_maps.record import Answer, Gap, PaperMap, TableMap
from tempplug_benchmarks.tasks.vision_papers import AMCL_TOP
from tempplug_benchmarks.tasks.vision_tables import AMCL_ALONE, PLAIN

_METHODS = {"SimCLR": "", "MoCo": "-moco", "SimSiam": "-simsiam", "Barlow Twins": "-barlow-twins"}
_TASKS = {
    "CIFAR-10": ("cifar10-amcl", "cifar10-amcl"),
    "CIFAR-100": ("cifar100-amcl", "cifar100-amcl"),
    "Tiny-ImageNet": ("tiny-imagenet", "tiny-imagenet"),
    "ImageNet": ("imagenet-amcl", "imagenet-amcl"),
}
_MASKED = Gap(
    why="method not built: CAN and LGP, which mask images",
    methods=("CAN baseline", "CAN + AMCL", "LGP baseline", "LGP + AMCL"),
)
_GAIN = Gap(why="no run of its own: the mean difference of the rows above", metrics=("average gain",))
_DETECTION = "method not built: object detection and segmentation (tempplug export writes a ResNet for detectron2)"
_LABELS = (10, 20, 50, 100, 200, 500)
_STL10 = "fixed:temperature=0.5+infonce"


def _temperature(method: str, dataset: str) -> str:
    if method == "MoCo":
        return "0.2" if dataset == "ImageNet" else "0.1"
    return "0.1" if dataset == "ImageNet" else "0.5"


def _arms(method: str, dataset: str) -> dict[str, str]:
    plain, adaptive = f"fixed:temperature={_temperature(method, dataset)}+infonce", AMCL_TOP
    if method in ("SimSiam", "Barlow Twins"):
        plain, adaptive = PLAIN, AMCL_ALONE
    return {f"{method} baseline": plain, f"{method} + AMCL": adaptive}


PAPER = PaperMap(
    key="amcl",
    citation="Wang et al. 2024, Adaptive Multi-head Contrastive Learning",
    tables=(
        TableMap(number="1", title="losses of contrastive methods", gaps=(Gap(why="formulas: nothing is measured"),)),
        TableMap(number="2", title="the same losses with AMCL", gaps=(Gap(why="formulas: nothing is measured"),)),
        TableMap(
            number="3",
            title="six methods with and without AMCL on four data sets",
            answers=tuple(
                Answer(
                    task=f"vision/{simclr if not suffix else others + suffix}",
                    dataset=dataset,
                    metrics={"accuracy (linear probe per caption)": "linear"},
                    arms=_arms(method, dataset),
                )
                for dataset, (simclr, others) in _TASKS.items()
                for method, suffix in _METHODS.items()
            ),
            gaps=(_MASKED, _GAIN),
        ),
        TableMap(
            number="4",
            title="ViT-B and ViT-L fine-tuned on ImageNet after 1600 epochs",
            gaps=(Gap(why="method not built: end-to-end fine-tuning, MAE and LGP"),),
        ),
        TableMap(
            number="5",
            title="AMCL, TaU and a schedule on STL-10, probed with 10 to 500 labels of each class",
            answers=(
                Answer(
                    task="vision/stl10",
                    dataset="STL-10",
                    metrics={f"linear accuracy, {count} labels/class": f"{count} labels" for count in _LABELS},
                    arms={
                        "SimCLR baseline (1 head)": _STL10,
                        "AMCL (3 heads)": AMCL_TOP,
                        "TaU (3 heads)": "uncertainty+infonce@heads=3",
                        "TS (3 heads)": "schedule+infonce@heads=3",
                    },
                ),
            ),
        ),
        TableMap(
            number="6",
            title="four methods with and without AMCL on CIFAR-100, with one to five augmentations",
            answers=tuple(
                Answer(
                    task=f"vision/cifar100-amcl{suffix}" + ("" if letters == "abcde" else f"@augmentation=amcl-{letters}"),
                    dataset="CIFAR-100",
                    metrics={"linear accuracy": "linear"},
                    arms=_arms(method, "CIFAR-100"),
                    settings={"augs": letters},
                )
                for letters in ("a", "ab", "abc", "abcd", "abcde")
                for method, suffix in _METHODS.items()
            ),
            gaps=(_GAIN,),
        ),
        TableMap(number="7", title="detection and segmentation on COCO", gaps=(Gap(why=_DETECTION),)),
        TableMap(
            number="8",
            title="parameters and operations",
            gaps=(Gap(why="no training: a count of parameters and operations"),),
        ),
        TableMap(
            number="text",
            title="figures in the text",
            gaps=(
                Gap(
                    why="not printed how: SimCLR with ViT-L, of which figure 4 has the lengths",
                    methods=("SimCLR ViT-L baseline", "SimCLR ViT-L + AMCL"),
                ),
                Gap(why="method not built: supervised training from random weights", methods=("fully supervised ResNet-18",)),
            ),
        ),
        TableMap(number="figure-1", title="the idea", gaps=(Gap(why="a drawing: nothing is measured"),)),
        TableMap(number="figure-2", title="one head and several", gaps=(Gap(why="a drawing: nothing is measured"),)),
        TableMap(
            number="figure-3",
            title="similarities of positive and negative pairs on STL-10",
            command="tempplug train simclr --recipe amcl ...; tempplug eval vision ... --plots DIR, of representations",
        ),
        TableMap(
            number="figure-4",
            title="backbones and lengths on ImageNet, SimCLR and CAN",
            gaps=(Gap(why="not printed which: its values are drawn alone, and CAN is not built"),),
        ),
        TableMap(
            number="figure-5",
            title="the number of heads, and top-κ against softmax, on STL-10",
            answers=(
                Answer(
                    task="vision/stl10",
                    metrics={"accuracy": "linear"},
                    arms={
                        "baseline": _STL10,
                        **{f"{heads} heads": f"{AMCL_TOP}@heads={heads}" for heads in (1, 2, 4, 5, 6)},
                        "3 heads, κ = 100": AMCL_TOP,
                        "3 heads, κ = 150": AMCL_TOP.replace("100", "150"),
                        "Softmax": "amcl+dcl",
                    },
                ),
            ),
        ),
        TableMap(
            number="figure-6",
            title="adaptive and constant temperature, one head and three, on CIFAR-100",
            answers=(
                Answer(
                    task="vision/cifar100-amcl",
                    metrics={"accuracy": "linear"},
                    arms={
                        **{
                            f"constant {value:g}, {heads} heads": f"fixed:temperature={value:g}+infonce@heads={heads}"
                            for value in (0.1, 0.2, 0.3, 0.5)
                            for heads in (1, 3)
                        },
                        "adaptive, 1 head": f"{AMCL_TOP}@heads=1",
                        "adaptive, 3 heads": AMCL_TOP,
                    },
                ),
            ),
        ),
        TableMap(
            number="figure-7",
            title="variants of AMCL on STL-10",
            gaps=(Gap(why="method not built: variants with some temperatures constant or copied from one head to others"),),
        ),
        TableMap(
            number="figure-8",
            title="temperatures of positives by overlap and colour",
            gaps=(Gap(why="not measured: temperatures by what a view keeps of its image"),),
        ),
        TableMap(
            number="figure-9",
            title="sensitivity to AMCL's options",
            command="tempplug bench run vision --tasks stl10 --profile paper --strategies "
            "amcl:floor=F,span=S+amcl-top:top_k=100,beta=B --output DIR",
        ),
    ),
)
