"""What a run says about its captures."""

from __future__ import annotations

import pytest

from chakram.controller.capturing import LIMIT_BYTES, Captures, capture_name
from chakram.errors import FabricError
from chakram.fabric.capture import CaptureResult


def result(
    *, dropped: int = 0, is_full: bool = False, failure: str | None = None
) -> CaptureResult:
    return CaptureResult(
        host="h3", packets=10, dropped=dropped, is_full=is_full, failure=failure
    )


@pytest.mark.parametrize(
    ("captured", "banner"),
    [
        (
            result(dropped=12),
            "capture-h3.pcap misses 12 packets: this machine was too busy to write"
            " them",
        ),
        (
            result(is_full=True),
            "capture-h3.pcap ends at its limit of 256MiB: later packets are not in it",
        ),
        (
            result(failure="No space left on device"),
            "capture-h3.pcap ends early: No space left on device",
        ),
    ],
)
def test_what_a_file_lacks_is_said(captured: CaptureResult, banner: str) -> None:
    captures = Captures(LIMIT_BYTES)
    captures.results = (result(), captured)
    assert captures.banners() == (banner,)


def test_nothing_is_said_about_whole_files() -> None:
    captures = Captures(LIMIT_BYTES)
    assert captures.banners() == ()
    captures.results = (result(),)
    assert captures.banners() == ()


def test_a_capture_that_died_is_said() -> None:
    captures = Captures(LIMIT_BYTES)
    captures.failure = FabricError("capture", "its process ended early: killed")
    assert captures.banners() == (
        "captures are cut short: its process ended early: killed",
    )


def test_files_are_named_by_host() -> None:
    assert capture_name("h10") == "capture-h10.pcap"
