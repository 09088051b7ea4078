"""The speed suite: time, memory and accuracy of a loss's forward and backward pass, compared with other implementations."""
