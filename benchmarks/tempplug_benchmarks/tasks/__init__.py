"""The suites of this distribution, one module each; importing them loads no framework."""
