"""``tempplug demo``: which temperature each strategy would use on some embeddings, and what that does to the gradient."""
