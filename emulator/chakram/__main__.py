"""The ``chakram`` command, also as ``python -m chakram``."""

import faulthandler
import gc
import signal
import sys

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
    from chakram.cli.standard_streams import outlive_readers

    signal.signal(signal.SIGINT, handler)
    outlive_readers()
    return run()


if __name__ == "__main__":
    sys.exit(main())
