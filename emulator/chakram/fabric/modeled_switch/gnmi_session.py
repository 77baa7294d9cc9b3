"""The gNMI servers of a lab's modeled switches, for the duration of a run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from chakram.fabric.labs.holder_protocol import raise_error
from chakram.fabric.labs.lab_files import register_process, unregister
from chakram.fabric.local_agent import drop_if_empty, wait_or_kill
from chakram.foundation.errors import FabricError

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.fabric.labs.lab_spec import LabState


_START_S = 20
_STOP_S = 5


@asynccontextmanager
async def serving(
    lab: LabState, addresses: Mapping[str, str], facts: Mapping[str, str], log: Path
) -> AsyncIterator[dict[str, str]]:
    """Serve the counters of modeled switches until the end of the block.

    Args:
        lab: Running lab with modeled switches.
        addresses: Address to listen on, by switch. Port 0 selects any free port.
        facts: Description of the switches.
        log: File for the output of the process.

    Yields:
        The addresses on which the servers listen, by switch.

    Raises:
        FabricError: If the servers do not start.
    """
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m"),
            *("chakram.fabric.modeled_switch.gnmi_server", lab.directory),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=output,
            # Ctrl-C in a terminal must not end the servers before the run.
            start_new_session=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        register_process(lab.name, process.pid, "gnmi")
        request = {"addresses": dict(addresses), "facts": dict(facts)}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        line = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_S):
                line = await process.stdout.readline()
        if not line:
            raise FabricError(
                f"lab {lab.name}",
                "the gNMI servers of its switches did not start",
                f"see {log}",
            )
        fields = json.loads(line)
        raise_error(fields)
        yield fields["addresses"]
    finally:
        process.stdin.close()
        await wait_or_kill(process, _STOP_S)
        unregister(lab.name, process.pid)
        drop_if_empty(log)
