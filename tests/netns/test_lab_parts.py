"""Parts of labs: processes, names, namespaces, probes, commands."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pyroute2 import AsyncIPRoute
from typer.testing import CliRunner

from chakram.cli.doctor import doctor
from chakram.cli.fabric import app
from chakram.fabric.enter_lab import enter_command
from chakram.fabric.labs.enter_namespace import (
    enter_namespace,
    in_namespace,
    run_in_namespace,
)
from chakram.fabric.labs.lab import start_lab, status
from chakram.fabric.labs.namespaces import (
    Sysctl,
    close_namespaces,
    host_sysctls,
    make_namespaces,
)
from chakram.fabric.labs.netlink import ask
from chakram.fabric.labs.netlink_requests import add_address, add_route, set_link
from chakram.fabric.labs.netns_mounts import (
    NETNS_DIRECTORY,
    bind_names,
    unbind_names,
)
from chakram.fabric.labs.user_namespace import has_net_admin
from chakram.fabric.machine_probe import LAB_PROBES, probe_all
from chakram.foundation.errors import ConfigError, FabricError, NoLab
from tests.leaks import own_lab
from tests.netns.labs import star
from tests.support import missing_root, require
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chakram.fabric.labs.namespaces import Namespace

EXPERIMENT = """\
version: 1
name: small
jobs:
  - name: moe
    trace: {synth: moe, ranks: 2, ep: 2, dp: 1, layers: 1}
fabric:
  kind: KIND
"""
NAMESPACES = """\
  topology: {single_switch: {hosts: 2}}
  links: {host: {rate: 250Mbit}}
