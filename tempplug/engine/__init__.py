"""Engines: the similarity matrix, through the logit map, to row statistics. Private; `tempplug.ContrastiveLoss` is the door."""
