"""Sequential recommendation: who took which item when, a transformer over histories, and DCRec on top of it."""
