"""The suites of this distribution, in one module for each kind of data; importing them loads no framework."""
