"""Limits that panels show as thresholds, each with its source.

If Chakram's code defines a limit, this module imports it. A test compares the other
limits with the alerts in ``dashboards/rules``.
"""

from __future__ import annotations

from chakram.preflight.report import PreflightSettings

MAX_LOSS_SHARE = PreflightSettings(path_mtu=1024).max_loss_share
"""Maximum share of retransmitted packets in a preflight.

Source: default of ``preflight.max_loss``.
"""

MAX_RETRANSMITTED_SHARE = 0.01
"""Maximum share of retransmitted packets in a run.

Source: alert ``ChakramRetransmissions``.
"""

MAX_PAUSED_SHARE = 0.5
"""Maximum share of time in which the sender into a link is paused.

Source: alert ``ChakramPaused``.
"""

ONE_IS_TOO_MANY = 1
"""Limit for events that must not happen at all.

Sources: alerts ``ChakramSamplesDropped`` and ``ChakramSwitchOverloaded``, which fire
above 0. A queue pair in the error state has given up its messages (``message_fail`` in
docs/reference/run-directory.md).
"""
