"""``tempplug advise``: which temperature and strategy suit given pairs, from a short training on them."""
