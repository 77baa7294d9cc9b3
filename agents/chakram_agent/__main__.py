"""``python -m chakram_agent`` is ``chakram-agent``."""

import sys

from chakram_agent.cli import main

sys.exit(main())
