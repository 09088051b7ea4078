"""``tempplug demo``: shows the temperatures of each strategy on given embeddings, and their effect on the gradient."""
