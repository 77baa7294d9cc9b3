"""Which agents of a run may get a certificate."""

from __future__ import annotations

import pytest

from chakram.control.call_home.enrollment import (
    Enrollment,
    EnrollmentStopped,
    host_token,
    job_token,
)
from chakram.control.call_home.token_file import TokenFile, parse_token_file
from chakram.foundation.errors import AgentError, ConfigError

SECRET = b"s" * 32
HOSTS = ("gpu1", "gpu2")


def enrollment(*, shares_token: bool = False) -> Enrollment:
    return Enrollment(
        secret=SECRET, names=HOSTS, shares_token=shares_token, ends_ns=100
    )


def enroll(
    door: Enrollment, name: str, token: bytes, *, source: str = "a:1", now_ns: int = 1
) -> str:
    """Admit an agent with a request that is unlike those of other connections."""
    request = source.encode()
    return door.enroll(name, token, request=request, source=source, now_ns=now_ns)


def test_each_host_enrolls_once_with_its_own_token() -> None:
    door = enrollment()
    assert not door.sources
    enroll(door, "gpu1", host_token(SECRET, "gpu1"), source="a:1")
    assert set(door.sources) == {"gpu1"}
    enroll(door, "gpu2", host_token(SECRET, "gpu2"), source="b:1", now_ns=1)
    assert set(door.sources) == set(HOSTS)


def test_hosts_with_one_command_share_a_token() -> None:
    door = enrollment(shares_token=True)
    for name in HOSTS:
        enroll(door, name, job_token(SECRET), source=name, now_ns=1)
    assert set(door.sources) == set(HOSTS)


@pytest.mark.parametrize(
    ("name", "token", "shares_token", "found"),
    [
        ("gpu1", b"", False, "not valid"),
        ("gpu1", b"s" * 32, False, "not valid"),
        ("gpu1", host_token(SECRET, "gpu2"), True, "not valid"),
        ("gpu1", host_token(b"t" * 32, "gpu1"), True, "not valid"),
        ("gpu1", job_token(SECRET), False, "not valid"),
        ("gpu3", job_token(SECRET), True, "not in the inventory"),
        ("gpu3", b"x", True, "not valid"),
        ("gpu3", host_token(SECRET, "gpu3"), False, "not in the inventory"),
    ],
)
def test_a_wrong_token_is_refused(
    name: str, token: bytes, shares_token: bool, found: str
) -> None:
    door = enrollment(shares_token=shares_token)
    with pytest.raises(AgentError, match=found):
        enroll(door, name, token, source="a:1")
    assert not door.sources
    assert door.stopped is None


def test_a_token_expires() -> None:
    door = enrollment()
    with pytest.raises(AgentError, match="expired"):
        enroll(door, "gpu1", host_token(SECRET, "gpu1"), source="a:1", now_ns=101)


def test_a_second_claim_stops_the_enrollment_and_names_both() -> None:
    door = enrollment()
    enroll(door, "gpu1", host_token(SECRET, "gpu1"), source="192.0.2.1:5", now_ns=1)
    with pytest.raises(EnrollmentStopped, match=r"192\.0\.2\.1:5 .*192\.0\.2\.9:6"):
        enroll(door, "gpu1", host_token(SECRET, "gpu1"), source="192.0.2.9:6", now_ns=2)
    with pytest.raises(EnrollmentStopped, match="gpu1"):
        enroll(door, "gpu2", host_token(SECRET, "gpu2"), source="192.0.2.2:5", now_ns=3)
    assert door.stopped is not None


def test_a_lost_answer_can_be_asked_for_again() -> None:
    door = enrollment()
    token = host_token(SECRET, "gpu1")
    for source in ("192.0.2.1:5", "192.0.2.1:6"):
        found = door.enroll("gpu1", token, request=b"r", source=source, now_ns=1)
        assert found == "gpu1"
    assert door.stopped is None


def test_a_claim_without_a_valid_token_stops_nothing() -> None:
    door = enrollment()
    enroll(door, "gpu1", host_token(SECRET, "gpu1"), source="a:1")
    with pytest.raises(AgentError, match="not valid"):
        enroll(door, "gpu1", b"guess", source="b:1", now_ns=1)
    assert door.stopped is None


def test_a_token_file_is_read_as_it_was_written() -> None:
    written = TokenFile(
        token=b"\1" * 32, authority=b"PEM", controllers=("192.0.2.1:7",), name="gpu1"
    )
    assert parse_token_file(written.to_bytes(), "token") == written


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"token": 5, "authority": "", "controllers": []}',
        b'{"token": "5", "authority": "", "controllers": [], "name": 1}',
        b'{"token": "zz", "authority": "", "controllers": []}',
        b'{"token": "", "authority": "", "controllers": [1]}',
        b'{"token": "", "authority": "", "controllers": 1}',
        b'{"token": "", "authority": "", "controllers": "192.0.2.1:7"}',
        b'{"token": "", "authority": "", "controllers": ["192.0.2.1"]}',
        b'{"token": "", "authority": "", "controllers": ["192.0.2.1:65536"]}',
        b'{"token": "", "authority": "", "controllers": ["a..b:7"]}',
        b'{"token": "", "authority": "", "controllers": [], "launcher_port": "7"}',
        b'{"token": "", "authority": "", "controllers": [], "launcher_port": 65536}',
        b'{"token": "", "authority": "", "controllers": [], "launcher_port": -1}',
        b"\xff",
    ],
)
def test_what_is_no_token_file_is_refused_without_its_content(text: bytes) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_token_file(text, "token.json")
    assert caught.value.where == "token.json"


@pytest.mark.parametrize(
    ("inventory", "called", "found"),
    [
        (("gpu1", "gpu2"), "gpu1.example", "gpu1"),
        (("gpu1.example", "gpu2.example"), "gpu2", "gpu2.example"),
        (("gpu1.a", "gpu1.b"), "gpu1", None),
        (("gpu1.a",), "gpu1.b", None),
        (("gpu1", "gpu1.a"), "gpu1.a", "gpu1.a"),
        (("gpu1", "gpu1.a"), "gpu1.b", "gpu1"),
    ],
)
def test_a_host_may_leave_out_or_add_its_domain(
    inventory: tuple[str, ...], called: str, found: str | None
) -> None:
    door = Enrollment(secret=SECRET, names=inventory, shares_token=True, ends_ns=100)
    if found is None:
        with pytest.raises(AgentError, match="not in the inventory"):
            enroll(door, called, job_token(SECRET), source="a:1")
    else:
        assert found == enroll(door, called, job_token(SECRET), source="a:1")
