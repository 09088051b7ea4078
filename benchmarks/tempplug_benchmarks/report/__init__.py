"""The report of results: comparisons and what they say, on a terminal, as Markdown and as a page with plots."""
