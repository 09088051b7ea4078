"""Declarations of the benchmark suites and commands; imports nothing heavy."""

from __future__ import annotations

from tempplug.plugins import CommandInfo, SuiteInfo, hookimpl

_BENCH = ("rich", "matplotlib", "transformers", "accelerate", "tqdm", "numpy", "scipy", "sklearn", "datasets")
_GRAPH = (*_BENCH, "torch_geometric")
_MOLECULE = (*_GRAPH, "rdkit")
_IMAGES = (*_BENCH, "kornia", "PIL")


_SUITES = (
    ("sentence", _BENCH, "SimCSE sentence embeddings on STS and transfer, supervised and unsupervised"),
    ("bias", _BENCH, "MABEL masked language models, their gender bias on StereoSet and CrowS-Pairs"),
    ("graph", _GRAPH, "GraphCL graph representations on six TU data sets"),
    ("speed", _BENCH, "time, memory and exactness of the loss, beside eager code and other libraries"),
    ("node", _GRAPH, "GRACE node representations, nodes classified by them"),
    ("molecule", _MOLECULE, "GraphCL pre-training on molecules, fine-tuned on MoleculeNet"),
    ("vision", _IMAGES, "SimCLR image representations, measured by neighbours and a linear classifier"),
    ("long-tail", _IMAGES, "SimCLR on long-tailed images, measured on large and small classes"),
    ("anomaly", _IMAGES, "MSC anomaly detection with a pretrained network, one class of CIFAR-10 being normal"),
    ("recommendation", _GRAPH, "DCRec sequential recommendation, the next item ranked among all or sampled items"),
)


@hookimpl
def tempplug_register_suites() -> list[SuiteInfo]:
    """Returns the benchmark suites."""
    return [
        SuiteInfo(
            name=name,
            target=f"tempplug_benchmarks.{'speed.cases' if name == 'speed' else 'tasks.' + name.replace('-', '_')}:SUITE",
            summary=summary,
            requires=requires,
            extra="bench" if requires is _BENCH else "all",
        )
        for name, requires, summary in _SUITES
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
