"""Replaces ``import senteval`` for scripts that call ``senteval.engine.SE(params, batcher, prepare)``.

Scripts need one changed line: ``from tempplug_adapters.sentence_evaluation import senteval``. `engine` lists the tasks.
"""

from tempplug_adapters.sentence_evaluation.senteval import engine
from tempplug_adapters.sentence_evaluation.senteval.engine import SE

__all__ = ["SE", "engine"]
