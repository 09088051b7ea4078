"""The speed suite: time, memory and exactness of a loss's forward and backward pass, tempplug beside what people use today."""
