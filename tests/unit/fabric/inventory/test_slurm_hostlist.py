"""Host lists in the notation of Slurm."""

from __future__ import annotations

import random
import time

import hostlist
import pytest
from ClusterShell.NodeSet import NodeSet

from chakram.fabric.inventory.slurm_hostlist import (
    MAX_HOSTS,
    MAX_LENGTH,
    expand_host_list,
)
from chakram.foundation.errors import ConfigError


def expanded(text: str) -> list[str]:
    return expand_host_list(text, where="list")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        (" n2 , n1 ", ["n2", "n1"]),
        ("n[1-3,07-09]", ["n1", "n2", "n3", "n07", "n08", "n09"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("r[0-1]n[1-2]", ["r0n1", "r0n2", "r1n1", "r1n2"]),
        ("dgx[0001-0003]-ib", ["dgx0001-ib", "dgx0002-ib", "dgx0003-ib"]),
        ("a,b[1,3],c.example.org", ["a", "b1", "b3", "c.example.org"]),
        ("[1-2]", ["1", "2"]),
    ],
)
def test_lists_are_expanded_in_order(text: str, names: list[str]) -> None:
    assert expanded(text) == names


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "has no name"),
        ("n1,", "has no name"),
        (",n1", "has no name"),
        ("n[3-1]", "runs backwards: 3-1"),
        ("n[1-2", "a '[' without a ']'"),
        ("n1-2]", "a ']' without a '['"),
        ("n[1-[2]]", "a '[' within brackets"),
        ("gpu-[a,b]", "'a' in brackets, which is not a number"),
        ("tux[0x1]", "'0x1' in brackets"),
        ("n[]", "'' in brackets"),
        ("n[1-10/3]", "'1-10/3' in brackets"),
        ("n[1-9]!n[3-4]", "not a host name"),
        ("n[1--2]", "'1--2' in brackets"),
        ("n1 n2", "'n1 n2' is not a host name"),
        ("-n1", "'-n1' is not a host name"),
        ("n1,n1", "names host n1 twice"),
        ("n[1-3],n2", "names host n2 twice"),
        ("n[1-1000000]", f"has more than {MAX_HOSTS} hosts"),
        ("n[0-999999999999999999]", f"has more than {MAX_HOSTS} hosts"),
        ("a[1-999]b[1-999]c[1-999]", f"has more than {MAX_HOSTS} hosts"),
        ("n[1-40000],m[1-40000]", f"has more than {MAX_HOSTS} hosts"),
        ("n[1234567890123456789]", "in brackets"),
        ("n" * (MAX_LENGTH + 1), "is longer than"),
        ("n\x1b[31m", "'n\\x1b[31m'"),
    ],
)
def test_malformed_lists_are_refused_with_a_hint(text: str, found: str) -> None:
    with pytest.raises(ConfigError) as caught:
        expanded(text)
    assert found in caught.value.found
    assert caught.value.hint
    assert len(str(caught.value)) < 400


def drawn(rng: random.Random) -> str:
    """Return a list in the grammar that all parsers accept, without duplicates."""
    parts = []
    for number in range(rng.randint(1, 5)):
        # ClusterShell reads digits before a bracket as part of the numbers.
        part = rng.choice("abcdxyz") + str(number) + rng.choice("-n")
        for _ in range(rng.choice((0, 1, 1, 2))):
            width = rng.choice((0, 0, 2, 3))
            low, ranges = rng.randint(0, 30), []
            for _ in range(rng.randint(1, 3)):
                high = low + rng.choice((0, 0, 3, 12))
                text = f"{low:0{width}}"
                ranges.append(text if high == low else f"{text}-{high:0{width}}")
                low = high + rng.randint(2, 9)
            part += f"[{','.join(ranges)}]" + rng.choice(("-ib", "e", "x"))
        parts.append(part.strip("-"))
    return ",".join(parts)


def test_lists_agree_with_hostlist_and_clustershell() -> None:
    rng = random.Random(7)
    for _ in range(1000):
        text = drawn(rng)
        found = expanded(text)
        assert found == hostlist.expand_hostlist(text), text
        assert set(found) == set(NodeSet(text)), text


def test_the_longest_list_is_fast() -> None:
    begun_s = time.process_time()
    assert len(expanded("gpu[00000-65535]")) == MAX_HOSTS
    assert time.process_time() - begun_s < 1
