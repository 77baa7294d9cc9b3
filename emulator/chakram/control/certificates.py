"""Certificates for the controller and the agents of one lab.

One authority signs all certificates, and both sides of a connection present their
certificate. An agent therefore accepts commands only from the controller, and the
controller connects only to its agents. Only the owner of the key files can read them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from chakram.foundation.errors import ConfigError, EnvironmentProblem

CA = "ca"
CONTROLLER = "controller"
VALID_DAYS = 825
"""Longest validity that strict verifiers accept. The CA is valid four times as long."""
_CLOCK_SKEW = timedelta(hours=1)
"""Time by which certificates are backdated, because clocks of hosts in a lab may
differ."""
_LONGEST_COMMON_NAME = 64
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority, with its certificate and private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_certificates(
    folder: Path, agents: Mapping[str, Sequence[str]], *, days: int = VALID_DAYS
) -> list[Path]:
    """Create certificates for the controller and for *agents* in *folder*.

    If *folder* contains an authority (``ca.pem`` and ``ca.key``), that authority signs
    the new certificates, so you can add agents later. New certificates replace existing
    certificates of the same names.

    Args:
        folder: Folder for the files. Created if missing.
        agents: Addresses and host names that controllers connect to, by agent name.
        days: Validity of the certificates in days.

    Returns:
        The files that were written.

    Raises:
        ConfigError: If a name or an address is invalid, or the authority is damaged or
            has expired.
        EnvironmentProblem: If a file cannot be written.
    """
    for name, addresses in agents.items():
        _check_name(name)
        if not addresses:
            raise ConfigError(
                f"--agent {name}", "it has no address", "e.g. --agent h1=192.0.2.11"
            )
    now = datetime.now(UTC)
    written: list[Path] = []
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = _load_authority(folder)
        if authority is None:
            authority = new_authority(
                now - _CLOCK_SKEW,
                now + timedelta(days=4 * days),
                name="chakram authority",
            )
            written += _write_pair(folder, CA, authority.certificate, authority.key)
        authority_ends = authority.certificate.not_valid_after_utc
        if authority_ends <= now:
            raise ConfigError(
                f"{folder / CA}.pem",
                f"expired on {authority_ends:%Y-%m-%d}",
                "choose an empty folder, and give all hosts new certificates",
            )
        for name, addresses in {CONTROLLER: (), **agents}.items():
            key = ec.generate_private_key(ec.SECP256R1())
            certificate = sign(
                authority,
                # Clients check only the alternative names. Shorten the common name,
                # because X.509 limits its length.
                subject=name[:_LONGEST_COMMON_NAME],
                alternatives=[_alternative(name, each) for each in addresses]
                or [x509.DNSName(name)],
                # Restrict the purpose, so that a stolen agent key does not allow
                # control of other agents.
                purpose=(
                    ExtendedKeyUsageOID.SERVER_AUTH
                    if addresses
                    else ExtendedKeyUsageOID.CLIENT_AUTH
                ),
                key=key.public_key(),
                begins=now - _CLOCK_SKEW,
                ends=min(now + timedelta(days=days), authority_ends),
            )
            written += _write_pair(folder, name, certificate, key)
    except OSError as error:
        raise EnvironmentProblem(
            f"{error.filename or folder}", f"cannot be written ({error.strerror})"
        ) from error
    return written


def _check_name(name: str) -> None:
    if not name or not set(name) <= _SAFE or name.startswith("."):
        raise ConfigError(
            f"--agent {name!r}", "names contain only letters, digits, dots and dashes"
        )
    if name in (CA, CONTROLLER):
        raise ConfigError(
            f"--agent {name}", "that name is reserved", "choose another name"
        )


def new_authority(begins: datetime, ends: datetime, *, name: str) -> Authority:
    """Return a new authority that is valid between two times."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = common_name(name)
    builder = _builder(
        subject, subject, key.public_key(), begins, ends, is_authority=True
    )
    return Authority(certificate=builder.sign(key, hashes.SHA256()), key=key)


def _load_authority(folder: Path) -> Authority | None:
    """Return the authority in *folder*, or None if there is none."""
    certificate_file, key_file = folder / f"{CA}.pem", folder / f"{CA}.key"
    if not certificate_file.exists() and not key_file.exists():
        return None
    try:
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(
            str(certificate_file),
            f"the existing certificate authority cannot be used ({error})",
            "provide both ca.pem and ca.key, or choose an empty folder",
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or (
        key.public_key() != certificate.public_key()
    ):
        raise ConfigError(str(key_file), "it is not the key of ca.pem")
    return Authority(certificate=certificate, key=key)


def sign(
    authority: Authority,
    *,
    subject: str,
    alternatives: Sequence[x509.GeneralName],
    purpose: x509.ObjectIdentifier,
    key: ec.EllipticCurvePublicKey,
    begins: datetime,
    ends: datetime,
) -> x509.Certificate:
    """Return a certificate for *key*.

    Args:
        authority: Authority that signs the certificate.
        subject: Common name of the subject.
        alternatives: Names and addresses that the certificate is valid for.
        purpose: Extended key usage, which restricts a certificate to one side.
        key: Public key of the subject.
        begins: Start of the certificate's validity.
        ends: End of the certificate's validity.
    """
    issuer = authority.certificate.subject
    own = common_name(subject)
    return (
        _builder(own, issuer, key, begins, ends, is_authority=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(
                authority.key.public_key()
            ),
            critical=False,
        )
        .sign(authority.key, hashes.SHA256())
    )


def _alternative(name: str, address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(address))
    except ValueError:
        pass
    if not address or not set(address) <= _SAFE:
        raise ConfigError(
            f"--agent {name}={address}",
            f"{address!r} is neither an address nor a host name",
            "leave out the port, e.g. --agent h1=192.0.2.11",
        )
    return x509.DNSName(address)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    begins: datetime,
    ends: datetime,
    *,
    is_authority: bool,
) -> x509.CertificateBuilder:
    constraints = x509.BasicConstraints(
        ca=is_authority, path_length=0 if is_authority else None
    )
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False
        )
        .add_extension(constraints, critical=True)
        .add_extension(usage, critical=True)
    )


def common_name(common: str) -> x509.Name:
    """Return a name that consists of a common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _write_pair(
    folder: Path,
    name: str,
    certificate: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
) -> list[Path]:
    certificate_file, key_file = folder / f"{name}.pem", folder / f"{name}.key"
    _write(key_file, private_pem(key))
    _write(certificate_file, certificate.public_bytes(serialization.Encoding.PEM))
    return [certificate_file, key_file]


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key in PEM, without a password."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, data: bytes) -> None:
    """Atomically write a file that only its owner can read."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    draft.replace(path)
