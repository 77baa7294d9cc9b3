"""Measurement of RDMA NICs: message rate and bandwidth for combinations of settings.

WRITEs go to another host, or to queue pairs of the same device. With the same device,
the data crosses its PCIe link twice. The last message of each list is signaled, as in
the data plane.
"""

from __future__ import annotations

import errno
import subprocess
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.foundation.errors import EnvironmentProblem, RunFailed
from chakram.rdma.benchmark_ends import DEPTH, End, Receiver, Trial, perftest_command

if TYPE_CHECKING:
    from chakram.rdma.libibverbs import Device
    from chakram.rdma.nic_device import Nic

_TRIALS = (
    Trial(64, 1, 1),
    Trial(64, 1, 32),
    Trial(64, 8, 32),
    Trial(4096, 1, 32),
    Trial(65_536, 1, 1),
    Trial(65_536, 1, 32),
    Trial(65_536, 8, 32),
    Trial(1 << 20, 1, 4),
    Trial(1 << 20, 8, 4),
)

_GRACE_S = 20.0
_STARTING_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class NicRate:
    """Measured rate of one trial.

    Attributes:
        size_bytes: Size of a message.
        queue_pairs: Number of queue pairs that send.
        list_length: Number of messages per list of work requests.
        messages: Number of completed messages.
        time_ns: Time from the first post to the last completion.
        post_ns: Time spent in calls that post messages.
        perftest_bps: Bandwidth that ``ib_write_bw`` measured with the same settings.
            None if the program is not installed or has failed.
    """

    size_bytes: int
    queue_pairs: int
    list_length: int
    messages: int
    time_ns: int
    post_ns: int
    perftest_bps: float | None = None

    @property
    def messages_per_s(self) -> float:
        """Completed messages per second."""
        return self.messages * 1e9 / self.time_ns

    @property
    def bits_per_s(self) -> float:
        """Payload rate in bit/s."""
        return 8 * self.size_bytes * self.messages_per_s


def measure(
    device: Device,
    nic: Nic,
    receiver: Receiver,
    *,
    duration_s: float,
    tell: Callable[[str], None],
) -> Iterator[NicRate]:
    """Measure all trials, each for about *duration_s*.

    Raises:
        ChakramError: If the device refuses an object, or a message fails.
    """
    for trial in _TRIALS:
        tell(
            f"{trial.size_bytes} B, {trial.queue_pairs} queue pairs, lists of "
            f"{trial.list_length}"
        )
        try:
            yield _measured(device, nic, receiver, trial, duration_s)
        except OSError as error:
            is_memory = error.errno in (errno.ENOMEM, errno.EAGAIN, errno.EPERM)
            hint = (
                "raise the limit of locked memory (ulimit -l)"
                if is_memory
                else "check the device: rdma link show, ibv_devinfo -v"
            )
            raise EnvironmentProblem(
                f"RDMA device {nic.name}", str(error), hint
            ) from None


def _measured(
    device: Device, nic: Nic, receiver: Receiver, trial: Trial, duration_s: float
) -> NicRate:
    try:
        with closing(End(device, nic, trial, depth=DEPTH)) as sender:
            sender.connect(receiver.open(trial, sender.address))
            messages, time_ns, post_ns = _send(
                sender, trial, duration_ns=round(duration_s * 1e9), name=nic.name
            )
        perftest_bps = _perftest_bps(nic, receiver, trial)
    finally:
        receiver.end()
    return NicRate(
        **trial._asdict(),
        messages=messages,
        time_ns=time_ns,
        post_ns=post_ns,
        perftest_bps=perftest_bps,
    )


def _send(
    sender: End, trial: Trial, *, duration_ns: int, name: str
) -> tuple[int, int, int]:
    """Return the number of messages, the elapsed time, and the time spent in posts."""
    from chakram.rdma.libibverbs import status_text

    list_length = trial.list_length
    rows = array("q", list_length * [0, 0, trial.size_bytes, 0, -1, 0])
    rows[-1] = 1
    outstanding = {pair.qpn: 0 for pair in sender.pairs}
    messages = post_ns = 0
    began_ns = last_ns = time.perf_counter_ns()
    end_ns = began_ns + duration_ns
    while True:
        now_ns = time.perf_counter_ns()
        if now_ns < end_ns or (not messages and not any(outstanding.values())):
            for pair in sender.pairs:
                if outstanding[pair.qpn] + list_length <= DEPTH:
                    posted_ns = time.perf_counter_ns()
                    pair.post(rows)
                    post_ns += time.perf_counter_ns() - posted_ns
                    outstanding[pair.qpn] += list_length
        elif not any(outstanding.values()):
            return messages, last_ns - began_ns, post_ns
        completions = sender.completions.poll()
        for _, status, _, _, _, qpn in completions:
            if status:
                raise RunFailed(
                    f"RDMA device {name}",
                    f"a message failed: {status_text(status)}",
                    "check the link and the counters of the device",
                )
            outstanding[qpn] -= list_length
            messages += list_length
        if completions:
            last_ns = time.perf_counter_ns()
        elif now_ns > last_ns + _GRACE_S * 1e9:
            raise RunFailed(
                f"RDMA device {name}",
                f"completed nothing for {_GRACE_S:.0f} s",
                "check whether its port is active",
            )


def _perftest_bps(nic: Nic, receiver: Receiver, trial: Trial) -> float | None:
    """Return the bandwidth that ``ib_write_bw`` measures between the same ends."""
    port = receiver.start_perftest(trial)
    command = port and perftest_command(nic, trial, port)
    if not command:
        return None
    # The server does not announce that it listens, so try up to three times.
    for _ in range(3):
        time.sleep(_STARTING_S)
        with suppress(subprocess.TimeoutExpired):
            client = subprocess.run(
                [*command, receiver.host],
                capture_output=True,
                text=True,
                timeout=_GRACE_S,
                check=False,
            )
            if client.returncode == 0:
                return average_bps(client.stdout.splitlines())
    return None


def average_bps(lines: Iterable[str]) -> float | None:
    """Return the average bandwidth in bit/s from a report of ``ib_write_bw``.

    The report must use Gbit/s.
    """
    for line in lines:
        words = line.split()
        if len(words) == 5 and words[0].isdigit():
            with suppress(ValueError):
                return float(words[3]) * 1e9
    return None
