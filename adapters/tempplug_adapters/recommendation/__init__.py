"""Sequential recommendation: histories of items, a transformer over them, and DCRec on top of it."""
