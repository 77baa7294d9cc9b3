"""``chakram certs`` asks for the right certificates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography import x509

from chakram.cli import main
from tests.support import REPO_ROOT

EXTERNAL = str(REPO_ROOT / "configs/external.yaml")


def addresses_in(path: Path) -> list[str]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [str(name.value) for name in names.value]


def test_agents_of_an_experiment_get_certificates(tmp_path: Path) -> None:
    assert main(["certs", EXTERNAL, "--out", str(tmp_path)]) == 0
    assert {path.stem for path in tmp_path.glob("*.pem")} == {
        "ca",
        "controller",
        "h1",
        "h2",
        "h3",
        "h4",
    }
    assert addresses_in(tmp_path / "h2.pem") == ["192.0.2.12"]


def test_agents_may_be_named_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["certs", "--out", str(tmp_path), "--agent", "a=192.0.2.1,a.example"]
    assert main(arguments) == 0
    assert addresses_in(tmp_path / "a.pem") == ["192.0.2.1", "a.example"]
    assert f"keep {tmp_path / 'ca.key'} here" in capsys.readouterr().out


def test_what_was_written_is_one_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["certs", "--json", "--agent", "a=192.0.2.1,a.example"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document.pop("schema") == "chakram.certificates/1"
    written = {Path(path) for path in document.pop("written")}
    assert written == set(tmp_path.iterdir())
    assert document == {
        "authority_key": str(tmp_path / "ca.key"),
        "agents": {"a": ["192.0.2.1", "a.example"]},
        "warnings": [],
    }


@pytest.mark.parametrize(
    ("mode", "who"), [(0o777, "every user"), (0o775, "its group"), (0o755, None)]
)
def test_a_folder_that_others_may_write_to_is_warned_of(
    mode: int, who: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    assert main(["certs", "--out", str(folder), "--agent", "a=192.0.2.1"]) == 0
    told = capsys.readouterr().err
    assert told.startswith("chakram: warning: ") == (who is not None)
    if who is not None:
        assert f"{folder}: {who} can write to this folder" in told


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "no agent is named"),
        (["--agent", "h1"], "has no address"),
        (
            [str(REPO_ROOT / "configs/loopback.yaml")],
            "'loopback' needs no certificates",
        ),
    ],
)
def test_without_agents_there_is_nothing_to_do(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certs", *arguments]) == 2
    assert expected in capsys.readouterr().err
