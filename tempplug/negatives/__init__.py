"""Which negatives count, and how much: terms that are added to the logits of negatives."""
