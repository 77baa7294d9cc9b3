"""Start several agents in one process, which imports their modules once for all.

These imports take most of the start, and seconds in an emulated guest. The arguments
are, for each agent, its log and the arguments of ``chakram-agent``, and ``--`` between
agents. The process ends with the first agent that ends, and ends all others then.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import groupby

from chakram_agent.cli import main


def started(log: str, *arguments: str) -> int:
    """Fork an agent; return its process ID."""
    pid = os.fork()
    if pid:
        return pid
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for standard in (1, 2):
        os.dup2(file, standard)
    code = main(arguments)
    sys.stdout.flush()
    os._exit(code)


def run() -> None:
    """Start the agents, and wait for an end."""
    words = groupby(sys.argv[1:], lambda word: word == "--")
    agents = [started(*each) for is_between, each in words if not is_between]

    def end(*_: object) -> None:
        for pid in agents:
            os.kill(pid, signal.SIGTERM)
        sys.exit(1)

    signal.signal(signal.SIGTERM, end)
    agents.remove(os.wait()[0])
    end()


if __name__ == "__main__":
    run()
