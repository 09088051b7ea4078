"""``tempplug bench`` with the toy suite installed, as a program of its own that tests can kill."""

from __future__ import annotations

import sys

from toy_suite import Plugin

from tempplug.cli import main
from tempplug.plugins import registry

registry().register(Plugin(), "toy")  # in its child processes, too
if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
