"""In the place of ``import senteval``: scripts that call ``senteval.engine.SE(params, batcher, prepare)`` run our code.

``from tempplug_adapters.sentence_evaluation import senteval`` is the one line to change. `engine` says which tasks it has.
"""

from tempplug_adapters.sentence_evaluation.senteval import engine
from tempplug_adapters.sentence_evaluation.senteval.engine import SE

__all__ = ["SE", "engine"]
