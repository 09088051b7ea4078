"""``tempplug sweep``: how much the temperature matters for a training of one's own."""
