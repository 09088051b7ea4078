"""What the evaluations of several modalities share."""
