"""The process that serves the counters of a lab's modeled switches through gNMI.

``python -m chakram.fabric.modeled_switch.gnmi_server LAB_DIRECTORY`` reads a request as
one line of JSON: an object with ``addresses`` (the ``host:port`` of each switch by
name) and ``facts`` (a description of the switches). It answers with the ``addresses``
that it listens on, in which a free port replaces port 0. It ends when standard input
closes.

Each switch is a separate gNMI server, which supports Capabilities, Get and Subscribe.
It serves the paths of SONiC (with COUNTERS_DB, STATE_DB and CONFIG_DB as targets) and
of OpenConfig. The counters come from the switch process, which answers requests between
packets.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import grpc

from chakram.fabric.labs.holder_protocol import ask_holder, encode_error
from chakram.fabric.labs.link_counters import COUNTERS_REQUEST
from chakram.fabric.process_control import die_with_parent
from chakram.foundation.errors import ChakramError, FabricError
from chakram.switch.telemetry_counters import description_tree, switch_tree
from chakram.telemetry.gnmi_messages import (
    decode_path,
    encode_path,
    pb,
    pb_grpc,
    require_gnmi,
)

LEAST_INTERVAL_NS = 1_000_000
"""The shortest interval between two samples."""

_DEFAULT_INTERVAL_NS = 10**9
_FRESH_NS = 1_000_000
_CHANGE_S = 0.1
_ENTRY = re.compile(r"^([^\[]+)\[([^=\]]+)=([^\]]*)\]$")

Elements = tuple[str, ...]


class LabTree:
    """Data of all switches of a lab, read from the lab on request.

    Args:
        directory: Directory of the lab.
        facts: Description of the switches.
    """

    def __init__(self, directory: str, facts: Mapping[str, str]) -> None:
        self._directory = directory
        self._facts = facts
        self._lock = asyncio.Lock()
        self._counted: dict[str, dict[str, Any]] = {}
        self._trees: dict[str, dict[str, Any]] = {}
        self._read_ns = -_FRESH_NS
        self._time_ns = 0

    def wall_ns(self) -> int:
        """Return the current time on the switches' clock."""
        return time.time_ns()

    async def of(
        self, switch: str, first: set[str], fresh_ns: int = _FRESH_NS
    ) -> tuple[int, dict[str, Any]]:
        """Return the data of a switch, and a time at which the data was current.

        Args:
            switch: Name of the switch.
            first: First elements of the requested paths.
            fresh_ns: Maximum age of the counters.

        Raises:
            FabricError: If the lab does not answer.
        """
        described = description_tree({**self._facts, "hostname": switch})
        if first <= described.keys():
            return self.wall_ns(), described
        async with self._lock:
            if time.monotonic_ns() - self._read_ns > fresh_ns:
                # Use the time before the request, because the counters include all
                # events until then.
                time_ns, read_ns = self.wall_ns(), time.monotonic_ns()
                answer = await asyncio.to_thread(
                    ask_holder, self._directory, COUNTERS_REQUEST
                )
                self._time_ns, self._read_ns = time_ns, read_ns
                self._trees.clear()
                self._counted.clear()
                for name, counted in answer["ports"].items():
                    node, _, port = name.rpartition(":")
                    self._counted.setdefault(node, {})[port] = counted
            if switch not in self._trees:
                tree = switch_tree(self._counted.get(switch, {}))
                self._trees[switch] = tree | described
            return self._time_ns, self._trees[switch]


