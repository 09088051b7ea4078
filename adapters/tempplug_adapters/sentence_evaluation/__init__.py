"""Evaluation of sentence encoders: semantic textual similarity, with any callable that turns sentences into vectors.

Import the parts by module: `sts` (the protocol), `sts_data` (the seven data sets), `encoder` (transformers models as such a
callable), `command` (``tempplug eval sts``). Knows nothing of how an encoder was trained.
"""
