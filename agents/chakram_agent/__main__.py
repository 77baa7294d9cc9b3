"""Entry point of ``python -m chakram_agent``, the same as ``chakram-agent``."""

import sys

from chakram_agent.cli import main

sys.exit(main())
