"""The certificate authority of one run, whose key stays in the controller's memory."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from chakram.control.certificates import (
    Authority,
    common_name,
    new_authority,
    private_pem,
    sign,
)
from chakram.foundation.errors import PeerError

CONTROLLER_HOST = "controller.chakram.invalid"
"""Name in the controller's certificate. Agents may reach it at any address."""
AGENT_VALID = timedelta(hours=1)
"""Validity of an agent's certificate. The agent renews it after half of this time."""
_RUN_VALID = timedelta(days=30)
"""Validity of the authority and of the controller's certificate. It limits the use of
the authority if the controller does not end."""
_BACKDATED = timedelta(days=1)
"""Time by which certificates are backdated, because clocks of hosts may be wrong."""
_ROLE = "urn:chakram:agent:"


class RunAuthority:
    """Certificate authority for the agents and the controller of one run."""

    def __init__(self) -> None:
        now = datetime.now(UTC)
        self._authority: Authority = new_authority(
            now - _BACKDATED, now + _RUN_VALID, name="chakram run"
        )

    @property
    def certificate(self) -> bytes:
        """Certificate of the authority in PEM, to let agents check the controller."""
        return self._authority.certificate.public_bytes(serialization.Encoding.PEM)

    def sign_request(self, name: str, request: bytes) -> bytes:
        """Return a certificate in PEM for the agent *name*.

        Args:
            name: Name of the agent, which replaces the subject of the request.
            request: Certificate signing request in DER.

        Raises:
            PeerError: If the request is not valid, or its key has an unsupported type.
        """
        key = self.check_request(name, request)
        now = datetime.now(UTC)
        certificate = sign(
            self._authority,
            subject="chakram agent",
            alternatives=[
                x509.UniformResourceIdentifier(f"{_ROLE}{name.encode().hex()}")
            ],
            purpose=ExtendedKeyUsageOID.CLIENT_AUTH,
            key=key,
            begins=now - _BACKDATED,
            ends=now + AGENT_VALID,
        )
        return certificate.public_bytes(serialization.Encoding.PEM)

    def check_request(self, name: str, request: bytes) -> ec.EllipticCurvePublicKey:
        """Check a certificate signing request, and return its public key.

        Raises:
            PeerError: If the request is not valid, or its key has an unsupported type.
        """
        try:
            parsed = x509.load_der_x509_csr(request)
            key = parsed.public_key()
            is_own = parsed.is_signature_valid
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise PeerError(
                f"agent {name!r}", f"its certificate request is not valid ({error})"
            ) from None
        if not is_own or not isinstance(key, ec.EllipticCurvePublicKey):
            raise PeerError(f"agent {name!r}", "its certificate request is not valid")
        return key

    def server_context(self) -> ssl.SSLContext:
        """Return the TLS context of the controller's listener.

        Agents without a certificate can connect, but can only enroll.
        """
        now = datetime.now(UTC)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = sign(
            self._authority,
            subject="chakram controller",
            alternatives=[x509.DNSName(CONTROLLER_HOST)],
            purpose=ExtendedKeyUsageOID.SERVER_AUTH,
            key=key.public_key(),
            begins=now - _BACKDATED,
            ends=now + _RUN_VALID,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        load_pair(context, certificate.public_bytes(serialization.Encoding.PEM), key)
        context.load_verify_locations(cadata=self.certificate.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        return context


def new_key_and_request() -> tuple[ec.EllipticCurvePrivateKey, bytes]:
    """Return a new private key, and a certificate signing request for it in DER."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(common_name("chakram agent"))
        .sign(key, hashes.SHA256())
    )
    return key, request.public_bytes(serialization.Encoding.DER)


def client_context(
    authority: bytes, pair: tuple[bytes, ec.EllipticCurvePrivateKey] | None
) -> ssl.SSLContext:
    """Return the TLS context of an agent.

    Args:
        authority: Certificate of the run's authority in PEM.
        pair: The agent's certificate in PEM and its key. None to enroll.

    Raises:
        ssl.SSLError: If the certificates are not valid.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=authority.decode())
    if pair is not None:
        load_pair(context, *pair)
    return context


def load_pair(
    context: ssl.SSLContext, certificate: bytes, key: ec.EllipticCurvePrivateKey
) -> None:
    """Load a certificate and its key into a context, without a file on a disk."""
    with _in_memory(certificate) as first, _in_memory(private_pem(key)) as second:
        context.load_cert_chain(first, second)


def agent_name(subject: ssl.SSLObject) -> str | None:
    """Return the agent name in a connection's certificate, or None if there is none."""
    certificate: dict[str, Any] = dict(subject.getpeercert() or {})
    for kind, value in certificate.get("subjectAltName", ()):
        if kind == "URI" and value.startswith(_ROLE):
            return bytes.fromhex(value.removeprefix(_ROLE)).decode()
    return None


@contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """Yield the path of a file that exists only in memory."""
    descriptor = os.memfd_create("chakram", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
