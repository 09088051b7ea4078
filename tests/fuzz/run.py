"""Runs fuzzers for as long as one likes; see `fuzzing`."""

import sys

from fuzzing import main

if __name__ == "__main__":
    sys.exit(main())