class SwitchServicer:
    """The gNMI service of one switch.

    Args:
        tree: Data of all switches of the lab.
        switch: Name of the switch.
    """

    def __init__(self, tree: LabTree, switch: str) -> None:
        self._tree = tree
        self._switch = switch

    async def Capabilities(self, _request: Any, _context: Any) -> Any:
        """Return the gNMI version and the supported encodings."""
        return pb.CapabilityResponse(
            supported_encodings=[pb.JSON, pb.JSON_IETF], gNMI_version="0.10.0"
        )

    async def Get(self, request: Any, context: Any) -> Any:
        """Return the values at the requested paths."""
        # The empty path selects everything.
        first = {each.elem[0].name if each.elem else "" for each in request.path}
        try:
            time_ns, tree = await self._tree.of(self._switch, first)
        except ChakramError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        response = pb.GetResponse()
        for path in request.path:
            found = list(select(tree, decode_path(request.prefix, path)))
            if not found:
                text = f"no such path: {'/'.join(decode_path(path))}"
                await context.abort(grpc.StatusCode.NOT_FOUND, text)
            response.notification.append(
                notification(time_ns, found, request.prefix.target, request.encoding)
            )
        return response

    async def Set(self, _request: Any, context: Any) -> Any:
        """Reject the request, because the switch model is configured elsewhere."""
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED, "the switch model is configured elsewhere"
        )

    async def Subscribe(
        self, requests: AsyncIterator[Any], context: Any
    ) -> AsyncIterator[Any]:
        """Send samples, changes, or the current values once."""
        asked = (await anext(requests)).subscribe
        wanted = [
            (decode_path(asked.prefix, each.path), each) for each in asked.subscription
        ]
        intervals = [each.sample_interval or _DEFAULT_INTERVAL_NS for _, each in wanted]
        if not wanted or min(intervals) < LEAST_INTERVAL_NS:
            text = "needs paths, and intervals of at least 1 ms"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        target, encoding = asked.prefix.target, asked.encoding
        sent: dict[int, list[tuple[Elements, Any]]] = {}
        due_s = [0.0] * len(wanted)
        is_synced = False
        are_changes = all(each.mode == pb.ON_CHANGE for _, each in wanted)
        fresh_ns = round(_CHANGE_S * 1e9) if are_changes else _FRESH_NS
        loop = asyncio.get_running_loop()
        while True:
            try:
                time_ns, tree = await self._tree.of(self._switch, {""}, fresh_ns)
            except ChakramError as error:
                await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            now_s = loop.time()
            for number, (elements, each) in enumerate(wanted):
                if now_s < due_s[number]:
                    continue
                found = list(select(tree, elements))
                if not found and not is_synced:
                    text = f"no such path: {'/'.join(elements)}"
                    await context.abort(grpc.StatusCode.NOT_FOUND, text)
                is_sample = each.mode != pb.ON_CHANGE
                step_s = intervals[number] * 1e-9 if is_sample else _CHANGE_S
                due_s[number] = max(due_s[number] + step_s, now_s + step_s / 2)
                if is_sample or sent.get(number) != found:
                    sent[number] = found
                    yield pb.SubscribeResponse(
                        update=notification(time_ns, found, target, encoding)
                    )
            if not is_synced:
                is_synced = True
                yield pb.SubscribeResponse(sync_response=True)
            if asked.mode != pb.SubscriptionList.STREAM:
                return
            await asyncio.sleep(max(0.0, min(due_s) - loop.time()))


def select(tree: Any, elements: Elements) -> Iterator[tuple[Elements, Any]]:
    """Yield the path and content of each node that a path with wildcards selects.

    A list element without a key selects all entries of the list, as in gNMI.
    """
    waiting: list[tuple[Elements, Any, Elements]] = [((), tree, elements)]
    while waiting:
        done, content, rest = waiting.pop(0)
        if not rest:
            yield done, content
            continue
        if not isinstance(content, dict):
            continue
        key = "" if "[" in rest[0] else r"(\[.*\])?"
        pattern = re.compile(re.escape(rest[0]).replace(r"\*", ".*") + key)
        for name, inner in content.items():
            if pattern.fullmatch(name):
                waiting.append(((*done, name), inner, rest[1:]))


def notification(
    time_ns: int, found: list[tuple[Elements, Any]], target: str, encoding: int
) -> Any:
    """Return a notification with JSON values.

    JSON_IETF encodes 64-bit numbers as text (RFC 7951, section 6.1). All numbers here
    have 64 bits.
    """
    message = pb.Notification(timestamp=time_ns)
    message.prefix.target = target
    kind = "json_val" if encoding == pb.JSON else "json_ietf_val"
    for elements, content in found:
        update = message.update.add(path=encode_path(elements))
        value = as_json(content, as_text=kind == "json_ietf_val")
        setattr(update.val, kind, json.dumps(value).encode())
    return message


def as_json(content: Any, *, as_text: bool = False) -> Any:
    """Return nested objects, with the entries of each list collected in a JSON array.

    Args:
        content: Nested mappings. A name may contain a list key, as in
            ``name[key=value]``.
        as_text: Whether to encode numbers as text.
    """
    if not isinstance(content, dict):
        return str(content) if as_text else content
    made: dict[str, Any] = {}
    for name, inner in content.items():
        entry = _ENTRY.match(name)
        if entry is None:
            made[name] = as_json(inner, as_text=as_text)
        else:
            listed = made.setdefault(entry[1], [])
            listed.append({entry[2]: entry[3], **as_json(inner, as_text=as_text)})
    return made


async def serve(tree: LabTree, wanted: Mapping[str, str]) -> None:
    """Serve the data of switches until standard input closes.

    Args:
        tree: Data of all switches of the lab.
        wanted: Address to listen on, by switch.

    Raises:
        FabricError: If an address cannot be used.
    """
    servers, addresses = [], {}
    for switch, address in wanted.items():
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        pb_grpc.add_gNMIServicer_to_server(SwitchServicer(tree, switch), server)
        try:
            port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise FabricError("gnmi server", f"cannot listen on {address}") from error
        await server.start()
        servers.append(server)
        addresses[switch] = f"{address.rpartition(':')[0]}:{port}"
    _say(json.dumps({"addresses": addresses}))
    await asyncio.to_thread(sys.stdin.read)
    for server in servers:
        await server.stop(0)


def main(arguments: list[str]) -> int:
    """Serve the data of one lab's switches, and return the exit status."""
    die_with_parent(os.getppid())
    try:
        require_gnmi()
        request = json.loads(sys.stdin.readline())
        asyncio.run(
            serve(LabTree(arguments[0], request["facts"]), request["addresses"])
        )
    except ChakramError as error:
        _say(encode_error(error))
        return error.exit_code
    return 0


def _say(line: str) -> None:
    os.write(sys.stdout.fileno(), line.encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
