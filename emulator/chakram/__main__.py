"""``python -m chakram`` is the ``chakram`` command."""

import sys

from chakram.cli import main

if __name__ == "__main__":
    sys.exit(main())
