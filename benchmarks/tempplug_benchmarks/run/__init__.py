"""Planning benchmark runs, executing them on this machine or a cluster, and storing their results."""
