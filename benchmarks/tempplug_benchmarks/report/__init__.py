"""The report of benchmark results: comparisons and conclusions on a terminal, as Markdown, and as an HTML page with plots."""
