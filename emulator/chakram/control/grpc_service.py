"""The gRPC part of the protocol: calls on both sides, channel options and TLS."""

from __future__ import annotations

import ssl
from typing import TypeVar

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from chakram.control.protobuf_messages import MAX_MESSAGE_BYTES, pb
from chakram.control.tls_files import TlsFiles
from chakram.foundation.ip_addresses import is_loopback

_M = TypeVar("_M", bound=Message)

HEARTBEAT_INTERVAL_NS = 300_000_000
"""Interval between heartbeats. Four missed heartbeats do not end a lease."""

_SIZES = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
]
CHANNEL_OPTIONS: list[tuple[str, int]] = [
    *_SIZES,
    # Ignore the proxies that environment variables name, because they do not reach the
    # lab.
    ("grpc.enable_http_proxy", 0),
    # Do not share connections between channels, because another agent may replace the
    # agent at an address.
    ("grpc.use_local_subchannel_pool", 1),
    # ``AgentClient`` retries the connection within its own time limit.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]
SERVER_OPTIONS: list[tuple[str, int]] = [
    *_SIZES,
    # With SO_REUSEPORT, two agents on one port would silently share the connections.
    ("grpc.so_reuseport", 0),
    # On TCP, connections come from ``chakram_agent.tls_gate``, which checks
    # certificates first.
    ("grpc.max_allowed_incoming_connections", 128),
]


def channel_credentials(tls: TlsFiles) -> grpc.ChannelCredentials:
    """Return the credentials with which a controller connects to agents.

    Raises:
        ConfigError: If a file cannot be read or is not valid.
    """
    ca, cert, key = tls.read()
    return grpc.ssl_channel_credentials(
        root_certificates=ca, private_key=key, certificate_chain=cert
    )


def server_context(tls: TlsFiles) -> ssl.SSLContext:
    """Return the TLS context of an agent, which requires client certificates.

    Raises:
        ConfigError: If a file cannot be read or is not valid.
    """
    tls.read()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(tls.ca)
    context.load_cert_chain(tls.cert, tls.key, password="")
    context.set_alpn_protocols(["h2"])
    return context


_SERVICE = pb.DESCRIPTOR.services_by_name["Agent"]


class AgentStub:
    """The calls of an agent, by their names in the protocol."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.Describe = _unary(channel, "Describe", pb.Description)
        self.ListPorts = _unary(channel, "ListPorts", pb.HostPorts)
        self.ClockPing = _unary(channel, "ClockPing", pb.ClockPong)
        self.Prepare = _unary(channel, "Prepare", pb.PrepareReply)
        self.Connect = _unary(channel, "Connect", pb.ConnectReply)
        self.Arm = _unary(channel, "Arm", pb.ArmReply)
        self.Abort = _unary(channel, "Abort", pb.AbortReply)
        self.Reset = _unary(channel, "Reset", pb.ResetReply)
        self.Watch: grpc.aio.StreamStreamMultiCallable[pb.Heartbeat, pb.AgentEvent] = (
            channel.stream_stream(
                f"/{_SERVICE.full_name}/Watch",
                request_serializer=_serialized,
                response_deserializer=pb.AgentEvent.FromString,
            )
        )


def _unary(
    channel: grpc.aio.Channel, name: str, reply: type[_M]
) -> grpc.aio.UnaryUnaryMultiCallable[Message, _M]:
    return channel.unary_unary(
        f"/{_SERVICE.full_name}/{name}",
        request_serializer=_serialized,
        response_deserializer=reply.FromString,
    )


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()


def serve_agent(agent: object, server: grpc.aio.Server) -> None:
    """Have a server pass calls to the methods of *agent* with the same names."""
    handlers = {}
    for method in _SERVICE.methods:
        handler = (
            grpc.stream_stream_rpc_method_handler
            if method.client_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        handlers[method.name] = handler(
            getattr(agent, method.name),
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=_serialized,
        )
    own = grpc.method_handlers_generic_handler(_SERVICE.full_name, handlers)
    server.add_generic_rpc_handlers((own,))


def is_local(target: str) -> bool:
    """Return whether *target* (unix:path or host:port) is on this machine."""
    return target.startswith("unix:") or is_loopback(target)
