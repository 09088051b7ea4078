"""Evaluation of sentence encoders: textual similarity and transfer, of any callable that turns sentences into vectors.

Import the parts by module: `sts` and `transfer` (the protocols), `sts_data` and `transfer_data` (the data sets), `encoder`
(transformers models as such a callable), `senteval` (in that package's place, for scripts that call it), `sts_command` and
`transfer_command` (``tempplug eval``). Knows nothing of how an encoder was trained.
"""
