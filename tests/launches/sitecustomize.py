"""On the PYTHONPATH of launched processes: each of several waits a moment at its end, as `docs/distributed.md` advises.

PyTorch 2.13 aborts a process whose interpreter ends while a thread of gloo still holds something of the last collective.
"""

import atexit
import os
import time

if int(os.environ.get("WORLD_SIZE", "1")) > 1:
    atexit.register(time.sleep, 0.5)
