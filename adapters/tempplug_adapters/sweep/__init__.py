"""``tempplug sweep``: measures how much the temperature matters for the user's own training command."""
