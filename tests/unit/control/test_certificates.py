from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from chakram.control.certificates import (
    make_certificates,
    new_authority,
    private_pem,
)
from chakram.foundation.errors import ConfigError, EnvironmentProblem


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_one_authority_signs_all_certificates(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    written = make_certificates(folder, {"h1": ["192.0.2.11", "h1.example"]})
    assert [path.name for path in written] == [
        f"{name}.{kind}"
        for name in ("ca", "controller", "h1")
        for kind in ("pem", "key")
    ]
    authority = load(folder / "ca.pem")
    for name in ("controller", "h1"):
        load(folder / f"{name}.pem").verify_directly_issued_by(authority)


def test_an_agents_certificate_names_its_addresses(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"h1": ["192.0.2.11", "h1.example"]})
    names = (
        load(tmp_path / "h1.pem")
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )
    assert names.get_values_for_type(x509.IPAddress) == [IPv4Address("192.0.2.11")]
    assert names.get_values_for_type(x509.DNSName) == ["h1.example"]


def test_a_host_may_have_a_long_name(tmp_path: Path) -> None:
    name = f"chakram-agents-0.{60 * 'a'}"
    make_certificates(tmp_path, {name: [name]})
    alternatives = load(tmp_path / f"{name}.pem").extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert alternatives.value.get_values_for_type(x509.DNSName) == [name]


def test_certificate_of_an_agent_cannot_control_others(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"h1": ["192.0.2.11"]})
    usage = {
        name: list(
            load(tmp_path / f"{name}.pem")
            .extensions.get_extension_for_class(x509.ExtendedKeyUsage)
            .value
        )
        for name in ("h1", "controller")
    }
    assert usage == {
        "h1": [ExtendedKeyUsageOID.SERVER_AUTH],
        "controller": [ExtendedKeyUsageOID.CLIENT_AUTH],
    }


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    for path in make_certificates(folder, {"h1": ["192.0.2.11"]}):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_agents_are_added_under_the_same_authority(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"h1": ["192.0.2.11"]})
    before = (tmp_path / "ca.pem").read_bytes()
    make_certificates(tmp_path, {"h2": ["192.0.2.12"]})
    assert (tmp_path / "ca.pem").read_bytes() == before
    load(tmp_path / "h2.pem").verify_directly_issued_by(load(tmp_path / "ca.pem"))


@pytest.mark.parametrize(
    ("agents", "sentence"),
    [
        ({"h1": []}, "--agent h1: it has no address"),
        ({"../h1": ["192.0.2.1"]}, "names contain only letters"),
        ({"ca": ["192.0.2.1"]}, "--agent ca: that name is reserved"),
        ({"h1": ["192.0.2.1:7411"]}, "is neither an address nor a host name"),
        ({"h1": [""]}, "is neither an address nor a host name"),
    ],
)
def test_wrong_names_and_addresses_are_refused(
    tmp_path: Path, agents: dict[str, list[str]], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make_certificates(tmp_path, agents)
    assert not list(tmp_path.glob("h1*"))


def test_a_damaged_authority_is_not_replaced(tmp_path: Path) -> None:
    make_certificates(tmp_path, {})
    (tmp_path / "ca.key").write_text("x")
    with pytest.raises(ConfigError, match="authority cannot be used"):
        make_certificates(tmp_path, {})


def test_the_key_of_another_authority_is_refused(tmp_path: Path) -> None:
    make_certificates(tmp_path / "a", {})
    make_certificates(tmp_path / "b", {})
    (tmp_path / "a" / "ca.key").replace(tmp_path / "b" / "ca.key")
    with pytest.raises(ConfigError, match=r"not the key of ca\.pem"):
        make_certificates(tmp_path / "b", {})


def test_failure_to_create_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        make_certificates(tmp_path / "file" / "certs", {})


def write_authority(folder: Path, *, ends: datetime) -> None:
    made = new_authority(ends - timedelta(days=9), ends, name="chakram authority")
    data = made.certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "ca.pem").write_bytes(data)
    (folder / "ca.key").write_bytes(private_pem(made.key))


def test_an_authority_that_has_expired_signs_nothing(tmp_path: Path) -> None:
    write_authority(tmp_path, ends=datetime.now(UTC) - timedelta(days=1))
    with pytest.raises(ConfigError, match=r"ca\.pem: expired on 20"):
        make_certificates(tmp_path, {"h1": ["192.0.2.11"]})
    assert not (tmp_path / "h1.pem").exists()


def test_no_certificate_outlives_its_authority(tmp_path: Path) -> None:
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    write_authority(tmp_path, ends=ends)
    make_certificates(tmp_path, {"h1": ["192.0.2.11"]})
    assert load(tmp_path / "h1.pem").not_valid_after_utc == ends


def test_only_the_authority_can_sign(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"h1": ["192.0.2.11"]})

    def may_sign(name: str) -> tuple[bool, int | None, bool]:
        extensions = load(tmp_path / f"{name}.pem").extensions
        limits = extensions.get_extension_for_class(x509.BasicConstraints)
        usage = extensions.get_extension_for_class(x509.KeyUsage)
        assert limits.critical
        assert usage.critical
        return limits.value.ca, limits.value.path_length, usage.value.key_cert_sign

    # No authority may stand between it and those who use what it signs.
    assert may_sign("ca") == (True, 0, True)
    assert may_sign("h1") == may_sign("controller") == (False, None, False)


def test_the_authority_lives_longer_than_what_it_signs(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"h1": ["192.0.2.11"]}, days=10)

    def ends(name: str) -> datetime:
        return load(tmp_path / f"{name}.pem").not_valid_after_utc

    assert ends("h1") == ends("controller")
    assert ends("ca") - ends("h1") == timedelta(days=30)
    assert load(tmp_path / "h1.pem").not_valid_before_utc <= datetime.now(UTC)
