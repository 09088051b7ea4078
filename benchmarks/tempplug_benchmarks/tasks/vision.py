"""The suite ``vision``, declared in ``vision.toml``. Importing this module loads no framework."""

from __future__ import annotations

from tempplug_adapters.vision.recipes import METHODS, VisionRecipe
from tempplug_benchmarks.suite_file import make_suite, read_file
from tempplug_benchmarks.tasks.reading import read_images

SUITE = make_suite(read_file("vision"), *METHODS.values(), read_images, settings=VisionRecipe)
