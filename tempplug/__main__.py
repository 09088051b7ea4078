"""``python -m tempplug``: the command ``tempplug`` of this interpreter, also where the shell does not find the command."""

import sys

from tempplug.cli import main

if __name__ == "__main__":
    sys.exit(main())
