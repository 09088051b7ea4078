"""Evaluation of masked language models: what stereotypes they prefer, on StereoSet and CrowS-Pairs.

Import the parts by module: `stereoset` and `crows_pairs` (the data and the protocols), `masked_language_model` (transformers
models as what they ask), `bias_data` (where the files are), `command` (``tempplug eval bias``). Knows nothing of how a model
was trained.
"""
