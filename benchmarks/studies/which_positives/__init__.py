"""Which positives: a teacher, several documents a query."""
