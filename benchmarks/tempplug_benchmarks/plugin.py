"""Declarations of the benchmark suites and commands; imports nothing heavy."""

from __future__ import annotations

from tempplug.plugins import CommandInfo, SuiteInfo, hookimpl

_BENCH = ("rich", "matplotlib", "transformers", "accelerate", "tqdm", "numpy", "scipy", "sklearn", "datasets")
_GRAPH = (*_BENCH, "torch_geometric")
_MOLECULE = (*_GRAPH, "rdkit")
_IMAGES = (*_BENCH, "kornia", "PIL")


@hookimpl
def tempplug_register_suites() -> list[SuiteInfo]:
    """Returns the benchmark suites."""
    return [
        SuiteInfo(
            name="sentence",
            target="tempplug_benchmarks.tasks.sentence:SUITE",
            summary="SimCSE sentence embeddings on STS and transfer, supervised and unsupervised",
            requires=(*_BENCH, "sklearn"),
            extra="bench",
        ),
        SuiteInfo(
            name="bias",
            target="tempplug_benchmarks.tasks.bias:SUITE",
            summary="MABEL masked language models, their gender bias on StereoSet and CrowS-Pairs",
            requires=_BENCH,
            extra="bench",
        ),
        SuiteInfo(
            name="graph",
            target="tempplug_benchmarks.tasks.graph:SUITE",
            summary="GraphCL graph representations on six TU data sets",
            requires=_GRAPH,
            extra="all",
        ),
        SuiteInfo(
            name="speed",
            target="tempplug_benchmarks.speed.cases:SUITE",
            summary="time, memory and exactness of the loss, beside eager code and other libraries",
            requires=_BENCH,
            extra="bench",
        ),
        SuiteInfo(
            name="node",
            target="tempplug_benchmarks.tasks.node:SUITE",
            summary="GRACE node representations, nodes classified by them",
            requires=_GRAPH,
            extra="all",
        ),
        SuiteInfo(
            name="molecule",
            target="tempplug_benchmarks.tasks.molecule:SUITE",
            summary="GraphCL pre-training on molecules, fine-tuned on MoleculeNet",
            requires=_MOLECULE,
            extra="all",
        ),
        SuiteInfo(
            name="vision",
            target="tempplug_benchmarks.tasks.vision:SUITE",
            summary="SimCLR image representations, measured by neighbours and a linear classifier",
            requires=_IMAGES,
            extra="all",
        ),
        SuiteInfo(
            name="long-tail",
            target="tempplug_benchmarks.tasks.long_tail:SUITE",
            summary="SimCLR on long-tailed images, measured on large and small classes",
            requires=_IMAGES,
            extra="all",
        ),
        SuiteInfo(
            name="anomaly",
            target="tempplug_benchmarks.tasks.anomaly:SUITE",
            summary="MSC anomaly detection with a pretrained network, one class of CIFAR-10 being normal",
            requires=_IMAGES,
            extra="all",
        ),
        SuiteInfo(
            name="recommendation",
            target="tempplug_benchmarks.tasks.recommendation:SUITE",
            summary="DCRec sequential recommendation, the next item ranked among all or sampled items",
            requires=_GRAPH,
            extra="all",
        ),
    ]


@hookimpl
def tempplug_register_commands() -> list[CommandInfo]:
    """Returns the commands of this distribution."""
    return [
        CommandInfo(
            name="bench",
            target="tempplug_benchmarks.command:main",
            summary="run benchmark suites and report measured beside reported numbers",
            requires=(*_BENCH, "jinja2"),
            extra="bench",
        ),
        CommandInfo(
            name="plot",
            target="tempplug_benchmarks.plot:main",
            summary="draw temperature, logit and gradient against similarity for spec strings",
            requires=_BENCH,
            extra="bench",
        ),
    ]
