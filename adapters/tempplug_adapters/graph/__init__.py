"""Graphs with any temperature strategy: GRACE (nodes), GraphCL (graphs), molecules, and the contract of PyGCL's losses."""
