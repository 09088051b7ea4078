"""``python -m tempplug``: the command ``tempplug`` of this interpreter, also where its folder of commands is not on the path."""

import sys

from tempplug.cli import main

if __name__ == "__main__":
    sys.exit(main())
