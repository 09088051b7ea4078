"""MABEL: gender bias in masked language models attenuated by entailment pairs and their counterfactuals."""
