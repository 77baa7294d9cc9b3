"""The ``chakram`` command, also as ``python -m chakram``."""

import faulthandler
import gc
import os
import signal
import sys
from contextlib import suppress

_INTERRUPTED = 130
"""Exit code of ``chakram.foundation.errors.RunInterrupted``, not imported so early."""

GARBAGE_THRESHOLD = 1_000_000
"""Objects that may come, more than go, before somebody looks for cycles: nearly all
live as long as the command, and looking at them took a tenth to a quarter of it, or at
100,000 still a tenth of simulations of hundreds of ranks."""


def main() -> int:
    """Run the command; return its exit code."""
    gc.set_threshold(GARBAGE_THRESHOLD)
    # What native code of a library ends (an abort, a fault) would end without a word.
    if sys.stderr is not None:
        faulthandler.enable()
    # Loading takes a few tenths of a second, and Ctrl-C in them would end in a
    # traceback of whatever is being imported.  Without a handler the signal just ends
    # the process.  What is ignored, as in the background of a script, stays ignored.
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from chakram.cli import main as run
    from chakram.cli.common.standard_streams import outlive_readers

    signal.signal(signal.SIGINT, handler)
    outlive_readers()
    code = run()
    if code == _INTERRUPTED:
        # To free the gigabytes of a large simulation first would take half a minute.
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                with suppress(OSError, ValueError):
                    stream.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
