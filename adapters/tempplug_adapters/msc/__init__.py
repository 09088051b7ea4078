"""Anomaly detection with the mean-shifted contrastive loss (MSC): what is far from normal images is an anomaly."""
