"""Evaluation of sentence encoders, any callable from sentences to vectors: `sts` and `transfer` hold the protocols."""
