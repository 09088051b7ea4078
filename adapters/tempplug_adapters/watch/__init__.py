"""``tempplug watch``: what a training looks like while it runs, and what is known to be harmful in it."""
