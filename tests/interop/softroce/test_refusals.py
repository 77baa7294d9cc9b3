"""Refused requests in both directions."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from chakram.roce.opcodes import Opcode
from tests.interop.softroce.conftest import FEATURE
from tests.interop.softroce.host import exchange
from tests.interop.softroce.kernel import Kernel
from tests.interop.softroce.machine import (
    LIMIT_S,
    GuestDied,
    Machine,
    why_no_machine,
)
from tests.interop.softroce.orders import Order
from tests.support import require

pytestmark = [pytest.mark.timeout(LIMIT_S), pytest.mark.slow]

# What the guest asks for, by its name there, and the opcode of the packet.
REQUESTS = {
    "read": Opcode.READ_REQUEST,
    "compare_swap": Opcode.COMPARE_SWAP,
    "fetch_add": Opcode.FETCH_ADD,
    "send_invalidate": Opcode.SEND_ONLY_WITH_INVALIDATE,
    "atomic_write": 0x1D,
}


@pytest.mark.parametrize("who", ["host", "guest"])
def test_wrong_key_gives_no_access_to_memory(machine: Machine, who: str) -> None:
    outcome = exchange(
        machine,
        Order(
            version=4,
            to_guest=2 * (who == "host"),
            to_host=2 * (who == "guest"),
            largest_bytes=5000,
            seed="keys",
            wrong_keys=who,
        ),
    )

    # Whatever was posted there has ended.
    assert outcome.guest["missing"] == 0
    (failure,) = outcome.failures
    write, send = outcome.pairs["write"], outcome.pairs["send"]
    if who == "host":
        assert failure == "the peer refused access to its memory"
        assert write.messages_completed == 0
        assert send.messages_completed == 2
    else:
        assert failure == "invalid request of the peer: a WRITE has a wrong key"
        # IBV_WC_REM_ACCESS_ERR
        assert "message 0: status 10" in outcome.guest["failed"]
        assert send.messages_received == 2


@pytest.mark.parametrize("name", REQUESTS)
def test_unsupported_requests_are_refused(machine: Machine, name: str) -> None:
    outcome = exchange(
        machine,
        Order(version=4, to_host=5, largest_bytes=10_000, seed=name, last_request=name),
    )

    problem = f"opcode {REQUESTS[name]:#04x} is not supported"
    assert outcome.failures == [f"invalid request of the peer: {problem}"] * 2
    assert outcome.port.unsupported == 2
    # All before it has arrived; its own end is IBV_WC_REM_INV_REQ_ERR.
    assert outcome.faults == []
    assert all(pair.messages_received == 5 for pair in outcome.pairs.values())
    assert outcome.guest["failed"] == ["message 5: status 9"] * 2
    assert outcome.guest["missing"] == 0


def test_last_output_of_a_guest_is_reported(tmp_path: Path) -> None:
    require(FEATURE, why_no_machine())
    image = tmp_path / "vmlinuz"
    image.write_bytes(b"no kernel")
    with (
        closing(Machine(tmp_path, Kernel(image=image, modules=()))) as machine,
        pytest.raises(GuestDied) as caught,
    ):
        machine.boot()

    said = str(caught.value)
    assert said.startswith("the guest has ended (QEMU's exit code: 1)")
    # QEMU calls it too old.
    assert "kernel" in said.partition("end of console.log:")[2]
