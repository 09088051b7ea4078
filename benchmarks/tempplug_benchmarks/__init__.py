"""Benchmark suites of tempplug: measured numbers beside the papers'. Importing this loads no torch."""
