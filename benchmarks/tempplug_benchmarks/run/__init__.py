"""What is to be run, its execution on this machine or a cluster, and its results on disk."""
