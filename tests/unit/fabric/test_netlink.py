from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from chakram.errors import FabricError, PrivilegeError
from chakram.fabric.netlink import _refusal

if TYPE_CHECKING:
    from chakram.errors import ChakramError


@pytest.mark.parametrize(
    ("number", "text", "kind", "message"),
    [
        (
            errno.EPERM,
            "",
            PrivilegeError,
            "lab: adds a link: the kernel refused (Operation not permitted) "
            "(be root, or allow user namespaces)",
        ),
        (
            errno.ENOENT,
            "",
            FabricError,
            "lab: adds a link: the kernel refused (No such file or directory) "
            "(see what is missing with: chakram doctor)",
        ),
        (
            errno.ENOENT,
            "no such qdisc",
            FabricError,
            "lab: adds a link: the kernel refused (no such qdisc)",
        ),
    ],
)
def test_what_the_kernel_refuses_is_told_with_what_helps(
    number: int, text: str, kind: type[ChakramError], message: str
) -> None:
    error = _refusal("lab", "adds a link", number, text)
    assert type(error) is kind
    assert str(error) == message
