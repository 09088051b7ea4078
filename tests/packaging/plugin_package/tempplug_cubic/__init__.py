"""A temperature strategy, an objective and a listener of a third party."""
