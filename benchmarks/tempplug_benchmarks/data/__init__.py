"""Generated data for the quick profile: sentences and a tiny untrained encoder, made in a second without a download."""
