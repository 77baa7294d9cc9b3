"""Settings of certificates for connections to agents."""

from __future__ import annotations

from pydantic import Field

from chakram.settings.quantities import FilePath, Model


class TlsSettings(Model):
    """Certificates for mutual TLS with the agents."""

    ca: FilePath = Field(examples=["certs/ca.pem"])
    """Certificate of the authority that signed the agents' certificates."""
    cert: FilePath = Field(examples=["certs/controller.pem"])
    """The controller's certificate, signed by the same authority."""
    key: FilePath = Field(examples=["certs/controller.key"])
    """Private key of the controller's certificate."""