"""


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """Return a namespace of a host; made by this process, so only for root."""
    require("root", missing_root())
    made, notes = make_namespaces({"alone": host_sysctls("ipv4")})
    assert notes == []
    yield made["alone"]
    close_namespaces(made)


def own_namespace() -> str:
    return os.readlink("/proc/thread-self/ns/net")


def test_thread_returns_from_a_namespace_after_an_error(
    namespace: Namespace,
) -> None:
    home = own_namespace()
    with in_namespace(namespace.descriptor):
        assert own_namespace() != home
    with pytest.raises(RuntimeError), in_namespace(namespace.descriptor):
        raise RuntimeError
    assert own_namespace() == home


def test_helper_thread_enters_a_namespace(namespace: Namespace) -> None:
    home = own_namespace()
    path = f"/proc/{os.getpid()}/fd/{namespace.descriptor}"
    inside = run_in_namespace(path, own_namespace)
    assert inside != home
    assert own_namespace() == home
    with pytest.raises(ZeroDivisionError):
        run_in_namespace(path, divmod, 1, 0)

    with run_in_namespace(
        path, socket.socket, socket.AF_INET, socket.SOCK_DGRAM
    ) as opened:
        opened.bind(("127.0.0.1", 0))  # lo is up


def test_path_that_is_no_namespace_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for path, found in (
        ("/proc/4194305/fd/3", "it does not exist"),
        (str(file), "it is not a network namespace"),
    ):
        with pytest.raises(FabricError, match=found):
            enter_namespace(path)


def test_missing_kernel_setting_is_logged_once() -> None:
    require("root", missing_root())
    wanted = Sysctl(path="ipv4/no_such_thing", value="1", without="it is a pity")
    unwanted = Sysctl(path="ipv4/no_other_thing", value="1")
    made, notes = make_namespaces({"a": (wanted, unwanted), "b": (wanted,)})
    close_namespaces(made)
    assert notes == ["this kernel has no net.ipv4.no_such_thing: it is a pity"]


def test_a_setting_that_the_kernel_refuses_is_an_error() -> None:
    require("root", missing_root())
    impossible = Sysctl(path="ipv4/ip_local_port_range", value="9 1")
    with pytest.raises(FabricError, match=r"cannot set .*ip_local_port_range to 9 1"):
        make_namespaces({"a": (impossible,)})


def test_kernel_error_is_reported(namespace: Namespace) -> None:
    address = add_address("198.18.0.1", prefix_length=24, index=1)
    namespace.netlink.execute([address])
    with pytest.raises(FabricError, match=r"alone: address 198\.18\.0\.1/24: .*assign"):
        namespace.netlink.execute([address])
    route = add_route("10.0.0.0", prefix_length=8, next_hops=[("192.0.2.1", 1)])
    with pytest.raises(
        FabricError, match=r"route to 10\.0\.0\.0/8: the kernel refused"
    ):
        namespace.netlink.execute([route, address])
    assert namespace.netlink.errno_of(address) != 0
    namespace.netlink.execute([])  # and goes on


def test_requests_are_answered_or_refused_by_name(namespace: Namespace) -> None:
    async def name_of(route: AsyncIPRoute, index: int) -> str:
        (link,) = await route.link("get", index=index)
        return str(link.get_attr("IFLA_IFNAME"))

    sockets = [namespace.netlink] * 2
    assert ask(sockets, lambda route: name_of(route, 1), "x") == ["lo", "lo"]
    with pytest.raises(FabricError, match=r"alone: interface 9: the kernel refused"):
        ask(sockets, lambda route: name_of(route, 9), "interface 9")
    namespace.netlink.execute([set_link(1, up=True, what="lo")])  # and goes on


def test_many_requests_are_done_in_order(namespace: Namespace) -> None:
    addresses = [
        add_address(
            f"198.18.{number // 250}.{number % 250 + 1}",
            prefix_length=32,
            index=1,
        )
        for number in range(1000)
    ]
    namespace.netlink.execute(addresses)
    assert all(namespace.netlink.errno_of(each) for each in addresses[::111])


def test_namespace_names_are_added_and_removed(namespace: Namespace) -> None:
    path, new = (NETNS_DIRECTORY / own_lab(name) for name in ("alone", "new"))
    bind_names({path.name: namespace.descriptor})
    try:
        assert path.stat().st_ino == os.fstat(namespace.descriptor).st_ino
        # A name that is taken: neither it nor the new one changes.
        with pytest.raises(FileExistsError):
            bind_names({new.name: namespace.descriptor, path.name: 0})
        assert not new.exists()
        assert path.exists()
    finally:
        unbind_names([path.name])
    unbind_names([path.name])
    assert not path.exists()


def test_every_probe_has_a_finding_and_labs_can_be_built() -> None:
    probes = {probe.name: probe for probe in probe_all()}
    assert all(probe.reason for probe in probes.values())
    assert all(probes[name].ok and probes[name].needed for name in LAB_PROBES)
    assert probes["udp-gso"].ok


def test_doctor_prints_all_probes(capsys: pytest.CaptureFixture[str]) -> None:
    doctor(as_json=True)
    found = json.loads(capsys.readouterr().out)["probes"]
    assert {"name": "veth", "ok": True} in [
        {key: each[key] for key in ("name", "ok")} for each in found
    ]
    doctor(as_json=False)
    assert "namespaces" in capsys.readouterr().out


@pytest.mark.parametrize("line", ["", "junk\n", '{"name": "X"}\n'])
def test_the_holder_answers_nonsense_with_an_error(line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "chakram.fabric.labs.holder"],
        input=line,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == FabricError.exit_code
    assert json.loads(done.stdout)["error"]["where"] == "lab description"
    assert done.stderr == ""


@pytest.mark.asyncio
async def test_a_program_starts_on_a_host(state_root: Path) -> None:
    async with await start_lab(star(2), lab_name=own_lab("on")) as handle:
        lab = handle.state
        script = "import os; print(os.readlink('/proc/self/ns/net'))"
        script += "; print(os.environ['CHAKRAM_STATE_DIR'])"
        command = [sys.executable, "-c", script]
        on_host, outside = (
            subprocess.run(  # noqa: ASYNC221 - nothing else waits
                enter_command(lab.holder_pid, command, netns=netns),
                capture_output=True,
                text=True,
                check=True,
            ).stdout.split()
            for netns in (lab.host("h1").netns, None)
        )
        missing = subprocess.run(  # noqa: ASYNC221 - nothing else waits
            enter_command(lab.holder_pid, ["/no/such/program"]),
            capture_output=True,
            text=True,
            check=False,
        )
        assert on_host[0] == f"net:[{os.stat(lab.host('h1').netns).st_ino}]"
    assert outside[0] == own_namespace()
    assert on_host[1] == outside[1] == str(state_root)
    assert missing.returncode == 127
    assert missing.stderr == "error: /no/such/program: No such file or directory\n"


def experiment(tmp_path: Path, kind: str, rest: str = "") -> str:
    path = tmp_path / "small.yaml"
    path.write_text(EXPERIMENT.replace("KIND", kind) + rest)
    return str(path)


def test_the_fabric_of_an_experiment_goes_up_and_down(tmp_path: Path) -> None:
    run = CliRunner().invoke
    small, other = own_lab("small"), own_lab("other")
    path = experiment(tmp_path, "namespaces", f"{NAMESPACES}lab: {small}\n")

    first = run(app, ["up", path, "--json"], catch_exceptions=False)
    second = run(app, ["up", path, "--lab", other], catch_exceptions=False)
    shown = run(app, ["status"], catch_exceptions=False)
    listed = run(app, ["status", "--json"], catch_exceptions=False)
    ended = run(app, ["down", small], catch_exceptions=False)
    again = run(app, ["down", small])
    rest = run(app, ["down", "--all", "--json"], catch_exceptions=False)
    nothing = run(app, ["status"], catch_exceptions=False)

    assert json.loads(first.stdout)["name"] == small
    assert json.loads(first.stdout)["topology"]["links"][0]["rate_bps"] == 250_000_000
    enter = (
        f"ip netns exec {other}-h0" if has_net_admin() else "chakram.fabric.enter_lab"
    )
    assert enter in second.stdout
    assert other in shown.stdout
    labs = json.loads(listed.stdout)["labs"]
    assert [(each["name"], each["alive"]) for each in labs] == [
        (other, True),
        (small, True),
    ]
    assert ended.stdout == f"removed: {small}\n"
    assert isinstance(again.exception, NoLab)
    assert f"existing labs: {other}" in str(again.exception)
    assert json.loads(rest.stdout) == {
        "schema": "chakram.labs-ended/1",
        "ended": [other],
        "in_use": [],
    }
    assert nothing.stdout == "there are no labs\n"
    assert status() == []


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["down"], "names no lab"),
        (["down", "small", "--all"], "names both a lab and --all"),
    ],
)
def test_down_needs_a_name(arguments: list[str], found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_only_fabrics_of_namespaces_are_built(tmp_path: Path) -> None:
    path = experiment(tmp_path, "loopback", "  ports: 2\n")
    with pytest.raises(ConfigError, match="there is nothing to build for 'loopback'"):
        CliRunner().invoke(app, ["up", path], catch_exceptions=False)
