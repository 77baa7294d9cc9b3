"""gNMI messages: paths, values and subscriptions.

Specification: openconfig/reference, rpc/gnmi/gnmi-specification.md, version 0.10.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from chakram.foundation.errors import ConfigError
from chakram.telemetry.mapping import Elements, decode_json

if TYPE_CHECKING:
    from chakram.telemetry.mapping import TelemetryMapping


MISSING = ConfigError(
    "fabric.telemetry",
    "the Python package gnmi-pb is not installed",
    'install it: pip install "chakram[telemetry]"',
)

try:
    from gnmi_pb import gnmi_pb2, gnmi_pb2_grpc
except (ImportError, RuntimeError):  # absent, or generated for a newer grpcio
    gnmi_pb2 = gnmi_pb2_grpc = None

pb: Any = gnmi_pb2
"""Module with the generated messages."""
pb_grpc: Any = gnmi_pb2_grpc
"""Module with the generated service."""

_KEYED = re.compile(r"^([^\[]+)((?:\[[^=\]]+=[^\]]*\])*)$")
_KEY = re.compile(r"\[([^=\]]+)=([^\]]*)\]")


def require_gnmi() -> None:
    """Check that the generated messages are available.

    Raises:
        ConfigError: If the package is not installed.
    """
    if pb is None:
        raise MISSING


def encode_path(elements: Iterable[str], target: str | None = None) -> Any:
    """Return a ``Path`` with these elements."""
    path = pb.Path(target=target or "")
    for element in elements:
        keyed = _KEYED.match(element)
        if keyed is None:
            path.elem.add(name=element)
            continue
        added = path.elem.add(name=keyed[1])
        for key, value in _KEY.findall(keyed[2]):
            added.key[key] = value
    return path


def decode_path(*paths: Any) -> Elements:
    """Return the elements of a prefix and a path."""
    return tuple(
        each.name + "".join(f"[{key}={each.key[key]}]" for key in sorted(each.key))
        for path in paths
        for each in path.elem
    )


def decode_value(value: Any) -> object:
    """Return the content of a ``TypedValue`` as plain data.

    Raises:
        ValueError: If the value contains invalid JSON.
    """
    kind = value.WhichOneof("value")
    match kind:
        case "json_val" | "json_ietf_val":
            return decode_json(getattr(value, kind))
        case "leaflist_val":
            return [decode_value(each) for each in value.leaflist_val.element]
        case "decimal_val":
            precision = value.decimal_val.precision
            return value.decimal_val.digits / 10**precision if precision < 19 else None
        case "bytes_val" | "proto_bytes" | "any_val" | None:
            return None
        case _:
            return getattr(value, kind)


def updates(notification: Any) -> Iterator[tuple[Elements, object]]:
    """Yield the path and content of each value in a ``Notification``.

    If a value cannot be read, its content is the error.
    """
    for update in notification.update:
        elements = decode_path(notification.prefix, update.path)
        try:
            yield elements, decode_value(update.val)
        except ValueError as error:
            yield elements, error


def encoding_of(mapping: TelemetryMapping) -> int:
    """Return the number of the encoding that a mapping requests."""
    return int(pb.Encoding.Value(mapping.encoding.upper()))


def prefix_of(target: str | None) -> Any:
    """Return the prefix that names a target, or None if there is no target."""
    return encode_path((), target) if target else None


def subscription(
    mapping: TelemetryMapping,
    target: str | None,
    paths: Iterable[Elements],
    **mode: int,
) -> Any:
    """Return a request for a stream of the values at *paths*.

    Args:
        mapping: Mapping that determines the encoding.
        target: Target of the paths, or None.
        paths: Paths to subscribe to.
        mode: Fields of each ``Subscription``: ``mode`` and ``sample_interval``.
    """
    return pb.SubscribeRequest(
        subscribe=pb.SubscriptionList(
            mode=pb.SubscriptionList.STREAM,
            encoding=encoding_of(mapping),
            prefix=prefix_of(target),
            subscription=[
                pb.Subscription(path=encode_path(path), **mode) for path in paths
            ],
        )
    )
