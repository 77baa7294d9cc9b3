"""The archive with an agent that needs no installation."""

from __future__ import annotations

import io
import json
import random
import sys
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from chakram.foundation.errors import ConfigError, EnvironmentProblem
from chakram.launch.agent_bundle import AgentBundle, make_bundle

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def bundle() -> AgentBundle:
    return make_bundle()


def opened(bundle: AgentBundle) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(bundle.data))


def test_the_name_contains_the_digest_of_the_files(bundle: AgentBundle) -> None:
    with opened(bundle) as archive:
        names = archive.getnames()
        file = archive.extractfile(f"{bundle.folder}/bundle.json")
        assert file is not None
        told = json.load(file)
    assert bundle.folder == f"chakram-agent-{told['version']}-{told['digest']}"
    assert {name.partition("/")[0] for name in names} == {bundle.folder}
    assert f"{bundle.folder}/chakram-agent" in names


def test_equal_installations_give_equal_archives(bundle: AgentBundle) -> None:
    assert make_bundle() == bundle


def test_what_only_the_controller_needs_is_left_out(bundle: AgentBundle) -> None:
    with opened(bundle) as archive:
        packages = {
            name.split("/")[2]
            for name in archive.getnames()
            if name.startswith(f"{bundle.folder}/site/")
        }
    assert {"chakram", "chakram_agent", "grpc", "pyroute2", "cryptography"} <= packages
    assert not packages & {"pyarrow", "bokeh", "pydantic", "numpy", "yaml", "rich"}


def test_the_bundle_is_small(bundle: AgentBundle) -> None:
    assert bundle.unpacked_bytes <= 40 << 20


def test_a_bundle_is_made_without_binutils(
    bundle: AgentBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with opened(make_bundle()) as archive, opened(bundle) as stripped:
        names = [each.partition("/")[2] for each in archive.getnames()]
        assert names == [each.partition("/")[2] for each in stripped.getnames()]


def python_archive(path: Path, version: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo(f"python/bin/python{version}")
        info.size = 4
        archive.addfile(info, io.BytesIO(b"true"))
        link = tarfile.TarInfo("python/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, f"python{version}"
        archive.addfile(link)
        outside = tarfile.TarInfo("python/../../etc/passwd")
        archive.addfile(outside)
    return path


def test_an_interpreter_goes_into_the_bundle(
    bundle: AgentBundle, tmp_path: Path
) -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    made = make_bundle(python_archive(tmp_path / "python.tar.gz", version))
    # A host that has the bundle without one keeps the folder of that name.
    assert made.folder != bundle.folder
    with opened(made) as archive:
        names = archive.getnames()
    assert f"{made.folder}/python/bin/python{version}" in names
    assert f"{made.folder}/python/bin/python3" in names
    assert not any(".." in name for name in names)


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_an_interpreter_that_does_not_fit_is_refused(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "python.tar.gz"
    if content is None:
        python_archive(path, "2.7")
    else:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="--python"):
        make_bundle(path)


@pytest.mark.parametrize("form", ["gz", "xz", "bz2"])
def test_a_damaged_interpreter_is_refused(tmp_path: Path, form: str) -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    path = tmp_path / f"python.tar.{form}"
    mode: Any = f"w:{form}"
    with tarfile.open(path, mode) as archive:
        info = tarfile.TarInfo(f"python/bin/python{version}")
        info.size = 100_000
        letters = bytes(random.Random(1).choices(b"abcdefgh", k=info.size))
        archive.addfile(info, io.BytesIO(letters))
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(64)
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"--python .*: cannot be read \(.*\) "):
        make_bundle(path)


def test_an_installation_that_crashes_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing = tmp_path / "python"
    crashing.write_text("#!/bin/sh\nkill -9 $$\n")
    crashing.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(crashing))
    with pytest.raises(EnvironmentProblem, match="its process ended with -9"):
        make_bundle()
