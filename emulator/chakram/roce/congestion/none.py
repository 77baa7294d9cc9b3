"""No congestion control."""

from __future__ import annotations

from chakram.roce.congestion.base import CongestionControl

CONTROL = CongestionControl
