"""A line whose parts belong to several processes, under its own clock."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import pytest

from chakram.roce.cross_process_pacing import PART_WORDS, SharedLine
from chakram.roce.pacing import Line

if TYPE_CHECKING:
    from collections.abc import Callable

RATE_BPS = 10**10
BOUND_NS = 1_000_000
BURST_BYTES = 60_000  # 48 us
END_NS = 100_000_000
TOTAL_BYTES = RATE_BPS // 8 // 10


@dataclass(kw_only=True)
class Part:
    """A process that has something to send now and then, and comes by now and then."""

    line: Line
    has_work: Callable[[int], bool] = lambda _: True
    pause_ns: Callable[[], int] = lambda: 5000
    queue_pairs: int = 1
    burst_bytes: int = BURST_BYTES
    sent: list[tuple[int, int]] = field(default_factory=list)
    _is_busy: bool = False

    def serve(self, now_ns: int) -> int:
        """Act like the engine of a port; return its next wake-up."""
        has_work = self.has_work(now_ns)
        if has_work and not self._is_busy:
            self.line.demand(now_ns)
        elif not has_work:
            self.line.rest()
        self._is_busy = has_work
        while has_work and now_ns >= self.line.ready_ns(now_ns):
            self.line.offer(now_ns)
            self.line.occupy(self.burst_bytes, now_ns, self.queue_pairs)
            self.sent.append((now_ns, self.burst_bytes))
        return now_ns + self.pause_ns()

    def sent_bytes(self, begin_ns: int = 0, end_ns: int = 1 << 62) -> int:
        return sum(size for at_ns, size in self.sent if begin_ns <= at_ns < end_ns)


def shared_lines(count: int, *, saves_up: bool = False) -> list[SharedLine]:
    words = array("q", bytes(8 * PART_WORDS * count))
    return [
        SharedLine(
            rate_bps=RATE_BPS,
            burst_bound_ns=BOUND_NS,
            saves_up=saves_up,
            words=words,
            index=index,
        )
        for index in range(count)
    ]


def play(parts: list[Part], *, end_ns: int, begin_ns: int = 1000) -> None:
    due_ns = [begin_ns + index for index in range(len(parts))]
    while True:
        index = due_ns.index(min(due_ns))
        if due_ns[index] >= end_ns:
            return
        due_ns[index] = parts[index].serve(due_ns[index])


def most_beyond(parts: list[Part]) -> int:
    """Return by how much more than its rate allows the line has ever sent, in ns."""
    sent = sorted(entry for part in parts for entry in part.sent)
    # Of a line that holds rate x (T + bound) in every interval, this bucket never
    # holds more than the bound.
    level = most = 0.0
    last_ns = 0
    for at_ns, size in sent:
        level = max(0.0, level - (at_ns - last_ns)) + size * 8e9 / RATE_BPS
        last_ns = at_ns
        most = max(most, level)
    return round(most) - BOUND_NS


@pytest.mark.parametrize("count", [2, 3, 8])
def test_parts_that_always_have_work_share_the_rate(count: int) -> None:
    rng = Random(count)
    parts = [
        Part(line=line, pause_ns=lambda: rng.randint(500, 30_000))
        for line in shared_lines(count)
    ]
    play(parts, end_ns=END_NS)
    for part in parts:
        assert part.sent_bytes() == pytest.approx(TOTAL_BYTES / count, rel=0.02)
    assert sum(part.sent_bytes() for part in parts) == pytest.approx(
        TOTAL_BYTES, rel=0.01
    )
    assert most_beyond(parts) <= count * 48_000


@pytest.mark.parametrize(("saves_up", "bursts"), [(False, 1), (True, 21)])
def test_a_line_that_saves_up_begins_ahead(saves_up: bool, bursts: int) -> None:
    begin_ns = END_NS // 2
    parts = [
        Part(line=line, has_work=lambda now_ns: now_ns >= begin_ns)
        for line in shared_lines(2, saves_up=saves_up)
    ]
    play(parts, end_ns=END_NS)
    at_once = sum(part.sent_bytes(end_ns=begin_ns + 6_000) for part in parts)
    assert at_once == pytest.approx(bursts * BURST_BYTES, abs=BURST_BYTES)
    assert most_beyond(parts) <= 2 * 48_000


def test_frequent_polling_gives_no_larger_share() -> None:
    quick, slow = (Part(line=line) for line in shared_lines(2))
    quick.pause_ns = lambda: 3000
    slow.pause_ns = lambda: 170_000
    play([quick, slow], end_ns=2 * END_NS)
    assert slow.sent_bytes() == pytest.approx(quick.sent_bytes(), rel=0.02)


def test_single_active_part_has_the_whole_rate() -> None:
    busy, idle = (Part(line=line) for line in shared_lines(2))
    idle.has_work = lambda _: False
    play([busy, idle], end_ns=END_NS)
    assert busy.sent_bytes() == pytest.approx(TOTAL_BYTES, rel=0.01)
    assert most_beyond([busy]) <= 48_000


def test_unused_rate_of_a_slow_part_goes_to_the_others() -> None:
    busy, slow = (Part(line=line) for line in shared_lines(2))
    slow.pause_ns = lambda: 4_800_000  # of which the line makes up 1 ms
    play([busy, slow], end_ns=2 * END_NS)
    total = busy.sent_bytes() + slow.sent_bytes()
    assert total == pytest.approx(2 * TOTAL_BYTES, rel=0.02)
    assert slow.sent_bytes() > 0


def test_intermittent_work_keeps_the_rate_without_credit() -> None:
    rng = Random(7)
    first, second = (
        Part(line=line, pause_ns=lambda: rng.randint(500, 20_000))
        for line in shared_lines(2)
    )
    first.has_work = lambda now_ns: now_ns // 3_000_000 % 2 == 0
    second.has_work = lambda now_ns: now_ns // 5_000_000 % 2 == 0
    second.burst_bytes = 4_000
    play([first, second], end_ns=END_NS)
    assert most_beyond([first, second]) <= 2 * 48_000
    # Three quarters of the time one of them has work.
    total = first.sent_bytes() + second.sent_bytes()
    assert total == pytest.approx(0.75 * TOTAL_BYTES, rel=0.03)


def test_small_packets_of_one_part_count() -> None:
    # Acknowledgments of one process leave while another one sends all it can.
    bulk, acks = (Part(line=line) for line in shared_lines(2))
    acks.burst_bytes = 80
    acks.has_work = lambda now_ns: len(acks.sent) < now_ns // 10_000
    play([bulk, acks], end_ns=END_NS)
    assert most_beyond([bulk, acks]) <= 50_000
    assert acks.sent_bytes() >= 80 * 0.9 * END_NS // 10_000


def test_parts_share_by_their_queue_pairs() -> None:
    many, one = (Part(line=line) for line in shared_lines(2))
    many.queue_pairs = 9
    play([many, one], end_ns=2 * END_NS)
    assert many.sent_bytes() == pytest.approx(9 * one.sent_bytes(), rel=0.03)


def test_returning_part_has_no_credit() -> None:
    first, second = (Part(line=line) for line in shared_lines(2))
    second.has_work = lambda now_ns: now_ns >= END_NS
    play([first, second], end_ns=2 * END_NS)
    for part in (first, second):
        assert part.sent_bytes(END_NS) == pytest.approx(TOTAL_BYTES / 2, rel=0.02)


@pytest.mark.parametrize("alone_ns", [10_000_000, 90_000_000])
def test_previous_sole_use_of_the_line_causes_no_delay(alone_ns: int) -> None:
    """All rest; then the part asks first that has had less until then."""
    first, second = (Part(line=line) for line in shared_lines(2))
    first.has_work = lambda now_ns: now_ns < alone_ns or now_ns >= END_NS + 1_000_000
    second.has_work = lambda now_ns: now_ns >= END_NS
    play([first, second], end_ns=END_NS + 11_000_000)
    since_ns = END_NS + 1_000_000
    share = 10_000_000 * RATE_BPS // 8 // 10**9 / 2
    for part in (first, second):
        assert part.sent_bytes(since_ns) == pytest.approx(share, rel=0.1)


class Interleaved:
    """Memory of two parts; after so many looks of the first the second one sends."""

    def __init__(self, looks: int) -> None:
        self.words = array("q", bytes(8 * PART_WORDS * 2))
        self.other: SharedLine | None = None
        self.looks = looks
        self.now_ns = 0

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, at: int) -> int:
        self.looks -= 1
        if self.looks == 0 and self.other is not None:
            self.other.occupy(BURST_BYTES, self.now_ns)
        return self.words[at]

    def __setitem__(self, at: int, value: int) -> None:
        self.words[at] = value


@pytest.mark.parametrize("looks", range(1, 16))
def test_a_pause_that_two_parts_end_at_once_counts_once(looks: int) -> None:
    words = Interleaved(looks=0)
    one, other = (
        SharedLine(rate_bps=RATE_BPS, burst_bound_ns=BOUND_NS, words=words, index=index)  # type: ignore[arg-type] # what it needs of a sequence
        for index in range(2)
    )
    now_ns = 10**12
    for line in (one, other):
        line.demand(now_ns)
    words.other, words.now_ns, words.looks = other, now_ns, looks

    one.occupy(BURST_BYTES, now_ns)

    words.other = None
    # At most one burst of each, from now on.
    assert one.ready_ns(now_ns) - now_ns <= 2 * BURST_BYTES * 8


def test_waiting_for_other_parts_is_not_charged_to_the_data_plane() -> None:
    parts = [Part(line=line) for line in shared_lines(3)]
    play(parts, end_ns=END_NS)
    assert [part.line.generator_wait_ns for part in parts] == [0, 0, 0]


def test_single_part_behaves_like_a_line() -> None:
    (shared,) = shared_lines(1)
    plain = Line(rate_bps=RATE_BPS, burst_bound_ns=BOUND_NS)
    rng, again = Random(3), Random(3)
    parts = [
        Part(line=shared, pause_ns=lambda: rng.randint(1, 3_000_000)),
        Part(line=plain, pause_ns=lambda: again.randint(1, 3_000_000)),
    ]
    for part in parts:
        part.has_work = lambda now_ns: now_ns // 7_000_000 % 3 > 0
        play([part], end_ns=END_NS)
    assert parts[0].sent == parts[1].sent
    assert shared.generator_wait_ns == plain.generator_wait_ns > 0
    assert shared.free_ns == plain.free_ns


BURST_NS = 48_000
BEGIN_NS = 10_000_000


def test_delay_beyond_the_bound_is_lost() -> None:
    line, _ = shared_lines(2)
    line.demand(BEGIN_NS)
    assert line.ready_ns(BEGIN_NS) <= BEGIN_NS

    assert line.lost_ns(BEGIN_NS + BOUND_NS) == 0
    assert line.lost_ns(BEGIN_NS + BOUND_NS + 700) == 700
    # Who offers something is not to blame for what happens to it.
    line.offer(BEGIN_NS + BOUND_NS + 700)
    assert line.lost_ns(BEGIN_NS + BOUND_NS + 900) == 0
    line.occupy(BURST_BYTES, BEGIN_NS + BOUND_NS + 900)
    # The bound is all that is caught up on.
    assert line.free_ns == line.due_ns() == BEGIN_NS + 900 + BURST_NS
    assert line.lost_ns(line.free_ns + BOUND_NS) == 0
    assert line.lost_ns(line.free_ns + BOUND_NS + 5) == 5


def test_parts_alternate_on_one_line() -> None:
    first, second = shared_lines(2)
    for line in (first, second):
        line.demand(BEGIN_NS)
    first.occupy(BURST_BYTES, BEGIN_NS)
    assert second.ready_ns(BEGIN_NS) == BEGIN_NS + BURST_NS
    second.occupy(BURST_BYTES, BEGIN_NS + BURST_NS)
    assert first.ready_ns(BEGIN_NS + BURST_NS) == BEGIN_NS + 2 * BURST_NS


def test_part_that_sent_more_yields_to_the_others() -> None:
    first, second = shared_lines(2)
    for line in (first, second):
        line.demand(BEGIN_NS)
    # 10 bursts are 480 us: not yet half of the bound, which is the slack; 11 are more.
    for count in range(1, 12):
        now_ns = BEGIN_NS + (count - 1) * BURST_NS
        assert first.ready_ns(now_ns) <= now_ns
        first.occupy(BURST_BYTES, now_ns)
    free_ns = BEGIN_NS + 11 * BURST_NS

    # It looks again every 10 us, but not for longer than half of the bound.
    assert first.ready_ns(free_ns - 1) == free_ns
    assert first.ready_ns(free_ns) == free_ns + 10_000
    assert first.ready_ns(free_ns + 495_000) == free_ns + 500_000
    assert first.ready_ns(free_ns + 500_000) == free_ns
    # Time in which it lets them go is not lost.
    assert first.due_ns() == free_ns + 495_000
    assert second.ready_ns(free_ns) == free_ns
    # Idle parts cause no wait.
    second.rest()
    assert first.ready_ns(free_ns) == free_ns


def test_returning_part_has_no_saved_turns() -> None:
    first, second = shared_lines(2)
    first.demand(BEGIN_NS)
    for count in range(20):
        first.occupy(BURST_BYTES, BEGIN_NS + count * BURST_NS)
    now_ns = BEGIN_NS + 20 * BURST_NS

    second.demand(now_ns)

    assert first.ready_ns(now_ns) == now_ns
    second.occupy(BURST_BYTES, now_ns)
    assert first.ready_ns(now_ns + BURST_NS) == now_ns + BURST_NS


def test_turns_are_shared_by_queue_pairs() -> None:
    first, second = shared_lines(2)
    for line in (first, second):
        line.demand(BEGIN_NS)
    # With four queue pairs, four times as much is its due, and the slack a quarter.
    for count in range(10):
        now_ns = BEGIN_NS + count * BURST_NS
        assert first.ready_ns(now_ns) <= now_ns
        first.occupy(BURST_BYTES, now_ns, 4)
    # 120 us a queue pair; one burst more is 132, and 125 are the slack.
    now_ns = BEGIN_NS + 10 * BURST_NS
    assert first.ready_ns(now_ns) == now_ns
    first.occupy(BURST_BYTES, now_ns, 4)
    assert first.ready_ns(now_ns + BURST_NS) == now_ns + BURST_NS + 10_000


def test_a_limit_of_cnps_holds_for_all_parts() -> None:
    first, second = (line.cnp_limiter(4000) for line in shared_lines(2))
    admitted = [
        now_ns
        for now_ns in range(10_000, 30_000, 500)
        if (first if now_ns % 1000 else second).admits(now_ns)
    ]
    assert admitted == [10_000, 14_000, 18_000, 22_000, 26_000]
    assert first.admits(30_500)
    assert not second.admits(34_000)


def test_impossible_parts_are_refused() -> None:
    words = array("q", bytes(8 * PART_WORDS))
    with pytest.raises(ValueError, match="no part 1"):
        SharedLine(rate_bps=1, burst_bound_ns=0, words=words, index=1)
    with pytest.raises(ValueError, match="cannot be shared"):
        SharedLine(rate_bps=0, burst_bound_ns=0, words=words, index=0)
