"""Certificate files, with checks that explain what is wrong with a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from chakram.foundation.errors import ConfigError

# OpenSSL's error reasons for a key of another certificate and for a weak key.
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
        # Import on demand, because data-plane processes load this module, too.
        import ssl

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
