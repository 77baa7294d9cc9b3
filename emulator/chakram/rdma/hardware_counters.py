"""Counters of RDMA devices, under common names.

Drivers name their counters differently, and count different things. This module uses
the counter names of the Open Traffic Generator where it defines them. A counter that a
driver lacks is absent, which differs from 0.

Sources: the drivers mlx5, bnxt_re, irdma and rxe of the Linux kernel. For the network
interface of a device: the drivers mlx5_core, bnxt_en and ice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

SYSFS = Path("/sys/class/infiniband")

_WORD_BYTES = 4
_NARROW = 1 << 32

COUNTERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "ecn_ce_rx": (("np_ecn_marked_roce_packets",), ("RxECNMrkd",)),
    "cnp_tx": (("np_cnp_sent",), ("cnpSent",)),
    "cnp_rx": (("rp_cnp_handled", "rp_cnp_ignored"), ("cnpHandled", "cnpIgnored")),
    "nak_rx": (("packet_seq_err",), ("seq_err_naks_rcvd",), ("rcvd_seq_err",)),
    "frame_sequence_error": (
        ("out_of_sequence",),
        ("oos_drop_count",),
        ("out_of_seq_request",),
    ),
    "duplicate_request": (("duplicate_request",), ("dup_req",)),
    "ack_timeout": (("local_ack_timeout_err",), ("completer_retry_err",)),
    "data_frames_retransmitted": (("to_retransmits", "missing_resp"), ("RetransSegs",)),
    "rnr_nak_rx": (("rnr_naks_rcvd",), ("rcvd_rnr_err",), ("rnr_nak_retry_err",)),
    "out_of_receives": (("out_of_buffer",), ("rx_out_of_buffer",), ("send_rnr_err",)),
    "retries_exceeded": (
        ("req_transport_retries_exceeded",),
        ("max_retry_exceeded",),
        ("retry_exceeded_err",),
    ),
    "icrc_errors": (("rx_icrc_encapsulated",),),
    "packets_tx": (("tx_pkts",), ("sent_pkts",)),
    "packets_rx": (("rx_pkts",), ("rcvd_pkts",)),
    "bytes_tx": (("tx_bytes",),),
    "bytes_rx": (("rx_bytes",),),
}
"""For each name, alternatives for different drivers. The counters of one alternative
are added up."""


_PFC_FRAMES = r"{0}_prio\d_pause|{0}_pfc_ena_frames_pri\d|{0}_priority_\d_xo(n|ff)\.nic"
OF_INTERFACE: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern)
    for name, pattern in {
        "pfc_rx": _PFC_FRAMES.format("rx"),
        "pfc_tx": _PFC_FRAMES.format("tx"),
        "discards_rx": r"rx_discards_phy|rx_total_discard_pkts|rx_dropped\.nic",
        "discards_tx": r"tx_discards_phy|tx_total_discard_pkts",
    }.items()
}
"""For each name, the interface statistics (``ethtool -S``) that are added up."""

NAMES = (*COUNTERS, *OF_INTERFACE)
"""Names of all counters."""

_WORDS = {"bytes_tx": "port_xmit_data", "bytes_rx": "port_rcv_data"}
"""Port counters in units of four bytes, for drivers without byte counters."""


_READ = frozenset(
    (
        *_WORDS.values(),
        *(
            name
            for alternatives in COUNTERS.values()
            for own in alternatives
            for name in own
        ),
    )
)


def read_counters(
    device: str, interface: str = "", sysfs: Path = SYSFS
) -> dict[str, int]:
    """Return the raw counters of a device's first port, under the driver's names.

    Counters that cannot be read are omitted, and so are counters without a common name.

    Args:
        device: Name of the device.
        interface: Name of the device's network interface. Empty if unknown.
        sysfs: Folder with the RDMA devices.
    """
    from chakram.foundation import ethtool

    port = sysfs / device / "ports" / "1"
    of_interface = ethtool.statistics(interface) if interface else {}
    found = {
        name: value
        for name, value in of_interface.items()
        if any(pattern.fullmatch(name) for pattern in OF_INTERFACE.values())
    }
    for folder in ("counters", "hw_counters"):
        try:
            paths = sorted((port / folder).iterdir())
        except OSError:
            continue
        for path in paths:
            if path.name not in _READ:
                continue
            try:
                found[path.name] = int(path.read_text())
            except (OSError, ValueError):
                continue
    return found


def counted(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return by how much the counters increased, under the names in `NAMES`.

    A 32-bit counter may have wrapped once. A counter that decreased for another reason
    was reset. Reset and absent counters are omitted, and so are sums that include such
    a counter.
    """
    known = before.keys() & after.keys()
    reset = {
        name
        for name in known
        if after[name] < before[name] and not _wraps(before[name], after[name])
    }
    grown = {
        name: (after[name] - before[name]) % _NARROW
        if after[name] < before[name]
        else after[name] - before[name]
        for name in known - reset
    }
    found = {
        name: sum(grown[each] for each in own)
        for name, alternatives in COUNTERS.items()
        if (own := _present(alternatives, grown)) is not None
    }
    for name, words in _WORDS.items():
        if name not in found and words in grown:
            found[name] = _WORD_BYTES * grown[words]
    for name, pattern in OF_INTERFACE.items():
        added = [value for each, value in grown.items() if pattern.fullmatch(each)]
        if added and not any(pattern.fullmatch(each) for each in reset):
            found[name] = sum(added)
    return found


def _wraps(before: int, after: int) -> bool:
    return _NARROW // 2 <= before < _NARROW and after < _NARROW // 2


def _present(
    alternatives: Iterable[tuple[str, ...]], counters: Mapping[str, int]
) -> tuple[str, ...] | None:
    return next(
        (own for own in alternatives if all(each in counters for each in own)), None
    )
