"""Entry point of ``chakram-agent`` and of ``python -m chakram_agent``."""

import sys

from chakram.foundation.errors import EnvironmentProblem
from chakram.foundation.platform_support import require_linux


def main() -> int:
    """Run the command and return its exit code."""
    try:
        require_linux("chakram-agent")
    except EnvironmentProblem as error:
        print(f"chakram-agent: {error}", file=sys.stderr)
        return error.exit_code
    # Import lazily, because on systems other than Linux the import of ``cli`` fails.
    from chakram_agent.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
