"""One call of the loss: read its arguments, plan its blocks, run it. Private; `tempplug.ContrastiveLoss` is the door."""
