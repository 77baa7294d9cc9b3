"""Conversion of queue pair ends on NICs to and from messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from chakram.control.dataclass_codec import Mapper
from chakram.control.protobuf_messages import pb
from chakram.foundation.errors import PeerError
from chakram.foundation.field_bounds import Fault
from chakram.plan.nic_queue_pairs import Bindings, Peers

_T = TypeVar("_T")

_REPLIES = Mapper(Bindings, pb.PrepareReply)
_READY = Mapper(Bindings, pb.ShardReady)
_REQUESTS = Mapper(Peers, pb.ConnectRequest, beyond=["session"])
_COMMANDS = Mapper(Peers, pb.ShardConnect)

encode_reply = _REPLIES.encode
encode_ready = _READY.encode
encode_request = _REQUESTS.encode
encode_command = _COMMANDS.encode


def decode_reply(message: pb.PrepareReply, *, where: str) -> Bindings:
    """Return the queue pair ends that an agent has created.

    Raises:
        PeerError: If a value is out of range. *where* is the error's location.
    """
    return _decoded(_REPLIES.decode, message, where)


def decode_ready(message: pb.ShardReady, *, where: str) -> Bindings:
    """Return the queue pair ends that a shard has created; see ``decode_reply``."""
    return _decoded(_READY.decode, message, where)


def decode_request(message: pb.ConnectRequest) -> Peers:
    """Return the remote ends from the controller; see ``decode_reply``."""
    return _decoded(_REQUESTS.decode, message, "controller")


def decode_command(message: pb.ShardConnect) -> Peers:
    """Return the remote ends from the agent; see ``decode_reply``."""
    return _decoded(_COMMANDS.decode, message, "agent")


def _decoded(decode: Callable[[Any], _T], message: object, where: str) -> _T:
    try:
        return decode(message)
    except Fault as fault:
        raise PeerError(where, f"{fault.path}: {fault.found}") from None
