"""``tempplug watch``: shows the progress of a training and warns of known problems."""
