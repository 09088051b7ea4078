"""Evaluation of image backbones: nearest neighbours, linear probes, long tails, geometry of representations, plots."""
