"""``chakram doctor``: check this machine, the user's privileges and the RDMA NICs."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict
from typing import Annotated

import typer

from chakram.cli.common.escaping_console import Console, Table
from chakram.cli.common.options import Json, print_json
from chakram.foundation.errors import EnvironmentProblem
from chakram.foundation.platform_support import require_linux

_DURATION_S = 1.0


def doctor(
    nic: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            help="Measure how fast an RDMA device (e.g. mlx5_0) sends, instead of "
            "checking this machine.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address of the RDMA device to use. Default: its first global "
            "address.",
        ),
    ] = None,
    duration_s: Annotated[
        float | None,
        typer.Option(
            "--duration",
            metavar="SECONDS",
            min=0.01,
            max=60,
            help="Duration of each measurement of an RDMA device. Default: 1.",
        ),
    ] = None,
    peer: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS:PORT",
            help="Send to the RDMA device of another host, on which doctor --listen "
            "runs.",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS:PORT",
            help="Wait for measurements by doctor --peer on another host. Any host "
            "that can connect can start a measurement.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check this machine, or measure an RDMA device.

    The exit code is 3 if this machine cannot build namespace labs.
    """
    require_linux("chakram doctor")
    if nic is None and (address, duration_s, peer, listen) != (None, None, None, None):
        raise typer.BadParameter(
            "--address, --duration, --peer and --listen need --nic DEVICE"
        )
    if listen is not None and (duration_s, peer, as_json) != (None, None, False):
        raise typer.BadParameter(
            "--listen can be combined only with --nic and --address"
        )
    if nic is not None and listen is not None:
        _serve_nic(nic, address, listen)
        return
    if nic is not None:
        _measure_nic(nic, address, duration_s or _DURATION_S, peer, as_json=as_json)
        return
    from chakram.fabric.machine_probe import probe_all

    probes = probe_all()
    missing = [probe for probe in probes if probe.needed and not probe.ok]
    if as_json:
        print_json("doctor", {"probes": [asdict(probe) for probe in probes]})
    else:
        table = Table("probe", "", "finding")
        for probe in probes:
            mark = "ok" if probe.ok else "MISSING" if probe.needed else "-"
            table.add_row(probe.name, mark, probe.reason)
        Console().print(table)
        if missing:
            print(
                "this machine cannot build namespace labs; fabric kind loopback works"
            )
    if missing:
        raise typer.Exit(EnvironmentProblem.exit_code)


def _serve_nic(name: str, address: str | None, listen: str) -> None:
    from chakram.rdma.benchmark_ends import serve
    from chakram.rdma.nic_device import find_nic, open_device

    host, port = _place(listen, "--listen")
    with closing(open_device(name)) as device:
        nic = find_nic(device, address)
        try:
            listener = socket.create_server(
                (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
            )
        except OSError as error:
            raise EnvironmentProblem(f"--listen {listen}", str(error)) from None
        with listener:
            print(f"{nic.name} ({nic.address}): ready at {listen}", flush=True)
            counters = serve(device, nic, listener)
    print(_counters_line(counters))


def _place(text: str, option: str) -> tuple[str, int]:
    """Return host and port of an option.

    Raises:
        ConfigError: If the option does not have both.
    """
    from chakram.settings.addresses import check_listen_address

    host, _, port = check_listen_address(text, option).rpartition(":")
    return host.strip("[]"), int(port)


def _counters_line(counters: Mapping[str, int], of: str = "") -> str:
    return f"Counters{of}: " + ", ".join(f"{key} {n}" for key, n in counters.items())


def _measure_nic(
    name: str,
    address: str | None,
    duration_s: float,
    peer: str | None,
    *,
    as_json: bool,
) -> None:
    from chakram.foundation.units import format_rate, format_size
    from chakram.rdma.benchmark_ends import LocalReceiver, RemoteReceiver
    from chakram.rdma.hardware_counters import counted, read_counters
    from chakram.rdma.nic_benchmark import measure
    from chakram.rdma.nic_device import find_nic, open_device
    from chakram.rdma.nic_settings import gids_of, nic_settings

    def tell(text: str) -> None:
        print(f"measuring {text}", file=sys.stderr, flush=True)

    with ExitStack() as stack:
        device = stack.enter_context(closing(open_device(name)))
        nic = find_nic(device, address)
        settings = nic_settings(name, nic.gid_index)
        interface = settings.get("interface", "")
        before = read_counters(name, interface)
        remote = None
        if peer is not None:
            remote = stack.enter_context(
                closing(RemoteReceiver(*_place(peer, "--peer")))
            )
        receiver = remote or LocalReceiver(device, nic)
        rates = list(measure(device, nic, receiver, duration_s=duration_s, tell=tell))
        counters = counted(before, read_counters(name, interface))
        remote_counters = None if remote is None else remote.counters()
    if as_json:
        trials = [
            {
                **asdict(each),
                "messages_per_s": each.messages_per_s,
                "bits_per_s": each.bits_per_s,
            }
            for each in rates
        ]
        gids = [
            dict(zip(("index", "address", "type", "interface"), each, strict=True))
            for each in gids_of(name)
        ]
        print_json(
            "nic",
            {
                **asdict(nic),
                "gids": gids,
                "settings": settings,
                "trials": trials,
                "counters": counters,
                "peer": None
                if remote is None
                else {"name": remote.name, "counters": remote_counters},
            },
        )
        return
    print(
        f"{nic.name}, firmware {nic.firmware or 'unknown'}: {nic.address}, path MTU "
        f"{nic.path_mtu}, port rate "
        + ("unknown" if nic.rate_bps is None else format_rate(nic.rate_bps))
    )
    for index, gid, kind, interface in gids_of(name):
        print(f"GID {index}: {gid}, {kind}, {interface or 'no interface'}")
    print("Settings: " + ", ".join(f"{key} {text}" for key, text in settings.items()))
    print(
        "Both ends are on this device."
        if remote is None
        else f"The other end is {remote.name} of {remote.host}."
    )
    table = Table(
        *("size", "queue pairs", "list", "messages/s", "us/post", "rate"), "ib_write_bw"
    )
    for each in rates:
        table.add_row(
            format_size(each.size_bytes),
            str(each.queue_pairs),
            str(each.list_length),
            f"{each.messages_per_s:.0f}",
            f"{each.post_ns * each.list_length / each.messages / 1000:.1f}",
            format_rate(round(each.bits_per_s)),
            "" if each.perftest_bps is None else format_rate(round(each.perftest_bps)),
        )
    Console().print(table)
    best = max(rates, key=lambda each: each.bits_per_s)
    least = min(
        (each for each in rates if each.bits_per_s > 0.95 * best.bits_per_s),
        key=lambda each: (each.size_bytes, each.queue_pairs),
    )
    print(
        f"Use messages of at least {format_size(least.size_bytes)} on "
        f"{least.queue_pairs} queue pairs, in lists of {least.list_length}: this "
        f"reaches {format_rate(round(least.bits_per_s))}."
    )
    print(_counters_line(counters))
    if remote_counters is not None:
        print(_counters_line(remote_counters, " of the other end"))
