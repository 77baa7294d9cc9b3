"""The ``chakram`` command, also as ``python -m chakram``."""

import faulthandler
import signal
import sys

__all__ = ["main"]


def main() -> int:
    """Run the command; return its exit code."""
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

    signal.signal(signal.SIGINT, handler)
    return run()


if __name__ == "__main__":
    sys.exit(main())
