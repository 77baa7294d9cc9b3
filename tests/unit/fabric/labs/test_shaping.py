"""Requests that shape an end of a link, in the kernel's format."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from chakram.fabric.labs.shaping import reshape, shape, shape_end, unshape
from tests.unit.fabric.links import GBIT, link
from tests.unit.fabric.netlink_messages import (
    CHANGE,
    MAKE,
    REPLACE,
    Message,
    attributes_of,
    decoded,
)

TCA_KIND, TCA_OPTIONS = 1, 2
ROOT, CLASS, LEAF = 0x10000, 0x10001, 0x100000
NO_LIMIT = 2**31 - 1
TICK_NS = 64
LINK = link("h0:eth0", "s0:p0")


def kind_of(message: Message) -> bytes:
    return message.attributes[TCA_KIND].rstrip(b"\0")


def htb_of(message: Message) -> tuple[int, int, dict[int, int]]:
    """Return rate and ceiling, the bucket in ns and the 64-bit rates of a class."""
    options = attributes_of(message.attributes[TCA_OPTIONS])
    # struct tc_htb_opt: two tc_ratespec (cell log, link layer, overhead, alignment,
    # least packet, rate), then bucket, ceiling's bucket, quantum, level and priority.
    rate, ceiling = struct.iter_unpack("=BBHhHI", options[1][:24])
    bucket, ceiling_bucket, quantum, level, priority = struct.unpack_from(
        "=IIIII", options[1], 24
    )
    assert rate == ceiling
    assert rate[1:3] == (1, 0)  # Ethernet, whose overhead the kernel knows
    assert bucket == ceiling_bucket
    assert (quantum, level, priority) == (60_000, 0, 0)
    long_rates = {
        name: int.from_bytes(options[name], "little") for name in options if name != 1
    }
    return rate[-1], bucket * TICK_NS, long_rates


def limit_of(message: Message) -> int:
    assert kind_of(message) == b"bfifo"
    (limit,) = struct.unpack("=I", message.attributes[TCA_OPTIONS])
    return int(limit)


def test_egress_has_one_class_with_a_byte_queue() -> None:
    requests = shape(7, rate_bps=GBIT, limit_bytes=30_000)

    root, middle, leaf = map(decoded, requests)
    assert [each.what for each in requests] == [
        "htb queue discipline",
        "htb class of 1000000000 bit/s",
        "bfifo queue of 30000 bytes",
    ]
    assert [each.kind for each in (root, middle, leaf)] == [
        *("NEWQDISC", "NEWTCLASS", "NEWQDISC")
    ]
    assert all(each.flags == MAKE for each in (root, middle, leaf))
    assert root.fields == {"index": 7, "handle": ROOT, "parent": 0xFFFFFFFF}
    assert middle.fields == {"index": 7, "handle": CLASS, "parent": ROOT}
    assert leaf.fields == {"index": 7, "handle": LEAF, "parent": CLASS}
    # struct tc_htb_glob: version, rate to quantum, the default class, two more.
    assert kind_of(root) == b"htb"
    (options,) = attributes_of(root.attributes[TCA_OPTIONS]).items()
    assert options == (2, struct.pack("=IIIII", 3, 10, 1, 0, 0))
    assert kind_of(middle) == b"htb"
    # 200 us of the rate are saved up: 25,000 bytes.
    assert htb_of(middle) == (125_000_000, 200_000, {})
    assert limit_of(leaf) == 30_000


def test_interfaces_with_equal_shaping_are_distinguished() -> None:
    for index in (7, 8):
        requests = shape(index, rate_bps=GBIT, limit_bytes=30_000)
        assert {decoded(each).fields["index"] for each in requests} == {index}


@pytest.mark.parametrize(
    ("rate_bps", "field", "long_rates"),
    [
        (8 * (2**32 - 1), 2**32 - 1, {}),
        # What 32 bits cannot hold is in its own attributes.
        (8 * 2**32, 2**32 - 1, {6: 2**32, 7: 2**32}),
        (400 * GBIT, 2**32 - 1, {6: 50 * GBIT, 7: 50 * GBIT}),
        # Nothing is slower than a byte in a second.
        (7, 1, {}),
    ],
)
def test_rates_are_bytes_per_second(
    rate_bps: int, field: int, long_rates: dict[int, int]
) -> None:
    _, middle, _ = shape(7, rate_bps=rate_bps, limit_bytes=30_000)

    rate, _, found = htb_of(decoded(middle))
    assert (rate, found) == (field, long_rates)


@pytest.mark.parametrize(
    ("is_host", "queue_bytes", "limit", "bucket_ns"),
    [
        (False, 30_000, 30_000, 200_000),
        (False, None, NO_LIMIT, 200_000),
        # Hosts drop nothing that they send, and may catch up on 2 ms.
        (True, 30_000, 2**24, 2_000_000),
        (True, 2**25, 2**25, 2_000_000),
        (True, None, NO_LIMIT, 2_000_000),
    ],
)
def test_hosts_have_long_queues_and_large_buckets(
    is_host: bool, queue_bytes: int | None, limit: int, bucket_ns: int
) -> None:
    end = replace(LINK, queue_bytes=queue_bytes)

    _, middle, leaf = map(decoded, shape_end(7, end, rate_bps=GBIT, is_host=is_host))

    assert limit_of(leaf) == limit
    assert htb_of(middle) == (125_000_000, bucket_ns, {})


@pytest.mark.parametrize(
    ("is_host", "bucket_ns"), [(True, 2_000_000), (False, 200_000)]
)
def test_new_rate_replaces_the_previous_one(is_host: bool, bucket_ns: int) -> None:
    message = decoded(reshape(7, rate_bps=GBIT, is_host=is_host))

    assert (message.kind, message.flags) == ("NEWTCLASS", REPLACE)
    assert message.fields == {"index": 7, "handle": CLASS, "parent": ROOT}
    assert htb_of(message) == (125_000_000, bucket_ns, {})


def test_interface_without_a_rate_has_no_root_queue() -> None:
    message = decoded(unshape(7))

    assert (message.kind, message.flags) == ("DELQDISC", CHANGE)
    assert message.fields == {"index": 7, "parent": 0xFFFFFFFF}
