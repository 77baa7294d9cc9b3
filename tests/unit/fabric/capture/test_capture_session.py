"""Messages about captures of a run."""

from __future__ import annotations

from chakram.fabric.capture.capture_process import CaptureResult
from chakram.fabric.capture.capture_session import LIMIT_BYTES, Captures, capture_name
from chakram.foundation.errors import FabricError


def result(
    host: str = "h0",
    *,
    dropped: int = 0,
    is_full: bool = False,
    failure: str | None = None,
) -> CaptureResult:
    return CaptureResult(
        host=host, packets=10, dropped=dropped, is_full=is_full, failure=failure
    )


def test_gaps_in_captures_are_reported_once_per_reason() -> None:
    captures = Captures(LIMIT_BYTES)
    captures.results = (
        result("h0", dropped=12, is_full=True),
        result("h1"),
        result("h2", is_full=True),
        result("h3", dropped=1, failure="No space left on device"),
    )
    assert captures.banners() == (
        "captures miss packets that this machine was too busy to write: h0 12, h3 1",
        "captures of h0, h2 end at 256MiB: later packets are missing",
        "the capture of h3 ends early: No space left on device",
    )


def test_complete_captures_cause_no_message() -> None:
    captures = Captures(LIMIT_BYTES)
    assert captures.banners() == ()
    captures.results = (result(),)
    assert captures.banners() == ()


def test_death_of_a_capture_is_reported() -> None:
    captures = Captures(LIMIT_BYTES)
    captures.failure = FabricError("capture", "its process ended early: killed")
    assert captures.banners() == (
        "captures are cut short: its process ended early: killed",
    )


def test_files_are_named_by_host() -> None:
    assert capture_name("h10") == "capture-h10.pcap"
