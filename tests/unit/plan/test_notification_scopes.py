from __future__ import annotations

import pytest

from chakram.plan.transport import SCOPES, limiter_key, notification_scope


def test_limiters_are_shared_by_queue_pair_by_destination_or_by_port() -> None:
    keys = [
        [limiter_key(scope, qpn=qpn, destination=qpn // 2) for qpn in (2, 3, 4)]
        for scope in map(notification_scope, SCOPES)
    ]
    assert [len(set(each)) for each in keys] == [3, 2, 1]
    with pytest.raises(ValueError, match="no CNP scope 3"):
        limiter_key(3, qpn=1, destination=1)
    with pytest.raises(ValueError, match="no CNP scope is named 'rack'"):
        notification_scope("rack")
