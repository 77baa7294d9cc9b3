"""The ``chakram`` command, also available as ``python -m chakram``."""

import atexit
import faulthandler
import gc
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import NoReturn

_INTERRUPTED = 130
"""Exit code of ``chakram.foundation.errors.RunInterrupted``, copied to avoid an
import."""

GARBAGE_THRESHOLD = 1_000_000
"""Number of net allocations that triggers a search for reference cycles.

Nearly all objects live as long as the command. With Python's default threshold, garbage
collection took 10 to 25 % of the run time. With a threshold of 100,000 it still took 10
% in simulations with hundreds of ranks."""

ends_after_verb = False
"""Whether this process ends after one verb, and may therefore do without numpy."""


def main() -> int:
    """Run the command and return its exit code."""
    gc.set_threshold(GARBAGE_THRESHOLD)
    # An abort or a fault in native code would otherwise print nothing.
    if sys.stderr is not None:
        faulthandler.enable()
    # The imports take a few tenths of a second. Python's handler would print a
    # traceback if you pressed Ctrl-C in that time. The default action of the signal
    # just ends the process. If the signal is ignored, as in a script's background jobs,
    # it stays ignored.
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The search for Pydantic plugins reads the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from chakram.cli import main as run
    from chakram.cli.common.broken_pipes import outlive_readers

    signal.signal(signal.SIGINT, handler)
    outlive_readers()
    code = run()
    if code == _INTERRUPTED:
        # Freeing the gigabytes of a large simulation would take half a minute.
        _end(code)
    return code


def command() -> NoReturn:
    """Run the command, and end the process with its exit code.

    Objects are not freed, because freeing them takes a tenth of the time of a verb that
    prints a run. The process waits for other threads as usual.
    """
    global ends_after_verb
    ends_after_verb = True
    code = main()
    if threading.active_count() > 1:
        sys.exit(code)
    atexit._run_exitfuncs()
    _end(code)


def _end(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
    os._exit(code)


if __name__ == "__main__":
    command()
