"""Evaluation of masked language models: what stereotypes they prefer, on StereoSet and CrowS-Pairs."""
