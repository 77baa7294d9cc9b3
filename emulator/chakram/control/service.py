"""The gRPC part of the protocol: its calls on both sides, channel options, TLS."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from chakram.control.protobuf_messages import MAX_MESSAGE_BYTES, pb
from chakram.foundation.errors import ConfigError
from chakram.foundation.ip_addresses import is_loopback

_M = TypeVar("_M", bound=Message)

HEARTBEAT_INTERVAL_NS = 300_000_000
"""Interval between heartbeats. Four may be late or lost before a lease ends."""

_SIZES = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
]
CHANNEL_OPTIONS: list[tuple[str, int]] = [
    *_SIZES,
    # Ignore proxies in environment variables, because they do not reach the lab.
    ("grpc.enable_http_proxy", 0),
    # Do not share connections between channels, because the agent at an address may be
    # replaced by another one.
    ("grpc.use_local_subchannel_pool", 1),
    # ``AgentClient`` retries the connection within its own time limit.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]
SERVER_OPTIONS: list[tuple[str, int]] = [
    *_SIZES,
    # Otherwise, two agents on one port would silently share the connections.
    ("grpc.so_reuseport", 0),
    # On TCP, connections come from ``chakram_agent.tls_gate``, which checks
    # certificates first.
    ("grpc.max_allowed_incoming_connections", 128),
]


# OpenSSL's reasons for errors if the key belongs to another certificate or is too weak.
_OTHER_KEY = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
_WEAK_KEY = ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Paths of a certificate, its private key and the CA certificate."""

    ca: Path
    cert: Path
    key: Path

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Return the contents of the files: CA certificate, certificate, private key.

        Raises:
            ConfigError: If a file cannot be read or is not valid.
        """
        contents = []
        for name, path in (("ca", self.ca), ("cert", self.cert), ("key", self.key)):
            try:
                contents.append(path.read_bytes())
            except OSError as error:
                raise ConfigError(
                    f"tls.{name}: {path}",
                    f"cannot be read ({error.strerror})",
                    "create certificates with chakram certs",
                ) from error
        self._check()
        return contents[0], contents[1], contents[2]

    def _check(self) -> None:
        """Check the files, because gRPC does not report what is wrong with a file."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_verify_locations(self.ca)
        except ssl.SSLError as error:
            raise ConfigError(
                f"tls.ca: {self.ca}",
                "contains no CA certificate in PEM format",
                "create ca.pem with chakram certs",
            ) from error
        try:
            # Chakram does not support keys that require a password.
            context.load_cert_chain(self.cert, self.key, password="")
        except ssl.SSLError as error:
            if error.reason in _OTHER_KEY:
                found = f"does not belong to the certificate {self.cert}"
            elif error.reason in _WEAK_KEY:
                found = f"the key of {self.cert} is too short to be safe"
            else:
                found = (
                    f"it or {self.cert} is not a PEM file that can be used without a "
                    "password"
                )
            raise ConfigError(
                f"tls.key: {self.key}",
                found,
                "create both with chakram certs",
            ) from error


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
    """Have a server pass the calls of the protocol to methods of the same names."""
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
