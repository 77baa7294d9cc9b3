"""Tokens, names and origins decide who may come in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from chakram.foundation.errors import ConfigError
from chakram.service import access
from chakram.service.access import Tokens, add_user
from chakram.service.request_guard import is_own_host, is_own_origin


def test_a_token_is_known_by_its_digest_only(tmp_path: Path) -> None:
    path = tmp_path / "users"
    first, second = add_user(path, "alice", "run"), add_user(path, "bob", "read")
    tokens = Tokens(path)
    alice, bob = tokens.find(first), tokens.find(second)
    assert alice is not None
    assert bob is not None
    assert (alice.name, alice.may_run, bob.name, bob.may_run) == (
        *("alice", True),
        *("bob", False),
    )
    for wrong in ("", first[:-1], first + "x", "\udcff"):
        assert tokens.find(wrong) is None
    content = path.read_text()
    assert first not in content
    assert path.stat().st_mode & 0o077 == 0


def test_a_user_keeps_token_and_role(tmp_path: Path) -> None:
    path = tmp_path / "users"
    add_user(path, "alice", "read")
    before = path.read_text()
    with pytest.raises(ConfigError, match="alice: is already a user"):
        add_user(path, "alice", "run")
    assert path.read_text() == before
    # Names that begin alike are other users.
    add_user(path, "ali", "read")


def test_changes_of_the_file_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "users"
    first = add_user(path, "alice", "run")
    path.write_text(path.read_text().rstrip())  # an editor without a last line end
    moment = (10**18, 10**18)
    os.utime(path, ns=moment)
    read = access.read_bounded
    more: list[str] = []

    def reading(path: Path, **options: Any) -> bytes:
        found: bytes = read(path, **options)
        if not more:
            # It changes after it was read, within a tick of the clock of files.
            more.append(add_user(path, "bob", "read"))
            os.utime(path, ns=moment)
        return found

    monkeypatch.setattr(access, "read_bounded", reading)
    tokens = Tokens(path)
    found = [tokens.find(token) for token in (first, *more)]
    assert [user and user.name for user in found] == ["alice", "bob"]


@pytest.mark.parametrize(("name", "role"), [("a b", "run"), ("", "run"), ("a", "root")])
def test_wrong_users_are_refused(tmp_path: Path, name: str, role: str) -> None:
    with pytest.raises(ConfigError):
        add_user(tmp_path / "users", name, role)


@pytest.mark.parametrize("line", ["alice run", "alice root " + "0" * 64, "a run 00"])
def test_wrong_lines_are_told(tmp_path: Path, line: str) -> None:
    path = tmp_path / "users"
    path.write_text(f"# users\n\n{line}\n")
    with pytest.raises(ConfigError, match="users:3"):
        Tokens(path)


OWN = frozenset(("127.0.0.1", "localhost", "::1", "lab.example"))


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8642", "localhost", "[::1]:80", "LAB.example:1"]
)
def test_own_names(host: str) -> None:
    assert is_own_host(host, OWN)


@pytest.mark.parametrize(
    "host", ["", "evil.example", "127.0.0.1.evil.example", "lab.example.", "[::2]:80"]
)
def test_other_names(host: str) -> None:
    assert not is_own_host(host, OWN)


def test_origins() -> None:
    assert is_own_origin("https://lab.example:8642", "lab.example:8642")
    for other in ("https://evil.example", "null", "", "http://lab.example"):
        assert not is_own_origin(other, "lab.example:8642")
