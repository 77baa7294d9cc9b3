"""RoCEv2 without I/O: headers, queue pairs, congestion control. Pure.

From the inside out: a `requester` and a `responder` make a `queue_pair`; a `port` holds
many and decides who sends next; what leaves is a `burst`, what has happened an event
(`events`). `wire` turns bursts into bytes and `datagrams` reads them; `headers` and
`icrc` are the readable form of both. Nothing is imported here, so that a process loads
only what it needs.
"""
