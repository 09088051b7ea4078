"""Generated data for profile ``quick``: sentences and a tiny untrained encoder, without a download."""
